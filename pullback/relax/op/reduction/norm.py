"""Norms of vectors, and what is measured by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    normalize_axes,
    widened,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import EMPTY, SAMPLES, Axes, restore
from pullback.relax.op.sample import sample
from pullback.relax.struct_info import TensorStructInfo


def _check(x: TensorStructInfo, *, ord: float, axis: Axes, keepdims: bool) -> None:
    shape = known_shape("norm", x)
    expect_dtype("norm", x, "float")
    axes = normalize_axes("norm", axis, len(shape))
    if math.isnan(ord):
        raise UserError("norm: ord must be a number, got nan")
    if (math.isinf(ord) or ord < 0) and any(shape[a] == 0 for a in axes):
        raise ShapeError(
            f"norm of order {ord} of no elements: axis {next(a for a in axes if shape[a] == 0)} has size 0"
        )


def _norm(x: Any, *, ord: float, axis: Axes, keepdims: bool, **_: Any) -> Any:
    dtype, x = x.dtype, widened(x)
    size = ops.abs(x)
    if math.isinf(ord):
        y = (ops.max if ord > 0 else ops.min)(size, axis, keepdims)
    elif ord == 0:
        y = ops.sum(ops.astype(ops.not_equal(x, 0.0), x.dtype), axis, keepdims)
    elif ord == 1:
        y = ops.sum(size, axis, keepdims)
    elif ord == 2:
        y = ops.sqrt(ops.vecdot(x, x, axis, keepdims))
    else:
        y = ops.power(ops.sum(ops.power(size, float(ord)), axis, keepdims), 1 / ord)
    return narrowed(y, dtype)


def _gradient(dy: Any, y: Any, x: Any, *, ord: float, axis: Axes, keepdims: bool) -> tuple[Any]:
    """dy·sign(x)·(|x| / y)^(ord - 1), and 0 where x or y is 0; of the largest or smallest, an even share."""
    dtype, x = x.dtype, widened(x)
    if ord == 0:
        return (None,)
    dy, y = (widened(restore(v, x, axis, keepdims)) for v in (dy, y))
    size = ops.abs(x)
    if math.isinf(ord):
        hit = ops.equal(size, y)
        share = dy / ops.sum(ops.astype(hit, x.dtype), axis, True)
        return (narrowed(masked(hit, share * ops.sign(x)), dtype),)
    if ord == 1:
        return (narrowed(dy * ops.sign(x), dtype),)
    some = ops.not_equal(y, 0.0)  # so is NaN
    ratio = ops.where(some, x, 0.0) / ops.where(some, y, ops.ones_like(y))
    if ord == 2:
        return (narrowed(dy * ratio, dtype),)
    inside = ops.logical_and(ops.not_equal(x, 0.0), some)
    power = ops.power(ops.where(inside, ops.abs(ratio), ops.ones_like(x)), ord - 1.0)
    return (narrowed(masked(inside, dy * ops.sign(x) * power), dtype),)


def _array(x: np.ndarray, ord: float, axis: Axes, keepdims: bool) -> np.ndarray:
    axes = normalize_axes("norm", axis, x.ndim)
    size = np.abs(x)
    if math.isinf(ord):
        return (np.max if ord > 0 else np.min)(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        return np.sum(x != 0, axis=axes, keepdims=keepdims, dtype=x.dtype)
    with np.errstate(all="ignore"):
        power = np.sum(size ** x.dtype.type(ord), axis=axes, keepdims=keepdims, dtype=x.dtype)
        return np.asarray(power ** x.dtype.type(1 / ord))


composite(
    "norm",
    "x | ord=2.0, axis=None, keepdims=False",
    expect=_check,
    decompose=_norm,
    numpy=in_wide(_array),
    gradient=_gradient,
    family="reduction",
    doc="(Σ |x|^ord)^(1/ord) over the axes, of all elements by default; for ord inf and -inf the largest and smallest\n"
    "|x|, for 0 the number of x that are not 0. Where x or the norm is 0 the derivative is taken as 0.\n"
    "PyTorch's linalg.vector_norm.",
    samples=[
        *SAMPLES,
        *EMPTY,
        sample((3, 17), ord=1, axis=1),
        sample((3, 4, 5), ord=3.0, axis=(0, 2)),
        sample((3, 17), ord=1.5, axis=-1, keepdims=True),
        sample((3, 17), ord=0.5, axis=0),
        sample((3, 17), ord=-2.0),
        sample((3, 17), ord=float("inf"), axis=1),
        sample((3, 17), ord=float("-inf"), axis=1, keepdims=True),
        sample([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]], ord=0, axis=1, smooth=False),
        sample([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0]], axis=1, smooth=False),
        sample([[0.0, 2.0, -2.0], [0.0, 0.0, 0.0]], ord=float("inf"), axis=1, smooth=False),
    ],
)
