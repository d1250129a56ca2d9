"""Sorting. Everything rests on ``argsort``: sorted values are gathered, so their adjoint is scattered.

``ordering.py`` has its loops. Orders are stable, and NaN counts as greater than all numbers, as in NumPy and PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import DTypeError, ShapeError
from pullback.ir.op import define
from pullback.relax.expr import Tuple
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_member,
    known_shape,
    normalize_axis,
    wide,
    zero_gradient,
)
from pullback.relax.op.index.ordering import fill_first, fill_order
from pullback.relax.op.kernel import Lines
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.runtime.dtype import numpy_dtype
from pullback.tir import (
    Buffer,
    Stmt,
)

_INDEX_DTYPES = ("int32", "int64")


def expect_index_dtype(op: str, dtype: str) -> None:
    """Raise a DTypeError unless places can be told in the dtype."""
    if dtype not in _INDEX_DTYPES:
        raise DTypeError(f"{op}: indices are {' or '.join(_INDEX_DTYPES)}, not {dtype!r}")


# -- argsort


def _argsort_infer(
    data: TensorStructInfo, *, axis: int, descending: bool, dtype: str, first: int | None
) -> TensorStructInfo:
    shape = known_shape("argsort", data)
    at = normalize_axis("argsort", axis, len(shape))
    expect_dtype("argsort", data, "number")
    expect_index_dtype("argsort", dtype)
    if first is None:
        return TensorStructInfo(shape, dtype)
    expect_int("argsort", "first", first)
    size = shape[at]
    if first < 1 or (isinstance(size, int) and first > size):
        raise ShapeError(f"argsort: first must be from 1 to {size}, the size of axis {at}, got {first}")
    return TensorStructInfo((*shape[:at], first, *shape[at + 1 :]), dtype)


def _argsort_kernel(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, axis: int, descending: bool, dtype: str, first: int | None
) -> Stmt:
    (data,), (out,) = inputs, outputs
    lines = Lines(tuple(data.shape), normalize_axis("argsort", axis, len(data.shape)))
    if first is None:
        return fill_order(data, out, lines, descending)
    return fill_first(data, out, lines, first, descending)


def _argsort(data: np.ndarray, *, axis: int, descending: bool, dtype: str, first: int | None = None) -> np.ndarray:
    data = data.astype(wide(data.dtype.name))  # the half-precision types of NumPy do not know where NaN belongs
    if descending:  # the order of equal elements stays
        order = np.flip(data.shape[axis] - 1 - np.argsort(np.flip(data, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(data, axis, kind="stable")
    order = order if first is None else np.take(order, range(first), axis)
    return np.ascontiguousarray(order.astype(numpy_dtype(dtype)))


_NAN = float("nan")
_ORDERS = [
    sample((17,)),
    sample((3, 5), axis=0, descending=True),
    sample((2, 4, 3), axis=1),
    sample((130,), descending=True),
    sample((66, 2), axis=0),
    sample(Ints((2, 90), -40, 40)),
    sample(Ints((70,), 0, 9, "uint8"), descending=True),
    sample([[2.0, 1.0, 2.0, 1.0], [0.0, -1.0, 5.0, 0.0]], smooth=False),
    sample([2.0, _NAN, -1.0, float("inf"), _NAN, 2.0], smooth=False),
    sample([2.0, _NAN, -1.0, float("-inf"), _NAN, 2.0], descending=True, smooth=False),
    sample(Ints((4, 9), -3, 4), axis=1, descending=True),
    sample((1,)),
    sample((0, 3), axis=0),
    sample((3, 0), axis=0),
]

define(
    "argsort",
    "data | axis=-1, descending=False, dtype='int32', first=None",
    infer=_argsort_infer,
    kernel=_argsort_kernel,
    numpy=_argsort,
    gradient=zero_gradient,
    precision="same",
    family="sort",
    doc="The places of the elements along an axis in the order of their values, int32 or int64. Equal elements keep\n"
    "their order; NaN is greater than every number. ``first``: only so many of them, from the front.",
    samples=[
        *_ORDERS,
        sample((2, 70), first=40),
        sample([[2.0, 1.0, 2.0, 1.0], [0.0, _NAN, 5.0, 0.0]], first=3, smooth=False),
        sample([[2.0, _NAN, 2.0, 1.0], [0.0, _NAN, 5.0, 0.0]], first=2, descending=True, axis=0, smooth=False),
    ],
)

# -- what is gathered in that order


def _sort_infer(data: TensorStructInfo, *, axis: int, descending: bool) -> TensorStructInfo:
    normalize_axis("sort", axis, len(known_shape("sort", data)))
    expect_dtype("sort", data, "number")
    return data


def _sort(data: np.ndarray, *, axis: int, descending: bool) -> np.ndarray:
    return np.take_along_axis(data, _argsort(data, axis=axis, descending=descending, dtype="int64"), axis)


def _sort_decomposed(data: Any, *, axis: int, descending: bool, training: bool) -> Any:
    order = ops.argsort(data, axis=axis, descending=descending, dtype="int64")
    return ops.gather_elements(data, order, axis=axis)


composite(
    "sort",
    "data | axis=-1, descending=False",
    te=None,
    infer=_sort_infer,
    decompose=_sort_decomposed,
    numpy=_sort,
    precision="same",
    family="sort",
    doc="The elements along an axis in the order of their values; NaN is greater than every number. The adjoint goes\n"
    "back to where each element came from.",
    samples=_ORDERS,
)

_RESULTS = ("both", "values", "indices")


def _topk_infer(
    data: TensorStructInfo, *, k: int, axis: int, ret_type: str, largest: bool, dtype: str
) -> TensorStructInfo | TupleStructInfo:
    shape = known_shape("topk", data)
    at = normalize_axis("topk", axis, len(shape))
    expect_dtype("topk", data, "number")
    expect_int("topk", "k", k)
    expect_index_dtype("topk", dtype)
    expect_member("topk", "ret_type", ret_type, _RESULTS)
    size = shape[at]
    if k < 1 or (isinstance(size, int) and k > size):
        raise ShapeError(f"topk: k must be from 1 to {size}, the size of axis {at}, got {k}")
    result = (*shape[:at], k, *shape[at + 1 :])
    values, indices = TensorStructInfo(result, data.dtype), TensorStructInfo(result, dtype)
    return {"values": values, "indices": indices}.get(ret_type, TupleStructInfo((values, indices)))


def _topk_of(values: Any, indices: Any, ret_type: str, both: Any) -> Any:
    return {"values": values, "indices": indices}.get(ret_type, both((values, indices)))


def _topk(data: np.ndarray, *, k: int, axis: int, ret_type: str, largest: bool, dtype: str) -> Any:
    order = _argsort(data, axis=axis, descending=largest, dtype=dtype, first=k)
    return _topk_of(np.take_along_axis(data, order.astype(np.int64), axis), order, ret_type, tuple)


def _topk_decomposed(data: Any, *, k: int, axis: int, ret_type: str, largest: bool, dtype: str, training: bool) -> Any:
    first = ops.argsort(data, axis=axis, descending=largest, dtype=dtype, first=k)
    return _topk_of(ops.gather_elements(data, first, axis=axis), first, ret_type, Tuple)


composite(
    "topk",
    "data | k=1, axis=-1, ret_type='both', largest=True, dtype='int32'",
    te=None,
    infer=_topk_infer,
    decompose=_topk_decomposed,
    numpy=_topk,
    precision="same",
    family="sort",
    doc="The k largest (or smallest) elements along an axis, in order, and their places; ``ret_type``: 'both',\n"
    "'values' or 'indices'. Of equal elements the first ones are taken.",
    samples=[
        sample((9,), k=3),
        sample((3, 5), k=2, axis=0, largest=False, dtype="int64"),
        sample((2, 4, 3), k=4, axis=1, ret_type="values"),
        sample((3, 6), k=2, ret_type="indices"),
        sample([[2.0, 1.0, 2.0, 1.0], [0.0, _NAN, 5.0, 0.0]], k=3, smooth=False),
        sample((1, 1)),
    ],
)

# -- median


def _median_expect(x: TensorStructInfo, *, axis: int | None, keepdims: bool) -> None:
    shape = known_shape("median", x)
    expect_dtype("median", x, "number")
    size = math.prod(shape) if axis is None else shape[normalize_axis("median", axis, len(shape))]
    if isinstance(size, int) and size == 0:
        raise ShapeError("median of no elements")


def _median(x: np.ndarray, *, axis: int | None, keepdims: bool) -> Any:
    line, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    middle = (line.shape[at] - 1) // 2
    order = np.take(_argsort(line, axis=at, descending=False, dtype="int64"), [middle], at)
    values = np.take_along_axis(line, order, at)
    if axis is None:
        return values.reshape((1,) * x.ndim if keepdims else ())
    return (values, order) if keepdims else (np.squeeze(values, at), np.squeeze(order, at))


def _median_decomposed(x: Any, *, axis: int | None, keepdims: bool) -> Any:
    line, at = (ops.reshape(x, [-1]), 0) if axis is None else (x, normalize_axis("median", axis, len(x.shape)))
    middle = (line.shape[at] - 1) // 2
    order = ops.argsort(line, axis=at, dtype="int64")
    order = ops.strided_slice(order, [at], [middle], [middle + 1])
    values = ops.gather_elements(line, order, axis=at)
    if axis is None:
        return ops.reshape(values, (1,) * len(x.shape) if keepdims else ())
    return Tuple((values, order) if keepdims else (ops.squeeze(values, at), ops.squeeze(order, at)))


composite(
    "median",
    "x | axis=None, keepdims=False",
    te=None,
    expect=_median_expect,
    decompose=_median_decomposed,
    numpy=_median,
    precision="same",
    family="sort",
    doc="The element in the middle of an axis, of two the lower one, and its place (int64); with axis None that of\n"
    "all elements, without a place. NaN is greater than every number. The adjoint goes to the element.",
    samples=[
        sample((17,)),
        sample((3, 4)),
        sample((3, 4), keepdims=True),
        sample((3, 5), axis=1),
        sample((2, 4, 3), axis=-2, keepdims=True),
        sample([[2.0, 1.0, 2.0], [_NAN, -1.0, 5.0]], axis=1, smooth=False),
        sample(Ints((4, 6), -3, 4), axis=0),
        sample((), keepdims=True),
        sample((0, 3), axis=1),
    ],
)
