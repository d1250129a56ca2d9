"""Reductions, arguments of extrema, running sums, softmax, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import number, numbers, product, static
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.ops.shapes import axis_of, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.tir.expr import FLOATS


def _reduction(name: str, function: Callable[..., Any], since: int) -> None:
    """A reduction whose axes are an attribute, and from a version on an input."""

    @ONNX.register(name)
    def convert_old(x: Any, *, axes: Any = None, keepdims: int = 1) -> Any:
        return reduced(function, x, axes, keepdims)

    @ONNX.register(f"{name}-{since}")
    def convert(x: Any, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        found = None if axes is None else numbers(axes)
        return reduced(function, x, found, keepdims, noop_with_empty_axes)


def reduced(
    function: Callable[..., Any], x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Any:  # fmt: skip
    """``function`` of x over axes: without any, over all, or with noop over none."""
    rank = rank_of(x)
    every = [] if noop_with_empty_axes else list(range(rank))
    chosen = [axis_of(a, rank) for a in axes] if axes else every
    return function(x, chosen, bool(keepdims))


def _plain(reduce: Any) -> Callable[..., Any]:
    return lambda x, axes, keepdims: reduce(x, axes, keepdims) if axes else x


def _sum(x: Any, axes: list[int], keepdims: bool) -> Any:
    return op.sum(x, axes, keepdims) if axes else x


def _mean(x: Any, axes: list[int], keepdims: bool) -> Any:
    if x.struct_info.dtype in FLOATS:
        return op.mean(x, axes, keepdims) if axes else x
    count = static([product([shape_of(x)[a] for a in axes])], "the sizes over which integers are averaged")[0]
    total = op.sum(x, axes, keepdims) if axes else x
    return op.floor_divide(total, numbers_like(count, x))


def _extremum(reduce: Any) -> Callable[..., Any]:
    def of(x: Any, axes: list[int], keepdims: bool) -> Any:
        if not axes:
            return x
        if product([shape_of(x)[a] for a in axes]) == 0:
            return _of_nothing(x, axes, keepdims, reduce is op.max)
        if x.struct_info.dtype == "bool":
            return op.astype(reduce(op.astype(x, "uint8"), axes, keepdims), "bool")
        return reduce(x, axes, keepdims)

    return of


def _of_nothing(x: Any, axes: list[int], keepdims: bool, is_max: bool) -> Any:
    """The least number (of a maximum) of the dtype, or the greatest."""
    from pullback.tir.expr import limits

    dtype = x.struct_info.dtype
    least: Any = False
    most: Any = True
    if dtype != "bool":
        least, most = (float("-inf"), float("inf")) if dtype in FLOATS else limits(dtype)
    sizes = [1 if a in axes else s for a, s in enumerate(shape_of(x)) if keepdims or a not in axes]
    return op.full(tuple(sizes), const(least if is_max else most, dtype), dtype)


def _log_sum_exp(x: Any, axes: list[int], keepdims: bool) -> Any:
    if x.struct_info.dtype in FLOATS:
        return op.logsumexp(x, axes, keepdims) if axes else x
    return op.astype(_log_sum_exp(op.astype(x, "float64"), axes, keepdims), x.struct_info.dtype)


def _log_sum(x: Any, axes: list[int], keepdims: bool) -> Any:
    return _in_floats(op.log, _sum(x, axes, keepdims))


def _l2(x: Any, axes: list[int], keepdims: bool) -> Any:
    if x.struct_info.dtype in FLOATS:
        return op.norm(x, 2.0, axes, keepdims) if axes else op.abs(x)
    return _in_floats(op.sqrt, _sum(op.square(x), axes, keepdims))


def _in_floats(function: Any, x: Any) -> Any:
    dtype = x.struct_info.dtype
    return function(x) if dtype in FLOATS else op.astype(function(op.astype(x, "float64")), dtype)


_reduction("ReduceSum", _sum, 13)
_reduction("ReduceMean", _mean, 18)
_reduction("ReduceMax", _extremum(op.max), 18)
_reduction("ReduceMin", _extremum(op.min), 18)
_reduction("ReduceProd", _plain(op.prod), 18)
_reduction("ReduceL1", lambda x, axes, keepdims: _sum(op.abs(x), axes, keepdims), 18)
_reduction("ReduceL2", _l2, 18)
_reduction("ReduceSumSquare", lambda x, axes, keepdims: _sum(op.square(x), axes, keepdims), 18)
_reduction("ReduceLogSum", _log_sum, 18)
_reduction("ReduceLogSumExp", _log_sum_exp, 18)


# -- places of extrema


def _arg(name: str, function: Any) -> None:
    @ONNX.register(name)
    def convert(x: Any, *, axis: int, keepdims: int, select_last_index: int = 0) -> Any:
        axis = axis_of(axis, rank_of(x))
        if not select_last_index:
            return function(x, axis, bool(keepdims))
        place = function(op.flip(x, axis), axis, bool(keepdims))
        (count,) = static([shape_of(x)[axis]], "the size of an axis whose last extremum is asked for")
        return op.subtract(numbers_like(count - 1, place), place)


_arg("ArgMax", op.argmax)
_arg("ArgMin", op.argmin)


@ONNX.register("TopK")
def top_k_old(x: Any, k: Any = None, *, axis: int, **attrs: Any) -> Any:
    found = op.topk(x, attrs["k"] if k is None else number(k), axis, "both", True, "int64")
    return found[0], found[1]


@ONNX.register("TopK-11")
def top_k(x: Any, k: Any, *, axis: int, largest: int, sorted: int) -> Any:
    found = op.topk(x, number(k), axis, "both", bool(largest), "int64")
    return found[0], found[1]


# -- running sums and products


def _running(name: str, function: Any) -> None:
    @ONNX.register(name)
    def convert(x: Any, axis: Any, *, exclusive: int, reverse: int) -> Any:
        return function(x, axis_of(number(axis), rank_of(x)), exclusive=bool(exclusive), reverse=bool(reverse))


_running("CumSum", op.cumsum)
_running("CumProd", op.cumprod)


# -- softmax


def _as_rows(function: Callable[[Any, int], Any], x: Any, axis: int) -> Any:
    """The versions before 13 take all axes from one on as one."""
    sizes = shape_of(x)
    axis = axis_of(axis, len(sizes))
    if axis == len(sizes) - 1:
        return function(x, -1)
    rows = op.reshape(x, (product(sizes[:axis]), product(sizes[axis:])))
    return op.reshape(function(rows, -1), sizes)


def _hardmax(x: Any, axis: int) -> Any:
    axis = axis_of(axis, rank_of(x))
    place = op.argmax(x, axis, True)
    (count,) = static([shape_of(x)[axis]], "the size of Hardmax's axis")
    places = op.reshape(op.arange(0, count, 1, "int64"), (count, *(1,) * (rank_of(x) - 1 - axis)))
    return op.astype(op.equal(places, place), x.struct_info.dtype)


def _along(name: str, function: Callable[[Any, int], Any]) -> None:
    @ONNX.register(name)
    def convert_old(x: Any, *, axis: int = 1) -> Any:
        return _as_rows(function, x, axis)

    @ONNX.register(f"{name}-13")
    def convert(x: Any, *, axis: int = -1, **_: Any) -> Any:
        return function(x, axis)


_along("Softmax", op.nn.softmax)
_along("LogSoftmax", op.nn.log_softmax)
_along("Hardmax", _hardmax)


@ONNX.register("LpNormalization")
def lp_normalization(x: Any, *, axis: int, p: int) -> Any:
    if p not in (1, 2):
        raise UserError(f"p must be 1 or 2, got {p}")
    norm = op.norm(x, float(p), [axis_of(axis, rank_of(x))], True)
    zero = numbers_like(0, x)
    return op.where(op.equal(norm, zero), op.zeros_like(x), op.divide(x, norm))
