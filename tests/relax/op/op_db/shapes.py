"""Shapes, moving elements, joining and cutting, and tensors made of nothing."""

from __future__ import annotations

import math
from typing import Any

import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, dtype_name, promoted, translate


def reshape(x: Any, shape: Any) -> Any:
    return ops.reshape(x, tuple(shape))


@translate("reshape", "reshape", "view", "view_copy")
def reshape_(x: Any, *shape: Any) -> Any:
    return reshape(x, shape[0] if shape and not isinstance(shape[0], int) else shape)


@translate("reshape", "reshape_as", "view_as")
def reshape_as(x: Any, other: Any) -> Any:
    return reshape(x, other.shape)


@translate("flatten", "ravel")
def ravel(x: Any) -> Any:
    return ops.flatten(x)


@translate("reshape", "flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    rank = len(x.shape)
    if rank == 0:
        return ops.flatten(x)
    start, end = start_dim % rank, end_dim % rank
    return reshape(x, (*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]))


@translate("reshape", "unflatten")
def unflatten(x: Any, dim: int, sizes: Any) -> Any:
    dim %= len(x.shape)
    return reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


@translate("squeeze", "squeeze", "squeeze_copy", "squeeze.multiple")
def squeeze(x: Any, dim: Any = None) -> Any:
    if dim is None:
        return ops.squeeze(x)
    if not x.shape:
        raise Skip("an axis of a tensor of rank 0")
    dims = [d for d in ([dim] if isinstance(dim, int) else dim) if x.shape[d] == 1]  # others stay, says PyTorch
    return ops.squeeze(x, dims) if dims else ops.reshape(x, x.shape)


@translate("expand_dims", "unsqueeze", "unsqueeze_copy")
def unsqueeze(x: Any, dim: int) -> Any:
    return ops.expand_dims(x, dim)


@translate("permute_dims", "permute", "permute_copy")
def permute(x: Any, dims: Any) -> Any:
    return ops.permute_dims(x, list(dims))


@translate("permute_dims", "transpose", "transpose_copy")
def transpose(x: Any, dim0: int, dim1: int) -> Any:
    order = list(range(len(x.shape)))
    if not order:
        raise Skip("an axis of a tensor of rank 0")
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return ops.permute_dims(x, order)


@translate("permute_dims", "t", "t_copy", "T", "H")
def t(x: Any) -> Any:
    return ops.permute_dims(x)


@translate("permute_dims", "mT", "mH")
def matrix_t(x: Any) -> Any:
    return transpose(x, -1, -2)


@translate("permute_dims", "movedim")
def movedim(x: Any, source: Any, destination: Any) -> Any:
    rank = len(x.shape)
    pairs = {d % rank: s % rank for s, d in zip(source, destination, strict=True)}
    others = iter(k for k in range(rank) if k not in pairs.values())
    return ops.permute_dims(x, [pairs[k] if k in pairs else next(others) for k in range(rank)])


@translate("expand", "expand", "expand_copy")
def expand(x: Any, shape: Any) -> Any:
    return ops.expand(x, tuple(shape))


@translate("broadcast_to", "expand_as")
def expand_as(x: Any, other: Any) -> Any:
    return ops.broadcast_to(x, other.shape)


@translate("broadcast_to", "broadcast_to")
def broadcast_to(x: Any, shape: Any) -> Any:
    return ops.broadcast_to(x, tuple(shape))


@translate("broadcast_to", "broadcast_tensors")
def broadcast_tensors(*tensors: Any) -> Any:
    shape = torch.broadcast_shapes(*(t.shape for t in tensors))
    return [ops.broadcast_to(t, tuple(shape)) for t in tensors]


@translate("collapse_sum_to", "sum_to_size")
def sum_to_size(x: Any, *shape: Any) -> Any:
    return ops.collapse_sum_to(x, shape if not shape or isinstance(shape[0], int) else tuple(shape[0]))


@translate("tile", "tile")
def tile(x: Any, dims: Any) -> Any:
    return ops.tile(x, tuple(dims))


@translate("tile", "repeat")
def repeat(x: Any, dims: Any) -> Any:
    return ops.tile(x, tuple(dims))


@translate("repeat", "repeat_interleave")
def repeat_interleave(x: Any, repeats: Any, dim: Any = None, *, output_size: Any = None) -> Any:
    if not isinstance(repeats, int):
        raise Skip("a number of repeats that is a tensor")
    if x.shape == ():
        raise Skip("an axis of a tensor of rank 0")
    return ops.repeat(x, repeats, dim)


@translate("roll", "roll")
def roll(x: Any, shifts: Any, dims: Any = None) -> Any:
    return ops.roll(x, shifts, dims)


@translate("flip", "flip")
def flip(x: Any, dims: Any) -> Any:
    if not dims:
        raise Skip("flip along no axis")
    return ops.flip(x, list(dims))


@translate("flip", "fliplr")
def fliplr(x: Any) -> Any:
    return ops.flip(x, 1)


@translate("flip", "flipud")
def flipud(x: Any) -> Any:
    return ops.flip(x, 0)


@translate("flip, permute_dims", "rot90")
def rot90(x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    a, b = dims
    if k % 4 == 0:
        return ops.reshape(x, x.shape)
    if k % 4 == 2:
        return ops.flip(x, [a, b])
    return transpose(ops.flip(x, b), a, b) if k % 4 == 1 else ops.flip(transpose(x, a, b), b)


@translate("diagonal", "diagonal", "diagonal_copy")
def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return ops.diagonal(x, offset, dim1, dim2)


@translate("diagonal", "linalg.diagonal")
def linalg_diagonal(x: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return ops.diagonal(x, offset, dim1, dim2)


@translate("diagonal", "diag")
def diag(x: Any, diagonal: int = 0) -> Any:
    if len(x.shape) == 1:
        raise Skip("a matrix of its diagonal")
    return ops.diagonal(x, diagonal)


@translate("tril", "tril")
def tril(x: Any, diagonal: int = 0) -> Any:
    return ops.tril(x, diagonal)


@translate("triu", "triu")
def triu(x: Any, diagonal: int = 0) -> Any:
    return ops.triu(x, diagonal)


@translate("meshgrid", "meshgrid.variadic_tensors")
def meshgrid(*tensors: Any, indexing: str = "ij") -> Any:
    if any(t.shape == () for t in tensors):
        tensors = tuple(ops.flatten(t) for t in tensors)
    return ops.meshgrid(list(tensors), indexing)


@translate("meshgrid", "meshgrid.list_of_tensors")
def meshgrid_of_list(tensors: Any, *, indexing: str = "ij") -> Any:
    return meshgrid(*tensors, indexing=indexing)


# ---- join and cut ----------------------------------------------------------------------------------------------------


@translate("concat", "cat")
def cat(tensors: Any, dim: int = 0) -> Any:
    if any(t.shape == (0,) for t in tensors) and any(len(t.shape) != 1 for t in tensors):
        raise Skip("an empty vector among tensors of another rank")
    return ops.concat(promoted(*tensors), dim)


@translate("stack", "stack")
def stack(tensors: Any, dim: int = 0) -> Any:
    return ops.stack(list(tensors), dim)


@translate("concat", "hstack")
def hstack(tensors: Any) -> Any:
    return ops.concat(list(tensors), 0 if len(tensors[0].shape) == 1 else 1)


@translate("concat", "vstack")
def vstack(tensors: Any) -> Any:
    return ops.concat([ops.reshape(t, (1, *t.shape)) if len(t.shape) == 1 else t for t in tensors], 0)


@translate("concat", "column_stack")
def column_stack(tensors: Any) -> Any:
    return ops.concat([t if len(t.shape) > 1 else ops.reshape(t, (-1, 1)) for t in tensors], 1)


@translate("split", "split", "unsafe_split")
def split(x: Any, size: int, dim: int = 0) -> Any:
    return ops.split(x, list(range(size, x.shape[dim], size)), dim)


@translate("split", "split.list_args", "split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(x: Any, sizes: Any, dim: int = 0) -> Any:
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes) - 1)]
    return ops.split(x, ends, dim)


@translate("chunk", "chunk", "unsafe_chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    return ops.chunk(x, chunks, dim)


@translate("split", "tensor_split")
def tensor_split(x: Any, sections: Any, dim: int = 0) -> Any:
    if hasattr(sections, "struct_info"):
        raise Skip("places to split that are a tensor")
    if isinstance(sections, int):
        size, more = divmod(x.shape[dim], sections)
        sizes = [size + (k < more) for k in range(sections)]
        sections = [sum(sizes[: k + 1]) for k in range(sections - 1)]
    return ops.split(x, list(sections), dim)


@translate("split", "hsplit")
def hsplit(x: Any, sections: Any) -> Any:
    return tensor_split(x, sections, 0 if len(x.shape) == 1 else 1)


@translate("split", "vsplit")
def vsplit(x: Any, sections: Any) -> Any:
    return tensor_split(x, sections, 0)


@translate("split", "dsplit")
def dsplit(x: Any, sections: Any) -> Any:
    return tensor_split(x, sections, 2)


@translate("unbind", "unbind", "unbind_copy")
def unbind(x: Any, dim: int = 0) -> Any:
    return ops.unbind(x, dim)


@translate("strided_slice", "narrow", "narrow_copy")
def narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    if not isinstance(start, int):
        raise Skip("a start that is a tensor")
    start = start if start >= 0 else start + x.shape[dim]
    return ops.strided_slice(x, [dim], [start], [start + length])


@translate("strided_slice", "slice")
def slice_(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    start, end = 0 if start is None else start, x.shape[dim] if end is None else end
    return ops.strided_slice(x, [dim], [start], [end], [step])


@translate("strided_slice, squeeze", "select")
def select(x: Any, dim: int, index: int) -> Any:
    index %= x.shape[dim]
    return ops.squeeze(ops.strided_slice(x, [dim], [index], [index + 1]), dim)


@translate("slice_scatter", "slice_scatter")
def slice_scatter(x: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return ops.slice_scatter(x, src, dim, 0 if start is None else start, end, step)


@translate("slice_scatter", "select_scatter")
def select_scatter(x: Any, src: Any, dim: int, index: int) -> Any:
    index %= x.shape[dim]
    return ops.slice_scatter(x, ops.expand_dims(src, dim), dim, index, index + 1)


# ---- padding and pixels ----------------------------------------------------------------------------------------------


def pairs(x: Any, pad: Any) -> list[tuple[int, int]]:
    """PyTorch begins with the last axis."""
    found = [tuple(pad[i : i + 2]) for i in range(len(pad) - 2, -1, -2)]
    if min(pad, default=0) < 0:
        raise Skip("negative padding")
    return [(0, 0)] * (len(x.shape) - len(found)) + found


@translate("nn.pad", "constant_pad_nd")
def constant_pad_nd(x: Any, pad: Any, value: float = 0.0) -> Any:
    return ops.nn.pad(x, pairs(x, pad), "constant", float(value))


@translate("nn.pad", *(f"nn.functional.pad.{m}" for m in ("constant", "reflect", "replicate", "circular")))
def pad(x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    return ops.nn.pad(x, pairs(x, pad), mode, 0.0 if value is None else float(value))


@translate("nn.pixel_shuffle", "nn.functional.pixel_shuffle")
def pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    return ops.nn.pixel_shuffle(x, upscale_factor)


@translate("nn.pixel_unshuffle", "nn.functional.pixel_unshuffle")
def pixel_unshuffle(x: Any, downscale_factor: int) -> Any:
    return ops.nn.pixel_unshuffle(x, downscale_factor)


@translate("reshape, permute_dims", "nn.functional.channel_shuffle")
def channel_shuffle(x: Any, groups: int) -> Any:
    n, c, *rest = x.shape
    parts = ops.reshape(x, (n, groups, c // groups, *rest))
    return ops.reshape(transpose(parts, 1, 2), x.shape)


# ---- dtypes and new tensors ------------------------------------------------------------------------------------------

CASTS = {
    "bfloat16": "bfloat16", "bool": "bool", "char": "int8", "double": "float64", "float": "float32",
    "half": "float16", "int": "int32", "long": "int64", "short": "int16",
}  # fmt: skip
for _theirs, _dtype in CASTS.items():

    @translate("astype", _theirs)
    def cast(x: Any, memory_format: Any = None, _dtype: str = _dtype) -> Any:
        return ops.astype(x, _dtype)


def known(dtype: Any, x: Any) -> str:
    return x.dtype if dtype is None else dtype_name(dtype)


@translate("zeros_like", "zeros_like")
def zeros_like(x: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.zeros_like(x, known(dtype, x))


@translate("ones_like", "ones_like")
def ones_like(x: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.ones_like(x, known(dtype, x))


@translate("full_like", "full_like")
def full_like(x: Any, value: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.full_like(x, value, known(dtype, x))


@translate("zeros", "new_zeros")
def new_zeros(x: Any, size: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.zeros(tuple(size), known(dtype, x))


@translate("ones", "new_ones")
def new_ones(x: Any, size: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.ones(tuple(size), known(dtype, x))


@translate("full", "new_full")
def new_full(x: Any, size: Any, value: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.full(tuple(size), value, known(dtype, x))


@translate("zeros", "zeros")
def zeros(size: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.zeros(tuple(size), "float32" if dtype is None else dtype_name(dtype))


@translate("ones", "ones")
def ones(size: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.ones(tuple(size), "float32" if dtype is None else dtype_name(dtype))


@translate("full", "full")
def full(size: Any, value: Any, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.full(tuple(size), value, "float32" if dtype is None else dtype_name(dtype))


@translate("eye", "eye")
def eye(n: int, m: Any = None, *, dtype: Any = None, **placed: Any) -> Any:
    return ops.eye(n, m, 0, "float32" if dtype is None else dtype_name(dtype))


@translate("arange", "arange")
def arange(*args: Any, end: Any = None, dtype: Any = None, **placed: Any) -> Any:
    args = args if end is None else (*args, end)
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    if dtype == torch.int64 and any(v != int(v) for v in (start, end, step)):
        raise Skip("a range of integers between fractions")
    return ops.arange(start, end, step, None if dtype is None else dtype_name(dtype))


@translate("hamming_window", "signal.windows.hamming")
def hamming(size: int, *, sym: bool = True, dtype: Any = None, **placed: Any) -> Any:
    if size == 0:
        raise Skip("a window of size 0")
    return ops.hamming_window(size, not sym, 0.54, 0.46, "float32" if dtype is None else dtype_name(dtype))


@translate("hamming_window", "signal.windows.general_hamming")
def general_hamming(size: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, **placed: Any) -> Any:
    if size == 0:
        raise Skip("a window of size 0")
    name = "float32" if dtype is None else dtype_name(dtype)
    return ops.hamming_window(size, not sym, alpha, 1 - alpha, name)


@translate("hamming_window", "signal.windows.hann")
def hann(size: int, *, sym: bool = True, dtype: Any = None, **placed: Any) -> Any:
    if size == 0:
        raise Skip("a window of size 0")
    return ops.hamming_window(size, not sym, 0.5, 0.5, "float32" if dtype is None else dtype_name(dtype))


@translate("one_hot", "nn.functional.one_hot")
def one_hot(indices: Any, num_classes: int = -1) -> Any:
    if num_classes == -1:
        raise Skip("a number of classes that depends on values")
    return ops.astype(ops.one_hot(indices, 1.0, 0.0, num_classes), "int64")
