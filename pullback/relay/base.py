"""The base of relay's expressions: infix operators, the span of the line that builds one, the type that inference
writes."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar
from typing import TypeVar as TypeVariable

from pullback.ir.at_run_time import AtRunTime
from pullback.ir.errors import CallError, UserError
from pullback.ir.node import Span, current_span
from pullback.ir.places import PACKAGE, caller
from pullback.relay.shown import Shown
from pullback.relay.ty import FuncType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from pullback.relay.expr import Call, Function, TupleWrapper


def _infix(name: str, swapped: bool = False) -> Any:
    def method(self: Expr, other: Any) -> Call:
        if isinstance(other, Number) or not isinstance(other, Expr):
            hint = f"convert it: relay.const({other!r:.40}, dtype)"
            raise CallError(f"{name} of an expression and {type(other).__name__}", hint=hint, span=current_span())
        return call_op(name, other, self) if swapped else call_op(name, self, other)

    return method


_op: Any = None  # the operator of a name: the hook of set_ops


def set_ops(get: Any) -> None:
    """Install the function that finds an operator by its name (``relay/op`` does so on import)."""
    global _op
    _op = get


def call_op(name: str, *args: Any, **attrs: Any) -> Call:
    """A call of the operator of that name."""
    return _op(name)(*args, **attrs)


def call_several(name: str, *args: Any, **attrs: Any) -> TupleWrapper:
    """A call of the operator of that name, which has several results."""
    return _op(name)(*args, **attrs)


_BUILDERS = ("base.py", "expr.py", "adt.py", "op", "scope_builder.py")
_BUILDING = tuple(f"{PACKAGE}{os.sep}relay{os.sep}{name}" for name in _BUILDERS)


def _written() -> Span | None:
    """The span of a new expression: the one that is set, or the line of the user's that builds it."""
    return current_span() or caller((*_BUILDING, "<string>"))  # dataclasses have methods made of strings


_Kind = TypeVariable("_Kind", bound=Type)
_VALUES: dict[type[Type], str] = {TensorType: "a tensor", TupleType: "a tuple", FuncType: "a function"}


@dataclass(frozen=True, eq=False)
class Expr(AtRunTime, Shown):
    """Base of relay's expressions; infix operators build calls of ops.

    Args:
        span: place in the user's source, for errors; by default the line that builds it.
    """

    span: Span | None = field(default_factory=_written, kw_only=True, repr=False, compare=False)

    described = "a relay expression"
    to_choose = "relay.If(condition, a, b) computes one of two, relay.where chooses by element"
    to_convert = "relay.cast(x, dtype) converts it; an executor computes it"
    to_count = "checked_type has the sizes of a tensor, once types are inferred"
    to_change = "expressions are values: build a new one"

    shared: ClassVar[bool] = True  # one node at several places is one value: structures are compared as graphs
    checked_type_: ClassVar[Type | None] = None  # inference writes it into the instance

    @property
    def checked_type(self) -> Type:
        """The type that inference found; a UserError where it has not run."""
        if self.checked_type_ is None:
            hint = "run relay.transform.InferType()(module) and take the expression from its result"
            raise UserError("the type checker has not run on this expression", hint=hint, span=self.span)
        return self.checked_type_

    def checked_as(self, kind: type[_Kind]) -> _Kind:
        """The type that inference found, which must be of that kind.

        >>> call.checked_as(TensorType).shape
        (2, 3)

        Raises UserError where it is of another kind, and where inference has not run.
        """
        found = self.checked_type
        if not isinstance(found, kind):
            hint = "the fields of a tuple t are t[0], t[1], …" if isinstance(found, TupleType) else None
            expected = _VALUES.get(kind, kind.__name__)
            raise UserError(f"{expected} is expected, got a value of type {found}", hint=hint, span=self.span)
        return found

    def astype(self, dtype: str) -> Call:
        """``cast(self, dtype)``."""
        return call_op("cast", self, dtype=dtype)

    def __neg__(self) -> Call:
        return call_op("negative", self)

    __add__, __radd__ = _infix("add"), _infix("add", swapped=True)
    __sub__, __rsub__ = _infix("subtract"), _infix("subtract", swapped=True)
    __mul__, __rmul__ = _infix("multiply"), _infix("multiply", swapped=True)
    __truediv__, __rtruediv__ = _infix("divide"), _infix("divide", swapped=True)
    __div__, __rdiv__ = __truediv__, __rtruediv__
    __lt__, __gt__ = _infix("less"), _infix("greater")
    __le__, __ge__ = _infix("less_equal"), _infix("greater_equal")

    def as_function(self) -> Function:
        """A function of the expression's free variables, in the order in which they occur; a function is itself."""
        from pullback.relay.analysis import free_type_vars, free_vars
        from pullback.relay.expr import Function

        return Function(tuple(free_vars(self)), self, None, tuple(free_type_vars(self)))

    def __call__(self, *args: Any) -> Call:
        """A call of the function that this expression gives."""
        from pullback.relay.expr import Call

        return Call(self, args)


def set_checked_type(expr: Any, type_: Type) -> None:
    """Write what inference found."""
    vars(expr)["checked_type_"] = type_


def span_of(expr: Any) -> Span | None:
    """Where the expression stands in the user's source, when it is known."""
    return getattr(expr, "span", None)
