"""Reductions: sum, mean, … over axes. Signature of all: ``x | axis=None, keepdims=False``; None means every axis.

The order of a reduction is that of the axes. Half-precision types accumulate in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import Op, define
from pullback.relax.op.family import (
    broadcast_index,
    broadcast_shapes,
    collapse_to_operands,
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    normalize_axes,
    normalize_axis,
    rule_in_wide,
    wide,
    zero_gradient,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Bools, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo

Axes = int | Sequence[int] | None

SAMPLES = (
    sample((2, 3, 5)),
    sample((3, 17), axis=1),
    sample((3, 4, 5), axis=(0, -1), keepdims=True),
    sample((4, 1, 3), axis=1),
    sample((129,), axis=-1, keepdims=True),
    sample((), axis=None),
    sample((0, 3), axis=1, keepdims=True),
    sample((2, 3), axis=()),
)
EMPTY = (sample((3, 0), axis=1), sample((0,), keepdims=True))

# -- what all share


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> tuple[Dim, ...]:
    """The shape after reducing ``axes``."""
    sizes = [1 if a in axes else s for a, s in enumerate(shape)]
    return tuple(sizes if keepdims else (s for a, s in enumerate(shape) if a not in axes))


def te_cast(x: te.Tensor, dtype: str) -> te.Tensor:
    """``x`` as another type: a stage, or nothing to do."""
    return x if x.dtype == dtype else te.compute(x.shape, lambda *i: tir.cast(dtype, x[i]), "cast")


def te_reduce(
    kind: str, x: te.Tensor, axes: Sequence[int], keepdims: bool, name: str, source: Callable[..., Any] | None = None
) -> te.Tensor:
    """``kind`` of ``source(element, index)`` over ``axes``: one reduction stage."""
    ks = {a: te.reduce_axis(x.shape[a], f"k{a}") for a in axes}

    def element(*i: tir.PrimExpr) -> Any:
        kept = iter(i)
        index = []
        for a in range(x.ndim):
            if a in ks and keepdims:
                next(kept)
            index.append(ks[a].var if a in ks else next(kept))
        value = x[tuple(index)] if source is None else source(x[tuple(index)], tuple(index))
        return te.reduction(kind, value, tuple(ks.values())) if ks else value

    return te.compute(reduced_shape(x.shape, axes, keepdims), element, name)


def all_of(condition: te.Tensor) -> te.Tensor:
    """Whether a bool tensor holds everywhere, as a tensor of shape ()."""
    return te_reduce("min", condition, range(condition.ndim), False, "check")


def te_sum(x: te.Tensor, axes: Sequence[int], keepdims: bool, source: Callable[..., Any] | None = None) -> te.Tensor:
    """Σ in the accumulator's type, which the result keeps."""
    kind = wide(x.dtype)
    return te_reduce("sum", x, axes, keepdims, "sum", lambda e, i: (source or _first)(tir.cast(kind, e), i))


def _first(e: Any, i: Any) -> Any:
    return e


def count(shape: Sequence[Dim], axes: Sequence[int]) -> Dim:
    """How many elements are reduced into one."""
    return math.prod((shape[a] for a in axes), start=1)


def te_mean(x: te.Tensor, axes: Sequence[int], keepdims: bool, source: Callable[..., Any] | None = None) -> te.Tensor:
    """The mean in the accumulator's type."""
    total = te_sum(x, axes, keepdims, source)
    n = tir.cast(total.dtype, tir.as_expr(count(x.shape, axes)))
    return te.compute(total.shape, lambda *i: total[i] / n, "mean")


def restore(value: Any, x: Any, axis: Axes, keepdims: bool) -> Any:
    """A reduced value with the reduced axes of ``x`` put back as size 1."""
    axes = normalize_axes("reduction", axis, len(x.shape))
    return value if keepdims or not axes else ops.expand_dims(value, axes)


def scalar_count(x: Any, axis: Axes) -> Any:
    """The number of reduced elements as a Python number, or as a scalar tensor when it is symbolic."""
    n = count(x.shape, normalize_axes("reduction", axis, len(x.shape)))
    return float(n) if isinstance(n, int) else ops.full((), n, x.dtype)


def reduction(
    name: str,
    *,
    te: Callable[..., Any],
    numpy: Callable[..., Any],
    gradient: Callable[..., Any],
    dtypes: str = "number",
    empty: bool = True,
    of_scalar: Callable[..., Any] | None = None,
    doc: str = "",
    samples: Sequence[Any] = (),
    **rules: Any,
) -> Op:
    """A reduction. ``te(x, axes, keepdims)`` takes axes counted from the front; ``gradient(dy, y, x, axis)`` gets dy
    and y with the reduced axes as size 1, and ``of_scalar(dy, x)``, where there is one, dy as it is, of a result that
    is a scalar; ``empty``: whether the reduction of nothing has a value."""

    def infer(x: TensorStructInfo, *, axis: Axes, keepdims: bool) -> TensorStructInfo:
        shape = known_shape(name, x)
        expect_dtype(name, x, dtypes)
        axes = normalize_axes(name, axis, len(shape))
        if not empty and any(shape[a] == 0 for a in axes):
            raise ShapeError(f"{name} of no elements: axis {next(a for a in axes if shape[a] == 0)} has size 0")
        return TensorStructInfo(reduced_shape(shape, axes, keepdims), x.dtype)

    @rule_in_wide
    def adjoint(dy: Any, y: Any, x: Any, *, axis: Axes, keepdims: bool) -> tuple[Any]:
        if of_scalar is not None and not dy.shape:
            return (of_scalar(dy, x),)
        return (gradient(restore(dy, x, axis, keepdims), restore(y, x, axis, keepdims), x, axis),)

    return define(
        name,
        "x | axis=None, keepdims=False",
        infer=infer,
        te=lambda x, *, axis, keepdims: te_cast(te(x, normalize_axes(name, axis, x.ndim), keepdims), x.dtype),
        numpy=in_wide(lambda x, axis, keepdims: numpy(x, normalize_axes(name, axis, x.ndim), keepdims)),
        gradient=adjoint,
        family="reduction",
        doc=doc,
        **rules,
        samples=[*SAMPLES, *(EMPTY if empty and dtypes == "number" else ()), *samples],
    )


# -- the reductions

reduction(
    "sum",
    te=te_sum,
    numpy=lambda x, axes, keepdims: np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    gradient=lambda dy, y, x, axis: ops.broadcast_to(dy, x.shape),
    of_scalar=lambda dy, x: ops.broadcast_to(dy, x.shape),
    divisor=lambda x, **attrs: 1,
    doc="Σ x over the axes, in x's dtype; 0 of nothing.",
    samples=[sample(Ints((3, 4), -5, 5, "int32"), axis=0)],
)
reduction(
    "mean",
    te=te_mean,
    numpy=lambda x, axes, keepdims: np.sum(x, axis=axes, keepdims=keepdims) / x.dtype.type(count(x.shape, axes)),
    gradient=lambda dy, y, x, axis: ops.broadcast_to(dy / scalar_count(x, axis), x.shape),
    divisor=lambda x, *, axis, keepdims: count(x.shape, normalize_axes("mean", axis, len(x.shape))),
    dtypes="float",
    doc="Σ x / n over the axes; NaN of nothing.",
)


def _te_vecdot(x: te.Tensor, y: te.Tensor, *, axis: Axes, keepdims: bool) -> te.Tensor:
    shape, kind = broadcast_shapes("vecdot", x.shape, y.shape), wide(x.dtype)
    axes = normalize_axes("vecdot", axis, len(shape))
    ks = {a: te.reduce_axis(shape[a], f"k{a}") for a in axes}

    def element(*i: tir.PrimExpr) -> Any:
        index = [ks[a].var if a in ks else k for a, k in enumerate(_with_ones(i, () if keepdims else axes, len(shape)))]
        product = tir.cast(kind, broadcast_index(x, index)) * tir.cast(kind, broadcast_index(y, index))
        return te.reduction("sum", product, tuple(ks.values())) if ks else product

    return te_cast(te.compute(reduced_shape(shape, axes, keepdims), element, "vecdot"), x.dtype)


def _vecdot(x: np.ndarray, y: np.ndarray, axis: Axes, keepdims: bool) -> np.ndarray:
    product = x * y
    axes = normalize_axes("vecdot", axis, product.ndim)
    return np.sum(product, axis=axes, keepdims=keepdims, dtype=x.dtype)


def _vecdot_infer(x: TensorStructInfo, y: TensorStructInfo, *, axis: Axes, keepdims: bool) -> TensorStructInfo:
    shape = broadcast_shapes("vecdot", known_shape("vecdot", x, "x"), known_shape("vecdot", y, "y"))
    for info in (x, y):
        expect_dtype("vecdot", info, "number")
    dtype = expect_same_dtype("vecdot", x, y)
    return TensorStructInfo(reduced_shape(shape, normalize_axes("vecdot", axis, len(shape)), keepdims), dtype)


def _vecdot_gradient(dz: Any, z: Any, x: Any, y: Any, *, axis: Axes, keepdims: bool) -> tuple[Any, ...]:
    dz = restore(dz, max(x, y, key=lambda v: len(v.shape)), axis, keepdims)
    return collapse_to_operands((dz * y, dz * x), x, y)


define(
    "vecdot",
    "x, y | axis=-1, keepdims=False",
    infer=_vecdot_infer,
    te=_te_vecdot,
    numpy=in_wide(_vecdot),
    gradient=_vecdot_gradient,
    precision="full",
    zeros="mixes",
    family="reduction",
    doc="Σ x·y over the axes (None: every axis), in their dtype; the two broadcast. NumPy's and PyTorch's vecdot, but\n"
    "along one axis or several. A product is not rounded before it is added, where the machine has multiply-adds.",
    samples=[
        sample((3, 17), (3, 17)),
        sample((2, 3, 5), (2, 3, 5), axis=(0, 2), keepdims=True),
        sample((2, 3, 5), (3, 1), axis=1),
        sample((129,), (129,)),
        sample((4, 3), (4, 3), axis=None),
        sample((2, 3), (2, 3), axis=()),
        sample((3, 0), (3, 0), axis=1),
        sample((70, 5), (70, 5), axis=0),
        sample(Ints((3, 4), -5, 5, "int32"), Ints((3, 4), -5, 5, "int32")),
    ],
)


def _product_gradient(dy: Any, y: Any, x: Any, axis: Axes) -> Any:
    return dy * product_of_others(x, normalize_axes("prod", axis, len(x.shape)))


def product_of_others(x: Any, axes: Sequence[int]) -> Any:
    """For each element, the product of the others along ``axes``: of all before and of all after, so that it is exact
    where some are 0, and differentiable again. Several axes are merged into one."""
    if len(axes) == 1:
        return _others(x, axes[0])
    kept = [a for a in range(len(x.shape)) if a not in axes]
    order = [*kept, *axes]
    moved = ops.permute_dims(x, order)
    others = _others(ops.reshape(moved, (*(x.shape[a] for a in kept), count(x.shape, axes))), -1)
    return ops.permute_dims(ops.reshape(others, moved.shape), [order.index(a) for a in range(len(order))])


def _others(x: Any, axis: int) -> Any:
    before, after = (ops.cumprod(x, axis=axis, exclusive=True, reverse=reverse) for reverse in (False, True))
    return before * after


reduction(
    "prod",
    te=lambda x, axes, keepdims: te_reduce("prod", x, axes, keepdims, "prod", lambda e, i: tir.cast(wide(x.dtype), e)),
    numpy=lambda x, axes, keepdims: np.prod(x, axis=axes, keepdims=keepdims, dtype=x.dtype),
    gradient=_product_gradient,
    doc="Π x over the axes, in x's dtype; 1 of nothing.",
    samples=[sample([1.5, 0.0, -2.0]), sample([[0.0, 0.0, 2.0], [3.0, 0.0, -1.0]], axis=1)],
)


def _extremum_gradient(dy: Any, y: Any, x: Any, axis: Axes) -> Any:
    """Evenly shared among the elements that equal the extremum, as PyTorch's amax does."""
    hit = ops.equal(x, y)
    ties = ops.sum(hit.astype(x.dtype), axis, True)
    return masked(hit, dy / ties)


TIES = (
    sample([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], axis=1, smooth=False),
    sample([1.0, float("nan"), 2.0], smooth=False),
)
reduction(
    "max",
    te=lambda x, axes, keepdims: te_reduce("max", x, axes, keepdims, "max"),
    numpy=lambda x, axes, keepdims: np.max(x, axis=axes, keepdims=keepdims),
    gradient=_extremum_gradient,
    empty=False,
    precision="same",
    doc="The largest x over the axes, NaN if any is; equal ones share the adjoint evenly, as in PyTorch's amax.",
    samples=TIES,
)
reduction(
    "min",
    te=lambda x, axes, keepdims: te_reduce("min", x, axes, keepdims, "min"),
    numpy=lambda x, axes, keepdims: np.min(x, axis=axes, keepdims=keepdims),
    gradient=_extremum_gradient,
    empty=False,
    precision="same",
    doc="The smallest x over the axes, NaN if any is; equal ones share the adjoint evenly, as in PyTorch's amin.",
    samples=TIES,
)


def te_variance(x: te.Tensor, axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """The mean of squared deviations from the mean, in the accumulator's type."""
    center = te_mean(x, axes, True)

    def squared(e: Any, index: tuple[Any, ...]) -> Any:
        deviation = e - center[tuple(tir.as_expr(0) if a in axes else i for a, i in enumerate(index))]
        return deviation * deviation

    return te_mean(x, axes, keepdims, squared)


def _te_std(x: te.Tensor, axes: Sequence[int], keepdims: bool) -> te.Tensor:
    v = te_variance(x, axes, keepdims)
    return te.compute(v.shape, lambda *i: tir.call("sqrt", v[i]), "std")


def te_logsumexp(x: te.Tensor, axes: Sequence[int], keepdims: bool) -> te.Tensor:
    """peak + log Σ exp(x - peak), with 0 in place of an infinite peak."""
    x = te_cast(x, wide(x.dtype))
    peak = te_reduce("max", x, axes, True, "max")
    base = te.compute(peak.shape, lambda *i: tir.select(tir.call("isfinite", peak[i]), peak[i], 0.0), "base")

    def at(index: tuple[Any, ...]) -> Any:
        return base[tuple(tir.as_expr(0) if a in axes else i for a, i in enumerate(index))]

    total = te_sum(x, axes, True, lambda e, i: tir.call("exp", e - at(i)))
    kept = te.compute(total.shape, lambda *i: base[i] + tir.call("log", total[i]), "logsumexp")
    shape = reduced_shape(x.shape, axes, keepdims)
    return kept if keepdims else te.compute(shape, lambda *i: kept[_with_ones(i, axes, x.ndim)], "logsumexp")


def _with_ones(i: Sequence[Any], axes: Sequence[int], rank: int) -> tuple[Any, ...]:
    """The index into a tensor whose reduced axes were kept."""
    kept = iter(i)
    return tuple(tir.as_expr(0) if a in axes else next(kept) for a in range(rank))


_LOG_ADD: np.ufunc = np.logaddexp


def _logsumexp(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(_LOG_ADD.reduce(x, axes, keepdims=keepdims)) if axes else x


def _deviation(x: Any, axis: Axes) -> Any:
    return x - ops.mean(x, axis, True)


def _std_gradient(dy: Any, y: Any, x: Any, axis: Axes) -> Any:
    some = ops.not_equal(y, 0.0)  # so is NaN
    safe = ops.where(some, y, ops.ones_like(y))
    return masked(some, dy / (safe * scalar_count(x, axis)) * _deviation(x, axis))


reduction(
    "variance",
    te=te_variance,
    numpy=lambda x, axes, keepdims: np.var(x, axis=axes, keepdims=keepdims),
    gradient=lambda dy, y, x, axis: dy * 2.0 / scalar_count(x, axis) * _deviation(x, axis),
    dtypes="float",
    doc="Σ (x - mean)² / n over the axes: the variance of a whole population.",
)
reduction(
    "std",
    te=_te_std,
    numpy=lambda x, axes, keepdims: np.std(x, axis=axes, keepdims=keepdims),
    gradient=_std_gradient,
    dtypes="float",
    doc="√variance over the axes; where it is 0 the derivative is taken as 0, as in PyTorch.",
)


reduction(
    "logsumexp",
    te=te_logsumexp,
    numpy=_logsumexp,
    gradient=lambda dy, y, x, axis: dy * ops.exp(x - y),
    dtypes="float",
    doc="log Σ eˣ over the axes, without overflow; -∞ of nothing.",
    samples=[
        sample([[1e4, 0.0, -1e4], [float("-inf"), 0.0, 1.0]], axis=1, smooth=False),
        sample([float("-inf"), float("-inf")], smooth=False),
        sample((3, 0), axis=1, smooth=False),
    ],
)

# -- reductions of truth


def _truth(name: str, result: str, te_value: Callable[..., Any], numpy: Callable[..., Any], doc: str) -> Op:
    """A reduction of whether elements are not 0: NaN is not."""

    def infer(x: TensorStructInfo, *, axis: Axes, keepdims: bool) -> TensorStructInfo:
        shape = known_shape(name, x)
        return TensorStructInfo(reduced_shape(shape, normalize_axes(name, axis, len(shape)), keepdims), result)

    def build(x: te.Tensor, *, axis: Axes, keepdims: bool) -> te.Tensor:
        def source(e: Any, i: Any) -> Any:
            return te_value(e if e.dtype == "bool" else e.not_equal(tir.const(0, e.dtype)))

        kind = {"any": "max", "all": "min"}.get(name, "sum")
        return te_reduce(kind, x, normalize_axes(name, axis, x.ndim), keepdims, name, source)

    def meaning(x: np.ndarray, *, axis: Axes, keepdims: bool) -> np.ndarray:
        return np.asarray(numpy(x != 0, axis=normalize_axes(name, axis, x.ndim), keepdims=keepdims))

    return define(
        name,
        "x | axis=None, keepdims=False",
        infer=infer,
        te=build,
        numpy=meaning,
        gradient=zero_gradient,
        precision="same",
        family="reduction",
        doc=doc,
        samples=[
            *SAMPLES,
            *EMPTY,
            sample(Bools((3, 4)), axis=1),
            sample(Bools((5, 7)), keepdims=True),
            sample(Ints((4, 3), -1, 2), axis=0),
            sample(Ints((2, 5), 0, 1, "int8")),
            sample([0.0, -0.0, float("nan"), 0.5]),
            sample([[0.0, 0.0], [1.0, 2.0]], axis=1),
        ],
    )


_truth("any", "bool", lambda e: e, np.any, "Whether any x over the axes is true, or not 0; false of nothing.")
_truth("all", "bool", lambda e: e, np.all, "Whether all x over the axes are true, or not 0; true of nothing.")
_truth(
    "count_nonzero",
    "int64",
    lambda e: tir.cast("int64", e),
    lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims, dtype=np.int64),
    "How many x over the axes are true, or not 0 (int64).",
)


def _arg(name: str, which: str, numpy: Callable[..., Any]) -> Op:
    def infer(x: TensorStructInfo, *, axis: int | None, keepdims: bool) -> TensorStructInfo:
        shape = known_shape(name, x)
        expect_dtype(name, x, "number")
        axes = range(len(shape)) if axis is None else (normalize_axis(name, axis, len(shape)),)
        if any(shape[a] == 0 for a in axes):
            raise ShapeError(f"{name} of no elements: the shape is {shape}")
        return TensorStructInfo(reduced_shape(shape, axes, keepdims), "int64")

    def build(x: te.Tensor, *, axis: int | None, keepdims: bool) -> te.Tensor:
        if x.ndim == 0:
            return te.compute((), lambda: tir.as_expr(0), name)
        if axis is not None or x.ndim == 1:
            return te_reduce(name, x, (normalize_axis(name, axis or 0, x.ndim),), keepdims, name)
        k = te.reduce_axis(count(x.shape, range(x.ndim)), "k")
        index: list[tir.PrimExpr] = []
        rest: tir.PrimExpr = k.var
        for size in reversed(x.shape[1:]):
            index.append(rest % size)
            rest = rest // size
        index.append(rest)
        source = x[tuple(reversed(index))]
        shape = (1,) * x.ndim if keepdims else ()
        return te.compute(shape, lambda *i: te.reduction(name, source, k), name)

    def meaning(x: np.ndarray, *, axis: int | None, keepdims: bool) -> np.ndarray:
        return np.asarray(numpy(x, axis=axis, keepdims=keepdims), np.int64)

    return define(
        name,
        "x | axis=None, keepdims=False",
        infer=infer,
        te=build,
        numpy=meaning,
        gradient=zero_gradient,
        precision="same",
        family="arg reduction",
        doc=f"The index (int64) of the {which} x along an axis, or in the flattened x; of equal ones the first, "
        "and of NaNs the first NaN.",
        samples=[
            sample((3, 17), axis=1),
            sample((3, 4, 5), axis=-2, keepdims=True),
            sample((3, 4)),
            sample((2, 1), keepdims=True),
            sample(()),
            sample((0, 3), axis=1),
            sample([1.0, 3.0, 3.0, 0.0, 0.0]),
            sample([[1.0, float("nan"), 3.0, float("nan")]], axis=1),
            sample(Ints((4, 5), 0, 3), axis=0),
        ],
    )


_arg("argmax", "largest", np.argmax)
_arg("argmin", "smallest", np.argmin)
