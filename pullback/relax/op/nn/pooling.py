"""What max and average pooling have in common: attributes, windows, and which windows an element lies in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.relax.op.family import expect_dtype, expect_same_dtype, wide
from pullback.relax.op.nn.window import (
    SPATIAL,
    Axis,
    Layout,
    canonical,
    data_info,
    data_layout,
    expect_room,
    last_axes,
    numbers,
    paddings,
    reduced,
    running,
    standard_shape,
)
from pullback.relax.struct_info import Dim, TensorStructInfo, as_int, format_shape, same_shape
from pullback.tir.polynomial import at_most

Condition = list[tir.PrimExpr]

WINDOW = "padding=0, dilation=1, ceil_mode=False, count_include_pad=False"
ATTRIBUTES = (
    "strides=None is the window, as in PyTorch. padding: an int, one for each axis, or before all and then after\n"
    "all, less than the window; or 'same' or 'valid', as in Keras. ceil_mode: a last window may reach beyond\n"
    "the padded data, if it starts within the data or the padding before them."
)


def signature(tensors: str, rank: int, more: str = "") -> str:
    """The signature of a pooling over ``rank`` axes."""
    layouts = f"layout='NC{SPATIAL[rank]}', out_layout=None"
    return f"{tensors} | {more}pool_size=1, strides=1, {WINDOW}, {layouts}"


@dataclass(frozen=True)
class Pool:
    """Windows over data x, one element of y each. ``ends``: where the padded data end, counted from the data's first;
    with ceil_mode an axis has more padding than that, so that the last window fits."""

    x: Layout
    y: Layout
    axes: tuple[Axis, ...]
    ends: tuple[Dim, ...]
    include_padding: bool

    @property
    def taps(self) -> list[int]:
        return [a.taps for a in self.axes]

    @property
    def sizes(self) -> list[Dim]:
        return [a.size for a in self.axes]

    @property
    def positions(self) -> list[Dim]:
        return [a.positions for a in self.axes]


def pool_layouts(op: str, rank: int, attrs: dict[str, Any]) -> tuple[Layout, Layout]:
    """The layouts of the data and of the result."""
    x = data_layout(op, "layout", attrs["layout"], rank)
    return x, data_layout(op, "out_layout", attrs["out_layout"] or x.letters, rank)


def pool_of(op: str, rank: int, sizes: Sequence[Dim], attrs: dict[str, Any]) -> Pool:
    """The windows over data of these spatial sizes, from the attributes of a call."""
    taps = numbers(op, "pool_size", attrs["pool_size"], rank)
    strides = numbers(op, "strides", taps if attrs["strides"] is None else attrs["strides"], rank)
    dilation = numbers(op, "dilation", attrs["dilation"], rank)
    before, after = paddings(op, attrs["padding"], rank)
    axes = [Axis(*v) for v in zip(sizes, taps, strides, before, after, dilation, strict=True)]
    spans = tuple(a.reach + 1 for a in axes)
    if any(max(a.before, a.after) >= span for a, span in zip(axes, spans, strict=True) if a.before or a.after):
        raise ShapeError(
            f"{op}: padding must be less than the window, which spans {spans}, got {attrs['padding']!r}",
            hint="else a window would have nothing but padding in it",
        )
    ends = tuple(canonical(a.size + a.after) for a in axes)
    if attrs["ceil_mode"]:
        axes = [_rounded_up(a) for a in axes]
    expect_room(op, "a window", axes)
    return Pool(*pool_layouts(op, rank, attrs), tuple(axes), ends, attrs["count_include_pad"])


def _rounded_up(axis: Axis) -> Axis:
    """One window more where the last one leaves padded elements over, if it starts within data or padding before."""
    cover = (axis.padded - axis.reach - 1 + (axis.stride - 1)) // axis.stride + 1
    starts = (axis.size + axis.before - 1) // axis.stride + 1
    last = (tir.minimum(cover, starts) - 1) * axis.stride
    after = tir.maximum(axis.after, last + axis.reach + 1 - axis.size - axis.before)
    return replace(axis, after=canonical(after))


def pool_infer(op: str, rank: int, data: TensorStructInfo, attrs: dict[str, Any], kinds: str) -> TensorStructInfo:
    """The type of a pooling's result."""
    x, _ = pool_layouts(op, rank, attrs)
    batch, channels, *sizes = standard_shape(op, "data", data, x)
    expect_dtype(op, data, kinds)
    pool = pool_of(op, rank, sizes, attrs)
    return data_info(pool.y, [batch, channels, *pool.positions], data.dtype)


def expect_result(op: str, dy: TensorStructInfo, result: TensorStructInfo) -> None:
    """Raise an error unless dy has the type of the pooling's result."""
    if dy.shape is None or not same_shape(dy.sizes, result.sizes):
        expected, got = format_shape(result.shape), format_shape(dy.shape)
        raise ShapeError(f"{op}: dy must have the shape {expected} of the pooling's result, got {got}")
    expect_same_dtype(op, dy, result)


# -- tensor expressions


def all_of(conditions: Condition) -> tir.PrimExpr:
    """Whether all conditions hold; there is at least one."""
    result = conditions[0]
    for c in conditions[1:]:
        result = result & c
    return result


def where_all(conditions: Condition, value: tir.PrimExpr) -> tir.PrimExpr:
    """The value where all conditions hold, else 0."""
    return tir.select(all_of(conditions), value, tir.const(0, value.dtype)) if conditions else value


Bound = int | tir.PrimExpr | None


def between(index: tir.PrimExpr, low: Bound, high: Bound) -> tir.PrimExpr:
    """The nearest index that is not more than ``high``, and above all not less than ``low``."""
    index = index if high is None else tir.minimum(index, high)
    return index if low is None else tir.maximum(index, low)


def covering(axis: Axis) -> int:
    """In how many windows an element lies at most."""
    return axis.reach // axis.stride + 1


def window_over(
    axis: Axis, element: tir.PrimExpr, number: tir.PrimExpr
) -> tuple[tir.PrimExpr, tir.PrimExpr, Condition]:
    """Of the windows that may hold an element, one by its number, counted backwards from the last that begins before
    it: its position, made valid; the tap that is the element; and the conditions for all that."""
    s, count = axis.stride, covering(axis)
    place = element + axis.before
    position, offset = place // s - number, place % s + number * s
    conditions, low, high = [], None, None
    if count > 1:
        conditions.append(position >= 0)
        low = 0
    if not at_most((axis.size - 1 + axis.before) // s + 1, axis.positions):
        conditions.append(position < axis.positions)
        high = axis.positions - 1
    if count * s - 1 > axis.reach:
        conditions.append(offset <= axis.reach)
    if axis.dilation > 1:
        conditions.append((offset % axis.dilation).equal(0))
    return between(position, low, high), offset // axis.dilation, conditions


def windows_over(
    pool: Pool, element: Sequence[tir.PrimExpr], numbers: Sequence[tir.PrimExpr]
) -> tuple[list[tir.PrimExpr], list[tir.PrimExpr], Condition]:
    """:func:`window_over` along all axes."""
    found = [window_over(a, e, j) for a, e, j in zip(pool.axes, element, numbers, strict=True)]
    return [p for p, _, _ in found], [t for _, t, _ in found], [c for _, _, conditions in found for c in conditions]


def sum_over_windows(
    pool: Pool,
    dy: te.Tensor,
    name: str,
    holds: Callable[[tuple[tir.PrimExpr, ...], list[tir.PrimExpr]], Condition] = lambda window, tap: [],
) -> te.Tensor:
    """x[n, c, p…] = Σ dy[n, c, o…], in the accumulator's type, over the windows o… that have p… as a tap k… for which
    ``holds(indices of dy, k…)``. Where windows do not overlap it is no sum."""
    kind, counts = wide(dy.dtype), [covering(a) for a in pool.axes]
    numbers, summed = running({f"j{c.lower()}": n for c, n in zip(SPATIAL[len(counts)], counts, strict=True)})
    batch, channels = pool.y.to_standard(dy.shape)[:2]

    def element(*i: tir.PrimExpr) -> Any:
        n, c, *at = pool.x.to_standard(i)
        positions, taps, conditions = windows_over(pool, at, numbers)
        window = pool.y.from_standard([n, c, *positions])
        value = where_all(conditions + holds(window, taps), tir.cast(kind, dy[window]))
        return reduced("sum", value, summed)

    return te.compute(pool.x.from_standard([batch, channels, *pool.sizes]), element, name)


def inside(axis: Axis, position: tir.PrimExpr, low: int, high: Dim) -> tuple[Bound, Bound]:
    """The first and the last tap of a window among the elements from ``low`` to before ``high``; None where it is the
    window's own, in all windows."""
    first: Bound = None
    last: Bound = None
    origin = position * axis.stride - axis.before
    if low > -axis.before:
        first = tir.maximum((low - origin + (axis.dilation - 1)) // axis.dilation, 0)
    if not at_most((axis.positions - 1) * axis.stride - axis.before + axis.reach + 1, high):
        last = tir.minimum((high - 1 - origin) // axis.dilation, axis.taps - 1)
    return first, last


# -- the meaning


def standard_padded(x: np.ndarray, pool: Pool, fill: Any) -> np.ndarray:
    """Data in the standard layout with the windows' padding around them."""
    widths = [(0, 0), (0, 0), *((a.before, as_int(a.after)) for a in pool.axes)]
    return np.pad(pool.x.standard_array(x), widths, constant_values=fill)


def unpadded(x: np.ndarray, pool: Pool) -> np.ndarray:
    """Padded data of the standard layout without the padding, in the data's own layout."""
    inner = last_axes(slice(a.before, a.before + a.size) for a in pool.axes)
    return np.ascontiguousarray(pool.x.own_array(x[inner]))
