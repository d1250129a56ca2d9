"""Shapes: what moves elements, cuts and joins tensors, and what computes with sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import (
    Known,
    ints,
    is_given,
    known,
    left_over,
    number,
    numbers,
    product,
    static,
    whole,
)
from pullback.relax.frontend.onnx.ops.agreed import joined, with_sizes
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.types import dtype_of
from pullback.relax.frontend.padding import MODES, Widths, cropped
from pullback.tir.expr import FLOATS
from pullback.tir.polynomial import same


def shape_of(x: Any) -> tuple[Any, ...]:
    """The sizes of a graph value."""
    return tuple(x.struct_info.shape)


def rank_of(x: Any) -> int:
    return len(x.struct_info.shape)


def axis_of(axis: int, rank: int) -> int:
    """An axis counted from the front; a ShapeError for one that a tensor of this rank has not."""
    if not -rank <= axis < max(rank, 1):
        raise ShapeError(f"axis {axis} is outside of a tensor of rank {rank}")
    return axis % rank if rank else 0


# -- sizes


@ONNX.register("Shape")
def shape(x: Any, *, start: int = 0, end: int | None = None) -> Known:
    return Known(list(shape_of(x)[slice(start, end)]))


@ONNX.register("Size")
def size(x: Any) -> Known:
    return Known(product(shape_of(x)))


@ONNX.register("Constant")
def constant(**attrs: Any) -> Any:
    (name, value) = next(iter(attrs.items()), (None, None))
    if name in ("value", "sparse_value"):
        return value
    if name in ("value_int", "value_ints"):
        return np.asarray(value, np.int64)
    if name in ("value_float", "value_floats"):
        return np.asarray(value, np.float32)
    raise UserError("a constant of strings: tensors cannot have this type" if name else "a constant without a value")


@ONNX.register("ConstantOfShape")
def constant_of_shape(sizes: Any, *, value: Any = None) -> Any:
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    found = ints(sizes)
    return op.full(tuple(found), const(fill.reshape(())), fill.dtype.name)


@ONNX.register("EyeLike")
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    wanted = x.struct_info.dtype if dtype is None else dtype_of(dtype, "the type that EyeLike gives")
    return op.eye_like(x, k, wanted)


@ONNX.register("Range")
def range_(start: Any, limit: Any, delta: Any, **_: Any) -> Any:
    dtype = start.struct_info.dtype
    sizes = [known(v) for v in (start, limit, delta)]
    if any(s is not None and s.dtype == object for s in sizes):
        return op.arange(whole(start), whole(limit), whole(delta), dtype)
    first, last, step = (number(v) for v in (start, limit, delta))
    if step == 0:
        raise ArgumentError("delta is 0")
    count = max(math.ceil((last - first) / step), 0)
    return (first + np.arange(count) * step).astype(dtype)


# -- reshapes


@ONNX.register("Reshape")
def reshape(x: Any, sizes: Any, *, allowzero: int = 0) -> Any:
    wanted = ints(sizes)
    old = shape_of(x)
    if not allowzero:
        if any(s == 0 and k >= len(old) for k, s in enumerate(wanted) if isinstance(s, int)):
            raise ShapeError(f"shape {wanted} keeps the size of an axis that data, of rank {len(old)}, has not")
        wanted = [old[k] if isinstance(s, int) and s == 0 else s for k, s in enumerate(wanted)]
    return reshaped(x, wanted)


def reshaped(x: Any, wanted: Sequence[Any]) -> Any:
    """x with another shape, one of whose sizes may be -1."""
    negative = [k for k, s in enumerate(wanted) if isinstance(s, int) and s < 0]
    if len(negative) > 1 or any(wanted[k] != -1 for k in negative):
        raise ShapeError(f"the shape {tuple(map(str, wanted))} has sizes below 0")
    sizes = list(wanted)
    if negative:
        others = [s for s in sizes if not (isinstance(s, int) and s == -1)]
        rest, total = product(others), product(shape_of(x))
        if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
            raise ShapeError(f"{total} elements cannot have the shape {tuple(map(str, wanted))}")
        sizes[negative[0]] = left_over(shape_of(x), others)
    if any(isinstance(s, int) and s == 0 for s in sizes):
        if product(shape_of(x)) != 0:
            raise ShapeError(f"the shape {tuple(map(str, wanted))} has no elements, the data have")
        return op.zeros(tuple(sizes), x.struct_info.dtype)
    return op.reshape(x, tuple(sizes))


@ONNX.register("Flatten")
def flatten(x: Any, *, axis: int) -> Any:
    old = shape_of(x)
    axis = axis + len(old) if axis < 0 else axis
    rows, columns = old[:axis], old[axis:]
    return reshaped(x, [product(rows), product(columns)])


def _axes(axes: Any) -> list[int]:
    return [int(a) for a in (axes if isinstance(axes, (list, tuple)) else ints(axes))]


def _squeeze(x: Any, axes: Any) -> Any:
    return op.squeeze(x) if axes is None else op.squeeze(x, [axis_of(a, rank_of(x)) for a in axes])


@ONNX.register("Squeeze")
def squeeze_old(x: Any, *, axes: Any = None) -> Any:
    return _squeeze(x, axes)


@ONNX.register("Squeeze-13")
def squeeze(x: Any, axes: Any = None) -> Any:
    return _squeeze(x, None if axes is None else _axes(axes))


def unsqueezed(x: Any, axes: Sequence[int]) -> Any:
    """x with axes of size 1 put in at these positions of the result."""
    rank = rank_of(x) + len(axes)
    places = sorted(axis_of(a, rank) for a in axes)
    if len(set(places)) != len(places):
        raise ShapeError(f"axes {list(axes)} name one axis twice")
    sizes = list(shape_of(x))
    for place in places:
        sizes.insert(place, 1)
    return op.reshape(x, tuple(sizes)) if 0 not in sizes else op.zeros(tuple(sizes), x.struct_info.dtype)


@ONNX.register("Unsqueeze")
def unsqueeze_old(x: Any, *, axes: Any) -> Any:
    return unsqueezed(x, axes)


@ONNX.register("Unsqueeze-13")
def unsqueeze(x: Any, axes: Any) -> Any:
    return unsqueezed(x, _axes(axes))


@ONNX.register("Transpose")
def transpose(x: Any, *, perm: Any = None) -> Any:
    return op.permute_dims(x, perm) if rank_of(x) else x


def broadcast_shapes(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """The shape to which both broadcast."""
    rank = max(len(a), len(b))
    left, right = [1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b)
    return [_common(x, y) for x, y in zip(left, right, strict=True)]


def _common(a: Any, b: Any) -> Any:
    if isinstance(a, int) and a == 1:
        return b
    if isinstance(b, int) and b == 1:
        return a
    if same(a, b):
        return a
    raise ShapeError(f"the sizes {a} and {b} do not broadcast")


@ONNX.register("Expand")
def expand(x: Any, sizes: Any) -> Any:
    wanted = broadcast_shapes(shape_of(x), ints(sizes))
    return x if _are_same(wanted, shape_of(x)) else op.broadcast_to(x, tuple(wanted))


def _are_same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


@ONNX.register("Tile")
def tile(x: Any, repeats: Any) -> Any:
    times = static(ints(repeats), "the repeats of Tile")
    if len(times) != rank_of(x):
        raise ShapeError(f"Tile needs a number for each of the {rank_of(x)} axes, got {times}")
    return op.tile(x, tuple(times)) if times else x


# -- parts


@ONNX.register("Concat")
def concat(*parts: Any, axis: int = 1) -> Any:
    return parts[0] if len(parts) == 1 else op.concat(joined(parts, axis), axis)


@ONNX.register("Split")
def split_old(x: Any, sizes: Any = None, *, axis: int, split: Any = None, node: Any) -> Any:
    found = split if split is not None else ints(sizes) if sizes is not None else None
    return _split(x, axis, found, node.results)


@ONNX.register("Split-13")
def split(x: Any, sizes: Any = None, *, axis: int, num_outputs: int | None = None, node: Any) -> Any:
    return _split(x, axis, None if sizes is None else ints(sizes), num_outputs or node.results)


def _split(x: Any, axis: int, sizes: Any, parts: int) -> Any:
    axis = axis_of(axis, rank_of(x))
    (total,) = static([shape_of(x)[axis]], "the size of an axis that is split")
    if sizes is None:
        step = -(-total // parts) if parts else total
        sizes = [min(step, total - k * step) for k in range(parts)]
    sizes = static(sizes, "the sizes of Split")
    if sum(sizes) != total or any(s < 0 for s in sizes):
        raise ShapeError(f"the sizes {sizes} do not add up to {total}")
    ends = np.cumsum(sizes).tolist()
    if len(sizes) == 1:
        return (x,)
    if 0 in sizes:
        return tuple(op.strided_slice(x, [axis], [e - s], [e]) for s, e in zip(sizes, ends, strict=True))
    parts_of = op.split(x, ends[:-1], axis)
    return tuple(parts_of[k] for k in range(len(sizes)))


@ONNX.register("Slice")
def slice_old(x: Any, *, starts: Any, ends: Any, axes: Any = None) -> Any:
    return _slice(x, starts, ends, axes, None)


@ONNX.register("Slice-10")
def slice_(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    return _slice(x, ints(starts), ints(ends), _optional(axes), _optional(steps))


def _optional(value: Any) -> Any:
    return ints(value) if value is not None else None


def _slice(x: Any, starts: Any, ends: Any, axes: Any, steps: Any) -> Any:
    rank = rank_of(x)
    axes = list(range(len(starts))) if axes is None else [axis_of(a, rank) for a in axes]
    steps = [1] * len(starts) if steps is None else static(steps, "the steps of Slice")
    begin, end, chosen, strides = [], [], [], []
    for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True):
        total = shape_of(x)[axis]
        if step == 1 and isinstance(start, int) and start == 0 and _covers(stop, total):
            continue
        begin.append(_position(start, total))
        end.append(_end(stop, total, step))
        chosen.append(axis)
        strides.append(step)
    if not chosen:
        return x
    found = op.strided_slice(x, chosen, begin, end, strides)
    single = [a for a, s, e in zip(chosen, begin, end, strict=True) if _is_single(s, e)]
    return _with_single(found, single)


def _is_single(start: Any, stop: Any) -> bool:
    """Whether a slice takes one element, of an axis that is not empty."""
    if not isinstance(start, int) or not isinstance(stop, int):
        return False
    return (start == 0 and stop == 1) or (start == -1 and stop >= 2**31 - 1)


def _with_single(x: Any, axes: Sequence[int]) -> Any:
    """x, whose sizes along these axes are 1: a symbolic size that is 0 when it runs is an error then."""
    sizes = shape_of(x)
    if all(isinstance(sizes[a], int) for a in axes):
        return x
    return with_sizes(x, [1 if a in axes else s for a, s in enumerate(sizes)])


def _covers(stop: Any, total: Any) -> bool:
    """Whether a slice that begins at 0 takes the whole axis."""
    if isinstance(stop, int) and (stop >= 2**31 - 1 or (isinstance(total, int) and stop >= total)):
        return True
    return not isinstance(stop, int) and same(stop, total)


def _position(start: Any, total: Any) -> Any:
    return max(min(start, 2**31 - 1), -(2**31)) if isinstance(start, int) else start


def _end(stop: Any, total: Any, step: int) -> Any:
    if not isinstance(stop, int):
        return stop
    if step < 0 and isinstance(total, int) and stop < -total:
        return -total - 1
    return max(min(stop, 2**31 - 1), -(2**31))


@ONNX.register("Trilu")
def trilu(x: Any, k: Any = None, *, upper: int) -> Any:
    diagonal = 0 if k is None else number(k)
    return op.triu(x, diagonal) if upper else op.tril(x, diagonal)


@ONNX.register("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    return op.nn.depth_to_space(x, blocksize, mode=mode)


@ONNX.register("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    return op.nn.space_to_depth(x, blocksize) if mode == "DCR" else op.nn.pixel_unshuffle(x, blocksize)


# -- padding


@ONNX.register("Pad")
def pad_old(x: Any, *, pads: Any, mode: str, value: float) -> Any:
    return padded(x, pads, mode, value)


@ONNX.register("Pad-11")
def pad(x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str) -> Any:
    amounts = static(ints(pads), "the pads of Pad")
    if axes is not None:
        amounts = _on_axes(amounts, [axis_of(a, rank_of(x)) for a in numbers(axes)], rank_of(x))
    fill = number(value) if is_given(value) else 0
    return padded(x, amounts, mode, fill)


def _on_axes(pads: Sequence[int], axes: Sequence[int], rank: int) -> list[int]:
    found = [0] * (2 * rank)
    for k, axis in enumerate(axes):
        found[axis], found[rank + axis] = pads[k], pads[len(axes) + k]
    return found


def padded(x: Any, pads: Sequence[int], mode: str = "constant", value: Any = 0) -> Any:
    """x with so much before all axes, and then after all; what is negative is cut off."""
    rank = rank_of(x)
    if mode not in MODES or len(pads) != 2 * rank:
        raise ArgumentError(f"Pad of rank {rank} with the mode {mode!r} and {len(pads)} pads")
    x, widths = cropped(x, list(zip(pads[:rank], pads[rank:], strict=True)))
    if not any(map(any, widths)):
        return x
    if mode in ("reflect", "wrap"):
        return _by_places(x, widths, mode)
    dtype = x.struct_info.dtype
    if dtype == "bool" or (mode == "constant" and dtype not in FLOATS):
        value = bool(value) if dtype == "bool" else int(value)
    return op.nn.pad(x, widths, MODES[mode], value)


def _by_places(x: Any, widths: Widths, mode: str) -> Any:
    """Padding by elements of x itself, however far it reaches: by mirrors or repetition, again and again."""
    for axis, (before, after) in enumerate(widths):
        if not before and not after:
            continue
        (n,) = static([shape_of(x)[axis]], "the size of a padded axis")
        x = op.take(x, const(_places(n, before, after, mode)), axis)
    return x


def _places(size: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which element stands at each place of a padded axis: with "wrap" the next one after the last is the first, with
    "reflect" the last but one."""
    places = np.arange(-before, size + after, dtype=np.int64)
    if mode == "wrap":
        return places % size
    there_and_back = max(2 * (size - 1), 1)
    places %= there_and_back
    return np.minimum(places, there_and_back - places)


@ONNX.register("CenterCropPad")
def center_crop_pad(x: Any, shape: Any, *, axes: Any = None) -> Any:
    rank = rank_of(x)
    chosen = list(range(rank)) if axes is None else [axis_of(a, rank) for a in axes]
    pads = [0] * (2 * rank)
    wanted = static(ints(shape), "the sizes of CenterCropPad")
    for axis, goal in zip(chosen, wanted, strict=True):
        (n,) = static([shape_of(x)[axis]], "the size of an axis of CenterCropPad")
        if goal >= n:
            pads[axis], pads[rank + axis] = (goal - n) // 2, goal - n - (goal - n) // 2
        else:
            start = (n - goal + 1) // 2 if (n - goal) % 2 == 0 else (n - goal) // 2
            pads[axis], pads[rank + axis] = -start, -(n - goal - start)
    return padded(x, pads)
