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
    """Base of graph expressions; infix operators build calls of the registered ops.

    Args:
        span: the place in the user's source, by default that of the ``span_scope`` around.
    """

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
    """A variable: a name plus identity, with its static type.

    Args:
        name: what scripts and messages call it; two variables may have the same.
        info: the type.
        span: the place in the user's source.

    Examples:
        >>> a = relax.Var("a", relax.TensorStructInfo((2, 3), "float32"))
        >>> a.shape, a.dtype
        ((2, 3), 'float32')
        >>> print(a + 1.0)
        R.add(a, R.const(1.0, "float32"))
    """

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
    """A variable that is visible only inside its dataflow block.

    Args:
        name: what scripts and messages call it.
        info: the type.
        span: the place in the user's source.
    """


@made_quickly
@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """An array known at compile time (read-only). :func:`const` makes one of numbers and lists.

    Args:
        data: the array, which is copied; its dtype is that of the constant.
        span: the place in the user's source.

    Raises:
        DTypeError: for an array of a dtype that tensors do not have.
    """

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
    """A shape as a value: ``R.shape([n, 4])``.

    Args:
        values: the sizes, each an int of at least 0 or an int64 expression.
        span: the place in the user's source.

    Raises:
        ShapeError: for what is no size.
        DTypeError: for an expression of another dtype.
    """

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
    """A scalar of the host.

    Args:
        value: an int (int64), a float (float64), or a scalar expression of the loop IR.
        span: the place in the user's source.
    """

    value: PrimExpr | int | float

    @property
    def struct_info(self) -> StructInfo:
        kind = "float64" if isinstance(self.value, float) else "int64"
        return PrimStructInfo(getattr(self.value, "dtype", kind))


@made_quickly
@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    """Several values as one; ``value[k]`` takes a field, and Python unpacks them.

    Args:
        fields: the values: expressions, or what :func:`const` makes a constant of.
        span: the place in the user's source.

    Raises:
        ArgumentError: where ``fields`` is no sequence.
        UserError: for a field that cannot be a graph value.

    Examples:
        >>> a = relax.Var("a", R.Tensor((2, 3), "float32"))
        >>> pair = relax.Tuple((a, 2.0))
        >>> pair[1].struct_info
        Tensor((), float32)
    """

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
    """A field of a tuple, which ``value[index]`` gives.

    Args:
        tuple_value: an expression of tuple type.
        index: the number of the field, from 0.
        span: the place in the user's source.

    Raises:
        UserError: where ``tuple_value`` is no tuple, or has no such field.
        ArgumentError: where ``index`` is no int.
    """

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

    The functions of ``relax.op``, and infix operators, are the short way to write one of an op.

    Args:
        op: an op, the GlobalVar of a graph function, or a variable of function type.
        args: the operands.
        attrs: the op's attributes, by name.
        sinfo_args: the struct infos given explicitly (``call_tir``), one for each result.
        info: the result's type; by default it is deduced.
        span: the place in the user's source.

    Raises:
        CallError: where the op takes another number of operands.
        ShapeError, DTypeError: where operands do not fit the op, or the callee's parameters.
        ArgumentError: for attributes that the op does not take, and where the callee takes another number of arguments.
        UserError: where the callee is no graph function.

    Examples:
        >>> a = relax.Var("a", R.Tensor((2, 3), "float32"))
        >>> call = relax.op.sum(a, axis=1)
        >>> type(call).__name__, call.op.name, call.struct_info
        ('Call', 'relax.sum', Tensor((2,), float32))
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
    """A constant from a number, list or array.

    Args:
        value: a number, nested lists of them, or an array.
        dtype: of the constant. By default an array keeps its own; Python floats are float32, ints int64, bools bool.

    Returns:
        The constant, of the shape of ``value``.

    Raises:
        ShapeError: for nested lists that differ in length.
        DTypeError: for numbers that the dtype does not hold, and for what no number is.

    Examples:
        >>> relax.const([1, 2, 3]).struct_info
        Tensor((3,), int64)
        >>> relax.const(0.5, "float64").struct_info
        Tensor((), float64)
    """
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
