"""Reading where indices say: gather_elements, gather_nd, index_tensor; and indices along several axes made one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Tuple
from pullback.relax.op.family import (
    broadcast_index,
    broadcast_shapes,
    composite,
    expect_dtype,
    expect_member,
    known_shape,
    normalize_axis,
    specialize,
    zero_gradient,
)
from pullback.relax.op.index.index import MODES, valid_row, valid_rows
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import all_of
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, dim, format_shape, same_shape

INDEX_CHECK = "an index is outside its axis"
INDEX_MODES = (
    "Beyond an axis of size n: mode 'raise' (or 'fast') counts negative indices from the end and makes others an\n"
    "error; 'clip' takes the nearest valid one; 'wrap' takes i mod n."
)


def expect_mode(op: str, mode: Any) -> None:
    """Raise a UserError unless the mode says what becomes of indices outside their axis."""
    expect_member(op, "mode", mode, MODES)


def _expect_something(op: str, size: Dim, axis: int, indices: Sequence[Dim]) -> None:
    if isinstance(size, int) and size == 0 and 0 not in indices:
        raise ShapeError(f"{op}: axis {axis} has size 0: it has no index")


def _valid(index: tir.PrimExpr, size: Dim) -> tir.PrimExpr:
    """Whether an index counts from either end of an axis."""
    i, n = tir.cast("int64", index), tir.as_expr(size)
    return (i >= 0 - n) & (i < n)


def checked_rows(indices: np.ndarray, size: int, mode: str) -> np.ndarray:
    """Indices as valid ones; a UserError where the mode says that they must be."""
    if mode in ("raise", "fast") and not np.all((indices >= -size) & (indices < size)):
        raise UserError(INDEX_CHECK)
    return valid_rows(indices, size, mode)


# -- ravel_multi_index


def _ravel_infer(*indices: TensorStructInfo, sizes: Any, mode: str) -> TensorStructInfo:
    op = "ravel_multi_index"
    expect_mode(op, mode)
    if not indices or len(indices) != len(sizes):
        raise ShapeError(f"{op}: there must be an index for each of the {len(sizes)} sizes, got {len(indices)}")
    shapes = [known_shape(op, i, "an index") for i in indices]
    for info in indices:
        expect_dtype(op, info, "integer", "an index")
    result = broadcast_shapes(op, *shapes)
    for axis, size in enumerate(sizes):
        _expect_something(op, dim(size), axis, result)
    return TensorStructInfo(result, "int64")


def _ravel_te(*indices: te.Tensor, sizes: Any, mode: str) -> te.Tensor:
    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        flat = tir.as_expr(0)
        for tensor, size in zip(indices, sizes, strict=True):
            flat = flat * tir.as_expr(size) + valid_row(broadcast_index(tensor, i), size, mode)
        return flat

    return te.compute(broadcast_shapes("ravel_multi_index", *(t.shape for t in indices)), element, "rows")


def _ravel_check(*indices: te.Tensor, sizes: Any, mode: str) -> te.Tensor | None:
    if mode not in ("raise", "fast"):
        return None

    def valid(*i: tir.PrimExpr) -> tir.PrimExpr:
        conditions = [_valid(broadcast_index(t, i), s) for t, s in zip(indices, sizes, strict=True)]
        result = conditions[0]
        for condition in conditions[1:]:
            result = result & condition
        return result

    return all_of(te.compute(broadcast_shapes("ravel_multi_index", *(t.shape for t in indices)), valid, "valid"))


def _ravel(*indices: np.ndarray, sizes: Any, mode: str) -> np.ndarray:
    flat: Any = np.int64(0)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + checked_rows(index, size, mode)
    return np.asarray(flat)


define(
    "ravel_multi_index",
    "indices* | sizes, mode='raise'",
    infer=_ravel_infer,
    te=_ravel_te,
    numpy=_ravel,
    gradient=zero_gradient,
    check=_ravel_check,
    check_message=INDEX_CHECK,
    family="gather",
    doc="The row-major number (int64) of the element whose index along each axis of a tensor with these sizes is\n"
    f"given; the integer tensors broadcast. NumPy's ravel_multi_index.\n{INDEX_MODES}",
    samples=[
        sample(Ints((5,), 0, 3), Ints((5,), -4, 4, "int32"), sizes=(3, 4)),
        sample(Ints((2, 1), 0, 3), Ints((3,), 0, 4), Ints((), 0, 2), sizes=(3, 4, 2)),
        sample(Ints((17,), -9, 9), sizes=(4,), mode="clip"),
        sample(Ints((4,), -9, 9), Ints((4,), -9, 9), sizes=(4, 3), mode="wrap"),
        sample(Ints((0,), 0, 1), sizes=(0,)),
    ],
)

# -- gather_elements


def expect_elements(op: str, data: TensorStructInfo, indices: TensorStructInfo, axis: int, mode: str) -> int:
    """The axis along which ``indices`` name elements of ``data``, counted from the front, when they fit."""
    shape, own = known_shape(op, data, "data"), known_shape(op, indices, "indices")
    expect_dtype(op, indices, "integer", "indices")
    expect_mode(op, mode)
    at = normalize_axis(op, axis, len(shape))
    fits = len(shape) == len(own) and all(
        k == at or not isinstance(n, int) or not isinstance(s, int) or n <= s
        for k, (n, s) in enumerate(zip(own, shape, strict=True))
    )
    if not fits:
        message = f"{op}: indices of shape {format_shape(own)} do not fit data of shape {format_shape(shape)}"
        raise ShapeError(message, hint=f"they have the data's rank and, but along axis {at}, at most its sizes")
    _expect_something(op, shape[at], at, own)
    return at


def _elements_te(data: te.Tensor, indices: te.Tensor, *, axis: int, mode: str) -> te.Tensor:
    at = normalize_axis("gather_elements", axis, data.ndim)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        return data[(*i[:at], valid_row(indices[i], data.shape[at], mode), *i[at + 1 :])]

    return te.compute(indices.shape, element, "gather_elements")


def _elements_check(data: te.Tensor, indices: te.Tensor, *, axis: int, mode: str) -> te.Tensor | None:
    if mode not in ("raise", "fast"):
        return None
    size = data.shape[normalize_axis("gather_elements", axis, data.ndim)]
    return all_of(te.compute(indices.shape, lambda *i: _valid(indices[i], size), "valid"))


def _elements(data: np.ndarray, indices: np.ndarray, *, axis: int, mode: str) -> np.ndarray:
    places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    places[axis] = checked_rows(indices, data.shape[axis], mode)
    return data[tuple(places)]


def _elements_infer(data: TensorStructInfo, indices: TensorStructInfo, *, axis: int, mode: str) -> TensorStructInfo:
    expect_elements("gather_elements", data, indices, axis, mode)
    return TensorStructInfo(indices.shape, data.dtype)


define(
    "gather_elements",
    "data, indices | axis=0, mode='raise'",
    infer=_elements_infer,
    te=_elements_te,
    numpy=_elements,
    gradient=lambda dy, y, data, indices, *, axis, mode: (
        ops.scatter_elements(ops.zeros(data.shape, data.dtype), indices, dy, axis, "add", mode),
        None,
    ),
    check=_elements_check,
    check_message=INDEX_CHECK,
    precision="same",
    family="gather",
    doc="y[i, j, k] = data[i, indices[i, j, k], k] along axis 1, and so on: indices have the rank of data and, but\n"
    f"along the axis, at most its sizes. ONNX's GatherElements, PyTorch's gather.\n{INDEX_MODES}",
    samples=[
        sample((5, 4), Ints((3, 4), 0, 5)),
        sample((3, 4), Ints((3, 6), -4, 4, "int32"), axis=1),
        sample((3, 5, 2), Ints((2, 7, 1), -5, 5), axis=-2),
        sample((17,), Ints((9,), -20, 20), mode="clip"),
        sample((3, 4), Ints((3, 4), -9, 9), axis=1, mode="wrap"),
        sample((0, 4), Ints((0, 3), 0, 4), axis=1),
        sample(Ints((4, 2), -5, 5), Ints((3, 2), 0, 4)),
    ],
)

# -- gather_nd, index_tensor: whole slices at rows of the leading axes


def coordinates(indices: Any) -> list[Any]:
    """The slices of an index tensor along its last axis."""
    last = len(indices.shape) - 1
    return [ops.squeeze(ops.strided_slice(indices, [last], [k], [k + 1]), last) for k in range(indices.shape[last])]


def along_axis(size: Dim, axis: int, rank: int) -> Any:
    """0 … size - 1 along one of the axes, repeated along the others (which have size 1)."""
    return ops.reshape(ops.arange(0, size, 1, "int64"), (*(1,) * axis, size, *(1,) * (rank - axis - 1)))


def flattened(data: Any, count: int) -> Any:
    """A tensor with its first ``count`` axes as one."""
    return ops.reshape(data, (dim(math.prod(data.shape[:count], start=1)), *data.shape[count:]))


def expect_nd(op: str, data: TensorStructInfo, indices: TensorStructInfo, batch_dims: int, mode: str) -> int:
    """How many axes of ``data`` the last axis of ``indices`` names, after the batch's."""
    shape, own = known_shape(op, data, "data"), known_shape(op, indices, "indices")
    expect_dtype(op, indices, "integer", "indices")
    expect_mode(op, mode)
    if not own or not isinstance(own[-1], int):
        raise ShapeError(f"{op}: the last axis of indices must have a known size, got {format_shape(own)}")
    if not isinstance(batch_dims, int) or not 0 <= batch_dims < len(own) or batch_dims > len(shape):
        raise ShapeError(f"{op}: batch_dims {batch_dims!r} must be 0 … {min(len(own) - 1, len(shape))}")
    if not 1 <= own[-1] <= len(shape) - batch_dims:
        message = f"{op}: the last axis of indices names {own[-1]} axes, data have {len(shape) - batch_dims}"
        raise ShapeError(message + (" after the batch's" if batch_dims else ""))
    if not same_shape(shape[:batch_dims], own[:batch_dims]):
        batches = f"{format_shape(shape[:batch_dims])} and {format_shape(own[:batch_dims])}"
        raise ShapeError(f"{op}: the batch axes of data and indices differ: {batches}")
    return own[-1]


def _gather_nd(data: Any, indices: Any, *, batch_dims: int, mode: str) -> Any:
    rank, count = len(indices.shape) - 1, batch_dims + indices.shape[-1]
    batch = [along_axis(indices.shape[k], k, rank) for k in range(batch_dims)]
    rows = ops.ravel_multi_index([*batch, *coordinates(indices)], data.shape[:count], mode)
    return ops.take(flattened(data, count), rows, 0, "clip")


def _gather_nd_array(data: np.ndarray, indices: np.ndarray, *, batch_dims: int, mode: str) -> np.ndarray:
    places = list(np.indices(indices.shape[:-1], sparse=True))[:batch_dims]
    axes = range(indices.shape[-1])
    places += [checked_rows(indices[..., k], data.shape[batch_dims + k], mode) for k in axes]
    return data[tuple(places)]


composite(
    "gather_nd",
    "data, indices | batch_dims=0, mode='raise'",
    expect=lambda data, indices, *, batch_dims, mode: expect_nd("gather_nd", data, indices, batch_dims, mode),
    decompose=_gather_nd,
    numpy=_gather_nd_array,
    check_message=INDEX_CHECK,
    precision="same",
    family="gather",
    doc="y[i…, …] = data[indices[i…, 0], indices[i…, 1], …]: the last axis of indices names an element along each of\n"
    "the first axes of data, after batch_dims axes that both share. The result has the shape indices.shape[:-1] +\n"
    f"data.shape[batch_dims + indices.shape[-1]:]. ONNX's GatherND.\n{INDEX_MODES}",
    samples=[
        sample((3, 4), Ints((5, 2), 0, 3)),
        sample((3, 4, 2), Ints((2, 3, 2), -3, 3, "int32")),
        sample((2, 3, 4), Ints((2, 5, 1), 0, 3), batch_dims=1),
        sample((2, 3, 4), Ints((2, 3, 1), -4, 4), batch_dims=2),
        sample((4, 2), Ints((6, 1), -9, 9), mode="clip"),
        sample((4, 2), Ints((1,), -9, 9), mode="wrap"),
        sample((0, 2), Ints((0, 1), 0, 1)),
    ],
)


class Indexed(Op):
    """An op ``f([data, …, *indices])`` that users call as ``f(data, indices, …)``, as in TVM."""

    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        names = {"index_tensor": ("data", "indices"), "index_put": ("data", "indices", "values")}[self.short]
        if args and isinstance(args[0], (list, tuple, Tuple)):
            return super().__call__(*args, **kwargs)
        given = dict(zip((*names, *self.signature.attrs), args, strict=False)) | kwargs
        missing = [n for n in names if n not in given]
        if missing:
            raise UserError(f"{self.short}: argument {missing[0]!r} is missing", hint=f"write {self.short}{names}")
        indices = given["indices"]
        indices = indices.fields if isinstance(indices, Tuple) else indices
        if not isinstance(indices, (list, tuple)):
            raise UserError(f"{self.short}: indices must be a list of tensors", hint=f"write R.{self.short}(x, [i, j])")
        first = [given[n] for n in names if n != "indices"]
        attrs = {n: v for n, v in given.items() if n not in names}
        return super().__call__([*first, *indices], **attrs)


def expect_indices(op: str, data: TensorStructInfo, indices: Sequence[TensorStructInfo], mode: str) -> tuple[Dim, ...]:
    """The shape to which indices of the first axes of ``data`` broadcast."""
    expect_mode(op, mode)
    for info in indices:
        expect_dtype(op, info, "integer", "an index")
    if not 1 <= len(indices) <= data.ndim:
        raise ShapeError(f"{op}: data of rank {data.ndim} need 1 to {data.ndim} indices, got {len(indices)}")
    result = broadcast_shapes(op, *(i.sizes for i in indices))
    for axis, size in enumerate(data.sizes[: len(indices)]):
        _expect_something(op, size, axis, result)
    return result


def _index_tensor_expect(*tensors: TensorStructInfo, mode: str) -> None:
    expect_indices("index_tensor", tensors[0], tensors[1:], mode)


def _index_tensor(data: Any, *indices: Any, mode: str) -> Any:
    rows = ops.ravel_multi_index(list(indices), data.shape[: len(indices)], mode)
    return ops.take(flattened(data, len(indices)), rows, 0, "clip")


def _index_tensor_array(data: np.ndarray, *indices: np.ndarray, mode: str) -> np.ndarray:
    return data[tuple(checked_rows(i, s, mode) for i, s in zip(indices, data.shape, strict=False))]


specialize(
    composite(
        "index_tensor",
        "tensors* | mode='raise'",
        expect=_index_tensor_expect,
        decompose=_index_tensor,
        numpy=_index_tensor_array,
        check_message=INDEX_CHECK,
        precision="same",
        family="gather",
        doc="index_tensor(data, [i, j, …]): data[i, j, …], the integer tensors broadcast against each other, as in\n"
        f"NumPy and PyTorch; axes of data without an index follow.\n{INDEX_MODES}",
        samples=[
            sample((5,), Ints((3,), 0, 5)),
            sample((3, 4), Ints((2, 1), 0, 3), Ints((5,), -4, 4, "int32")),
            sample((3, 4, 2), Ints((6,), -3, 3), Ints((), 0, 4)),
            sample((3, 17), Ints((2, 2), -9, 9), mode="clip"),
            sample((3, 4), Ints((5,), -9, 9), Ints((5,), -9, 9), mode="wrap"),
            sample((3, 0), Ints((2,), 0, 3)),
            sample((0, 2), Ints((0,), 0, 1)),
        ],
    ),
    Indexed,
)
