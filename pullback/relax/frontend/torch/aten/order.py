"""Sorting, and running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.frontend.torch.aten.promotion import as_dtype, tensor
from pullback.relax.frontend.torch.aten.reduce import picked
from pullback.relax.frontend.torch.aten.shape import axis_of
from pullback.relax.frontend.torch.table import ATEN
from pullback.tir.expr import is_float


def _ordered(x: Any) -> Any:
    return as_dtype(x, "uint8") if x.dtype == "bool" else x


def _places(x: Any, axis: int, descending: bool) -> Any:
    return op.argsort(_ordered(x), axis, descending, "int64")


@ATEN.register("aten.sort")
def sort(x: Any, dim: int = -1, descending: bool = False, **options: Any) -> tuple[Any, Any]:
    if not len(x.shape):
        return x, op.zeros((), "int64")
    axis = axis_of(options.get("dim", dim), len(x.shape))
    places = _places(x, axis, options.get("descending", descending))
    return op.gather_elements(x, places, axis), places


@ATEN.register("aten.sort.stable")
def sort_stable(
    x: Any, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Any, Any]:  # fmt: skip
    return sort(x, dim, descending)


@ATEN.register("aten.argsort")
def argsort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    return sort(x, dim, descending)[1]


@ATEN.register("aten.argsort.stable")
def argsort_stable(x: Any, *, stable: bool = False, dim: int = -1, descending: bool = False) -> Any:
    return sort(x, dim, descending)[1]


ATEN.same({"aten.msort": lambda x: sort(x, 0)[0]})


@ATEN.register("aten.topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Any, Any]:
    if not len(x.shape):
        return x, op.zeros((), "int64")
    found = op.topk(x, k, axis_of(dim, len(x.shape)), "both", largest, "int64")
    return found[0], found[1]


@ATEN.register("aten.kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    if not len(x.shape):
        return x, op.zeros((), "int64")
    axis = axis_of(dim, len(x.shape))
    places = op.strided_slice(_places(x, axis, False), [axis], [k - 1], [k])
    return picked(x, places, axis, keepdim), places if keepdim else op.squeeze(places, [axis])


@ATEN.register("aten.nanmedian")
def nanmedian(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower one in the middle of those that are no NaN; NaN where there are none."""
    if dim is None:
        return nanmedian(x.flatten(), 0)[0]
    if not len(x.shape):
        return x, op.zeros((), "int64")
    axis = axis_of(dim, len(x.shape))
    count = op.count_nonzero(op.equal(x, x), axis, True)
    middle = op.maximum(op.floor_divide(count - 1, 2), 0)
    places = op.gather_elements(_places(x, axis, False), middle, axis)
    return picked(x, places, axis, keepdim), places if keepdim else op.squeeze(places, [axis])


@ATEN.register("aten.histc")
def histc(x: Any, bins: int = 100, min: Any = 0, max: Any = 0) -> Any:
    """How many elements lie in each of ``bins`` intervals from min to max, or of the values where these are equal."""
    x = op.stop_gradient(x.flatten())
    low, high = (tensor(float(v), x.dtype) for v in (min, max))
    if min == max:
        low, high = op.min(x), op.max(x)
        same = op.equal(low, high)
        low, high = op.where(same, low - 1.0, low), op.where(same, high + 1.0, high)
    inside = op.logical_and(op.greater_equal(x, low), op.less_equal(x, high))
    number = op.floor((x - low) * float(bins) / (high - low))
    number = as_dtype(op.clip(op.where(inside, number, tensor(0.0, x.dtype)), 0.0, float(bins - 1)), "int64")
    return op.index_put(op.zeros((bins,), x.dtype), [number], as_dtype(inside, x.dtype), True)


# -- running sums


def _widened(x: Any, dtype: str | None) -> Any:
    return as_dtype(x, dtype or (x.dtype if is_float(x.dtype) else "int64"))


@ATEN.register("aten.cumsum")
def cumsum(x: Any, dim: int, *, dtype: str | None = None) -> Any:
    x = _widened(x, dtype)
    return op.cumsum(x, axis_of(dim, len(x.shape))) if len(x.shape) else x


@ATEN.register("aten.cumprod")
def cumprod(x: Any, dim: int, *, dtype: str | None = None) -> Any:
    x = _widened(x, dtype)
    return op.cumprod(x, axis_of(dim, len(x.shape))) if len(x.shape) else x


def _doubling(x: Any, axis: int, joined: Callable[[Any, Any], Any]) -> Any:
    """The running results of an associative function along an axis, in ⌈log₂ n⌉ steps of ever longer parts (Hillis &
    Steele, Data Parallel Algorithms, 1986). Values may be tuples of tensors."""
    first = x[0] if isinstance(x, tuple) else x
    size = first.shape[axis]
    if not isinstance(size, int):
        raise UserError(
            f"running extrema along axis {axis}, whose size is symbolic, cannot be converted",
            hint="export the model with a fixed size of that axis",
        )

    def part(value: Any, begin: int, end: int) -> Any:
        if isinstance(value, tuple):
            return tuple(part(v, begin, end) for v in value)
        return op.strided_slice(value, [axis], [begin], [end])

    def concat(a: Any, b: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(concat(*pair) for pair in zip(a, b, strict=True))
        return op.concat([a, b], axis)

    step = 1
    while step < size:
        x = concat(part(x, 0, step), joined(part(x, 0, size - step), part(x, step, size)))
        step *= 2
    return x


def _running_extremum(x: Any, dim: int, wins: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    """The extrema so far and where they are: of equal ones the last, and the last NaN."""
    if not len(x.shape):
        return x, op.zeros((), "int64")
    axis, given = axis_of(dim, len(x.shape)), x
    x = _ordered(x)
    shape = [1] * len(x.shape)
    shape[axis] = x.shape[axis]
    numbers = op.broadcast_to(op.reshape(op.arange(0, x.shape[axis], 1, "int64"), shape), x.shape)

    def joined(left: Any, right: Any) -> Any:
        taken = wins(right[0], left[0])
        if is_float(x.dtype):
            taken = op.logical_or(op.isnan(right[0]), op.logical_and(op.logical_not(op.isnan(left[0])), taken))
        return tuple(op.where(taken, b, a) for a, b in zip(left, right, strict=True))

    places = _doubling((op.stop_gradient(x), numbers), axis, joined)[1]
    return op.gather_elements(given, places, axis), places


ATEN.same(
    {
        "aten.cummax": lambda x, dim: _running_extremum(x, dim, op.greater_equal),
        "aten.cummin": lambda x, dim: _running_extremum(x, dim, op.less_equal),
    }
)


@ATEN.register("aten.logcumsumexp", "aten._logcumsumexp")
def logcumsumexp(x: Any, dim: int) -> Any:
    return _doubling(x, axis_of(dim, len(x.shape)), op.logaddexp) if len(x.shape) else x


@ATEN.register("aten.diff")
def diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    axis = axis_of(dim, len(x.shape))
    parts = [v for v in (prepend, x, append) if v is not None]
    x = op.concat(parts, axis) if len(parts) > 1 else x
    for _ in range(n):
        size = x.shape[axis]
        later, earlier = op.strided_slice(x, [axis], [1], [size]), op.strided_slice(x, [axis], [0], [size - 1])
        x = op.logical_xor(later, earlier) if x.dtype == "bool" else later - earlier
    return x
