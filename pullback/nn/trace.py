"""Tracing: what a module's ``forward`` computes becomes a function of the graph IR.

While a trace is open, parameters and buffers of the module are variables of the function, calls of modules bind their
results under the modules' names, and every node has the line of the user's source on which it was made.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from pullback.ir.errors import ArgumentError, InternalError, UserError
from pullback.ir.node import Span, span_scope
from pullback.ir.places import PACKAGE, place
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Expr, If, TupleGetItem, as_relax
from pullback.relax.struct_info import StructInfo, format_info, same_info
from pullback.relax.training.loss.base import composing
from pullback.relax.training.summary import Layer

if TYPE_CHECKING:
    from pullback.nn.parameter import Variable

_PACKAGE = (PACKAGE, "<string>")  # dataclasses have methods made of strings


class Trace:
    """An export in progress. ``names``: those of the modules, by identity; ``values``: what parameters and buffers are
    in the program at this point."""

    def __init__(self, builder: BlockBuilder, names: dict[int, str], values: dict[int, Expr]) -> None:
        self.builder, self._names, self._values = builder, names, values
        self.assigned: set[int] = set()  # buffers with a new value
        self.layers: list[Layer] = []  # the calls of modules, in the order in which they began
        self._read: dict[Expr, Variable] = {}  # the buffers that values were read from
        self._inside: list[str] = []
        self._open: list[str] = []

    @property
    def layer(self) -> str | None:
        """The name of the innermost module whose forward runs."""
        return self._open[-1] if self._open else None

    def value(self, variable: Variable) -> Expr:
        """The value of a parameter or buffer; a UserError when no registered module has it."""
        found = self._values.get(id(variable))
        if found is None:
            raise UserError(
                f"a {variable.kind} of shape {variable.shape} is used, but it is no part of the exported module",
                hint="a module in a list or dict is not registered: use nn.ModuleList or nn.ModuleDict; layers are made"
                " in __init__, not in forward",
            )
        if variable.kind == "buffer":
            self._read[found] = variable
        return found

    def assign(self, buffer: Variable, name: str, value: Any) -> None:
        """Give a buffer another value, for the rest of this step and for the next one."""
        old, new = self.value(buffer), self.bind(as_relax(value, buffer.dtype), name)
        if not same_info(new.struct_info, old.struct_info):
            raise UserError(
                f"buffer {name} is {format_info(old.struct_info)}, and cannot become {format_info(new.struct_info)}",
                hint="a state keeps its shape and dtype from step to step",
            )
        self._values[id(buffer)] = new
        self.assigned.add(id(buffer))

    def update(self, old: Any, new: Any, name: str) -> None:
        """Give the buffer that ``old`` was read from another value, as PyTorch's functions do in place."""
        buffer = self._read.get(old) if isinstance(old, Expr) else None
        if buffer is None:
            raise ArgumentError(
                f"{name} must be a buffer of the module, which takes its new value", hint=f"nn.Buffer(…), self.{name}"
            )
        self.assign(buffer, name, new)

    def bind(self, value: Any, name: str) -> Any:
        """``value`` with its calls bound to variables: each call is computed once, wherever it is used."""
        if isinstance(value, (tuple, list)):
            return type(value)(self.bind(v, name) for v in value) if type(value) in (tuple, list) else value
        if isinstance(value, (Call, TupleGetItem, If)):
            return self.builder.bound(value, name)
        return value

    def call(self, module: Any, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a module's forward and bind its results under its name."""
        name = self._names.get(id(module))
        if name is None:
            self._check_registered(module)
            name = type(module).__name__.lower()
        self._inside.append(f"{name or 'the model'} ({type(module).__name__})")
        place = len(self.layers)
        self.layers.append(Layer(name, type(module).__name__))
        self._open.append(name)
        try:
            args, kwargs = self.bind(args, "lv"), {k: self.bind(v, "lv") for k, v in kwargs.items()}
            result = self.bind(forward(*args, **kwargs), _label(name, module))
        except UserError as error:
            raise self._located(error) from error.__cause__
        finally:
            self._open.pop()
        self._inside.pop()
        self.layers[place] = replace(self.layers[place], outputs=_types(result))
        return result

    def _located(self, error: UserError) -> UserError:
        """The error with the layer it came from, said once, and the user's line."""
        if getattr(error, "layer", None) is not None:
            return error
        layer = self._inside[-1]
        try:
            span = error.span or _line_of(error) or _line_of_user()
            located = type(error)(f"{layer}: {error.message}", span=span, hint=error.hint)
        except TypeError:  # an error with a constructor of its own
            return error
        located.layer = layer  # type: ignore[attr-defined]
        return located.with_traceback(error.__traceback__)

    def _check_registered(self, module: Any) -> None:
        if next(module.parameters(), None) is not None or next(module.buffers(), None) is not None:
            raise UserError(
                f"the layer {type(module).__name__} is used in forward, but it is no part of the model:"
                " its parameters would not be trained",
                hint="make it an attribute of the module; modules in a list or dict go into nn.ModuleList or"
                " nn.ModuleDict; do not make layers in forward",
            )


def _label(name: str, module: Any) -> str:
    """What the result of a module is called in the program: ``fc1``; of the third of ``body``, ``body_2``."""
    *outer, last = name.split(".")
    if not last.isdigit():
        return last or "out"
    return f"{outer[-1] if outer else type(module).__name__.lower()}_{last}"


_trace: ContextVar[Trace | None] = ContextVar("pullback_trace", default=None)


def _types(result: Any) -> tuple[StructInfo, ...]:
    """The types of the tensors that a forward returned."""
    if isinstance(result, (tuple, list)):
        return tuple(info for value in result for info in _types(value))
    return (result.struct_info,) if isinstance(result, Expr) else ()


def current_trace() -> Trace | None:
    """The export in progress, or None."""
    return _trace.get()


def active_trace() -> Trace:
    """The export in progress, for what is called during one only."""
    trace = _trace.get()
    if trace is None:
        raise InternalError("graph values are bound while no module is exported")
    return trace


def is_tracing() -> bool:
    """Whether a module is being exported, so that calls build a program."""
    return _trace.get() is not None


@contextlib.contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Calls of modules inside become part of the trace."""
    token = _trace.set(trace)
    try:
        with span_scope(_line_of_user), composing():
            yield trace
    finally:
        _trace.reset(token)


def _line_of_user() -> Span | None:
    """The place of the innermost call outside of the package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_PACKAGE)
        or frame.f_globals.get("__name__", "").partition(".")[0] in ("numpy", "torch")  # which hand their calls on
    ):
        frame = frame.f_back
    if frame is None:
        return None
    trace = _trace.get()
    return place(frame.f_code, frame.f_lasti, frame.f_lineno, None if trace is None else trace.layer)


def _line_of(error: BaseException) -> Span | None:
    """The last place of a traceback outside of the package."""
    found, entry = None, error.__traceback__
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            found = place(entry.tb_frame.f_code, entry.tb_lasti, entry.tb_lineno)
        entry = entry.tb_next
    return found
