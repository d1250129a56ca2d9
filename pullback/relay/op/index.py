"""Operators that take, put or choose elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import relax
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Expr, call_op, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    dtype_name,
    dtype_of,
    ints,
    is_any,
    is_dynamic,
    joined_shape,
    maybe_ints,
    number,
    of_unknown,
    python_value,
    rank_of,
    same,
    shape_of,
    tensors_of,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type


def places(values: Sequence[int], dtype: str = "int32") -> Any:
    """Whole numbers as a constant of the graph."""
    return relax.const(np.array(values, dtype))


# -- choices


def _where(condition: Any, x: Any, y: Any) -> Any:
    return ops.where(cast(condition, "bool"), x, y)


def _where_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    if all(t.is_concrete for t in types):
        return None
    return TensorType(joined_shape("where", *(t.shape for t in types)), types[1].dtype)


define(
    "where",
    "condition, x, y",
    _where,
    relation=_where_type,
    pattern=OpPattern.BROADCAST,
    doc="x where the condition is not 0, else y; all three broadcast.",
)

# -- slices


def slice_bounds(size: Any, begin: int | None, end: int | None, stride: int) -> tuple[int, int, int]:
    """begin, end and stride of a slice of an axis, clamped; the size may be symbolic."""
    largest = size if isinstance(size, int) else np.iinfo(np.int64).max
    if begin is None:
        begin = 0 if stride > 0 else largest
    if end is None:
        end = largest if stride > 0 else -largest - 1
    return begin, end, stride


def sliced_size(size: Any, begin: int | None, end: int | None, stride: int) -> Any:
    if is_any(size):
        return AnySize()
    return len(range(*slice(begin, end, stride).indices(size)))


def _slices(shape: Sequence[Any], attrs: Any) -> list[tuple[int, Any, Any, int]]:
    """(axis, begin, end, stride) of each axis that a call slices."""
    begin, end, strides, axes = (attrs[name] for name in ("begin", "end", "strides", "axes"))
    count = max(len(begin), len(end))
    if axes is not None and not len(axes) == len(begin) == len(end):
        hint = "with axes, begin and end have one number for each of them"
        raise ShapeError(f"strided_slice: {len(axes)} axes, but {len(begin)} begins and {len(end)} ends", hint=hint)
    found_axes = range(count) if axes is None else [axis_of("strided_slice", a, len(shape)) for a in axes]
    if count > len(shape):
        raise ShapeError(f"strided_slice: data has {len(shape)} axes, but there are {count} begins and ends")
    found = []
    for i, axis in enumerate(found_axes):
        first = begin[i] if i < len(begin) else None
        last = end[i] if i < len(end) else None
        stride = strides[i] if strides and i < len(strides) else 1
        if attrs["slice_mode"] == "size":
            stride = 1
            last = None if last is None or last < 0 else (first or 0) + last
        if stride == 0:
            raise ArgumentError("strided_slice: a stride cannot be 0")
        found.append((axis, first, last, stride))
    return found


def _strided_slice(x: Any, **attrs: Any) -> Any:
    slices = _slices(shape_of(x), attrs)
    if not slices:
        return x
    bounds = [slice_bounds(shape_of(x)[axis], *bound) for axis, *bound in slices]
    axes = [s[0] for s in slices]
    return ops.strided_slice(x, axes, [b[0] for b in bounds], [b[1] for b in bounds], [b[2] for b in bounds])


def _sliced_type(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    shape = list(x.shape)
    for axis, *bound in _slices(shape, attrs):
        shape[axis] = shape[axis] if bound in ([None, None, 1], [0, None, 1]) else sliced_size(shape[axis], *bound)
    return TensorType(tuple(shape), x.dtype)


def _bounds(name: str, value: Any) -> tuple[Any, ...]:
    value = python_value(value)
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple(None if item is None else ints(name, item)[0] for item in items)


def _adapt_slice(args: list[Any], attrs: dict[str, Any]) -> Any:
    begin, end, strides = attrs["begin"], attrs["end"], attrs["strides"]
    if attrs["slice_mode"] not in ("end", "size"):
        raise ArgumentError(f"strided_slice: slice_mode must be 'end' or 'size', got {attrs['slice_mode']!r}")
    if is_dynamic(begin) or is_dynamic(end) or is_dynamic(strides):
        if attrs["axes"] is not None:
            raise ArgumentError("strided_slice: axes need begin, end and strides that are constants")
        strides = [1] if strides is None else strides
        given = [v if isinstance(v, Expr) else const(list(_bounds("begin", v)), "int64") for v in (begin, end, strides)]
        return call_op("dyn.strided_slice", args[0], *given, slice_mode=attrs["slice_mode"])
    found = {"begin": _bounds("begin", begin), "end": _bounds("end", end)}
    found["strides"] = (1,) if strides is None else _bounds("strides", strides) or (1,)
    return args, attrs | found | {"axes": maybe_ints("axes", attrs["axes"])}


define(
    "strided_slice",
    "data | begin, end, strides=None, axes=None, slice_mode='end'",
    _strided_slice,
    adapt=_adapt_slice,
    relation=_sliced_type,
    shown=("begin", "end", "strides", "axes"),
    doc="data[begin:end:stride] along the first axes, or those given. With slice_mode 'size', end are sizes, -1 all\n"
    "that is left, and the strides are 1.",
    pattern=OpPattern.INJECTIVE,
)


def _strided_set(x: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    """Where the element at i of an axis is of the slice, k = (i - begin) / stride says which of v's it gets."""
    shape, value = shape_of(x), v
    chosen = None
    for axis in range(shape_of(begin)[0]):
        size = shape[axis]
        first = _at(begin, axis)
        first = ops.where(ops.less(first, number(first, 0)), ops.add(first, number(first, size)), first)
        step = _at(strides, axis % shape_of(strides)[0]) if shape_of(strides)[0] else number(first, 1)
        offset = ops.subtract(places(range(size), "int64"), first)
        k = ops.floor_divide(offset, step)
        count = shape_of(v)[axis]
        inside = ops.logical_and(ops.greater_equal(k, number(k, 0)), ops.less(k, number(k, count)))
        inside = ops.logical_and(inside, ops.equal(ops.mod(offset, step), number(k, 0)))
        inside = ops.reshape(inside, tuple(size if i == axis else 1 for i in range(len(shape))))
        chosen = inside if chosen is None else ops.logical_and(chosen, inside)
        value = ops.take(value, k, axis, mode="clip")
    return x if chosen is None else ops.where(chosen, value, x)


def _at(x: Any, i: int) -> Any:
    return cast(ops.reshape(ops.strided_slice(x, [0], [i], [i + 1]), ()), "int64")


def _adapt_set(args: list[Any], attrs: dict[str, Any]) -> Any:
    if len(args) == 4:
        args.append([1])
    return [*args[:2], *(v if isinstance(v, Expr) else const(list(ints("begin", v)), "int64") for v in args[2:])], attrs


define(
    "strided_set",
    "data, v, begin, end, strides?",
    _strided_set,
    adapt=_adapt_set,
    relation=same,
    doc="data with v in place of data[begin:end:stride]; begin, end and strides are tensors.",
    pattern=OpPattern.INJECTIVE,
)


def _like_sizes(shape: Sequence[Any], like: Sequence[Any], axes: Any) -> list[Any]:
    chosen = range(len(like)) if not axes else [axis_of("slice_like", a, len(shape)) for a in axes]
    result = list(shape)
    for axis in chosen:
        size = like[axis]
        if not is_any(size) and not is_any(shape[axis]) and size > shape[axis]:
            raise ShapeError(f"slice_like: axis {axis} has {shape[axis]} elements, shape_like {size}")
        result[axis] = size
    return result


def _slice_like(x: Any, like: Any, *, axes: Any) -> Any:
    sizes = _like_sizes(shape_of(x), shape_of(like), axes)
    cut = [i for i, (a, b) in enumerate(zip(sizes, shape_of(x), strict=True)) if a is not b]
    return ops.strided_slice(x, cut, [0] * len(cut), [sizes[i] for i in cut]) if cut else x


define(
    "slice_like",
    "data, shape_like | axes=None",
    _slice_like,
    adapt=lambda args, attrs: (args, {"axes": maybe_ints("axes", attrs["axes"])}),
    relation=lambda types, attrs: (
        None
        if all(t.is_concrete for t in types)
        else TensorType(tuple(_like_sizes(types[0].shape, types[1].shape, attrs["axes"])), types[0].dtype)
    ),
    shown=("axes",),
    doc="The first elements of data along the axes (by default all), as many as shape_like has.",
    pattern=OpPattern.INJECTIVE,
)

# -- take and gather


def _take(x: Any, indices: Any, *, axis: int | None, batch_dims: int, mode: str) -> Any:
    if axis is None:
        return ops.take(ops.reshape(x, (-1,)), indices, 0, mode=mode)
    axis = axis_of("take", axis, rank_of(x))
    batch = batch_dims + rank_of(indices) if batch_dims < 0 else batch_dims
    return ops.take(x, indices, axis, mode=mode) if not batch else _take_of_batch(x, indices, axis, batch, mode)


def _take_of_batch(x: Any, indices: Any, axis: int, batch: int, mode: str) -> Any:
    """The batch's axes and the taken one as one axis, and the indices moved to their batch's part of it."""
    shape, wanted = shape_of(x), shape_of(indices)
    if axis < batch:
        raise ShapeError(f"take: axis {axis} is one of the {batch} axes of the batch")
    size, count = shape[axis], math.prod(shape[:batch])
    order = (*range(batch), axis, *(i for i in range(batch, len(shape)) if i != axis))
    others = [shape[i] for i in order[batch + 1 :]]
    lines = ops.reshape(ops.permute_dims(x, order), (count * size, *others))
    flat = cast(ops.reshape(indices, (count, -1)), "int64")
    if mode == "clip":
        flat = ops.minimum(ops.maximum(flat, number(flat, 0)), number(flat, size - 1))
    elif mode == "wrap":
        flat = ops.mod(flat, number(flat, size))
    flat = ops.add(flat, ops.reshape(places(range(0, count * size, size), "int64"), (count, 1)))
    found = ops.reshape(ops.take(lines, flat, 0), (*wanted, *others))
    inner = len(wanted) - batch
    before = axis - batch
    moved = [*range(batch), *range(batch + inner, batch + inner + before), *range(batch, batch + inner)]
    return ops.permute_dims(found, (*moved, *range(batch + inner + before, len(wanted) + len(others))))


def _taken(types: list[TensorType], attrs: Attrs) -> Type | None:
    x, indices = types
    if x.is_concrete and indices.is_concrete:
        return None
    if attrs["axis"] is None:
        return TensorType(indices.shape, x.dtype)
    axis = axis_of("take", attrs["axis"], x.ndim)
    batch = attrs["batch_dims"] + (indices.ndim if attrs["batch_dims"] < 0 else 0)
    return TensorType((*x.shape[:axis], *indices.shape[batch:], *x.shape[axis + 1 :]), x.dtype)


def _adapt_mode(args: list[Any], attrs: dict[str, Any]) -> Any:
    if attrs["mode"] not in ("clip", "wrap", "fast"):
        raise ArgumentError(f"take: mode must be 'clip', 'wrap' or 'fast', got {attrs['mode']!r}")
    axis = attrs["axis"]
    return args, attrs | {"axis": None if axis is None else ints("axis", axis)[0]}


define(
    "take",
    "data, indices | axis=None, batch_dims=0, mode='clip'",
    _take,
    adapt=_adapt_mode,
    relation=_taken,
    doc="data's slices at the indices along the axis, or elements of the flattened data. Indices beyond the axis are\n"
    "clipped to it, wrapped around it, or, with mode 'fast', must not be.",
    pattern=OpPattern.INJECTIVE,
)
define(
    "gather",
    "data, indices | axis",
    lambda x, indices, *, axis: ops.gather_elements(x, indices, axis),
    order=("data", "axis", "indices"),
    relation=lambda types, attrs: (
        None if all(t.is_concrete for t in types) else TensorType(types[1].shape, types[0].dtype)
    ),
    shown=("axis",),
    doc="y[i, j, k] = data[i, indices[i, j, k], k] along axis 1, and so on.",
    pattern=OpPattern.INJECTIVE,
)


def _last(indices: Any) -> Any:
    """The coordinates from the first axis, where relay has them, to the last."""
    rank = rank_of(indices)
    return ops.permute_dims(indices, (*range(1, rank), 0)) if rank > 1 else indices


def _gathered(types: list[TensorType], attrs: Attrs) -> Type | None:
    x, indices = types
    if x.is_concrete and indices.is_concrete:
        return None
    count = attrs["index_rank"] if is_any(indices.shape[0]) else indices.shape[0]
    if count is None:
        raise ShapeError("gather_nd: how many coordinates an index has is not known", hint="give index_rank")
    return TensorType((*indices.shape[1:], *x.shape[attrs["batch_dims"] + count :]), x.dtype)


define(
    "gather_nd",
    "data, indices | batch_dims=0, index_rank=None",
    lambda x, indices, *, batch_dims, index_rank: ops.gather_nd(x, _last(indices), batch_dims),
    relation=_gathered,
    doc="y[i…, …] = data[indices[0, i…], indices[1, i…], …]: the first axis of indices names an element along each of\n"
    "data's axes, after batch_dims axes that both share.",
    pattern=OpPattern.INJECTIVE,
)


def _adv_index(tensors: list[Any]) -> Any:
    return ops.index_tensor(tensors)


def _advanced(types: list[Any], attrs: Attrs) -> Type:
    x, *indices = tensors_of("adv_index", types[0])
    shape = joined_shape("adv_index", *(i.shape for i in indices))
    return TensorType((*shape, *x.shape[len(indices) :]), x.dtype)


define(
    "adv_index",
    "inputs",
    _adv_index,
    tuples=True,
    relation=of_unknown(_advanced),
    doc="data[i, j, …] as NumPy has it, of the tuple (data, i, j, …); the indices broadcast.",
    pattern=OpPattern.INJECTIVE,
)

# -- scatter

define(
    "scatter_elements",
    "data, indices, updates | axis=0, reduction='update'",
    lambda x, indices, updates, *, axis, reduction: ops.scatter_elements(x, indices, updates, axis, reduction),
    relation=same,
    pattern=OpPattern.OPAQUE,
    doc="data with y[i, indices[i, j, k], k] made of updates[i, j, k] along axis 1, and so on.",
)
define(
    "scatter_nd",
    "data, indices, updates | mode='update'",
    lambda x, indices, updates, *, mode: ops.scatter_nd(x, _last(indices), updates, mode),
    relation=same,
    pattern=OpPattern.OPAQUE,
    doc="data with y[indices[0, i…], indices[1, i…], …] made of updates[i…].",
)


def _sparse_to_dense(indices: Any, values: Any, default: Any = None, *, output_shape: tuple[int, ...]) -> Any:
    start = number(values, 0) if default is None else ops.reshape(default, ())
    rank = len(output_shape)
    if rank_of(indices) < 2 and rank != 1:
        indices = ops.reshape(indices, (1, rank))  # one element
    elif rank == 1 and rank_of(indices) < 2:
        indices = ops.reshape(indices, (-1, 1))
    values = ops.broadcast_to(values, shape_of(indices)[:1])
    return ops.scatter_nd(ops.broadcast_to(start, output_shape), indices, values)


def _adapt_dense(args: list[Any], attrs: dict[str, Any]) -> Any:
    shape, default = attrs["output_shape"], args[2] if len(args) > 2 else 0
    args = [*args[:2], default if isinstance(default, Expr) else const(default)]
    if is_dynamic(shape):
        return call_op("dyn.sparse_to_dense", args[0], shape, *args[1:])
    return args, {"output_shape": ints("output_shape", shape)}


define(
    "sparse_to_dense",
    "sparse_indices, sparse_values, default_value? | output_shape",
    _sparse_to_dense,
    order=("sparse_indices", "output_shape", "sparse_values", "default_value"),
    adapt=_adapt_dense,
    relation=lambda types, attrs: TensorType(attrs["output_shape"], types[1].dtype),
    pattern=OpPattern.OPAQUE,
    shown=("output_shape",),
    doc="A tensor of the shape that is default_value but for the elements at sparse_indices: an index a row.",
)

# -- one hot, masks, diagonals


def _one_hot(indices: Any, on: Any, off: Any, *, depth: int, axis: int, dtype: str) -> Any:
    dtype = dtype or dtype_of(on)
    rank = rank_of(indices) + 1
    at = axis_of("one_hot", axis, rank)
    classes = ops.reshape(places(range(depth), dtype_of(indices)), tuple(-1 if i == at else 1 for i in range(rank)))
    chosen = ops.equal(ops.expand_dims(indices, at), classes)
    return ops.where(chosen, _one(cast(on, dtype)), _one(cast(off, dtype)))


def _one(value: Any) -> Any:
    return ops.reshape(value, ()) if shape_of(value) else value


def one_hot_shape(indices: TensorType, depth: Any, axis: int) -> tuple[Any, ...]:
    shape = list(indices.shape)
    shape.insert(axis_of("one_hot", axis, len(shape) + 1), depth)
    return tuple(shape)


def _adapt_one_hot(args: list[Any], attrs: dict[str, Any]) -> Any:
    args = [args[0], *(v if isinstance(v, Expr) else const(v) for v in args[1:])]
    attrs = attrs | {"dtype": dtype_name(attrs["dtype"])}
    if is_dynamic(attrs["depth"]):
        return call_op("dyn.one_hot", *args, attrs["depth"], axis=attrs["axis"], dtype=attrs["dtype"])
    return args, attrs | {"depth": ints("depth", attrs["depth"])[0]}


define(
    "one_hot",
    "indices, on_value, off_value | depth=1, axis=-1, dtype=''",
    _one_hot,
    adapt=_adapt_one_hot,
    relation=lambda types, attrs: (
        None
        if types[0].is_concrete
        else TensorType(one_hot_shape(types[0], attrs["depth"], attrs["axis"]), attrs["dtype"] or types[1].dtype)
    ),
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    doc="on_value where the place along a new axis of size depth is the index, else off_value.",
)


def _sequence_mask(x: Any, lengths: Any, *, mask_value: float, axis: int) -> Any:
    rank = rank_of(x)
    steps = ops.reshape(places(range(shape_of(x)[axis]), "int64"), tuple(-1 if i == axis else 1 for i in range(rank)))
    batch = 1 - axis
    valid = ops.reshape(cast(lengths, "int64"), tuple(-1 if i == batch else 1 for i in range(rank)))
    return ops.where(ops.less(steps, valid), x, number(x, mask_value))


define(
    "sequence_mask",
    "data, valid_length | mask_value=0.0, axis=0",
    _sequence_mask,
    relation=same,
    doc="mask_value from place valid_length[b] on along the axis (0 or 1) of each b of the other one.",
    pattern=OpPattern.INJECTIVE,
)


def _set_diagonal(
    x: Any, diagonal: Any, *, k1: int, k2: int, super_diag_right_align: bool, sub_diag_right_align: bool
) -> Any:
    *batch, rows, columns = shape_of(x)
    i, j = np.indices((rows, columns))
    k = j - i
    inside = (k >= k1) & (k <= k2)
    along = np.minimum(i, j)
    if k1 == k2:
        values = ops.take(diagonal, relax.const(np.where(inside, along, 0).reshape(-1)), len(batch))
    else:
        longest = shape_of(diagonal)[-1]
        lengths = np.minimum(rows + np.minimum(k, 0), columns - np.maximum(k, 0))
        right = np.where(k >= 0, super_diag_right_align, sub_diag_right_align)
        place = (k2 - k) * longest + along + np.where(right, longest - lengths, 0)
        flat = ops.reshape(diagonal, (*batch, (k2 - k1 + 1) * longest))
        values = ops.take(flat, relax.const(np.where(inside, place, 0).reshape(-1)), len(batch))
    return ops.where(relax.const(inside), ops.reshape(values, (*batch, rows, columns)), x)


_ALIGN = {
    "RIGHT_RIGHT": (True, True),
    "RIGHT_LEFT": (True, False),
    "LEFT_RIGHT": (False, True),
    "LEFT_LEFT": (False, False),
}


def matrix_set_diag(data: Any, diagonal: Any, k: Any = 0, align: str = "RIGHT_LEFT") -> Any:
    """data with diagonal in the place of its k-th diagonals: k is one of them, or the lowest and the highest.

    ``align`` says where the shorter of several diagonals stand in their rows, those above and those below the main one.
    """
    if align not in _ALIGN:
        raise ArgumentError(f"matrix_set_diag: align must be one of {', '.join(_ALIGN)}, got {align!r}")
    found = ints("k", k)
    above, below = _ALIGN[align]
    return call_op(
        "matrix_set_diag",
        data,
        diagonal,
        k1=found[0],
        k2=found[-1],
        super_diag_right_align=above,
        sub_diag_right_align=below,
    )


define(
    "matrix_set_diag",
    "data, diagonal | k1=0, k2=0, super_diag_right_align=True, sub_diag_right_align=False",
    _set_diagonal,
    relation=same,
    doc="data with other diagonals, from the k1-th to the k2-th.",
    pattern=OpPattern.INJECTIVE,
)


def _trilu(x: Any, k: Any, *, upper: bool) -> Any:
    rows, columns = shape_of(x)[-2:]
    i, j = np.indices((rows, columns))
    offset = cast(ops.reshape(k, ()), "int64")
    compare = ops.greater_equal if upper else ops.less_equal
    return ops.where(compare(relax.const(j - i), offset), x, number(x, 0))


define(
    "trilu",
    "data, k | upper=True",
    _trilu,
    adapt=lambda args, attrs: ([args[0], args[1] if isinstance(args[1], Expr) else const(args[1], "int64")], attrs),
    order=("data", "k", "upper"),
    relation=same,
    shown=("upper",),
    doc="data on and above (or, without upper, below) the k-th diagonal of the last two axes, else 0.",
    pattern=OpPattern.INJECTIVE,
)


def _unravel(indices: Any, shape: Any) -> Any:
    """The coordinates along the first axis."""
    count = shape_of(shape)[0]
    rest, found = indices, []
    for axis in reversed(range(count)):
        size = cast(ops.reshape(ops.strided_slice(shape, [0], [axis], [axis + 1]), ()), dtype_of(indices))
        found.append(ops.mod(rest, size))
        rest = ops.floor_divide(rest, size)
    return ops.stack(found[::-1], 0)


define(
    "unravel_index",
    "indices, shape",
    _unravel,
    relation=lambda types, attrs: TensorType((types[1].shape[0], *types[0].shape), types[0].dtype),
    doc="The coordinates of places in a flattened tensor of the shape, which is a tensor; along the first axis.",
    pattern=OpPattern.INJECTIVE,
)
define(
    "invert_permutation",
    "data",
    lambda x: ops.scatter_elements(ops.zeros_like(x), x, places(range(shape_of(x)[0]), dtype_of(x))),
    relation=same,
    doc="y[data[i]] = i.",
    pattern=OpPattern.INJECTIVE,
)
