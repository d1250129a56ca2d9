"""Joining tensors, cutting them, repeating."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.op.family import expect_results, expect_same_dtype, known_shape, normalize_axis
from pullback.relax.op.manipulate.shape import te_reshape
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Bools, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, TupleStructInfo, as_int, dim, format_shape, same_shape
from pullback.te.concatenation import concatenation
from pullback.tir.polynomial import Polynomial

# -- concat, stack


def _nonempty(op: str, tensors: Sequence[Any]) -> None:
    if not tensors:
        raise UserError(f"{op}: there must be at least one tensor")


def _concat_infer(*tensors: TensorStructInfo, axis: int) -> TensorStructInfo:
    _nonempty("concat", tensors)
    shapes = [known_shape("concat", t) for t in tensors]
    axis = normalize_axis("concat", axis, len(shapes[0]))
    for s in shapes:
        if not same_shape((*s[:axis], *s[axis + 1 :]), (*shapes[0][:axis], *shapes[0][axis + 1 :])):
            listed = ", ".join(format_shape(s) for s in shapes)
            raise ShapeError(f"concat: the shapes {listed} differ outside axis {axis}")
    total = dim(sum((s[axis] for s in shapes[1:]), start=shapes[0][axis]))
    return TensorStructInfo((*shapes[0][:axis], total, *shapes[0][axis + 1 :]), expect_same_dtype("concat", *tensors))


def _concat_te(*tensors: te.Tensor, axis: int) -> te.Tensor:
    axis = normalize_axis("concat", axis, tensors[0].ndim)
    total = dim(sum((t.shape[axis] for t in tensors[1:]), start=tensors[0].shape[axis]))
    return concatenation(tensors, axis, total)


def _concat_gradient(dy: Any, y: Any, *xs: Any, axis: int) -> tuple[Any, ...]:
    axis = normalize_axis("concat", axis, len(y.shape))
    result, begin = [], 0
    for x in xs:
        end = begin + x.shape[axis]
        result.append(ops.strided_slice(dy, [axis], [begin], [end]))
        begin = end
    return tuple(result)


define(
    "concat",
    "tensors* | axis=0",
    infer=_concat_infer,
    te=_concat_te,
    numpy=lambda *tensors, axis: np.concatenate(tensors, axis),
    gradient=_concat_gradient,
    precision="same",
    family="join",
    doc="The tensors one after the other along an axis; the other sizes and the dtypes are equal.",
    samples=[
        sample((2, 3), (4, 3)),
        sample((2, 3), (2, 1), (2, 4), axis=-1),
        sample((3,)),
        sample((0, 3), (2, 3), (0, 3)),
        sample((0,), (0,)),
        sample(Bools((2,)), Bools((3,))),
    ],
)


def _stack_infer(*tensors: TensorStructInfo, axis: int) -> TensorStructInfo:
    _nonempty("stack", tensors)
    shapes = [known_shape("stack", t) for t in tensors]
    for s in shapes:
        if not same_shape(s, shapes[0]):
            raise ShapeError(f"stack: the shapes {', '.join(format_shape(s) for s in shapes)} differ")
    axis = normalize_axis("stack", axis, len(shapes[0]) + 1)
    shape = (*shapes[0][:axis], len(shapes), *shapes[0][axis:])
    return TensorStructInfo(shape, expect_same_dtype("stack", *tensors))


def _stack_te(*tensors: te.Tensor, axis: int) -> te.Tensor:
    axis = normalize_axis("stack", axis, tensors[0].ndim + 1)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        rest = (*i[:axis], *i[axis + 1 :])
        result: tir.PrimExpr = tensors[-1][rest]
        for k in range(len(tensors) - 2, -1, -1):
            result = tir.select(i[axis].equal(k), tensors[k][rest], result)
        return result

    return te.compute((*tensors[0].shape[:axis], len(tensors), *tensors[0].shape[axis:]), element, "stack")


def _stack_gradient(dy: Any, y: Any, *xs: Any, axis: int) -> tuple[Any, ...]:
    axis = normalize_axis("stack", axis, len(y.shape))
    return tuple(ops.squeeze(ops.strided_slice(dy, [axis], [k], [k + 1]), axis) for k in range(len(xs)))


define(
    "stack",
    "tensors* | axis=0",
    infer=_stack_infer,
    te=_stack_te,
    numpy=lambda *tensors, axis: np.stack(tensors, axis),
    gradient=_stack_gradient,
    precision="same",
    family="join",
    doc="The tensors, of equal shape, along a new axis of the result.",
    samples=[sample((2, 3), (2, 3)), sample((3,), (3,), (3,), axis=-1), sample((), ()), sample((0, 2), (0, 2), axis=1)],
)

# -- split, strided_slice


def _cuts(size: Dim, indices_or_sections: Any) -> list[Dim]:
    """Where the parts begin, and the end of the last."""
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections < 1:
            raise ShapeError(f"split: the number of sections must be positive, got {sections}")
        expect_results("split", sections)
        if not isinstance(size, int):
            part = tir.as_expr(size if sections == 1 else (size + (sections - 1)) // sections)
            return [dim(tir.minimum(part * k, size)) for k in range(sections)] + [size]
        step = -(-size // sections)
        return [min(step * k, size) for k in range(sections + 1)]
    cuts = list(indices_or_sections)
    if any(not isinstance(c, int) or c < 0 for c in cuts) or cuts != sorted(cuts):
        raise ShapeError(f"split: the indices must be ascending and not negative, got {tuple(cuts)}")
    ends = [min(c, size) for c in cuts] if isinstance(size, int) else cuts
    return [0, *ends, size]


def _split_infer(x: TensorStructInfo, *, indices_or_sections: Any, axis: int) -> TupleStructInfo:
    shape = known_shape("split", x)
    axis = normalize_axis("split", axis, len(shape))
    cuts = _cuts(shape[axis], indices_or_sections)
    sizes = [b - a for a, b in itertools.pairwise(cuts)]
    return TupleStructInfo(tuple(TensorStructInfo((*shape[:axis], s, *shape[axis + 1 :]), x.dtype) for s in sizes))


def _split_te(x: te.Tensor, *, indices_or_sections: Any, axis: int) -> tuple[te.Tensor, ...]:
    axis = normalize_axis("split", axis, x.ndim)
    cuts = _cuts(x.shape[axis], indices_or_sections)

    def part(begin: Dim, end: Dim) -> te.Tensor:
        shape = (*x.shape[:axis], dim(end - begin), *x.shape[axis + 1 :])
        return te.compute(shape, lambda *i: x[(*i[:axis], i[axis] + begin, *i[axis + 1 :])], "split")

    return tuple(part(a, b) for a, b in itertools.pairwise(cuts))


def _split(x: np.ndarray, *, indices_or_sections: Any, axis: int) -> tuple[np.ndarray, ...]:
    return tuple(np.split(x, [*map(as_int, _cuts(x.shape[axis], indices_or_sections)[1:-1])], axis))


def _split_gradient(dy: Any, y: Any, x: Any, *, indices_or_sections: Any, axis: int) -> tuple[Any]:
    return (ops.concat([dy[n] for n in range(len(y.struct_info.fields))], axis),)


define(
    "split",
    "x | indices_or_sections, axis=0",
    infer=_split_infer,
    te=_split_te,
    numpy=_split,
    gradient=_split_gradient,
    precision="same",
    family="split",
    doc="x cut along an axis, as a tuple: at the given indices, or into a number of sections of equal size ⌈n/sections⌉"
    "\n(the last ones are smaller when n is no multiple).",
    samples=[
        sample((6, 2), indices_or_sections=3),
        sample((2, 7), indices_or_sections=3, axis=1),
        sample((7,), indices_or_sections=(2, 2, 5), axis=-1),
        sample((3,), indices_or_sections=1),
        sample((0, 2), indices_or_sections=2),
    ],
)

_END = 2**31 - 1  # at least this means: to the end


def _never_negative(size: Dim) -> bool:
    """Whether a size is seen to be ≥ 0, all symbolic sizes being so."""
    return all(c >= 0 for c in Polynomial.of(size).terms.values())


def _bounds(size: Dim, begin: Any, end: Any, stride: int) -> tuple[Dim, Dim]:
    """The first index and the number of elements of ``[begin:end:stride]``, numbers clamped as in Python. Symbolic
    positions are taken as they are."""
    if stride == 0:
        raise ShapeError("strided_slice: a stride cannot be 0")
    if isinstance(size, int) and isinstance(begin, int) and isinstance(end, int):
        run = range(size)[begin:end:stride]
        return run.start, len(run)
    low, high = (0, size) if stride > 0 else (-1, size - 1)

    def clamp(v: Any) -> Any:
        if not isinstance(v, int):
            return v
        if abs(v) >= _END:
            return high if v > 0 else low
        v = v + size if v < 0 else v
        v = v if _never_negative(v - low) else tir.maximum(v, low)
        return v if _never_negative(high - v) else tir.minimum(v, high)

    first, last = clamp(begin), clamp(end)
    span = last - first if stride > 0 else first - last
    length = span if abs(stride) == 1 else (span + (abs(stride) - 1)) // abs(stride)
    return first, dim(length if _never_negative(span) or not isinstance(end, int) else tir.maximum(length, 0))


def _slices(shape: Sequence[Dim], axes: Any, begin: Any, end: Any, strides: Any) -> dict[int, tuple[Any, Any, int]]:
    """axis -> (first index, number of elements, stride)."""
    strides = (1,) * len(axes) if strides is None else strides
    if not len(axes) == len(begin) == len(end) == len(strides):
        raise ShapeError(f"strided_slice: {len(axes)} axes need as many begins, ends and strides")
    result: dict[int, tuple[Any, Any, int]] = {}
    for a, b, e, s in zip(axes, begin, end, strides, strict=True):
        axis = normalize_axis("strided_slice", a, len(shape))
        if axis in result:
            raise ShapeError(f"strided_slice: the axes {tuple(axes)} name one axis twice")
        result[axis] = (*_bounds(shape[axis], b, e, s), s)
    return result


def _slice_shape(shape: Sequence[Dim], slices: dict[int, tuple[Any, Any, int]]) -> tuple[Dim, ...]:
    return tuple(dim(slices[a][1]) if a in slices else s for a, s in enumerate(shape))


def _slice_infer(x: TensorStructInfo, *, axes: Any, begin: Any, end: Any, strides: Any) -> TensorStructInfo:
    shape = known_shape("strided_slice", x)
    return TensorStructInfo(_slice_shape(shape, _slices(shape, axes, begin, end, strides)), x.dtype)


def _slice_te(x: te.Tensor, *, axes: Any, begin: Any, end: Any, strides: Any) -> te.Tensor:
    slices = _slices(x.shape, axes, begin, end, strides)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        return x[tuple(e * slices[a][2] + slices[a][0] if a in slices else e for a, e in enumerate(i))]

    return te.compute(_slice_shape(x.shape, slices), element, "strided_slice")


def _slice(x: np.ndarray, *, axes: Any, begin: Any, end: Any, strides: Any) -> np.ndarray:
    index: list[Any] = [slice(None)] * x.ndim
    for n, a in enumerate(axes):
        index[a] = slice(begin[n], end[n], None if strides is None else strides[n])
    return x[tuple(index)]


def _slice_gradient(dy: Any, y: Any, x: Any, *, axes: Any, begin: Any, end: Any, strides: Any) -> tuple[Any]:
    """dy spread out again: turned round for negative strides, dilated by the stride, padded with zeros."""
    slices = _slices(x.shape, axes, begin, end, strides)
    turned = [a for a, (_, _, s) in slices.items() if s < 0]
    spread = [abs(slices[a][2]) if a in slices else 1 for a in range(len(x.shape))]
    if turned:
        dy = ops.flip(dy, turned)
    if any(s > 1 for s in spread):
        dy = ops.nn.dilate(dy, spread)
    width: list[Any] = []
    for a, size in enumerate(x.shape):
        first, length, stride = slices.get(a, (0, size, 1))
        if isinstance(length, int) and length == 0:
            width += [0, size]
            continue
        before = first if stride > 0 else first + (length - 1) * stride
        width += [dim(before), dim(size - before - dy.shape[a])]
    return (ops.nn.pad(dy, width) if any(not isinstance(w, int) or w for w in width) else dy,)


define(
    "strided_slice",
    "x | axes, begin, end, strides=None",
    infer=_slice_infer,
    te=_slice_te,
    numpy=_slice,
    gradient=_slice_gradient,
    precision="same",
    family="slice",
    doc="x[begin:end:stride] along each of the axes, as in Python: negative positions count from the end, positions\n"
    "beyond the ends are clamped, a negative stride goes backwards.",
    samples=[
        sample((5, 17), axes=(0, 1), begin=(1, -5), end=(4, 100)),
        sample((9,), axes=(0,), begin=(1,), end=(8,), strides=(3,)),
        sample((9, 2), axes=(0,), begin=(-1,), end=(-100,), strides=(-2,)),
        sample((9,), axes=(-1,), begin=(7,), end=(1,), strides=(-3,)),
        sample((4, 3), axes=(1,), begin=(2,), end=(2,)),
        sample((0, 3), axes=(0,), begin=(0,), end=(5,)),
        sample((3, 1), axes=(1,), begin=(0,), end=(1,)),
        sample(Ints((6,), -5, 5), axes=(0,), begin=(2,), end=(4,)),
    ],
)

# -- tile, repeat


def _tile_shapes(shape: Sequence[Dim], repeats: Any) -> tuple[tuple[Dim, ...], tuple[Any, ...]]:
    """Both made as long as the longer one, with ones in front."""
    times = tuple(repeats) if isinstance(repeats, (tuple, list)) else (repeats,)
    if any(isinstance(r, int) and r < 0 for r in times):
        raise ShapeError(f"tile: repeats cannot be negative, got {times}")
    rank = max(len(shape), len(times))
    return (1,) * (rank - len(shape)) + tuple(shape), (1,) * (rank - len(times)) + times


def _tile_infer(x: TensorStructInfo, *, repeats: Any) -> TensorStructInfo:
    shape, times = _tile_shapes(known_shape("tile", x), repeats)
    return TensorStructInfo([s * r for s, r in zip(shape, times, strict=True)], x.dtype)


def _tile_te(x: te.Tensor, *, repeats: Any) -> te.Tensor:
    shape, times = _tile_shapes(x.shape, repeats)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        own = i[len(i) - x.ndim :]
        sizes = zip(own, x.shape, times[len(i) - x.ndim :], strict=True)
        return x[tuple(e if isinstance(r, int) and r == 1 else e % tir.as_expr(s) for e, s, r in sizes)]

    return te.compute([dim(s * r) for s, r in zip(shape, times, strict=True)], element, "tile")


def _tile_gradient(dy: Any, y: Any, x: Any, *, repeats: Any) -> tuple[Any]:
    shape, times = _tile_shapes(x.shape, repeats)
    split = [n for r, s in zip(times, shape, strict=True) for n in (r, s)]
    summed = ops.sum(ops.reshape(dy, split), list(range(0, len(split), 2)))
    return (ops.reshape(summed, x.shape),)


define(
    "tile",
    "x | repeats",
    infer=_tile_infer,
    te=_tile_te,
    numpy=lambda x, *, repeats: np.tile(x, repeats),
    gradient=_tile_gradient,
    precision="same",
    family="repeat",
    doc="x as a whole, repeats[k] times along each axis; the shorter of both gets ones in front, as in NumPy.",
    samples=[
        sample((2, 3), repeats=(2, 1)),
        sample((3,), repeats=(2, 3)),
        sample((2, 1, 3), repeats=2),
        sample((0, 2), repeats=(1, 3)),
        sample((2,), repeats=(0,)),
        sample((), repeats=(3,)),
    ],
)


def _repeat_axis(ndim: int, repeats: Any, axis: int | None) -> int:
    if isinstance(repeats, int) and repeats < 0:
        raise ShapeError(f"repeat: repeats cannot be negative, got {repeats}")
    return 0 if axis is None else normalize_axis("repeat", axis, ndim)


def _repeat_infer(x: TensorStructInfo, *, repeats: Any, axis: int | None) -> TensorStructInfo:
    shape = known_shape("repeat", x)
    at = _repeat_axis(len(shape), repeats, axis)
    shape = (math.prod(shape, start=1),) if axis is None else shape
    return TensorStructInfo((*shape[:at], shape[at] * repeats, *shape[at + 1 :]), x.dtype)


def _repeat_te(x: te.Tensor, *, repeats: Any, axis: int | None) -> te.Tensor:
    at = _repeat_axis(x.ndim, repeats, axis)
    flat = te_reshape(x, (dim(math.prod(x.shape, start=1)),), "flatten") if axis is None else x
    shape = (*flat.shape[:at], dim(flat.shape[at] * repeats), *flat.shape[at + 1 :])
    by = tir.as_expr(repeats)
    return te.compute(shape, lambda *i: flat[(*i[:at], i[at] // by, *i[at + 1 :])], "repeat")


def _repeat_gradient(dy: Any, y: Any, x: Any, *, repeats: Any, axis: int | None) -> tuple[Any]:
    at = _repeat_axis(len(x.shape), repeats, axis)
    shape = (math.prod(x.shape, start=1),) if axis is None else x.shape
    summed = ops.sum(ops.reshape(dy, (*shape[:at], shape[at], repeats, *shape[at + 1 :])), at + 1)
    return (ops.reshape(summed, x.shape) if axis is None else summed,)


define(
    "repeat",
    "x | repeats, axis=None",
    infer=_repeat_infer,
    te=_repeat_te,
    numpy=lambda x, *, repeats, axis: np.repeat(x, repeats, axis),
    gradient=_repeat_gradient,
    precision="same",
    family="repeat",
    doc="Each element ``repeats`` times in a row along an axis, or of the flattened x.",
    samples=[
        sample((2, 3), repeats=2, axis=1),
        sample((2, 3), repeats=3),
        sample((1, 17), repeats=2, axis=0),
        sample((3,), repeats=0, axis=-1),
        sample((0, 2), repeats=2, axis=0),
        sample((), repeats=3),
    ],
)
