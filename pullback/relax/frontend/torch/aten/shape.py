"""Shapes, order and parts of tensors: views in PyTorch, which are values here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.expr import Constant
from pullback.relax.frontend.torch.aten.promotion import as_dtype, promoted_dtype, same, tensor
from pullback.relax.frontend.torch.table import ATEN
from pullback.relax.op.family import broadcast_shapes
from pullback.relax.struct_info import same_shape

LAST = 2**63 - 1  # PyTorch's end of a slice without one

# -- the value as it is

for _name in (
    "alias", "clone", "contiguous", "lift", "lift_fresh", "lift_fresh_copy", "alias_copy", "conj", "_conj",
    "_conj_physical", "resolve_conj", "resolve_neg", "real", "conj_physical",
):  # fmt: skip
    ATEN.same({f"aten.{_name}": same})
ATEN.same({"aten.detach": op.stop_gradient, "aten.detach_copy": op.stop_gradient})

# -- axes


def axis_of(dim: int, rank: int) -> int:
    """An axis counted from the front."""
    return dim % rank if rank else 0


def axes_of(dim: Any, rank: int) -> list[int]:
    return [axis_of(d, rank) for d in (dim if isinstance(dim, (tuple, list)) else (dim,))] if rank else []


@ATEN.register("aten.permute", "aten.permute_copy")
def permute(x: Any, dims: Sequence[int]) -> Any:
    order = axes_of(dims, len(x.shape))
    return x if order == sorted(order) else op.permute_dims(x, order)


@ATEN.register("aten.transpose", "aten.swapaxes", "aten.swapdims", "aten.transpose_copy")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    order = list(range(len(x.shape)))
    if order:
        a, b = axis_of(dim0, len(order)), axis_of(dim1, len(order))
        order[a], order[b] = order[b], order[a]
    return permute(x, order)


@ATEN.register("aten.t", "aten.t_copy", "aten.numpy_T", "aten.matrix_H", "aten.mT", "aten.mH", "aten.adjoint")
def t(x: Any) -> Any:
    return x if len(x.shape) < 2 else transpose(x, -2, -1)


@ATEN.register("aten.movedim", "aten.moveaxis")
def movedim(x: Any, source: Any, destination: Any) -> Any:
    rank = len(x.shape)
    come, go = axes_of(source, rank), axes_of(destination, rank)
    rest = iter(a for a in range(rank) if a not in come)
    placed = dict(zip(go, come, strict=True))
    return permute(x, [placed[a] if a in placed else next(rest) for a in range(rank)])


@ATEN.register("aten.unsqueeze", "aten.unsqueeze_copy")
def unsqueeze(x: Any, dim: int) -> Any:
    return op.expand_dims(x, dim)


@ATEN.register("aten.squeeze", "aten.squeeze_copy")
def squeeze(x: Any, dim: Any = None) -> Any:
    given = range(len(x.shape)) if dim is None else axes_of(dim, len(x.shape))
    axes = [a for a in given if isinstance(x.shape[a], int) and x.shape[a] == 1]
    return op.squeeze(x, axes) if axes else x


# -- shapes


@ATEN.register("aten.view", "aten.reshape", "aten._unsafe_view", "aten._reshape_copy", "aten.view_copy")
def view(x: Any, size: Sequence[Any]) -> Any:
    if isinstance(size, str):
        raise UserError("a view of another dtype, which reads bits anew, cannot be converted", hint="x.to(dtype)")
    return x if same_shape(x.shape, tuple(size)) else op.reshape(x, tuple(size))


@ATEN.register("aten._reshape_alias")
def reshape_alias(x: Any, size: Sequence[Any], stride: Any) -> Any:
    return view(x, size)


ATEN.same({"aten.view_as": lambda x, other: view(x, other.shape)})
ATEN.same({"aten.reshape_as": lambda x, other: view(x, other.shape)})


@ATEN.register("aten.flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    return x.flatten(start_dim, end_dim)


ATEN.same({"aten.ravel": lambda x: x.flatten()})


@ATEN.register("aten.unflatten")
def unflatten(x: Any, dim: int, sizes: Sequence[Any]) -> Any:
    axis = axis_of(dim, len(x.shape))
    return view(x, (*x.shape[:axis], *_without_unknown(sizes, x.shape[axis]), *x.shape[axis + 1 :]))


def _without_unknown(sizes: Sequence[Any], total: Any) -> list[Any]:
    """Sizes, of which one may be -1, that have a product."""
    known = math.prod(s for s in sizes if not (isinstance(s, int) and s == -1))
    return [total // known if isinstance(s, int) and s == -1 else s for s in sizes]


@ATEN.register("aten.expand", "aten.expand_copy")
def expand(x: Any, size: Sequence[Any], *, implicit: bool = False) -> Any:
    lead = len(size) - len(x.shape)
    wanted = tuple(x.shape[k - lead] if isinstance(s, int) and s == -1 else s for k, s in enumerate(size))
    return x if same_shape(x.shape, wanted) else op.broadcast_to(x, wanted)


ATEN.same({"aten.expand_as": lambda x, other: expand(x, other.shape), "aten.broadcast_to": expand})


@ATEN.register("aten.broadcast_tensors")
def broadcast_tensors(tensors: Sequence[Any]) -> tuple[Any, ...]:
    shape = broadcast_shapes("broadcast_tensors", *(x.shape for x in tensors))
    return tuple(expand(x, shape) for x in tensors)


@ATEN.register("aten.repeat", "aten.tile")
def repeat(x: Any, repeats: Sequence[Any]) -> Any:
    if all(isinstance(r, int) and r == 1 for r in repeats):
        return view(x, (1,) * (len(repeats) - len(x.shape)) + tuple(x.shape))
    return op.tile(x, tuple(repeats))


@ATEN.register("aten.repeat_interleave")
def repeat_interleave(x: Any, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Any:
    if not isinstance(repeats, int):
        raise UserError(
            "repeat_interleave by a tensor gives a size that depends on the data, and cannot be converted",
            hint="repeat by a number",
        )
    return op.repeat(x, repeats, dim)


# -- joining and cutting


def _alike(tensors: Sequence[Any]) -> list[Any]:
    """Tensors of one dtype."""
    dtype = tensors[0].dtype
    for x in tensors[1:]:
        dtype = promoted_dtype(dtype, x.dtype)
    return [as_dtype(x, dtype) for x in tensors]


@ATEN.register("aten.cat", "aten.concat", "aten.concatenate")
def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    tensors = _alike(tensors)
    kept = [x for x in tensors if x.shape != (0,)] or tensors[:1]  # PyTorch passes over empty vectors
    return kept[0] if len(kept) == 1 else op.concat(kept, dim)


@ATEN.register("aten.stack")
def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    return op.stack(_alike(tensors), dim)


def _with_axes(x: Any, rank: int) -> Any:
    """What torch.atleast_1d and its kin give."""
    if len(x.shape) >= rank:
        return x
    return view(x, {0: (1,) * rank, 1: (1, *x.shape, 1), 2: (*x.shape, 1)}[len(x.shape)][:rank])


@ATEN.register("aten.hstack")
def hstack(tensors: Sequence[Any]) -> Any:
    tensors = [_with_axes(x, 1) for x in tensors]
    return cat(tensors, 0 if len(tensors[0].shape) == 1 else 1)


ATEN.same(
    {
        "aten.vstack": lambda tensors: cat([_with_axes(x, 2) for x in tensors], 0),
        "aten.row_stack": lambda tensors: cat([_with_axes(x, 2) for x in tensors], 0),
        "aten.dstack": lambda tensors: cat([_with_axes(x, 3) for x in tensors], 2),
        "aten.atleast_1d": lambda x: _with_axes(x, 1),
        "aten.atleast_2d": lambda x: _with_axes(x, 2),
        "aten.atleast_3d": lambda x: _with_axes(x, 3),
    }
)


@ATEN.register("aten.column_stack")
def column_stack(tensors: Sequence[Any]) -> Any:
    return cat([x if len(x.shape) > 1 else view(x, (math.prod(x.shape), 1)) for x in tensors], 1)


def _known_size(name: str, x: Any, dim: int) -> tuple[int, int]:
    axis = axis_of(dim, len(x.shape))
    if not isinstance(x.shape[axis], int):
        raise UserError(
            f"{name} cuts axis {axis}, whose size is symbolic: the number of parts would depend on it",
            hint="export the model with a fixed size of that axis",
        )
    return axis, x.shape[axis]


def _cut(x: Any, ends: Sequence[int], axis: int) -> tuple[Any, ...]:
    """The parts of an axis up to these places, and what is left."""
    if not ends:
        return (x,)
    parts = op.split(x, list(ends), axis)
    return tuple(parts[k] for k in range(len(ends) + 1))


@ATEN.register(
    "aten.split", "aten.split_with_sizes", "aten.unsafe_split", "aten.unsafe_split_with_sizes", "aten.split_copy",
    "aten.split_with_sizes_copy",
)  # fmt: skip
def split(x: Any, size: Any, dim: int = 0) -> tuple[Any, ...]:
    """Parts of a size, or of the sizes in a list."""
    if isinstance(size, (tuple, list)):
        axis, ends = axis_of(dim, len(x.shape)), [0]
        for s in size:
            ends.append(ends[-1] + s)
        if all(isinstance(end, int) for end in ends):
            return _cut(x, ends[1:-1], axis)
        return tuple(op.strided_slice(x, [axis], [a], [b]) for a, b in itertools.pairwise(ends))
    axis, total = _known_size("split", x, dim)
    return _cut(x, range(size, total, size) if size else [], axis)


@ATEN.register("aten.chunk", "aten.unsafe_chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> tuple[Any, ...]:
    axis, total = _known_size("chunk", x, dim)
    return split(x, max(-(-total // chunks), 1), axis)


@ATEN.register("aten.tensor_split")
def tensor_split(x: Any, sections: Any, dim: int = 0) -> tuple[Any, ...]:
    """As many parts as asked for, the first ones larger by one; or cut at the given places."""
    axis, total = _known_size("tensor_split", x, dim)
    if not isinstance(sections, (int, tuple, list)):
        raise UserError("tensor_split at places in a tensor cannot be converted", hint="give them as a list of numbers")
    if isinstance(sections, int):
        small, more = divmod(total, sections)
        ends = [k * small + min(k, more) for k in range(1, sections)]
        return _cut(x, ends, axis)
    places = [slice(end).indices(total)[1] for end in sections]
    starts = [0, *places]
    return tuple(op.strided_slice(x, [axis], [a], [max(a, b)]) for a, b in zip(starts, [*places, total], strict=True))


@ATEN.register("aten.unbind", "aten.unbind_copy")
def unbind(x: Any, dim: int = 0) -> tuple[Any, ...]:
    axis, total = _known_size("unbind", x, dim)
    parts = op.unbind(x, axis)
    return tuple(parts[k] for k in range(total))


# -- parts


@ATEN.register("aten.select", "aten.select_copy")
def select(x: Any, dim: int, index: Any) -> Any:
    axis = axis_of(dim, len(x.shape))
    size = x.shape[axis]
    if isinstance(index, int):
        index = index + size if index < 0 else index
    if isinstance(size, int) and isinstance(index, int):
        return op.squeeze(op.strided_slice(x, [axis], [index], [index + 1]), [axis])
    return op.take(x, tensor(index, "int64"), axis)  # a slice of a symbolic axis may be empty


@ATEN.register("aten.slice", "aten.slice_copy")
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = axis_of(dim, len(x.shape))
    size = x.shape[axis]
    start, end = 0 if start is None else start, LAST if end is None else end
    beyond = isinstance(end, int) and (end == LAST or (isinstance(size, int) and end >= size))
    if beyond and isinstance(start, int) and start == 0 and step == 1:
        return x
    return op.strided_slice(x, [axis], [start], [size if beyond else end], [step])


@ATEN.register("aten.narrow", "aten.narrow_copy")
def narrow(x: Any, dim: int, start: Any, length: Any) -> Any:
    return slice_(x, dim, start, start + length)


@ATEN.register("aten.select_scatter")
def select_scatter(x: Any, src: Any, dim: int, index: int) -> Any:
    axis = axis_of(dim, len(x.shape))
    size = x.shape[axis]
    index = index + size if isinstance(index, int) and index < 0 else index
    return slice_scatter(x, op.expand_dims(expand(src, (*x.shape[:axis], *x.shape[axis + 1 :])), axis), axis, index,
                         index + 1)  # fmt: skip


@ATEN.register("aten.slice_scatter")
def slice_scatter(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    axis = axis_of(dim, len(x.shape))
    size, src = x.shape[axis], as_dtype(src, x.dtype)
    start, end = 0 if start is None else start, LAST if end is None else end
    beyond = isinstance(end, int) and (end == LAST or (isinstance(size, int) and end >= size))
    if beyond and isinstance(start, int) and start == 0 and step == 1:
        return expand(src, x.shape)
    if isinstance(size, int) and isinstance(start, int) and isinstance(end, int):
        places = range(size)[start : min(end, size) : step]
        src = expand(src, (*x.shape[:axis], len(places), *x.shape[axis + 1 :]))
        return op.slice_scatter(x, src, axis, places.start, max(places.stop, places.start), step)
    if step != 1:
        raise UserError(f"slice_scatter along axis {axis} of symbolic size with the step {step} cannot be converted")
    return op.concat([slice_(x, axis, 0, start), src, slice_(x, axis, size if beyond else end, size)], axis)


@ATEN.register("aten.diagonal", "aten.diagonal_copy", "aten.linalg_diagonal")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return op.diagonal(x, offset, dim1, dim2)


def _diagonal_mask(rows: int, columns: int, offset: int) -> Any:
    return Constant(np.eye(rows, columns, offset, dtype=bool))


@ATEN.register("aten.diag_embed")
def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    rank, size = len(x.shape) + 1, x.shape[-1]
    before = op.nn.pad(x, [0, 0] * (rank - 2) + [max(-offset, 0), max(offset, 0)]) if offset else x
    n = size + abs(offset)
    wide = op.broadcast_to(op.expand_dims(before, -1), (*x.shape[:-1], n, n))
    result = op.where(_diagonal_mask(n, n, offset), wide, tensor(0, x.dtype))
    return movedim(result, (-2, -1), (axis_of(dim1, rank), axis_of(dim2, rank)))


@ATEN.register("aten.diag")
def diag(x: Any, diagonal: int = 0) -> Any:
    return diag_embed(x, diagonal) if len(x.shape) == 1 else op.diagonal(x, diagonal)


@ATEN.register("aten.diagonal_scatter")
def diagonal_scatter(x: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rank = len(x.shape)
    a, b = axis_of(dim1, rank), axis_of(dim2, rank)
    last = movedim(x, (a, b), (-2, -1))
    rows, columns = last.shape[-2:]
    skipped = max(-offset, 0)
    spread = op.nn.pad(src, [0, 0] * (rank - 2) + [skipped, rows - skipped - src.shape[-1]])
    wide = op.broadcast_to(op.expand_dims(as_dtype(spread, x.dtype), -1), last.shape)
    return movedim(op.where(_diagonal_mask(rows, columns, offset), wide, last), (-2, -1), (a, b))


ATEN.same(
    {
        "aten.tril": lambda x, diagonal=0: op.tril(x, diagonal),
        "aten.triu": lambda x, diagonal=0: op.triu(x, diagonal),
        "aten.fliplr": lambda x: op.flip(x, [1]),
        "aten.flipud": lambda x: op.flip(x, [0]),
    }
)


@ATEN.register("aten.flip")
def flip(x: Any, dims: Sequence[int]) -> Any:
    axes = axes_of(dims, len(x.shape))
    return op.flip(x, axes) if axes else x


@ATEN.register("aten.roll")
def roll(x: Any, shifts: Sequence[Any], dims: Sequence[int] = ()) -> Any:
    if not len(x.shape):
        return x
    if dims:
        return op.roll(x, list(shifts), axes_of(dims, len(x.shape)))
    return op.roll(x, shifts[0])


@ATEN.register("aten.rot90")
def rot90(x: Any, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    a, b = axes_of(dims, len(x.shape))
    if k % 4 == 2:
        return op.flip(x, [a, b])
    if k % 4 == 0:
        return x
    return transpose(op.flip(x, [b]), a, b) if k % 4 == 1 else op.flip(transpose(x, a, b), [b])


@ATEN.register("aten.meshgrid")
def meshgrid(tensors: Sequence[Any], *, indexing: str = "ij") -> tuple[Any, ...]:
    tensors = [view(x, (1,)) if len(x.shape) == 0 else x for x in tensors]
    grids = op.meshgrid(tensors, indexing)
    return tuple(grids[k] for k in range(len(tensors)))


@ATEN.register("aten.unfold", "aten.unfold_copy")
def unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """Windows along an axis, as a new last axis."""
    if not len(x.shape):
        return view(x, (1,)) if size == 1 else view(x, (0,))
    axis, total = _known_size("unfold", x, dimension)
    places = np.arange(0, total - size + 1, step)[:, None] + np.arange(size)
    return movedim(op.take(x, Constant(places.astype(np.int64)), axis), axis + 1, -1)
