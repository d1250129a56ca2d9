"""Tensor expressions: what each element of a tensor is, with no word about loops.

    tensor ::= placeholder(shape, dtype) | compute(shape, lambda i, j: element)
    element ::= a tir expression in which tensor[i, j] reads another tensor
              | sum/prod/max/min/argmax/argmin(expression, reduce_axes)       only at the top of an element

A DAG of these is what a schedule turns into loops (room ``schedule``).
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from pullback.ir.arguments import sequence
from pullback.ir.errors import CallError, InternalError, ShapeError, UserError
from pullback.ir.node import Node, Symbol, made_quickly
from pullback.te.shared import with_parts_apart
from pullback.tir.expr import PrimExpr, Var, as_expr
from pullback.tir.visitor import substitute, walk

REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin")


@made_quickly
@dataclass(frozen=True, eq=False)
class ReduceAxis(Node):
    """An axis of summation: a loop variable and its extent.

    Args:
        var: the loop variable, which the source of the reduction is written in.
        extent: how many values it takes, from 0 on: an int, or a symbolic size.
        span: the place in the user's source; by default that of the enclosing ``span_scope``.
    """

    var: Var
    extent: int | PrimExpr


@made_quickly
@dataclass(frozen=True, eq=False)
class Reduce(Node):
    """``kind`` over all values of ``source`` as the axes run; argmax and argmin give the first index (int64).

    Args:
        kind: "sum", "prod", "max", "min", "argmax" or "argmin".
        source: the terms, a scalar expression in the variables of the axes.
        axes: what is reduced over; argmax and argmin have one axis.
        span: the place in the user's source; by default that of the enclosing ``span_scope``.

    Raises:
        InternalError: for another kind, and for argmax or argmin over several axes.
    """

    kind: str
    source: PrimExpr
    axes: tuple[ReduceAxis, ...]

    def __post_init__(self) -> None:
        if self.kind not in REDUCTIONS:
            raise InternalError(f"unknown reduction {self.kind!r}")
        if self.kind.startswith("arg") and len(self.axes) != 1:
            raise InternalError("argmax and argmin reduce one axis")

    @property
    def dtype(self) -> str:
        return "int64" if self.kind.startswith("arg") else self.source.dtype


@made_quickly
@dataclass(frozen=True, eq=False)
class Tensor(Symbol):
    """A tensor: ``axes`` and ``body`` say what element ``[axes]`` is; a placeholder has neither.

    ``tensor[i, j]`` reads an element, inside the element of another tensor. Computing with the tensor as a whole raises
    UserError.

    Args:
        name: what kernels and printed scripts call it; no part of the structure.
        shape: the sizes, ints or symbolic.
        dtype: of the elements.
        axes: a variable for each axis.
        body: the element at the axes: a scalar expression, or a reduction.
        span: the place in the user's source; by default that of the enclosing ``span_scope``.
    """

    name: str = field(compare=False)
    shape: tuple[int | PrimExpr, ...]
    dtype: str
    axes: tuple[Var, ...] = ()
    body: PrimExpr | Reduce | None = None

    @property
    def is_placeholder(self) -> bool:
        return self.body is None

    @property
    def is_reduction(self) -> bool:
        return isinstance(self.body, Reduce)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @cached_property
    def loads(self) -> tuple[TensorLoad, ...]:
        """The reads of other tensors in the element, in order."""
        if self.body is None:
            return ()
        source = self.body.source if isinstance(self.body, Reduce) else self.body
        return tuple(n for n in walk(source) if isinstance(n, TensorLoad))

    @cached_property
    def nodes(self) -> int:
        """How many nodes the element has as a tree."""
        if self.body is None:
            return 0
        return builtins.sum(1 for _ in walk(self.body.source if isinstance(self.body, Reduce) else self.body))

    def __getitem__(self, indices: Any) -> TensorLoad:
        indices = indices if isinstance(indices, tuple) else (indices,)
        return TensorLoad(self, tuple(as_expr(i) for i in indices))

    def __iter__(self) -> NoReturn:
        self._refuse("be gone through")

    def _computed_with(self, other: Any = None) -> NoReturn:
        self._refuse("be computed with as a whole")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _computed_with
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _computed_with
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = __float__ = __int__ = _computed_with
    __array_ufunc__ = None

    def _refuse(self, what: str) -> NoReturn:
        hint = "say what one element is: te.compute(shape, lambda i, j: …), with te.sum over a te.reduce_axis"
        raise UserError(f"the tensor expression {self.name} cannot {what}", hint=hint)


@made_quickly
@dataclass(frozen=True, eq=False)
class TensorLoad(PrimExpr):
    """``tensor[indices]`` inside an element expression.

    Args:
        tensor: the tensor that is read.
        indices: an integer expression for each axis.
        span: the place in the user's source; by default that of the enclosing ``span_scope``.

    Raises:
        ShapeError: where there are more or fewer indices than axes.
    """

    tensor: Tensor
    indices: tuple[PrimExpr, ...]

    def __post_init__(self) -> None:
        if len(self.indices) != self.tensor.ndim:
            hint = "an element is read by one index for each axis"
            message = f"{self.tensor.name} has rank {self.tensor.ndim}, got {len(self.indices)} indices"
            raise ShapeError(message, hint=hint)

    @property
    def dtype(self) -> str:
        return self.tensor.dtype


def placeholder(shape: Sequence[int | PrimExpr], dtype: str = "float32", name: str = "p") -> Tensor:
    """An input tensor.

    Args:
        shape: the sizes: ints, or symbolic ones such as ``te.var("n")``.
        dtype: of the elements.
        name: what kernels and printed scripts call it.

    Returns:
        the tensor, whose elements are given when it is run.

    Raises:
        ArgumentError: where ``shape`` is no sequence.

    Examples:
        >>> from pullback import te
        >>> x = te.placeholder((4, 8), "float32", "x")
        >>> x.shape, x.dtype, x.is_placeholder
        ((4, 8), 'float32', True)
    """
    return Tensor(name, sequence("shape", shape), dtype)


def compute(shape: Sequence[int | PrimExpr], element: Callable[..., Any], name: str = "t") -> Tensor:
    """The tensor whose element at the axes is ``element(*axes)``; a function of one ``*indices`` works too.

    Args:
        shape: the sizes, ints or symbolic.
        element: takes an index for each axis (int64 variables); returns the element, a scalar expression or number, or
            a reduction such as ``te.sum``, which is the whole of it.
        name: what kernels and printed scripts call the tensor.

    Returns:
        the tensor; its dtype is that of the element.

    Raises:
        ArgumentError: where ``shape`` is no sequence.
        CallError: where ``element`` does not take an index for each axis.
        DTypeError: where it returns no scalar.
        ShapeError: where it reads a tensor by more or fewer indices than that has axes.
        UserError: where it computes with a tensor as a whole.

    Examples:
        >>> from pullback import te
        >>> a, b = te.placeholder((4, 8), name="a"), te.placeholder((8, 2), name="b")
        >>> k = te.reduce_axis(8, "k")
        >>> product = te.compute((4, 2), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k), "product")
        >>> doubled = te.compute((4, 2), lambda *place: product[place] * 2.0, "doubled")
        >>> [load.tensor.name for load in product.loads], doubled.shape
        (['a', 'b'], (4, 2))
    """
    shape = sequence("shape", shape)
    code = getattr(element, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    names = names if len(names) == len(shape) else [f"i{k}" for k in range(len(shape))]
    axes = tuple(Var(n) for n in names)
    if code is None or code.co_argcount != len(axes):
        _check_takes(element, axes)
    body = element(*axes)
    if not isinstance(body, Reduce):
        body = with_parts_apart(as_expr(body), lambda part: compute(shape, _at(axes, part), name)[axes])
    return Tensor(name, shape, body.dtype, axes, body)


def _at(axes: tuple[Var, ...], value: PrimExpr) -> Callable[..., PrimExpr]:
    """The element ``value`` at the ``axes`` as a function of its place."""
    return lambda *place: substitute(value, dict(zip(axes, place, strict=True)))


def _check_takes(element: Callable[..., Any], axes: tuple[Var, ...]) -> None:
    try:
        inspect.signature(element).bind(*axes)
    except TypeError as error:
        hint = "it takes an index for each axis: lambda i, j: …"
        raise CallError(f"te.compute: an element has {len(axes)} indices, its function: {error}", hint=hint) from None
    except ValueError:  # a built-in function that does not say what it takes
        pass


def reduce_axis(extent: int | PrimExpr, name: str = "k") -> ReduceAxis:
    """An axis to reduce over, from 0 to ``extent``.

    Args:
        extent: how many terms there are: an int, or a symbolic size.
        name: what kernels and printed scripts call its variable.

    Returns:
        the axis; its ``var`` is the index in the terms.

    Examples:
        >>> from pullback import te
        >>> k = te.reduce_axis(8, "k")
        >>> k.var.name, k.extent
        ('k', 8)
    """
    return ReduceAxis(Var(name), extent)


def reduction(kind: str, source: PrimExpr, axes: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The reduction of the given kind.

    Args:
        kind: "sum", "prod", "max", "min", "argmax" or "argmin".
        source: the terms, a scalar expression in the variables of the axes.
        axes: the reduce axis, or several; argmax and argmin take one.

    Returns:
        the reduction, of the dtype of ``source``; of argmax and argmin the first index, int64.

    Raises:
        InternalError: for another kind, and for argmax or argmin over several axes.
    """
    return Reduce(kind, source, (axes,) if isinstance(axes, ReduceAxis) else tuple(axes))


def sum(source: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """Σ source, in the order of the axes.

    Args:
        source: the terms, a scalar expression in ``axis.var`` and in the axes of the element.
        axis: the reduce axis, or several, of which the last runs fastest.

    Returns:
        the reduction, of the dtype of ``source``: the whole element of a ``te.compute``.

    Examples:
        >>> from pullback import te
        >>> x = te.placeholder((4, 8), "float32", "x")
        >>> k = te.reduce_axis(8, "k")
        >>> rows = te.compute((4,), lambda i: te.sum(x[i, k.var], k), "rows")
        >>> rows.shape, rows.dtype, rows.is_reduction
        ((4,), 'float32', True)
    """
    return reduction("sum", source, axis)


def max(source: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The largest source; NaN if any is.

    Args:
        source: the terms, a scalar expression in ``axis.var`` and in the axes of the element.
        axis: the reduce axis, or several, of which the last runs fastest.

    Returns:
        the reduction, of the dtype of ``source``: the whole element of a ``te.compute``.
    """
    return reduction("max", source, axis)


def min(source: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """The smallest source; NaN if any is.

    Args:
        source: the terms, a scalar expression in ``axis.var`` and in the axes of the element.
        axis: the reduce axis, or several, of which the last runs fastest.

    Returns:
        the reduction, of the dtype of ``source``: the whole element of a ``te.compute``.
    """
    return reduction("min", source, axis)


def prod(source: PrimExpr, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduce:
    """Π source, in the order of the axes.

    Args:
        source: the terms, a scalar expression in ``axis.var`` and in the axes of the element.
        axis: the reduce axis, or several, of which the last runs fastest.

    Returns:
        the reduction, of the dtype of ``source``: the whole element of a ``te.compute``.
    """
    return reduction("prod", source, axis)
