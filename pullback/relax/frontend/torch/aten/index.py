"""Elements by indices from tensors: taking, putting, gathering, scattering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.nn import functional as F
from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.frontend.torch.aten.create import filled
from pullback.relax.frontend.torch.aten.promotion import as_dtype, tensor
from pullback.relax.frontend.torch.aten.shape import axis_of, expand, permute, view
from pullback.relax.frontend.torch.table import ATEN
from pullback.relax.op.family import broadcast_shapes
from pullback.tir.expr import is_float

# -- x[i, :, j]


def _indexed(x: Any, indices: Sequence[Any], what: str) -> tuple[list[int], list[Any]]:
    """The axes that have an index, and these."""
    found = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if any(index.dtype in ("bool", "uint8") for _, index in found):
        raise UserError(
            f"{what} by a mask gives a tensor whose size depends on the data, and cannot be converted",
            hint="torch.where(mask, x, y) chooses by element",
        )
    return [axis for axis, _ in found], [index for _, index in found]


def _to_front(axes: Sequence[int], rank: int) -> list[int]:
    return [*axes, *(a for a in range(rank) if a not in axes)]


@ATEN.register("aten.index", "aten._unsafe_index")
def index(x: Any, indices: Sequence[Any]) -> Any:
    axes, given = _indexed(x, indices, "an index")
    if not axes:
        return x
    if len(axes) == 1:
        return op.take(x, given[0], axes[0])
    front = permute(x, _to_front(axes, len(x.shape)))
    return _placed(op.index_tensor([front, *given]), axes, given, len(x.shape))


def _placed(result: Any, axes: Sequence[int], given: Sequence[Any], rank: int) -> Any:
    """The axes of indices where PyTorch has them: in place of those that they index, if these are neighbours."""
    if not _adjacent(axes):
        return result
    new, lead = max(len(i.shape) for i in given), axes[0]
    return permute(result, [*range(new, new + lead), *range(new), *range(new + lead, new + rank - len(axes))])


def _adjacent(axes: Sequence[int]) -> bool:
    return list(axes) == list(range(axes[0], axes[0] + len(axes)))


@ATEN.register("aten.index_put", "aten._unsafe_index_put", "aten._index_put_impl")
def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    values = as_dtype(values, x.dtype)
    masks = [i for i in indices if i is not None and i.dtype in ("bool", "uint8")]
    if masks:
        return _put_masked(x, indices, values, accumulate)
    axes, given = _indexed(x, indices, "index_put")
    rank, order = len(x.shape), _to_front(axes, len(x.shape))
    shape = broadcast_shapes("index_put", *(i.shape for i in given))
    kept = tuple(x.shape[a] for a in range(rank) if a not in axes)
    if _adjacent(axes) and axes[0] > 0:  # values are in the order of x[indices]; those of the op begin with the indices
        lead = axes[0]
        values = expand(values, (*kept[:lead], *shape, *kept[lead:]))
        new = len(shape)
        values = permute(values, [*range(lead, lead + new), *range(lead), *range(lead + new, len(values.shape))])
    front = op.index_put(permute(x, order), given, values, accumulate)
    return permute(front, [order.index(a) for a in range(rank)])


def _put_masked(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """One value where a mask holds."""
    single = all(isinstance(s, int) and s == 1 for s in values.shape)
    if len(indices) - indices.count(None) != 1 or not single:
        raise UserError(
            "index_put of several values by a mask cannot be converted: which one goes where depends on the data",
            hint="torch.where(mask, values, x) with values for all elements",
        )
    at = next(k for k, i in enumerate(indices) if i is not None)
    mask = as_dtype(indices[at], "bool")
    mask = view(mask, (1,) * at + tuple(mask.shape) + (1,) * (len(x.shape) - at - len(mask.shape)))
    value = view(values, ())
    return op.where(mask, x + value if accumulate else value, x)


@ATEN.register("aten.index_select", "aten.index_select_copy")
def index_select(x: Any, dim: int, index: Any) -> Any:
    if not len(x.shape):
        return x
    return op.take(x, view(index, (1,)) if not len(index.shape) else index, axis_of(dim, len(x.shape)))


def _along(x: Any, dim: int, index: Any) -> list[Any]:
    """The indices of ``index_put`` for slices along an axis."""
    return [None] * axis_of(dim, len(x.shape)) + [view(index, (1,)) if not len(index.shape) else index]


def _with_an_axis(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a tensor and what is put into it, for tensors of shape () too: they are vectors of one element."""

    def run(x: Any, dim: int, index: Any, *rest: Any, **options: Any) -> Any:
        if len(x.shape):
            return function(x, dim, index, *rest, **options)
        rest = tuple(view(v, (1,)) if isinstance(v, Expr) and not len(v.shape) else v for v in rest)
        return view(function(view(x, (1,)), 0, index, *rest, **options), ())

    return run


@ATEN.register("aten.index_add")
@_with_an_axis
def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    source = source if alpha == 1 else source * tensor(alpha, source.dtype)
    return index_put(x, _along(x, dim, index), source, True)


@ATEN.register("aten.index_copy")
@_with_an_axis
def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return index_put(x, _along(x, dim, index), source)


@ATEN.register("aten.index_fill")
@_with_an_axis
def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    return index_put(x, _along(x, dim, index), tensor(value, x.dtype))


@ATEN.register("aten.index_reduce")
@_with_an_axis
def index_reduce(x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    axis = axis_of(dim, len(x.shape))
    shape = [1] * len(x.shape)
    shape[axis] = -1
    places = expand(view(index, tuple(shape)), source.shape)
    return scatter_reduce(x, axis, places, source, reduce, include_self=include_self)


# -- gather and scatter


@ATEN.register("aten.gather")
def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not len(x.shape):
        return expand(x, index.shape)
    return op.gather_elements(x, index, axis_of(dim, len(x.shape)))


@ATEN.register("aten.take_along_dim")
def take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Any:
    if dim is None:
        return op.take(x.flatten(), indices.flatten(), 0)
    axis = axis_of(dim, len(x.shape))
    shapes = [(*v.shape[:axis], 1, *v.shape[axis + 1 :]) for v in (x, indices)]
    shape = broadcast_shapes("take_along_dim", *shapes)
    x, indices = (expand(v, (*shape[:axis], v.shape[axis], *shape[axis + 1 :])) for v in (x, indices))
    return op.gather_elements(x, indices, axis)


@ATEN.register("aten.take")
def take(x: Any, index: Any) -> Any:
    return op.take(x.flatten(), index, 0)


@ATEN.register("aten.put")
def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = op.index_put(x.flatten(), [index.flatten()], as_dtype(source, x.dtype).flatten(), accumulate)
    return view(flat, x.shape)


_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "mean": "mean", "amax": "max",
               "amin": "min"}  # fmt: skip


def _scattered(x: Any, dim: int, index: Any, src: Any, reduction: str) -> Any:
    """``src`` may be longer than the index along any axis, and what is beyond does not count."""
    if not len(x.shape):
        return view(_scattered(view(x, (1,)), 0, view(index, (1,)), view(src, (1,)), reduction), ())
    longer = [k for k, (a, b) in enumerate(zip(src.shape, index.shape, strict=True)) if a is not b and a != b]
    if longer:
        src = op.strided_slice(src, longer, [0] * len(longer), [index.shape[k] for k in longer])
    return op.scatter_elements(x, index, as_dtype(src, x.dtype), axis_of(dim, len(x.shape)), reduction)


@ATEN.register("aten.scatter")
def scatter(x: Any, dim: int, index: Any, src: Any, *, reduce: str | None = None) -> Any:
    if isinstance(src, (int, float)):
        src = filled(index.shape, src, x.dtype)
    return _scattered(x, dim, index, src, "update" if reduce is None else _REDUCTIONS[reduce])


@ATEN.register("aten.scatter_add")
def scatter_add(x: Any, dim: int, index: Any, src: Any) -> Any:
    return _scattered(x, dim, index, src, "add")


@ATEN.register("aten.scatter_reduce")
def scatter_reduce(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    kind = _REDUCTIONS[reduce]
    if kind == "mean" and not (include_self and is_float(x.dtype)):
        return _scattered_mean(x, dim, index, src, include_self)
    start = x if include_self else _neutral(x, dim, index, _identity(kind, x.dtype))
    return _scattered(start, dim, index, src, kind)


def _scattered_mean(x: Any, dim: int, index: Any, src: Any, include_self: bool) -> Any:
    """The sums divided by how many numbers they have; those of integers are rounded down."""
    total = _scattered(x if include_self else _neutral(x, dim, index, 0), dim, index, src, "add")
    start = op.ones_like(x) if include_self else op.zeros_like(x)
    count = _scattered(start, dim, index, filled(index.shape, 1, x.dtype), "add")
    count = op.maximum(count, tensor(1, x.dtype))
    return total / count if is_float(x.dtype) else op.floor_divide(total, count)


def _identity(kind: str, dtype: str) -> Any:
    """What changes nothing in a reduction."""
    if kind in ("add", "mul"):
        return 0 if kind == "add" else 1
    if is_float(dtype):
        return float("-inf") if kind == "max" else float("inf")
    return int(np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max)


def _neutral(x: Any, dim: int, index: Any, value: Any) -> Any:
    """x with a number where something is scattered to."""
    return _scattered(x, dim, index, filled(index.shape, value, x.dtype), "update")


# -- by masks


@ATEN.register("aten.masked_scatter")
def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """The elements of ``source``, in order, where the mask holds."""
    mask = expand(as_dtype(mask, "bool"), x.shape)
    number = op.cumsum(as_dtype(mask, "int64").flatten(), 0) - 1
    taken = op.take(as_dtype(source, x.dtype).flatten(), op.maximum(number, tensor(0, "int64")), 0, "clip")
    return op.where(mask, view(taken, x.shape), x)


@ATEN.register("aten.one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Any:
    return F.one_hot(x, num_classes)


@ATEN.register("aten.bucketize")
def bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    x = tensor(x)
    boundaries = as_dtype(boundaries, x.dtype) if not is_float(boundaries.dtype) else boundaries
    return op.bucketize(as_dtype(x, boundaries.dtype), boundaries, out_int32, right)


@ATEN.register("aten.searchsorted")
def searchsorted(
    sequence: Any, values: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    if sorter is not None:
        sequence = op.gather_elements(sequence, sorter, -1)
    right = right or side == "right"
    return op.searchsorted(sequence, tensor(values, sequence.dtype), right, "int32" if out_int32 else "int64")


@ATEN.register("aten.isin")
def isin(x: Any, tests: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    x, tests = tensor(x), tensor(tests)
    found = op.any(op.equal(op.expand_dims(x, -1), as_dtype(tests, x.dtype).flatten()), -1)
    return op.logical_not(found) if invert else found
