"""Operators that take, put or choose elements."""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Expr, call_op, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    ints,
    is_any,
    is_dynamic,
    joined_shape,
    number,
    of_unknown,
    places,
    rank_of,
    same,
    shape_of,
    tensors_of,
)
from pullback.relay.ty import TensorType, Type

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
