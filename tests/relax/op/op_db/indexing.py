"""Reading and writing where indices say, and sorting."""

from __future__ import annotations

from typing import Any

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, translate

REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "mean": "mean",
    "amax": "max",
    "amin": "min",
}
SUFFIXES = ("sum", "prod", "mean", "amin", "amax")


def scalar(x: Any) -> None:
    if x.shape == ():
        raise Skip("an axis of a tensor of rank 0")


@translate("gather_elements", "gather")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    scalar(x)
    if 0 in index.shape:
        raise Skip("no indices")
    return ops.gather_elements(x, index, dim)


@translate("gather_elements", "take_along_dim")
def take_along_dim(x: Any, index: Any, dim: int | None = None) -> Any:
    if dim is None:
        return ops.gather_elements(ops.flatten(x), ops.flatten(index), 0)
    sizes = [(a, b) for k, (a, b) in enumerate(zip(x.shape, index.shape, strict=True)) if k != dim % len(x.shape)]
    if any(a != b for a, b in sizes):
        raise Skip("indices that broadcast")
    return ops.gather_elements(x, index, dim)


@translate("take", "index_select")
def index_select(x: Any, dim: int, index: Any) -> Any:
    scalar(x)
    if index.shape == ():
        raise Skip("an index of rank 0 that keeps its axis")
    return ops.take(x, index, dim)


@translate("take", "take")
def take(x: Any, index: Any) -> Any:
    return ops.take(ops.flatten(x), index, 0)


@translate("nn.embedding", "nn.functional.embedding")
def embedding(
    weight: Any, indices: Any, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Any:  # fmt: skip
    if scale_grad_by_freq or max_norm is not None:
        raise Skip("an embedding that scales gradients by frequency, or normalises its table")
    if sparse:
        raise Skip("sparse tensors")
    return ops.nn.embedding(indices, weight, padding_idx)


@translate("index_tensor, strided_slice", "__getitem__")
def getitem(x: Any, index: Any) -> Any:
    if isinstance(index, list):
        raise Skip("lists as indices")
    index = index if isinstance(index, tuple) else [index]
    if any(hasattr(i, "struct_info") for i in index):
        if not all(hasattr(i, "struct_info") and i.dtype == "int64" for i in index):
            raise Skip("tensors among slices, and tensors of truth values, as indices")
        return ops.index_tensor(x, list(index))
    if any(isinstance(i, list) for i in index):
        raise Skip("lists as indices")
    taken = sum(i is not None and i is not Ellipsis for i in index)
    whole: list[Any] = []
    for i in index:
        whole += [slice(None)] * (len(x.shape) - taken) if i is Ellipsis else [i]
    axis = 0
    for i in whole:
        if i is None:
            x = ops.expand_dims(x, axis)
        elif isinstance(i, int):
            x = ops.squeeze(ops.strided_slice(x, [axis], [i % x.shape[axis]], [i % x.shape[axis] + 1]), axis)
            continue
        elif i != slice(None):
            start, stop, step = i.indices(x.shape[axis])
            x = ops.strided_slice(x, [axis], [start], [stop], [step])
        axis += 1
    return x


@translate("scatter_elements", "scatter")
def scatter(x: Any, dim: int, index: Any, src: Any, *, reduce: str | None = None) -> Any:
    scalar(x)
    if index.shape == () or (hasattr(src, "struct_info") and src.shape == ()):
        raise Skip("indices of rank 0")
    if not hasattr(src, "struct_info"):
        src = ops.full(index.shape, src, x.dtype)
    src = cut(src, index.shape)
    return ops.scatter_elements(x, index, src, dim, "update" if reduce is None else REDUCTIONS[reduce])


def cut(src: Any, shape: tuple[int, ...]) -> Any:
    """PyTorch reads as much of the source as there are indices."""
    for axis, (have, need) in enumerate(zip(src.shape, shape, strict=True)):
        src = src if have == need else ops.strided_slice(src, [axis], [0], [need])
    return src


@translate("scatter_elements", "scatter_add")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    return scatter(x, dim, index, src, reduce="add")


@translate("scatter_elements", *(f"scatter_reduce.{n}" for n in SUFFIXES))
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    if not include_self:
        raise Skip("a scatter without the old values")
    return scatter(x, dim, index, src, reduce=reduce)


def along(x: Any, dim: int, index: Any, src: Any, reduction: str) -> Any:
    """Slices scattered along an axis: the indices are the same in each."""
    scalar(x)
    if index.shape == ():
        raise Skip("indices of rank 0")
    dim %= len(x.shape)
    if src.shape == ():
        raise Skip("a source of rank 0")
    places = ops.reshape(index, tuple(src.shape[dim] if k == dim else 1 for k in range(len(src.shape))))
    return ops.scatter_elements(x, ops.broadcast_to(places, src.shape), src, dim, reduction)


@translate("scatter_elements", "index_add")
def index_add(x: Any, dim: int, index: Any, src: Any, *, alpha: float = 1) -> Any:
    return along(x, dim, index, src if alpha == 1 else ops.multiply(src, alpha), "add")


@translate("scatter_elements", "index_copy")
def index_copy(x: Any, dim: int, index: Any, src: Any) -> Any:
    return along(x, dim, index, src, "update")


@translate("scatter_elements", "index_fill")
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    scalar(x)
    if index.shape == ():
        raise Skip("indices of rank 0")
    dim %= len(x.shape)
    shape = tuple(index.shape[0] if k == dim else s for k, s in enumerate(x.shape))
    src = ops.broadcast_to(value, shape) if hasattr(value, "struct_info") else ops.full(shape, value, x.dtype)
    return along(x, dim, index, src, "update")


@translate("scatter_elements", *(f"index_reduce.{n}" for n in SUFFIXES if n != "sum"))
def index_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    if not include_self:
        raise Skip("a scatter without the old values")
    return along(x, dim, index, src, REDUCTIONS[reduce])


@translate("index_put", "index_put")
def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if any(i.dtype == "bool" for i in indices):
        raise Skip("truth values as indices")
    return ops.index_put(x, list(indices), values, accumulate)


@translate("scatter_nd", "put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    if x.shape == () or 0 in index.shape:
        raise Skip("put into a tensor of rank 0, or nothing")
    flat = ops.reshape(index, (-1, 1))
    size = x.shape and ops.flatten(x).shape[0]
    result = ops.scatter_nd(ops.flatten(x), flat, ops.flatten(source), "add" if accumulate else "update", "wrap")
    assert size
    return ops.reshape(result, x.shape)


# ---- sorting ---------------------------------------------------------------------------------------------------------


@translate("sort, argsort", "sort")
def sort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    scalar(x)
    return ops.sort(x, dim, descending), ops.argsort(x, dim, descending) if stable else None


@translate("sort", "msort")
def msort(x: Any) -> Any:
    return ops.sort(x, 0)


@translate("argsort", "argsort")
def argsort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    scalar(x)
    return ops.argsort(x, dim, descending)


@translate("topk", "topk")
def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    scalar(x)
    if not sorted:
        raise Skip("the largest in any order")
    values, places = ops.topk(x, k, dim, "both", largest)
    return values, None if x.dtype == "int64" else places  # of equal ones PyTorch takes any


@translate("sort, strided_slice", "kthvalue")
def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    scalar(x)
    found = ops.strided_slice(ops.sort(x, dim), [dim], [k - 1], [k])
    return found if keepdim else ops.squeeze(found, dim), None


@translate("searchsorted", "searchsorted")
def searchsorted(
    x: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None
) -> Any:
    if sorter is not None:
        raise Skip("a sequence that a sorter sorts")
    return ops.searchsorted(x, values, right or side == "right")


@translate("bucketize", "bucketize")
def bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    return ops.bucketize(x, boundaries, out_int32, right)
