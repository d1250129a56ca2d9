"""Sorting, and running sums and products."""

from __future__ import annotations

from typing import Any

from pullback.relax import op
from pullback.relax.frontend.torch.aten.promotion import as_dtype
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
