"""Sums, means, extrema and other reductions. Without axes, None or an empty list, all are reduced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pullback.relax import op
from pullback.relax.frontend.torch.aten.pointwise import where
from pullback.relax.frontend.torch.aten.promotion import as_dtype, floating, promoted, tensor
from pullback.relax.frontend.torch.aten.shape import axes_of, axis_of
from pullback.relax.frontend.torch.table import ATEN
from pullback.relax.op.reduction.reduce import scalar_count
from pullback.tir.expr import is_float

Dims = int | Sequence[int] | None


def axes(x: Any, dim: Dims) -> list[int] | None:
    """The axes that are reduced; None: all."""
    given = [] if dim is None else axes_of(dim, len(x.shape))
    return given or None


def _widened(x: Any, dtype: str | None) -> Any:
    """What is added up: integers and bools as int64."""
    return as_dtype(x, dtype or (x.dtype if is_float(x.dtype) else "int64"))


@ATEN.register("aten.sum")
def sum_(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return op.sum(_widened(x, dtype), axes(x, dim), keepdim)


@ATEN.register("aten.mean")
def mean(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return op.mean(as_dtype(x, dtype), axes(x, dim), keepdim)


@ATEN.register("aten.prod")
def prod(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return op.prod(_widened(x, dtype), axes(x, dim), keepdim)


@ATEN.register("aten.nansum")
def nansum(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return sum_(_numbers(x), dim, keepdim, dtype=dtype)


@ATEN.register("aten.nanmean")
def nanmean(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    x = as_dtype(x, dtype)
    return nansum(x, dim, keepdim) / op.sum(as_dtype(op.logical_not(op.isnan(x)), x.dtype), axes(x, dim), keepdim)


def _numbers(x: Any) -> Any:
    """0 in place of NaN."""
    return where(op.isnan(x), tensor(0.0, x.dtype), x) if is_float(x.dtype) else x


@ATEN.register("aten.count_nonzero")
def count_nonzero(x: Any, dim: Dims = None) -> Any:
    return op.count_nonzero(x, axes(x, dim))


def _truths(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
        return as_dtype(function(x, axes(x, dim), keepdim), "uint8" if x.dtype == "uint8" else "bool")

    return reduce


ATEN.same({"aten.any": _truths(op.any), "aten.all": _truths(op.all)})

# -- extrema


def _ordered(x: Any) -> Any:
    """What can be compared: bools as numbers."""
    return as_dtype(x, "uint8") if x.dtype == "bool" else x


def _extremum(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
        return as_dtype(function(_ordered(x), axes(x, dim), keepdim), x.dtype)

    return reduce


amax, amin = _extremum(op.max), _extremum(op.min)
ATEN.same({"aten.amax": amax, "aten.amin": amin})


@ATEN.register("aten.aminmax")
def aminmax(x: Any, *, dim: int | None = None, keepdim: bool = False) -> tuple[Any, Any]:
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        found = axes(x, dim)
        return function(_ordered(x), None if found is None else found[0], keepdim)

    return reduce


argmax, argmin = _place(op.argmax), _place(op.argmin)
ATEN.same({"aten.argmax": argmax, "aten.argmin": argmin})


def picked(x: Any, places: Any, axis: int, keepdim: bool) -> Any:
    """The elements at places (with the axis) along an axis: they get the whole adjoint."""
    values = op.gather_elements(x, places, axis)
    return values if keepdim else op.squeeze(values, [axis])


def _value_and_place(
    of_all: Callable[..., Any], place: Callable[..., Any]
) -> Callable[..., Any]:  # fmt: skip
    def reduce(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return of_all(x)
        if not len(x.shape):
            return x, op.zeros((), "int64")
        axis = axis_of(dim, len(x.shape))
        places = place(x, axis, True)
        return picked(x, places, axis, keepdim), places if keepdim else op.squeeze(places, [axis])

    return reduce


ATEN.same({"aten.max": _value_and_place(amax, argmax), "aten.min": _value_and_place(amin, argmin)})


@ATEN.register("aten.median")
def median(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    if not len(x.shape):
        return x if dim is None else (x, op.zeros((), "int64"))
    if dim is None:
        return op.median(x)
    found = op.median(x, axis_of(dim, len(x.shape)), keepdim)
    return found[0], found[1]


# -- moments


@ATEN.register("aten.var")
def var(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, **options: Any) -> Any:
    return _spread(op.variance, lambda factor: factor, x, *_spread_options(dim, unbiased, keepdim, options))


@ATEN.register("aten.std")
def std(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, **options: Any) -> Any:
    return _spread(op.std, op.sqrt, x, *_spread_options(dim, unbiased, keepdim, options))


def _spread_options(dim: Any, unbiased: Any, keepdim: bool, options: dict[str, Any]) -> tuple[Any, float, bool]:
    """Axes, correction and keepdim of the overloads: (unbiased), (dim, unbiased, keepdim), (dim, *, correction, …)."""
    if isinstance(dim, bool):
        return None, float(dim), False
    correction = options.get("correction", unbiased)
    return dim, 1.0 if correction is None else float(correction), bool(options.get("keepdim", keepdim))


def _spread(
    function: Callable[..., Any], root: Callable[..., Any], x: Any, dim: Any, correction: float, keepdim: bool
) -> Any:
    """The variance of the population, or its root, for samples: of n - correction degrees of freedom."""
    found = axes(x, dim)
    result = function(x, found, keepdim)
    if correction == 0:
        return result
    n = scalar_count(x, found)
    if isinstance(n, float):
        factor = _ratio(n, n - correction)
        return result * tensor(math.sqrt(factor) if function is op.std else factor, x.dtype)
    return result * root(n / op.maximum(n - correction, 0.0))


def _ratio(n: float, left: float) -> float:
    return n / left if left > 0 else math.nan if n == 0 else math.inf


@ATEN.register("aten.var_mean")
def var_mean(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, **options: Any) -> tuple[Any, Any]:
    found, _, kept = _spread_options(dim, unbiased, keepdim, options)
    return var(x, dim, unbiased, keepdim, **options), op.mean(x, axes(x, found), kept)


@ATEN.register("aten.std_mean")
def std_mean(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, **options: Any) -> tuple[Any, Any]:
    found, _, kept = _spread_options(dim, unbiased, keepdim, options)
    return std(x, dim, unbiased, keepdim, **options), op.mean(x, axes(x, found), kept)


# -- norms


@ATEN.register("aten.linalg_vector_norm")
def vector_norm(
    x: Any, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None
) -> Any:  # fmt: skip
    return op.norm(as_dtype(x, dtype), float(ord), axes(x, dim), keepdim)


@ATEN.register("aten.norm")
def norm(x: Any, p: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype=dtype)


@ATEN.register("aten.frobenius_norm")
def frobenius_norm(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return vector_norm(x, 2, dim, keepdim)


@ATEN.register("aten.dist")
def dist(x: Any, y: Any, p: Any = 2) -> Any:
    x, y = promoted(x, y)
    return vector_norm(x - y, p)


@ATEN.register("aten.logsumexp", "aten.special_logsumexp")
def logsumexp(x: Any, dim: Dims = None, keepdim: bool = False) -> Any:
    return op.logsumexp(floating(x), axes(x, dim), keepdim)
