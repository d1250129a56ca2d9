"""Average pooling and its derivative, over one, two or three spatial axes: with given windows, and adaptive.

Both are linear, so the adjoint of the derivative is the pooling again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.op import define
from pullback.relax.op.family import expect_dtype, in_wide, specialize, wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.pooling import (
    ATTRIBUTES,
    Condition,
    Pool,
    expect_result,
    inside,
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
    Layout,
    Windowed,
    canonical,
    data_info,
    last_axes,
    reduced,
    running,
    spatial_sizes,
    standard_shape,
    tap_extents,
    under,
)
from pullback.relax.op.reduction.reduce import te_cast
from pullback.relax.op.sample import Sample
from pullback.relax.struct_info import Dim, TensorStructInfo
from pullback.tir.polynomial import same

# -- windows of one size


def _count(pool: Pool, position: Sequence[tir.PrimExpr]) -> int | tir.PrimExpr:
    """How many taps of a window count; a window without any counts as one."""
    count: Any = 1
    for a, o, end in zip(pool.axes, position, pool.ends, strict=True):
        low, high = (-a.before, end) if pool.include_padding else (0, a.size)
        first, last = inside(a, o, low, high)
        count = count * ((a.taps if last is None else last + 1) - (0 if first is None else first))
    return count if isinstance(count, int) else tir.maximum(count, 1)


def _average_te(x: te.Tensor, pool: Pool) -> te.Tensor:
    """out[n, c, o…] = (Σ over k… of padded[n, c, o·stride + k·dilation…]) / count(o…)."""
    kind = wide(x.dtype)
    batch, channels = pool.x.to_standard(x.shape)[:2]
    ks, summed = running(tap_extents(pool.taps))
    padded = x
    if any(a.is_padded for a in pool.axes):
        widths = pool.x.from_standard([(0, 0), (0, 0), *((a.before, a.after) for a in pool.axes)])
        padded = ops.nn.pad.te(x, pad_width=widths, pad_mode="constant", pad_value=0)

    def element(*i: tir.PrimExpr) -> Any:
        n, c, *at = pool.y.to_standard(i)
        taps = [o * a.stride + k * a.dilation for o, k, a in zip(at, ks, pool.axes, strict=True)]
        return reduced("sum", tir.cast(kind, padded[pool.x.from_standard([n, c, *taps])]), summed)

    total = te.compute(pool.y.from_standard([batch, channels, *pool.positions]), element, "window_sum")
    return te_cast(_shares(total, pool), x.dtype)


def _shares(total: te.Tensor, pool: Pool) -> te.Tensor:
    """Each window's value divided by its count, in the accumulator's type."""
    kind = wide(total.dtype)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        count = tir.as_expr(_count(pool, pool.y.to_standard(i)[2:]))
        return tir.cast(kind, total[i]) / tir.cast(kind, count)

    return te.compute(total.shape, element, "share")


def _gradient_te(dy: te.Tensor, pool: Pool) -> te.Tensor:
    return te_cast(sum_over_windows(pool, _shares(dy, pool), "avg_pool_gradient"), dy.dtype)


def _counts(shape: Sequence[int], pool: Pool) -> np.ndarray:
    """How many elements count in each window, by counting them."""
    real = standard_padded(np.ones(shape), pool, 0.0)
    if pool.include_padding:
        real[last_axes(slice(0, a.before + end) for a, end in zip(pool.axes, pool.ends, strict=True))] = 1.0
    return np.maximum(sum(real[under(tap, pool.axes)] for tap in np.ndindex(*pool.taps)), 1.0)


def _average_array(x: np.ndarray, pool: Pool) -> np.ndarray:
    padded = standard_padded(x, pool, 0)
    total = np.zeros((*padded.shape[:2], *pool.positions), x.dtype)
    for tap in np.ndindex(*pool.taps):
        total += padded[under(tap, pool.axes)]
    return np.ascontiguousarray(pool.y.own_array(total / _counts(x.shape, pool).astype(x.dtype)))


def _gradient_array(dy: np.ndarray, pool: Pool) -> np.ndarray:
    dy = pool.y.standard_array(dy)
    shape = pool.x.from_standard([*dy.shape[:2], *pool.sizes])
    total = np.zeros_like(standard_padded(np.zeros(shape, dy.dtype), pool, 0))
    shares = dy / _counts(shape, pool).astype(dy.dtype)
    for tap in np.ndindex(*pool.taps):
        total[under(tap, pool.axes)] += shares
    return unpadded(total, pool)


def _define(rank: int) -> None:
    average, gradient = f"nn.avg_pool{rank}d", f"grad.avg_pool{rank}d"

    def pool(x: Any, attrs: dict[str, Any]) -> Pool:
        return pool_of(average, rank, pool_layouts(average, rank, attrs)[0].to_standard(x.shape)[2:], attrs)

    def back(attrs: dict[str, Any]) -> Pool:
        rest = {name: value for name, value in attrs.items() if name != "size"}
        return pool_of(gradient, rank, spatial_sizes(gradient, "size", attrs["size"], rank), rest)

    def gradient_infer(dy: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        windows = back(attrs)
        expect_dtype(gradient, dy, "float")
        batch, channels, *_ = standard_shape(gradient, "dy", dy, windows.y)
        expect_result(gradient, dy, data_info(windows.y, [batch, channels, *windows.positions], dy.dtype))
        return data_info(windows.x, [batch, channels, *windows.sizes], dy.dtype)

    def adjoint(dy: Any, y: Any, data: Any, **attrs: Any) -> tuple[Any]:
        size = tuple(pool(data, attrs).sizes)
        return (getattr(ops.grad, f"avg_pool{rank}d")(dy, size=size, **attrs),)

    specialize(
        define(
            average,
            signature("data", rank),
            infer=lambda data, **attrs: pool_infer(average, rank, data, attrs, "float"),
            te=lambda data, **attrs: _average_te(data, pool(data, attrs)),
            numpy=in_wide(lambda data, **attrs: _average_array(data, pool(data, attrs))),
            gradient=adjoint,
            precision="same",
            family="pooling",
            doc="The mean of each window: of its elements in the data, or with count_include_pad of those in the\n"
            f"padded data, whose padding is 0. {ATTRIBUTES}",
            samples=[Sample((data,), attrs) for data, _, attrs in _SAMPLES[rank]],
        ),
        Windowed,
    )
    define(
        gradient,
        signature("dy", rank, "size, "),
        infer=gradient_infer,
        te=lambda dy, **attrs: _gradient_te(dy, back(attrs)),
        numpy=in_wide(lambda dy, **attrs: _gradient_array(dy, back(attrs))),
        gradient=lambda dx, y, dy, **attrs: (
            getattr(ops.nn, f"avg_pool{rank}d")(dx, **{n: v for n, v in attrs.items() if n != "size"}),
        ),
        precision="same",
        family="pooling",
        doc=f"The adjoint of nn.avg_pool{rank}d's data, whose spatial sizes are ``size``: each element is the sum of\n"
        "dy / count over the windows that hold it.",
        samples=[_back(rank, data, dy, attrs) for data, dy, attrs in _SAMPLES[rank]],
    )


# -- adaptive windows


def _divides(count: Dim, size: Dim) -> bool:
    """Whether ``count`` divides ``size`` for certain."""
    return same(size, count) or (isinstance(size, int) and isinstance(count, int) and size % count == 0)


def _adaptive_bounds(o: tir.PrimExpr, size: Dim, count: Dim) -> tuple[tir.PrimExpr, tir.PrimExpr]:
    """Where window o of ``count`` over ``size`` elements begins and ends: ⌊o·size/count⌋ and ⌈(o + 1)·size/count⌉.

    Element p lies in the windows from ⌊p·count/size⌋ to ⌈(p + 1)·count/size⌉: the same with the sizes exchanged.
    """
    if _divides(count, size):
        step = 1 if same(size, count) else size // count
        return o * step, o * step + step
    if _divides(size, count):
        begin = tir.as_expr(0) if same(size, 1) else o // (count // size)
        return begin, begin + 1
    return o * size // count, (o * size + (size + count - 1)) // count


def _adaptive_taps(size: Dim, count: Dim) -> tuple[Dim, bool]:
    """How many elements the windows have at most, and whether some may have fewer.

    With size = q·count + r, window o has q + ⌈(o·r mod count + r) / count⌉ elements, and o·r mod count takes all
    multiples of g = gcd(r, count) below count: the last, count - g, gives one more element if r > g.
    """
    if isinstance(size, int) and isinstance(count, int):
        q, r = divmod(size, count)
        ragged = r > math.gcd(r, count)
        return q + (r > 0) + ragged, ragged
    if _divides(count, size):
        return 1, False
    return canonical(tir.minimum((size + (count - 1)) // count + 1, size)), True


def _adaptive_sum(x: te.Tensor, source: Layout, target: Layout, sizes: Sequence[Dim]) -> te.Tensor:
    """The sums of adaptive windows, ``sizes`` of them, in the accumulator's type."""
    kind = wide(x.dtype)
    batch, channels, *given = source.to_standard(x.shape)
    taps, uneven = zip(*map(_adaptive_taps, given, sizes), strict=True)
    ks, summed = running(tap_extents(taps))

    def element(*i: tir.PrimExpr) -> Any:
        n, c, *at = target.to_standard(i)
        index: list[tir.PrimExpr] = []
        conditions: Condition = []
        for o, k, size, count, most, ragged in zip(at, ks, given, sizes, taps, uneven, strict=True):
            begin, end = _adaptive_bounds(o, size, count)
            if not ragged:
                index.append(begin + k)
                continue
            # The first of ``most`` elements that are there, so that they lie side by side whatever the window's length.
            element = tir.minimum(begin, size - most) + k
            index.append(element)
            conditions += [element >= begin, element < end]
        value = tir.cast(kind, x[source.from_standard([n, c, *index])])
        return reduced("sum", where_all(conditions, value), summed)

    return te.compute(target.from_standard([batch, channels, *sizes]), element, "window_sum")


def _adaptive_shares(total: te.Tensor, axes: Layout, sizes: Sequence[Dim]) -> te.Tensor:
    """Each window's value divided by the number of its elements, in the accumulator's type."""
    kind = wide(total.dtype)
    counts = axes.to_standard(total.shape)[2:]

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        elements = tir.as_expr(1)
        for o, size, count in zip(axes.to_standard(i)[2:], sizes, counts, strict=True):
            begin, end = _adaptive_bounds(o, size, count)
            elements = elements * (size // count if _divides(count, size) else end - begin)
        return tir.cast(kind, total[i]) / tir.cast(kind, elements)

    return te.compute(total.shape, element, "share")


def _adaptive_windows(sizes: Sequence[int], counts: Sequence[int]) -> list[tuple[Any, tuple[Any, ...]]]:
    """Each window's position and the slices of its elements."""
    result = []
    for position in np.ndindex(*counts):
        bounds = [(o * n // m, -(-(o + 1) * n // m)) for o, n, m in zip(position, sizes, counts, strict=True)]
        result.append((last_axes(position), last_axes(itertools.starmap(slice, bounds))))
    return result


def _adaptive_array(x: np.ndarray, source: Layout, target: Layout, sizes: Sequence[int]) -> np.ndarray:
    x = source.standard_array(x)
    result = np.empty((*x.shape[:2], *sizes), x.dtype)
    for position, window in _adaptive_windows(x.shape[2:], sizes):
        result[position] = np.mean(x[window], axis=tuple(range(2, x.ndim)))
    return np.ascontiguousarray(target.own_array(result))


def _adaptive_gradient_array(dy: np.ndarray, source: Layout, target: Layout, sizes: Sequence[int]) -> np.ndarray:
    dy = source.standard_array(dy)
    result = np.zeros((*dy.shape[:2], *sizes), dy.dtype)
    for position, window in _adaptive_windows(sizes, dy.shape[2:]):
        count = math.prod(s.stop - s.start for s in window[1:])
        result[window] += (dy[position] / dy.dtype.type(count)).reshape(*dy.shape[:2], *(1,) * len(sizes))
    return np.ascontiguousarray(target.own_array(result))


def _define_adaptive(rank: int) -> None:
    average, gradient = f"nn.adaptive_avg_pool{rank}d", f"grad.adaptive_avg_pool{rank}d"
    layouts = f"layout='NC{SPATIAL[rank]}', out_layout=None"

    def wanted(data: Any, attrs: dict[str, Any]) -> tuple[Layout, Layout, tuple[int, ...]]:
        """The layouts, and the number of windows along each axis."""
        x, y = pool_layouts(average, rank, attrs)
        size = attrs["output_size"]
        return (
            x,
            y,
            tuple(x.to_standard(data.shape)[2:]) if size is None else spatial_sizes(average, "output_size", size, rank),
        )

    def back(attrs: dict[str, Any]) -> tuple[Layout, Layout, tuple[int, ...]]:
        x, y = pool_layouts(gradient, rank, attrs)
        return y, x, spatial_sizes(gradient, "size", attrs["size"], rank)

    def infer(data: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        x, y = pool_layouts(average, rank, attrs)
        batch, channels, *_ = standard_shape(average, "data", data, x)
        expect_dtype(average, data, "float")
        return data_info(y, [batch, channels, *wanted(data, attrs)[2]], data.dtype)

    def gradient_infer(dy: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        y, x, sizes = back(attrs)
        batch, channels, *_ = standard_shape(gradient, "dy", dy, y)
        expect_dtype(gradient, dy, "float")
        return data_info(x, [batch, channels, *sizes], dy.dtype)

    def average_te(data: te.Tensor, **attrs: Any) -> te.Tensor:
        x, y, counts = wanted(data, attrs)
        total = _adaptive_sum(data, x, y, counts)
        return te_cast(_adaptive_shares(total, y, x.to_standard(data.shape)[2:]), data.dtype)

    def gradient_te(dy: te.Tensor, **attrs: Any) -> te.Tensor:
        y, x, sizes = back(attrs)
        return te_cast(_adaptive_sum(_adaptive_shares(dy, y, sizes), y, x, sizes), dy.dtype)

    def adjoint(dy: Any, y: Any, data: Any, *, output_size: Any, layout: str, out_layout: str | None) -> tuple[Any]:
        x, _ = pool_layouts(average, rank, {"layout": layout, "out_layout": out_layout})
        op = getattr(ops.grad, f"adaptive_avg_pool{rank}d")
        return (op(dy, size=tuple(x.to_standard(data.shape)[2:]), layout=layout, out_layout=out_layout),)

    def second(dx: Any, y: Any, dy: Any, *, size: Any, layout: str, out_layout: str | None) -> tuple[Any]:
        _, axes = pool_layouts(gradient, rank, {"layout": layout, "out_layout": out_layout})
        op = getattr(ops.nn, f"adaptive_avg_pool{rank}d")
        return (op(dx, output_size=tuple(axes.to_standard(dy.shape)[2:]), layout=layout, out_layout=out_layout),)

    define(
        average,
        f"data | output_size=None, {layouts}",
        infer=infer,
        te=average_te,
        numpy=in_wide(lambda data, **attrs: _adaptive_array(data, *wanted(data, attrs))),
        gradient=adjoint,
        precision="same",
        family="pooling",
        doc="The means of output_size windows (a number for each spatial axis, or one for all; None: the data's) that\n"
        "cover the data: window o of m over n elements goes from ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉, as in PyTorch.",
        samples=[Sample((data,), attrs) for data, _, attrs in _ADAPTIVE[rank]],
    )
    define(
        gradient,
        f"dy | size, {layouts}",
        infer=gradient_infer,
        te=gradient_te,
        numpy=in_wide(lambda dy, **attrs: _adaptive_gradient_array(dy, *back(attrs))),
        gradient=second,
        precision="same",
        family="pooling",
        doc=f"The adjoint of nn.adaptive_avg_pool{rank}d's data, whose spatial sizes are ``size``.",
        samples=[_back(rank, data, dy, attrs) for data, dy, attrs in _ADAPTIVE[rank]],
    )


# -- samples: the data, the shape of the result, the attributes


def _back(rank: int, data: tuple[int, ...], dy: tuple[int, ...], attrs: dict[str, Any]) -> Sample:
    """The sample of the derivative that belongs to one of the pooling."""
    letters = attrs.get("layout", "NC" + SPATIAL[rank])
    size = tuple(Layout(letters, "NC" + SPATIAL[rank]).to_standard(data)[2:])
    return Sample((dy,), {"size": size} | {n: v for n, v in attrs.items() if n != "output_size"})


_SAMPLES: dict[int, list[tuple[Any, Any, dict[str, Any]]]] = {
    1: [
        ((2, 3, 7), (2, 3, 5), {"pool_size": 3}),
        ((2, 8, 2), (2, 4, 2), {"pool_size": 3, "strides": 2, "padding": (1, 0), "layout": "NWC"}),
        ((1, 2, 9), (1, 2, 5), {"pool_size": 2, "strides": 2, "ceil_mode": True}),
    ],
    2: [
        ((2, 3, 6, 4), (2, 3, 3, 2), {"pool_size": 2, "strides": 2}),
        ((2, 2, 7, 7), (2, 2, 4, 4), {"pool_size": 3, "strides": 2, "padding": 1}),
        ((2, 2, 7, 7), (2, 2, 4, 4), {"pool_size": 3, "strides": 2, "padding": 1, "count_include_pad": True}),
        ((1, 2, 5, 6), (1, 2, 4, 2), {"pool_size": (2, 3), "strides": (1, 2)}),
        ((1, 2, 5, 5), (1, 2, 3, 3), {"pool_size": 2, "strides": 2, "ceil_mode": True}),
        ((1, 2, 4, 5), (1, 2, 6, 3), {"pool_size": 3, "strides": (1, 3), "padding": 2}),
        (
            (1, 2, 4, 5),
            (1, 2, 3, 4),
            {"pool_size": (4, 3), "strides": (3, 2), "padding": (3, 2, 1, 2), "ceil_mode": True},
        ),
        ((1, 2, 2, 4), (1, 2, 1, 2), {"pool_size": 3, "strides": 2, "ceil_mode": True}),
        (
            (1, 2, 7, 5),
            (1, 2, 4, 3),
            {"pool_size": (3, 2), "strides": 2, "padding": 1, "ceil_mode": True, "count_include_pad": True},
        ),
        ((2, 7, 6, 2), (2, 5, 4, 2), {"pool_size": 2, "dilation": 2, "layout": "NHWC"}),
        ((1, 2, 5, 5), (1, 3, 3, 2), {"pool_size": 2, "strides": 2, "padding": (1, 0, 0, 1), "out_layout": "NHWC"}),
        ((1, 1, 1, 5), (1, 1, 2, 3), {"pool_size": (2, 3), "padding": (2, 0), "dilation": (3, 1)}),
        ((1, 1, 5, 5), (1, 1, 1, 1), {"pool_size": 5}),
        ((1, 2, 3, 3), (1, 2, 2, 2), {"strides": 2}),
        ((0, 2, 4, 4), (0, 2, 2, 2), {"pool_size": 2, "strides": 2}),
    ],
    3: [
        ((1, 2, 4, 3, 4), (1, 2, 2, 1, 2), {"pool_size": 2, "strides": 2}),
        ((2, 3, 3, 3, 1), (2, 2, 2, 2, 1), {"pool_size": 2, "layout": "NDHWC"}),
        (
            (1, 1, 4, 3, 4),
            (1, 1, 2, 3, 4),
            {"pool_size": (2, 3, 2), "strides": (2, 1, 1), "padding": (0, 1, 0, 0, 1, 1)},
        ),
    ],
}
_ADAPTIVE: dict[int, list[tuple[Any, Any, dict[str, Any]]]] = {
    1: [
        ((2, 3, 7), (2, 3, 3), {"output_size": 3}),
        ((1, 2, 6), (1, 2, 2), {"output_size": 2}),
        ((2, 5, 3), (2, 1, 3), {"output_size": 1, "layout": "NWC"}),
    ],
    2: [
        ((2, 3, 4, 6), (2, 3, 1, 1), {"output_size": 1}),
        ((2, 3, 4, 6), (2, 3, 2, 3), {"output_size": (2, 3)}),
        ((1, 2, 7, 5), (1, 2, 3, 3), {"output_size": 3}),
        ((1, 7, 5, 2), (1, 2, 4, 5), {"output_size": (4, 5), "layout": "NHWC", "out_layout": "NCHW"}),
        ((1, 2, 3, 2), (1, 2, 5, 4), {"output_size": (5, 4)}),
        ((1, 2, 3, 2), (1, 2, 3, 2), {}),
        ((0, 2, 3, 2), (0, 2, 2, 2), {"output_size": 2}),
    ],
    3: [
        ((1, 2, 4, 3, 5), (1, 2, 2, 2, 2), {"output_size": 2}),
        ((1, 2, 2, 3, 3), (1, 2, 1, 3, 2), {"output_size": (1, 3, 2)}),
        ((1, 3, 2, 3, 2), (1, 3, 1, 2, 2), {"output_size": (3, 1, 2), "layout": "NDHWC"}),
    ],
}

for _rank in SPATIAL:
    _define(_rank)
    _define_adaptive(_rank)
