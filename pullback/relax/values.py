"""Expressions without bindings in them: variables, constants, shapes, tuples, calls, and what users write for these.

They are a part of the grammar in expr.py, from which everyone imports them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pullback.ir.arguments import sequence, whole
from pullback.ir.at_run_time import AtRunTime
from pullback.ir.errors import ArgumentError, CallError, DTypeError, ShapeError, UserError
from pullback.ir.module import GlobalVar, set_call_global
from pullback.ir.node import Node, Span, Symbol, made_quickly
from pullback.ir.op import Op
from pullback.relax.constants import converted
from pullback.relax.matching import bind_sizes, match_info
from pullback.relax.operators import Operators
from pullback.relax.struct_info import (
    Dim,
    FuncStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_tuple,
    dim,
    format_info,
)
from pullback.tir.expr import DTYPES, PrimExpr

_method: Any = None  # what a tensor's attributes and items are: the hooks of set_methods
_item: Any = None


def set_methods(method: Any, item: Any) -> None:
    """Install ``method(x, name)`` and ``item(x, index)`` of tensors (``relax/op`` does so on import)."""
    global _method, _item
    _method, _item = method, item


@made_quickly
@dataclass(frozen=True, eq=False)
class Expr(Operators, AtRunTime, Node):
    """Base of graph expressions; infix operators build calls of the registered ops."""

    described = "a graph value"
    to_choose = "R.where chooses by element; R.cond(condition, f, g) computes one of two functions"
    to_convert = "R.astype(x, dtype) converts it; R has the functions of NumPy, such as R.exp(x)"
    to_count = "x.shape has the sizes of a tensor"
    to_change = "R.where chooses by element, R.slice_scatter, R.scatter_elements and R.index_put give a new tensor"

    @property
    def struct_info(self) -> StructInfo:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes, of a tensor."""
        info = self.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise ShapeError(f"expected a tensor of known shape, got {format_info(info)}", span=self.span)
        return info.shape

    @property
    def dtype(self) -> str:
        """The element type, of a tensor."""
        info = self.struct_info
        if not isinstance(info, TensorStructInfo):
            raise DTypeError(f"expected a tensor, got {format_info(info)}", span=self.span)
        return info.dtype

    def __getattr__(self, name: str) -> Any:
        """Methods of tensors, which ``relax/op/methods.py`` knows."""
        if name.startswith("_") or not isinstance(self.struct_info, TensorStructInfo):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return _method(self, name)

    def __getitem__(self, index: Any) -> Expr:
        if isinstance(self.struct_info, TupleStructInfo):
            return tuple_get_item(self, index)
        if isinstance(self.struct_info, TensorStructInfo):
            return _item(self, index)
        hint = "tuples and tensors have items"
        raise UserError(f"{format_info(self.struct_info)} cannot be indexed with []", hint=hint)

    def __iter__(self) -> Iterator[Expr]:
        info = self.struct_info
        if not isinstance(info, TupleStructInfo):
            hint = "R.unbind(x) gives the rows of a tensor as a tuple" if isinstance(info, TensorStructInfo) else None
            raise UserError(f"cannot unpack {format_info(info)}: it is no tuple", hint=hint)
        return (tuple_get_item(self, i) for i in range(len(info.fields)))

    def __len__(self) -> int:
        info = self.struct_info
        if isinstance(info, TupleStructInfo):
            return len(info.fields)
        if isinstance(info, TensorStructInfo) and info.shape and isinstance(info.shape[0], int):
            return info.shape[0]
        return super().__len__()


@made_quickly
@dataclass(frozen=True, eq=False)
class Var(Expr, Symbol):
    """A variable: a name plus identity, with its static type."""

    name: str = field(compare=False)
    info: StructInfo

    @property
    def struct_info(self) -> StructInfo:
        return self.info

    @property
    def name_hint(self) -> str:
        return self.name

    def __call__(self, *args: Any) -> Call:
        return Call(self, tuple(as_relax(a) for a in args))

    def structural_items(self) -> list[tuple[str, Any]]:
        return [("info", self.info)]


@made_quickly
@dataclass(frozen=True, eq=False)
class DataflowVar(Var):
    """A variable that is visible only inside its dataflow block."""


@made_quickly
@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """An array known at compile time (read-only)."""

    data: np.ndarray

    def __post_init__(self) -> None:
        data = np.array(self.data, order="C", copy=True)
        if data.dtype.name not in DTYPES:
            what = f"elements of dtype {str(data.dtype)!r}"
            raise DTypeError(f"a constant cannot hold {what}", hint=f"the dtypes are {', '.join(DTYPES)}")
        data.setflags(write=False)
        object.__setattr__(self, "data", data)

    @cached_property
    def struct_info(self) -> StructInfo:
        return TensorStructInfo(self.data.shape, self.data.dtype.name)


@made_quickly
@dataclass(frozen=True, eq=False)
class ShapeExpr(Expr):
    """A shape as a value: ``R.shape([n, 4])``."""

    values: tuple[Dim, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(dim(v) for v in self.values))

    @property
    def struct_info(self) -> StructInfo:
        return ShapeStructInfo(self.values)

    def __iter__(self) -> Iterator[Dim]:  # type: ignore[override] # its items are sizes
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


@made_quickly
@dataclass(frozen=True, eq=False)
class PrimValue(Expr):
    """A scalar of the host."""

    value: PrimExpr | int | float

    @property
    def struct_info(self) -> StructInfo:
        kind = "float64" if isinstance(self.value, float) else "int64"
        return PrimStructInfo(getattr(self.value, "dtype", kind))


@made_quickly
@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    fields: tuple[Expr, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(as_relax(f) for f in sequence("fields", self.fields)))

    @cached_property  # of many fields, each asks for it
    def struct_info(self) -> StructInfo:
        return TupleStructInfo(tuple(f.struct_info for f in self.fields))

    def __len__(self) -> int:
        return len(self.fields)


@made_quickly
@dataclass(frozen=True, eq=False)
class TupleGetItem(Expr):
    tuple_value: Expr
    index: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", whole("the index of an item", self.index))
        object.__setattr__(self, "tuple_value", as_relax(self.tuple_value))
        info = self.tuple_value.struct_info
        if not isinstance(info, TupleStructInfo):
            raise UserError(
                f"cannot take item {self.index} of {format_info(info)}: it is no tuple",
                span=self.span,
                hint="only tuples have items",
            )
        if not 0 <= self.index < len(info.fields):
            raise UserError(f"index {self.index} is outside {format_info(info)}", span=self.span)

    @property
    def struct_info(self) -> StructInfo:
        return as_tuple(self.tuple_value.struct_info).fields[self.index]


def tuple_get_item(value: Expr, index: int) -> Expr:
    """``value[index]``; of an explicit tuple, the field itself. Negative indices count from the end."""
    count = len(as_tuple(value.struct_info).fields)
    if not isinstance(index, int) or not -count <= index < count:
        hint = f"its items are 0 to {count - 1}" if count else "it is empty"
        raise UserError(f"{index!r} is no item of {format_info(value.struct_info)}", hint=hint)
    index = index + count if index < 0 else index
    if isinstance(value, Tuple) and 0 <= index < len(value.fields):
        return value.fields[index]
    return TupleGetItem(value, index)


Callee = Op | Expr | GlobalVar
DEDUCED: Any = None  # the default of a type that __post_init__ deduces


@made_quickly
@dataclass(frozen=True, eq=False)
class Call(Expr):
    """An op, a function of the module or a variable of function type, applied.

    ``attrs`` are the op's attributes; ``sinfo_args`` the struct infos given explicitly (``call_tir``).
    """

    op: Callee
    args: tuple[Expr, ...]  # the name of a kernel or a function, a GlobalVar, may stand among them
    attrs: Mapping[str, Any] = field(default_factory=dict)
    sinfo_args: tuple[StructInfo, ...] = ()
    info: StructInfo = field(default=DEDUCED, compare=False)

    if TYPE_CHECKING:  # a dataclass takes what its fields hold, and this one deduces what is not given

        def __init__(
            self,
            op: Callee,
            args: tuple[Expr, ...],
            attrs: Mapping[str, Any] = ...,
            sinfo_args: tuple[StructInfo, ...] = (),
            info: StructInfo | None = None,
            *,
            span: Span | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))
        if self.info is None:
            object.__setattr__(self, "info", self._deduce())
        for made in RECORDING.get():
            made.add(self)

    def _deduce(self) -> StructInfo:
        if isinstance(self.op, Op):
            if self.sinfo_args:
                return self.sinfo_args[0] if len(self.sinfo_args) == 1 else TupleStructInfo(self.sinfo_args)
            if not self.op.signature.takes(len(self.args)):
                message = f"{self.op.short} does not take {len(self.args)} tensors"
                raise CallError(message, span=self.span, hint=self.op.usage)
            try:
                return self.op.infer(*(a.struct_info for a in self.args), **self.attrs)
            except UserError as error:
                named = error.message.startswith("a size ")  # what dim() raises knows no op
                message = f"{self.op.short}: {error.message}" if named else error.message
                hint = error.hint or self.op.usage
                raise type(error)(message, span=error.span or self.span, hint=hint) from None
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                given = ", ".join(f"{k}={v!r}" for k, v in self.attrs.items())
                message = f"{self.op.short} does not take {given}: {error}"
                hint = f"its arguments are ({self.op.signature})"
                raise ArgumentError(message, span=self.span, hint=hint) from error
        info = self.op.struct_info
        if not isinstance(info, FuncStructInfo):
            name = getattr(self.op, "name", "the callee")
            hint = f"a kernel (@T.prim_func) is called by R.call_tir(cls.{name}, (x, …), R.Tensor(…))"
            raise UserError(f"cannot call {name}: it is no graph function", span=self.span, hint=hint)
        return _call_info(getattr(self.op, "name", "function"), info, self)

    @property
    def struct_info(self) -> StructInfo:
        return self.info


RECORDING: ContextVar[tuple[set[Expr], ...]] = ContextVar("pullback_recording", default=())


@contextlib.contextmanager
def recording(made: set[Expr]) -> Iterator[None]:
    """All calls and branches that are built inside go into ``made``."""
    token = RECORDING.set((*RECORDING.get(), made))
    try:
        yield
    finally:
        RECORDING.reset(token)


def _call_info(name: str, info: FuncStructInfo, call: Call) -> StructInfo:
    """The result type of calling a function: arguments are matched, symbolic sizes take the arguments' values."""
    if len(info.params) != len(call.args):
        message = f"{name} takes {len(info.params)} arguments, got {len(call.args)}"
        raise ArgumentError(message, span=call.span, hint=f"its type is {format_info(info)}")
    sizes: dict[Any, Dim] = {}
    for i, (expected, arg) in enumerate(zip(info.params, call.args, strict=True)):
        if not match_info(expected, arg.struct_info, sizes):
            given = format_info(arg.struct_info)
            message = f"argument {i} of {name}: expected {format_info(expected)}, got {given}"
            raise ShapeError(message, span=call.span, hint="the callee's parameters say which types it takes")
    return bind_sizes(info.ret, sizes)


def const(value: Any, dtype: str | None = None) -> Constant:
    """A constant from a number, list or array. Python floats are float32, ints int64, bools bool by default."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(
            "the lists of a constant differ in length", hint="nested lists are rows of one length"
        ) from None
    if dtype is None and not hasattr(value, "dtype"):
        dtype = {"f": "float32", "i": "int64", "b": "bool"}.get(array.dtype.kind)
    return Constant(array if dtype is None else converted(array, dtype))


def as_relax(value: Any, dtype: str | None = None) -> Expr:
    """An expression from what users write: numbers (of ``dtype``), arrays, tuples, tir sizes."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, GlobalVar):  # an expression of the grammar, whose class both IRs share
        return cast(Expr, value)
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(as_relax(v) for v in value))
    if isinstance(value, PrimExpr):
        return PrimValue(value)
    if isinstance(value, bool):
        hint = f"R.equal(x, y) and R.not_equal(x, y) compare elements; a constant is R.const({value})"
        raise UserError(f"{value} is no tensor: in Python, == and != compare graph values as objects", hint=hint)
    if isinstance(value, (int, float)):
        return const(value, dtype)
    if isinstance(value, Op):
        raise UserError(f"{value.short} is an op, not a value", hint=f"call it: R.{value.short}({value.signature})")
    if hasattr(value, "numpy") or hasattr(value, "__array__"):
        return Constant(np.asarray(value.numpy() if hasattr(value, "numpy") else value))
    hint = "use a variable of the function, a number, or R.const(array)"
    raise UserError(f"{value!r} cannot be used as a graph value", hint=hint)


def _call_global(callee: GlobalVar, args: tuple[Any, ...]) -> Call:
    return Call(callee, tuple(as_relax(a) for a in args))


set_call_global(_call_global)
