"""Shapes, parts and arrangements of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import Expr, const
from pullback.relax.frontend.keras.table import KERAS, Call, cast
from pullback.relax.frontend.padding import MODES


def items(values: Any) -> tuple[Any, ...]:
    """The fields of a tuple as graph values."""
    return tuple(values[k] for k in range(len(values.struct_info.fields)))


@KERAS.register("ops.Reshape")
def reshape(c: Call, x: Any) -> Any:
    shape = [-1 if s is None else s for s in c.newshape]
    if shape.count(-1) == 1 and all(not isinstance(s, int) for s, _ in zip(x.shape[:1], shape, strict=False)):
        known = [s for s in x.shape[1:] if isinstance(s, int)]
        if shape[0] == -1 and len(known) == len(x.shape) - 1 and np.prod(known) == np.prod(shape[1:]):
            shape[0] = x.shape[0]  # the batch stays what it is
    return op.reshape(x, shape)


@KERAS.register("ops.Transpose")
def transpose(c: Call, x: Any) -> Any:
    return op.permute_dims(x) if c.axes is None else op.permute_dims(x, [a % len(x.shape) for a in c.axes])


@KERAS.register("ops.Moveaxis")
def moveaxis(c: Call, x: Any) -> Any:
    rank = len(x.shape)
    source, destination = ([v % rank for v in (a if isinstance(a, (tuple, list)) else [a])]
                           for a in (vars(c.source)["source"], c.destination))  # fmt: skip
    order = [a for a in range(rank) if a not in source]
    for place, axis in sorted(zip(destination, source, strict=True)):
        order.insert(place, axis)
    return op.permute_dims(x, order)


@KERAS.register("ops.Swapaxes")
def swapaxes(c: Call, x: Any) -> Any:
    order = list(range(len(x.shape)))
    order[c.axis1], order[c.axis2] = order[c.axis2], order[c.axis1]
    return op.permute_dims(x, order)


@KERAS.register("ops.Ravel")
def ravel(c: Call, x: Any) -> Any:
    return op.flatten(x)


@KERAS.register("ops.ExpandDims")
def expand_dims(c: Call, x: Any) -> Any:
    return op.expand_dims(x, list(c.axis) if isinstance(c.axis, tuple) else c.axis)


@KERAS.register("ops.Squeeze")
def squeeze(c: Call, x: Any) -> Any:
    return op.squeeze(x) if c.axis is None else op.squeeze(x, list(c.axis) if isinstance(c.axis, tuple) else c.axis)


@KERAS.register("ops.BroadcastTo")
def broadcast_to(c: Call, x: Any) -> Any:
    lead = len(c.shape) - len(x.shape)
    return op.broadcast_to(x, [x.shape[k - lead] if s is None else s for k, s in enumerate(c.shape)])


@KERAS.register("ops.Concatenate")
def concatenate(c: Call, xs: Any) -> Any:
    return op.concat([c.cast(x) for x in xs], c.axis)


@KERAS.register("ops.Stack")
def stack(c: Call, x: Any) -> Any:
    return op.stack([c.cast(v) for v in x], c.axis)


@KERAS.register("ops.Hstack")
def hstack(c: Call, xs: Any) -> Any:
    return op.concat([c.cast(x) for x in xs], 0 if len(xs[0].shape) == 1 else 1)


@KERAS.register("ops.Vstack")
def vstack(c: Call, xs: Any) -> Any:
    return op.concat([c.cast(op.expand_dims(x, 0) if len(x.shape) == 1 else x) for x in xs], 0)


@KERAS.register("ops.Append")
def append(c: Call, x1: Any, x2: Any) -> Any:
    values = [c.cast(x) for x in (x1, x2)]
    return op.concat([op.flatten(v) for v in values], 0) if c.axis is None else op.concat(values, c.axis)


@KERAS.register("ops.Split", "ops.ArraySplit")
def split(c: Call, x: Any) -> Any:
    given = c.indices_or_sections
    if isinstance(given, int) and type(c.source).__name__ == "ArraySplit":
        size = x.shape[c.axis]
        ends = np.cumsum([size // given + (k < size % given) for k in range(given)])
        given = [int(e) for e in ends[:-1]]
    return list(items(op.split(x, given if isinstance(given, int) else [int(i) for i in given], c.axis)))


@KERAS.register("ops.Unstack")
def unstack(c: Call, x: Any) -> Any:
    return list(items(op.unbind(x, c.axis)))


@KERAS.register("ops.Flip")
def flip(c: Call, x: Any) -> Any:
    axes = c.axis if c.axis is not None else tuple(range(len(x.shape)))
    return op.flip(x, list(axes) if isinstance(axes, tuple) else axes)


@KERAS.register("ops.Flipud")
def flipud(c: Call, x: Any) -> Any:
    return op.flip(x, 0)


@KERAS.register("ops.Fliplr")
def fliplr(c: Call, x: Any) -> Any:
    return op.flip(x, 1)


@KERAS.register("ops.Roll")
def roll(c: Call, x: Any) -> Any:
    return op.roll(x, c.shift, c.axis)


@KERAS.register("ops.Rot90")
def rot90(c: Call, array: Any) -> Any:
    a, b = (axis % len(array.shape) for axis in c.axes)
    order = list(range(len(array.shape)))
    order[a], order[b] = order[b], order[a]
    turns = c.k % 4
    if turns == 0:
        return array
    if turns == 2:
        return op.flip(array, [a, b])
    return op.flip(op.permute_dims(array, order), a) if turns == 1 else op.permute_dims(op.flip(array, a), order)


@KERAS.register("ops.Repeat")
def repeat(c: Call, x: Any) -> Any:
    if not isinstance(c.repeats, int):
        raise UserError("repeat of each element a number of times of its own is not converted", hint="keras.ops.take")
    return op.repeat(x, c.repeats, c.axis)


@KERAS.register("ops.Tile")
def tile(c: Call, x: Any) -> Any:
    return op.tile(x, [c.repeats] if isinstance(c.repeats, int) else list(c.repeats))


@KERAS.register("ops.Pad")
def pad(c: Call, x: Any, constant_values: Any = None) -> Any:
    width = c.pad_width
    if isinstance(width, int):
        width = ((width, width),) * len(x.shape)
    elif len(width) == 2 and isinstance(width[0], int):
        width = (tuple(width),) * len(x.shape)
    elif len(width) == 1:
        width = tuple(width) * len(x.shape)
    mode = MODES.get(c.mode)
    if mode is None:
        raise UserError(f"padding in the mode {c.mode!r} is not converted", hint=f"modes are {', '.join(MODES)}")
    return op.nn.pad(x, [tuple(map(int, w)) for w in width], mode, float(constant_values or 0.0))


@KERAS.register("ops.GetItem")
def getitem(c: Call, x: Any, key: Any) -> Any:
    return x[tuple(key) if isinstance(key, list) else key]


@KERAS.register("ops.Take")
def take(c: Call, x: Any, indices: Any) -> Any:
    x = x if isinstance(x, Expr) else const(x)
    indices = indices if isinstance(indices, Expr) else const(np.asarray(indices, "int64"))
    indices = indices if "int" in indices.dtype else cast(indices, "int64")
    return op.take(op.flatten(x), indices, 0) if c.axis is None else op.take(x, indices, c.axis)


@KERAS.register("ops.TakeAlongAxis")
def take_along_axis(c: Call, x: Any, indices: Any) -> Any:
    if c.axis is None:
        return op.take(op.flatten(x), op.flatten(indices), 0)
    return op.gather_elements(x, indices, c.axis)


@KERAS.register("ops.Slice")
def sliced(c: Call, inputs: Any, start_indices: Any) -> Any:
    starts = _known(start_indices, "slice")
    ends = [b + s for b, s in zip(starts, c.shape, strict=True)]
    return op.strided_slice(inputs, list(range(len(starts))), starts, ends)


def _known(values: Any, what: str) -> list[int]:
    if any(isinstance(v, Expr) for v in (values if isinstance(values, (list, tuple)) else [values])):
        raise UserError(f"{what} at places that the program computes is not converted", hint="keras.ops.take")
    return [int(v) for v in values]


@KERAS.register("ops.SliceUpdate")
def slice_update(c: Call, inputs: Any, start_indices: Any, updates: Any) -> Any:
    starts = _known(start_indices, "slice_update")
    result, axes = cast(updates, inputs.dtype), range(len(starts))
    for axis in reversed(axes):  # from the innermost axis outwards, each within the slice of those before it
        outer = list(range(axis))
        part = op.strided_slice(inputs, outer, [starts[a] for a in outer],
                                [starts[a] + updates.shape[a] for a in outer]) if outer else inputs  # fmt: skip
        result = op.slice_scatter(part, result, axis, starts[axis], starts[axis] + updates.shape[axis])
    return result


@KERAS.register("ops.ScatterUpdate")
def scatter_update(c: Call, inputs: Any, indices: Any, updates: Any) -> Any:
    kinds = {None: "update", "add": "add", "max": "max", "min": "min", "mul": "mul"}
    return op.scatter_nd(inputs, cast(indices, "int64"), cast(updates, inputs.dtype), kinds[c.reduction])


@KERAS.register("ops.Scatter")
def scatter(c: Call, indices: Any, values: Any) -> Any:
    return op.scatter_nd(op.zeros(tuple(c.shape), values.dtype), cast(indices, "int64"), values, "add")


@KERAS.register("ops.Tril")
def tril(c: Call, x: Any) -> Any:
    return op.tril(x, c.k)


@KERAS.register("ops.Triu")
def triu(c: Call, x: Any) -> Any:
    return op.triu(x, c.k)


@KERAS.register("ops.Diagonal")
def diagonal(c: Call, x: Any) -> Any:
    return op.diagonal(x, c.offset, c.axis1, c.axis2)


@KERAS.register("ops.Diag")
def diag(c: Call, x: Any) -> Any:
    if len(x.shape) == 2:
        return op.diagonal(x, c.k)
    size = x.shape[0] + abs(c.k)
    row, column = max(-c.k, 0), max(c.k, 0)
    around = [(row, size - x.shape[0] - row), (column, size - x.shape[0] - column)]
    return op.nn.pad(op.expand_dims(x, 1) * op.eye(x.shape[0], dtype=x.dtype), around)


@KERAS.register("ops.Diff")
def diff(c: Call, a: Any) -> Any:
    axis = c.axis % len(a.shape)
    for _ in range(c.n):
        size = a.shape[axis]
        a = op.strided_slice(a, [axis], [1], [size]) - op.strided_slice(a, [axis], [0], [size - 1])
    return a


@KERAS.register("ops.OnesLike")
def ones_like(c: Call, x: Any) -> Any:
    return op.ones_like(x, c.dtype)


@KERAS.register("ops.ZerosLike", "ops.EmptyLike")
def zeros_like(c: Call, x: Any) -> Any:
    return op.zeros_like(x, c.dtype)


@KERAS.register("ops.FullLike")
def full_like(c: Call, x: Any, fill_value: Any) -> Any:
    return op.zeros_like(x, c.dtype) + c.cast(fill_value)


@KERAS.register("ops.Full")
def full(c: Call, fill_value: Any) -> Any:
    return op.broadcast_to(c.cast(fill_value), tuple(c.shape))


@KERAS.register("ops.Meshgrid")
def meshgrid(c: Call, *x: Any) -> Any:
    return list(items(op.meshgrid(list(x), c.indexing)))


@KERAS.register("ops.Digitize")
def digitize(c: Call, x: Any, bins: Any) -> Any:
    bins = bins if isinstance(bins, Expr) else const(np.asarray(bins))
    return c.cast(op.bucketize(*c.common(x, bins), right=True))


@KERAS.register("ops.SearchSorted")
def searchsorted(c: Call, sorted_sequence: Any, values: Any) -> Any:
    return c.cast(op.searchsorted(sorted_sequence, values, c.side == "right"))
