"""Max pooling and its derivative, over one, two or three spatial axes.

Each window passes its adjoint to one element: the first, in row-major order, that is its maximum, or its first NaN.
Padding is never chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import expect_same_dtype, in_wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.pooling import (
    ATTRIBUTES,
    Condition,
    Pool,
    all_of,
    between,
    covering,
    expect_result,
    pool_infer,
    pool_layouts,
    pool_of,
    signature,
    standard_padded,
    sum_over_windows,
    unpadded,
    where_all,
    windows_over,
)
from pullback.relax.op.reduce import te_cast
from pullback.relax.op.sample import Ints, Sample
from pullback.relax.op.window import SPATIAL, reduced, running, tap_extents, under
from pullback.relax.struct_info import TensorStructInfo, same_shape
from pullback.te.graph import identity
from pullback.tir.expr import is_float

_COMPARED = 16  # windows of at most so many taps are compared anew at each of their elements

# -- tensor expressions


def _padded(x: te.Tensor, pool: Pool) -> te.Tensor:
    if not any(a.before or a.after for a in pool.axes):
        return x
    widths = pool.x.from_standard([(0, 0), (0, 0), *((a.before, a.after) for a in pool.axes)])
    return ops.nn.pad.te(x, pad_width=widths, pad_mode="constant", pad_value=identity("max", x.dtype))


def _reduced(kind: str, x: te.Tensor, pool: Pool, element: Callable[..., tir.PrimExpr], name: str) -> te.Tensor:
    """out[n, c, o…] = kind over k… of ``element((n, c, o…), (k…), padded[n, c, o·stride + k·dilation…])``."""
    batch, channels = pool.x.to_standard(x.shape)[:2]
    padded = _padded(x, pool)
    ks, axes = running(tap_extents(pool.taps))

    def body(*i: tir.PrimExpr) -> Any:
        n, c, *at = pool.y.to_standard(i)
        taps = [o * a.stride + k * a.dilation for o, k, a in zip(at, ks, pool.axes, strict=True)]
        return reduced(kind, element(i, ks, padded[pool.x.from_standard([n, c, *taps])]), axes)

    return te.compute(pool.y.from_standard([batch, channels, *pool.positions]), body, name)


def _max_te(x: te.Tensor, pool: Pool) -> te.Tensor:
    return _reduced("max", x, pool, lambda window, tap, value: value, "max_pool")


def _chosen(x: te.Tensor, pool: Pool) -> te.Tensor:
    """For each window the number of the tap that it chooses, the first that equals its maximum; if all of its taps are
    padding, one that does not exist."""
    largest, none = _max_te(x, pool), tir.const(math.prod(pool.taps), "int32")

    def candidate(window: Sequence[tir.PrimExpr], tap: Sequence[tir.PrimExpr], value: tir.PrimExpr) -> tir.PrimExpr:
        equal = value.equal(largest[tuple(window)])
        hit = equal | tir.call("isnan", value) if is_float(x.dtype) else equal
        _, real = _tap(pool, pool.y.to_standard(window)[2:], tap)
        return tir.select(all_of([hit, *real]), tir.cast("int32", _number(tap, pool.taps)), none)

    return _reduced("min", x, pool, candidate, "chosen")


def _number(index: Sequence[tir.PrimExpr], sizes: Sequence[int]) -> tir.PrimExpr:
    """The number of a place in row-major order."""
    number = tir.as_expr(0)
    for i, size in zip(index, sizes, strict=True):
        number = number * size + i
    return number


def _digits(number: tir.PrimExpr, sizes: Sequence[int]) -> list[tir.PrimExpr]:
    """The place with this number."""
    index = []
    for size in reversed(sizes[1:]):
        index.append(number % size)
        number = number // size
    return [number, *reversed(index)]


def _gradient_te(dy: te.Tensor, x: te.Tensor, pool: Pool) -> te.Tensor:
    if math.prod(pool.taps) <= _COMPARED and all(covering(a) == 1 for a in pool.axes):
        return _compared(dy, x, pool)
    chosen = _chosen(x, pool)

    def holds(window: tuple[tir.PrimExpr, ...], tap: list[tir.PrimExpr]) -> Condition:
        return [chosen[window].equal(tir.cast("int32", _number(tap, pool.taps)))]

    return te_cast(sum_over_windows(pool, dy, "max_pool_gradient", holds), dy.dtype)


def _compared(dy: te.Tensor, x: te.Tensor, pool: Pool) -> te.Tensor:
    """Where windows do not overlap: each element compared with all of its window. It is chosen if each earlier one is
    smaller and each later one not larger; a NaN, if no earlier one is NaN."""

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        n, c, *at = pool.x.to_standard(i)
        positions, taps, conditions = windows_over(pool, at, [tir.as_expr(0)] * len(at))
        own = _number(taps, pool.taps)
        for number, tap in enumerate(np.ndindex(*pool.taps)):
            places, real = _tap(pool, positions, tap)
            rival = x[pool.x.from_standard([n, c, *places])]
            before_earlier, before_later = _wins(x[i], rival)
            wins = tir.select(own > number, before_earlier, before_later)
            conditions.append(wins | ~all_of(real) if real else wins)
        return where_all(conditions, dy[pool.y.from_standard([n, c, *positions])])

    return te.compute(x.shape, element, "max_pool_gradient")


def _wins(value: tir.PrimExpr, rival: tir.PrimExpr) -> tuple[tir.PrimExpr, tir.PrimExpr]:
    """Whether a value is chosen before an earlier rival, and before a later one."""
    if not is_float(value.dtype):
        return rival < value, rival <= value
    nan = tir.call("isnan", value)
    return (rival < value) | (nan & ~tir.call("isnan", rival)), (rival <= value) | nan


def _tap(
    pool: Pool, positions: Sequence[tir.PrimExpr], tap: Sequence[int | tir.PrimExpr]
) -> tuple[list[tir.PrimExpr], Condition]:
    """The place of a window's tap, made valid, and the conditions for its being no padding."""
    places, conditions = [], []
    for a, o, k in zip(pool.axes, positions, tap, strict=True):
        first, last = (k, k) if isinstance(k, int) else (0, a.taps - 1)
        place, low, high = o * a.stride + (tir.as_expr(k) * a.dilation - a.before), None, None
        if first * a.dilation < a.before:
            conditions.append(place >= 0)
            low = 0
        if (a.positions - 1) * a.stride - a.before + last * a.dilation >= a.size:
            conditions.append(place < a.size)
            high = a.size - 1
        places.append(between(place, low, high))
    return places, conditions


def _pick_te(values: te.Tensor, x: te.Tensor, pool: Pool) -> te.Tensor:
    chosen, taps = _chosen(x, pool), math.prod(pool.taps)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        n, c, *at = pool.y.to_standard(i)
        tap = tir.minimum(tir.cast("int64", chosen[i]), taps - 1)
        places, real = _tap(pool, at, _digits(tap, pool.taps))
        return where_all(real, values[pool.x.from_standard([n, c, *places])])

    return te.compute(chosen.shape, element, "max_pool_pick")


# -- the meaning


def _max_array(x: np.ndarray, pool: Pool) -> np.ndarray:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = standard_padded(x, pool, low)
    result = np.full((*padded.shape[:2], *pool.positions), low, x.dtype)
    for tap in np.ndindex(*pool.taps):
        result = np.maximum(result, padded[under(tap, pool.axes)])
    return np.ascontiguousarray(pool.y.own_array(result))


def _first_maximum(x: np.ndarray, pool: Pool) -> np.ndarray:
    """The number of the tap that each window chooses, in the standard layout; -1 where it holds no element."""
    padded = standard_padded(x, pool, 0)
    real = standard_padded(np.ones(x.shape, np.bool_), pool, False)
    best = np.full((*padded.shape[:2], *pool.positions), -1)
    largest = np.zeros(best.shape, x.dtype)
    for number, tap in enumerate(np.ndindex(*pool.taps)):
        value, is_real = padded[under(tap, pool.axes)], real[under(tap, pool.axes)]
        better = is_real & ((best < 0) | (value > largest) | (np.isnan(value) & ~np.isnan(largest)))
        best, largest = np.where(better, number, best), np.where(better, value, largest)
    return best


def _gradient_array(dy: np.ndarray, x: np.ndarray, pool: Pool) -> np.ndarray:
    best, dy = _first_maximum(x, pool), pool.y.standard_array(dy)
    total = np.zeros_like(standard_padded(x, pool, 0), dtype=dy.dtype)
    for number, tap in enumerate(np.ndindex(*pool.taps)):
        total[under(tap, pool.axes)] += np.where(best == number, dy, dy.dtype.type(0))
    return unpadded(total, pool)


def _pick_array(values: np.ndarray, x: np.ndarray, pool: Pool) -> np.ndarray:
    best, padded = _first_maximum(x, pool), standard_padded(values, pool, 0)
    result = np.zeros(best.shape, values.dtype)
    for number, tap in enumerate(np.ndindex(*pool.taps)):
        result = np.where(best == number, padded[under(tap, pool.axes)], result)
    return np.ascontiguousarray(pool.y.own_array(result))


# -- the ops


def _define(rank: int) -> None:
    maximum, gradient, pick = f"nn.max_pool{rank}d", f"grad.max_pool{rank}d", f"grad.max_pool{rank}d_pick"

    def pool(op: str, x: Any, attrs: dict[str, Any]) -> Pool:
        return pool_of(op, rank, pool_layouts(op, rank, attrs)[0].to_standard(x.shape)[2:], attrs)

    def transposed(name: str) -> Callable[..., tuple[Any, None]]:
        """The gradient of an op that is linear in its first argument, by the op whose matrix is the transpose."""
        return lambda adjoint, y, first, data, **attrs: (getattr(ops.grad, name)(adjoint, data, **attrs), None)

    def gradient_infer(dy: TensorStructInfo, data: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        expect_result(gradient, dy, pool_infer(gradient, rank, data, attrs, "number"))
        return data

    def pick_infer(values: TensorStructInfo, data: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        result = pool_infer(pick, rank, data, attrs, "number")
        if values.shape is None or not same_shape(values.shape, data.shape):  # type: ignore[arg-type]
            raise ShapeError(f"{pick}: values and data must have one shape, got {values} and {data}")
        expect_same_dtype(pick, values, data)
        return result

    define(
        maximum,
        signature("data", rank),
        infer=lambda data, **attrs: pool_infer(maximum, rank, data, attrs, "number"),
        te=lambda data, **attrs: _max_te(data, pool(maximum, data, attrs)),
        numpy=in_wide(lambda data, **attrs: _max_array(data, pool(maximum, data, attrs))),
        gradient=lambda dy, y, data, **attrs: (getattr(ops.grad, f"max_pool{rank}d")(dy, data, **attrs),),
        family="pooling",
        doc=f"The largest element of each window, NaN if any is; padding counts as -∞. {ATTRIBUTES}\n"
        "The first of equal elements gets the adjoint, the first NaN if there is one. count_include_pad means nothing.",
        samples=[Sample((data,), attrs, smooth) for data, _, attrs, smooth in _SAMPLES[rank]],
    )
    define(
        gradient,
        signature("dy, data", rank),
        infer=gradient_infer,
        te=lambda dy, data, **attrs: _gradient_te(dy, data, pool(gradient, data, attrs)),
        numpy=in_wide(lambda dy, data, **attrs: _gradient_array(dy, data, pool(gradient, data, attrs))),
        gradient=transposed(f"max_pool{rank}d_pick"),
        family="pooling",
        doc=f"The adjoint of nn.max_pool{rank}d's data: each element is the sum of dy over the windows that choose it.",
        samples=[Sample((dy, data), attrs, smooth) for data, dy, attrs, smooth in _SAMPLES[rank]],
    )
    define(
        pick,
        signature("values, data", rank),
        infer=pick_infer,
        te=lambda values, data, **attrs: _pick_te(values, data, pool(pick, data, attrs)),
        numpy=in_wide(lambda values, data, **attrs: _pick_array(values, data, pool(pick, data, attrs))),
        gradient=transposed(f"max_pool{rank}d"),
        family="pooling",
        doc=f"Of each window of data, the element of values at the place that nn.max_pool{rank}d chooses; 0 where it\n"
        "holds none.",
        samples=[Sample((data, data), attrs, smooth) for data, _, attrs, smooth in _SAMPLES[rank]],
    )


def _sample(data: Any, result: Any, smooth: bool = True, **attrs: Any) -> tuple[Any, Any, dict[str, Any], bool]:
    """What the samples of the three ops are made of: the data, and the shape of the result."""
    return data, result, attrs, smooth


_NAN = float("nan")
_SAMPLES = {
    1: [
        _sample((2, 3, 7), (2, 3, 5), pool_size=3),
        _sample((2, 9, 2), (2, 5, 2), pool_size=2, strides=2, ceil_mode=True, layout="NWC"),
        _sample((1, 1, 40), (1, 1, 2), pool_size=20, strides=20),
    ],
    2: [
        _sample((2, 3, 6, 4), (2, 3, 3, 2), pool_size=2, strides=2),
        _sample((2, 2, 7, 7), (2, 2, 4, 4), pool_size=3, strides=2, padding=1),
        _sample((1, 2, 5, 6), (1, 2, 4, 2), pool_size=(2, 3), strides=(1, 2)),
        _sample((1, 2, 7, 5), (1, 2, 3, 2), pool_size=2, strides=3, padding=1, ceil_mode=True),
        _sample((1, 2, 5, 5), (1, 2, 3, 3), pool_size=2, strides=2, padding=(1, 0, 0, 1)),
        _sample((1, 2, 5, 5), (1, 2, 3, 3), pool_size=2, strides=2, ceil_mode=True),
        _sample((1, 2, 2, 4), (1, 2, 1, 2), pool_size=3, strides=2, ceil_mode=True),
        _sample((2, 7, 6, 2), (2, 5, 4, 2), pool_size=2, dilation=2, layout="NHWC"),
        _sample((1, 2, 6, 7), (1, 2, 4, 2), pool_size=2, strides=(3, 2), dilation=(2, 1), padding=1, out_layout="NHWC"),
        _sample((1, 1, 1, 5), (1, 1, 2, 3), False, pool_size=(2, 3), padding=(2, 0), dilation=(3, 1)),
        _sample((1, 1, 5, 5), (1, 1, 1, 1), pool_size=5, strides=5),
        _sample((1, 2, 3, 3), (1, 2, 2, 2), strides=2),
        _sample((0, 2, 4, 4), (0, 2, 2, 2), pool_size=2, strides=2),
        _sample(
            Ints((1, 2, 5, 5), -9, 9, "int32"), Ints((1, 2, 3, 3), -9, 9, "int32"), pool_size=3, padding=1, strides=2
        ),
        _sample(Ints((1, 2, 4, 4), 0, 4, "uint8"), Ints((1, 2, 2, 2), 0, 9, "uint8"), pool_size=2, strides=2),
        _sample([[[[1, 3, 3], [2, 3, 3], [3, 1, 0]]]], (1, 1, 2, 2), False, pool_size=2),
        _sample([[[[0, 0, -1, -1], [0, 0, -1, -1]]]], (1, 1, 1, 2), False, pool_size=2, strides=2),
        _sample([[[[1, _NAN, 2, 3], [5, _NAN, 3, 1]]]], (1, 1, 1, 2), False, pool_size=2, strides=2),
        _sample([[[[1, _NAN, 2, 3], [5, 0, 3, _NAN]]]], (1, 1, 1, 3), False, pool_size=2),
        _sample([[[[-np.inf, -np.inf], [-np.inf, -np.inf]]]], (1, 1, 3, 3), False, pool_size=2, padding=1),
        _sample([[[[-np.inf, -np.inf], [-np.inf, -np.inf]]]], (1, 1, 2, 2), False, pool_size=2, padding=1, strides=2),
    ],
    3: [
        _sample((1, 2, 4, 3, 4), (1, 2, 2, 1, 2), pool_size=2, strides=2),
        _sample((1, 1, 4, 3, 4), (1, 1, 2, 3, 4), pool_size=(2, 3, 2), strides=(2, 1, 1), padding=(0, 1, 0, 0, 1, 1)),
    ],
}


for _rank in SPATIAL:
    _define(_rank)
