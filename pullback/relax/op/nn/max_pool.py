"""Max pooling and its derivative, over one, two or three spatial axes.

Each window passes its adjoint to one element: the first, in row-major order, that is its maximum, or its first NaN.
Padding is never chosen. Which of its taps a window chooses is an op by itself, so that the derivatives read a small
number for each window, and not the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import expect_dtype, in_wide, specialize, zero_gradient
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.pooling import (
    ATTRIBUTES,
    Condition,
    Pool,
    all_of,
    between,
    expect_result,
    pool_infer,
    pool_layouts,
    pool_of,
    signature,
    standard_padded,
    sum_over_windows,
    unpadded,
    where_all,
)
from pullback.relax.op.nn.window import (
    SPATIAL,
    Windowed,
    data_info,
    numbers,
    reduced,
    running,
    spatial_sizes,
    standard_shape,
    tap_extents,
    under,
)
from pullback.relax.op.reduction.reduce import te_cast
from pullback.relax.op.sample import Ints, Sample
from pullback.relax.struct_info import TensorStructInfo, same_shape
from pullback.te.graph import identity
from pullback.tir.expr import is_float
from pullback.tir.polynomial import at_most

# -- tensor expressions


def _padded(x: te.Tensor, pool: Pool) -> te.Tensor:
    if not any(a.is_padded for a in pool.axes):
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


def _number_dtype(taps: int) -> str:
    """The type of the numbers of so many taps, and of one that does not exist."""
    return "uint8" if taps < 256 else "int32"


def _chosen_te(x: te.Tensor, pool: Pool) -> te.Tensor:
    """For each window the number of the tap that it chooses, the first that equals its maximum; if all of its taps are
    padding, one that does not exist."""
    dtype = _number_dtype(math.prod(pool.taps))
    largest, none = _max_te(x, pool), tir.const(math.prod(pool.taps), dtype)

    def candidate(window: Sequence[tir.PrimExpr], tap: Sequence[tir.PrimExpr], value: tir.PrimExpr) -> tir.PrimExpr:
        equal = value.equal(largest[tuple(window)])
        hit = equal | tir.call("isnan", value) if is_float(x.dtype) else equal
        _, real = _tap(pool, pool.y.to_standard(window)[2:], tap)
        return tir.select(all_of([hit, *real]), tir.cast(dtype, _number(tap, pool.taps)), none)

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


def _gradient_te(dy: te.Tensor, chosen: te.Tensor, pool: Pool) -> te.Tensor:
    def holds(window: tuple[tir.PrimExpr, ...], tap: list[tir.PrimExpr]) -> Condition:
        return [chosen[window].equal(tir.cast(chosen.dtype, _number(tap, pool.taps)))]

    return te_cast(sum_over_windows(pool, dy, "max_pool_gradient", holds), dy.dtype)


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
        if not at_most((a.positions - 1) * a.stride - a.before + last * a.dilation + 1, a.size):
            conditions.append(place < a.size)
            high = a.size - 1
        places.append(between(place, low, high))
    return places, conditions


def _pick_te(values: te.Tensor, chosen: te.Tensor, pool: Pool) -> te.Tensor:
    taps = math.prod(pool.taps)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        n, c, *at = pool.y.to_standard(i)
        tap = tir.minimum(tir.cast("int64", chosen[i]), taps - 1)
        places, real = _tap(pool, at, _digits(tap, pool.taps))
        exists = chosen[i] < tir.const(taps, chosen.dtype)
        return where_all([exists, *real], values[pool.x.from_standard([n, c, *places])])

    return te.compute(chosen.shape, element, "max_pool_pick")


# -- the meaning


def _max_array(x: np.ndarray, pool: Pool) -> np.ndarray:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = standard_padded(x, pool, low)
    result = np.full((*padded.shape[:2], *pool.positions), low, x.dtype)
    for tap in np.ndindex(*pool.taps):
        result = np.maximum(result, padded[under(tap, pool.axes)])
    return np.ascontiguousarray(pool.y.own_array(result))


def _chosen_array(x: np.ndarray, pool: Pool) -> np.ndarray:
    padded = standard_padded(x, pool, 0)
    real = standard_padded(np.ones(x.shape, np.bool_), pool, False)
    taps = math.prod(pool.taps)
    best = np.full((*padded.shape[:2], *pool.positions), taps)
    largest = np.zeros(best.shape, x.dtype)
    for number, tap in enumerate(np.ndindex(*pool.taps)):
        value, is_real = padded[under(tap, pool.axes)], real[under(tap, pool.axes)]
        better = is_real & ((best == taps) | (value > largest) | (np.isnan(value) & ~np.isnan(largest)))
        best, largest = np.where(better, number, best), np.where(better, value, largest)
    return np.ascontiguousarray(pool.y.own_array(best.astype(_number_dtype(taps))))


def _gradient_array(dy: np.ndarray, chosen: np.ndarray, pool: Pool) -> np.ndarray:
    dy, chosen = pool.y.standard_array(dy), pool.y.standard_array(chosen)
    shape = pool.x.from_standard([*dy.shape[:2], *pool.sizes])
    total = np.zeros_like(standard_padded(np.zeros(shape, dy.dtype), pool, 0))
    for number, tap in enumerate(np.ndindex(*pool.taps)):
        total[under(tap, pool.axes)] += np.where(chosen == number, dy, dy.dtype.type(0))
    return unpadded(total, pool)


def _pick_array(values: np.ndarray, chosen: np.ndarray, pool: Pool) -> np.ndarray:
    chosen, padded = pool.y.standard_array(chosen), standard_padded(values, pool, 0)
    result = np.zeros(chosen.shape, values.dtype)
    for number, tap in enumerate(np.ndindex(*pool.taps)):
        result = np.where(chosen == number, padded[under(tap, pool.axes)], result)
    return np.ascontiguousarray(pool.y.own_array(result))


# -- the ops


def _pool(op: str, rank: int, x: Any, attrs: dict[str, Any]) -> Pool:
    """The windows of a call over x."""
    return pool_of(op, rank, pool_layouts(op, rank, attrs)[0].to_standard(x.shape)[2:], attrs)


def _expect_choice(op: str, chosen: TensorStructInfo, result: TensorStructInfo, windows: Pool) -> None:
    """Raise an error unless ``chosen`` holds a tap's number for each element of the result."""
    expected = TensorStructInfo(result.shape, _number_dtype(math.prod(windows.taps)))
    if chosen.dtype != expected.dtype or chosen.shape is None or not same_shape(chosen.sizes, expected.sizes):
        choice = f"grad.max_pool{len(windows.taps)}d_choice"
        raise ShapeError(f"{op}: chosen must be what {choice} gives, {expected}, got {chosen}")


def _define(rank: int) -> None:
    """The largest elements, and which they are."""
    maximum, choice = f"nn.max_pool{rank}d", f"grad.max_pool{rank}d_choice"

    def choice_infer(data: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        result = pool_infer(choice, rank, data, attrs, "number")
        return TensorStructInfo(result.shape, _number_dtype(math.prod(_pool(choice, rank, data, attrs).taps)))

    def adjoint(dy: Any, y: Any, data: Any, **attrs: Any) -> tuple[Any]:
        chosen = getattr(ops.grad, f"max_pool{rank}d_choice")(data, **attrs)
        size = tuple(_pool(maximum, rank, data, attrs).sizes)
        return (getattr(ops.grad, f"max_pool{rank}d")(dy, chosen, size=size, **attrs),)

    specialize(
        define(
            maximum,
            signature("data", rank),
            infer=lambda data, **attrs: pool_infer(maximum, rank, data, attrs, "number"),
            te=lambda data, **attrs: _max_te(data, _pool(maximum, rank, data, attrs)),
            numpy=in_wide(lambda data, **attrs: _max_array(data, _pool(maximum, rank, data, attrs))),
            gradient=adjoint,
            precision="same",
            family="pooling",
            doc=f"The largest element of each window, NaN if any is; padding counts as -∞. {ATTRIBUTES}\n"
            "The first of equal elements gets the adjoint, the first NaN if there is one. count_include_pad means\n"
            "nothing.",
            samples=[Sample((data,), attrs, smooth) for data, _, attrs, smooth in _SAMPLES[rank]],
        ),
        Windowed,
    )
    define(
        choice,
        signature("data", rank),
        infer=choice_infer,
        te=lambda data, **attrs: _chosen_te(data, _pool(choice, rank, data, attrs)),
        numpy=in_wide(lambda data, **attrs: _chosen_array(data, _pool(choice, rank, data, attrs))),
        gradient=zero_gradient,
        precision="same",
        family="pooling",
        doc=f"For each window the number, in row-major order, of the tap that nn.max_pool{rank}d takes; the number of\n"
        "taps where all of them are padding. uint8, or int32 for windows of more than 255 taps.",
        samples=[Sample((data,), attrs, smooth) for data, _, attrs, smooth in _SAMPLES[rank]],
    )


def _define_derivatives(rank: int) -> None:
    """The adjoint, and that of the adjoint, which picks what was chosen."""
    gradient, pick = f"grad.max_pool{rank}d", f"grad.max_pool{rank}d_pick"

    def back(attrs: dict[str, Any]) -> Pool:
        rest = {name: value for name, value in attrs.items() if name != "size"}
        return pool_of(gradient, rank, spatial_sizes(gradient, "size", attrs["size"], rank), rest)

    def gradient_infer(dy: TensorStructInfo, chosen: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        windows = back(attrs)
        expect_dtype(gradient, dy, "number")
        batch, channels, *_ = standard_shape(gradient, "dy", dy, windows.y)
        expect_result(gradient, dy, data_info(windows.y, [batch, channels, *windows.positions], dy.dtype))
        _expect_choice(gradient, chosen, dy, windows)
        return data_info(windows.x, [batch, channels, *windows.sizes], dy.dtype)

    def pick_infer(values: TensorStructInfo, chosen: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        result = pool_infer(pick, rank, values, attrs, "number")
        _expect_choice(pick, chosen, result, _pool(pick, rank, values, attrs))
        return result

    def second(dx: Any, y: Any, dy: Any, chosen: Any, **attrs: Any) -> tuple[Any, None]:
        rest = {name: value for name, value in attrs.items() if name != "size"}
        return getattr(ops.grad, f"max_pool{rank}d_pick")(dx, chosen, **rest), None

    def pick_adjoint(dy: Any, y: Any, values: Any, chosen: Any, **attrs: Any) -> tuple[Any, None]:
        size = tuple(_pool(pick, rank, values, attrs).sizes)
        return getattr(ops.grad, f"max_pool{rank}d")(dy, chosen, size=size, **attrs), None

    define(
        gradient,
        signature("dy, chosen", rank, "size, "),
        infer=gradient_infer,
        te=lambda dy, chosen, **attrs: _gradient_te(dy, chosen, back(attrs)),
        numpy=in_wide(lambda dy, chosen, **attrs: _gradient_array(dy, chosen, back(attrs))),
        gradient=second,
        precision="same",
        zeros="makes",
        family="pooling",
        doc=f"The adjoint of nn.max_pool{rank}d's data, whose spatial sizes are ``size``: each element is the sum of\n"
        f"dy over the windows that choose it. ``chosen``: what grad.max_pool{rank}d_choice gives for the data.",
        samples=[_back(rank, data, result, attrs) for data, result, attrs, _ in _SAMPLES[rank]],
    )
    define(
        pick,
        signature("values, chosen", rank),
        infer=pick_infer,
        te=lambda values, chosen, **attrs: _pick_te(values, chosen, _pool(pick, rank, values, attrs)),
        numpy=in_wide(lambda values, chosen, **attrs: _pick_array(values, chosen, _pool(pick, rank, values, attrs))),
        gradient=pick_adjoint,
        precision="same",
        zeros="makes",
        family="pooling",
        doc=f"Of each window of values, the tap whose number is chosen; 0 where there is none: the adjoint of\n"
        f"grad.max_pool{rank}d's dy.",
        samples=[Sample((data, _numbers(rank, y, attrs)), attrs, smooth) for data, y, attrs, smooth in _SAMPLES[rank]],
    )


def _shape(argument: Any) -> tuple[int, ...]:
    return np.shape(argument) if isinstance(argument, list) else tuple(getattr(argument, "shape", argument))


def _numbers(rank: int, result: Any, attrs: dict[str, Any]) -> Ints:
    """The number of any tap for each window, or of none."""
    taps = math.prod(numbers("max_pool", "pool_size", attrs.get("pool_size", 1), rank))
    return Ints(_shape(result), 0, taps + 1, _number_dtype(taps))


def _back(rank: int, data: Any, result: Any, attrs: dict[str, Any]) -> Sample:
    """The sample of the derivative that belongs to one of the pooling."""
    x, _ = pool_layouts("max_pool", rank, {"layout": "NC" + SPATIAL[rank], "out_layout": None} | attrs)
    size = tuple(x.to_standard(_shape(data))[2:])
    return Sample((result, _numbers(rank, result, attrs)), {"size": size} | attrs)


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
        _sample((1, 2, 4, 5), (1, 2, 6, 3), pool_size=3, strides=(1, 3), padding=2),
        _sample((1, 2, 4, 5), (1, 2, 3, 4), pool_size=(4, 3), strides=(3, 2), padding=(3, 2, 1, 2), ceil_mode=True),
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
        _sample((2, 3, 3, 3, 1), (2, 2, 2, 2, 1), pool_size=2, layout="NDHWC"),
        _sample((1, 1, 4, 3, 4), (1, 1, 2, 3, 4), pool_size=(2, 3, 2), strides=(2, 1, 1), padding=(0, 1, 0, 0, 1, 1)),
    ],
}


for _rank in SPATIAL:
    _define(_rank)
    _define_derivatives(_rank)
