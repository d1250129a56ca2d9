"""Writing where indices say: segment_reduce, scatter_elements, scatter_nd, index_put.

All of them are reductions of terms that find their rows by a number, which the schedule ``Scatter`` lowers to one pass
over the terms. Several terms of one row are taken in the order of the indices, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.op.family import (
    broadcast_shapes,
    collapse_like,
    composite,
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    normalize_axis,
    rule_in_wide,
    specialize,
    wide,
    widened,
)
from pullback.relax.op.index.gather import (
    INDEX_CHECK,
    INDEX_MODES,
    Indexed,
    checked_rows,
    coordinates,
    expect_elements,
    expect_indices,
    expect_nd,
    flattened,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import te_cast
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, as_int, dim, format_shape, same_shape
from pullback.te.graph import identity
from pullback.tir.expr import FLOATS

# -- segment_reduce

_KINDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}  # of te
_UFUNCS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _segment_infer(
    x: TensorStructInfo, segments: TensorStructInfo, *, size: Any, reduction: str, axis: int
) -> TensorStructInfo:
    op = "segment_reduce"
    shape, own = known_shape(op, x, "x"), known_shape(op, segments, "segments")
    expect_dtype(op, x, "number", "x")
    expect_dtype(op, segments, "integer", "segments")
    _expect_reduction(op, reduction, tuple(_KINDS))
    at = normalize_axis(op, axis, len(shape))
    if not same_shape(own, shape[at : at + 1]) and not same_shape(own, shape):
        message = f"{op}: segments must have the shape (n,) of axis {at} of x, or the shape of x"
        raise ShapeError(f"{message}, got {format_shape(own)} and {format_shape(shape)}")
    return TensorStructInfo((*shape[:at], dim(size), *shape[at + 1 :]), x.dtype)


def _expect_reduction(op: str, reduction: Any, known: Sequence[str]) -> None:
    if reduction not in known:
        raise UserError(f"{op}: reduction must be one of {', '.join(map(repr, known))}, got {reduction!r}")


def _segment_te(x: te.Tensor, segments: te.Tensor, *, size: Any, reduction: str, axis: int) -> te.Tensor:
    kind, dtype, at = _KINDS[reduction], wide(x.dtype), normalize_axis("segment_reduce", axis, x.ndim)
    k, nothing = te.reduce_axis(x.shape[at], "k"), identity(kind, dtype)

    def element(*i: tir.PrimExpr) -> Any:
        place = (*i[:at], k.var, *i[at + 1 :])
        own = segments[k.var] if segments.ndim == 1 else segments[place]
        hit = tir.cast("int64", own).equal(i[at])
        return te.reduction(kind, tir.select(hit, tir.cast(dtype, x[place]), nothing), k)

    shape = (*x.shape[:at], dim(size), *x.shape[at + 1 :])
    return te_cast(te.compute(shape, element, "segments"), x.dtype)


def _segment(x: np.ndarray, segments: np.ndarray, *, size: int, reduction: str, axis: int) -> np.ndarray:
    terms = np.moveaxis(x, axis, 0)
    rows = np.moveaxis(segments, axis, 0) if segments.ndim == x.ndim else segments
    nothing = identity(_KINDS[reduction], x.dtype.name)
    assert isinstance(nothing, (tir.IntImm, tir.FloatImm))
    result = np.full((size, *terms.shape[1:]), nothing.value, x.dtype)
    inside = np.nonzero((rows >= 0) & (rows < size))
    _UFUNCS[reduction].at(result, (rows[inside].astype(np.int64), *inside[1:]), terms[inside])
    return np.moveaxis(result, 0, axis)


@dataclass(frozen=True)
class _Rows:
    """Which of the ``size`` rows along an axis each term belongs to: the ``numbers`` (n,) of whole slices of the terms,
    or those of all their elements, in the shape of the terms."""

    numbers: Any
    size: Any
    axis: int

    def reduce(self, terms: Any, reduction: str) -> Any:
        return ops.segment_reduce(terms, self.numbers, self.size, reduction, self.axis)

    def at(self, value: Any) -> Any:
        """For each term, what the value holds in its row."""
        return self.chosen(value, self.numbers)

    def chosen(self, value: Any, numbers: Any) -> Any:
        """The value's slices, or elements, with these numbers along the axis: the nearest valid ones."""
        read = ops.take if len(self.numbers.shape) == 1 else ops.gather_elements
        return read(value, numbers, self.axis, "clip")

    def over(self, numbers: Any, x: Any) -> Any:
        """One number for each slice of ``x``, or each element, so that they broadcast with it."""
        if len(numbers.shape) == len(x.shape):
            return numbers
        return ops.reshape(numbers, (*(1,) * self.axis, numbers.shape[0], *(1,) * (len(x.shape) - self.axis - 1)))

    def last(self) -> tuple[Any, Any]:
        """The terms' numbers, and for each row that of its last term: negative where there is none. (Numbers of whole
        slices are a tensor of rank 1, so they must be those of axis 0.)"""
        elementwise = len(self.numbers.shape) > 1
        count = self.numbers.shape[self.axis if elementwise else 0]
        # int32 where that is enough: they are read and written at random
        numbers = ops.arange(0, count, 1, "int32" if isinstance(count, int) and count < 2**31 else "int64")
        if elementwise:
            numbers = ops.broadcast_to(self.over(numbers, self.numbers), self.numbers.shape)
        return numbers, self.reduce(numbers, "max")


def _segment_gradient(
    dy: Any, y: Any, x: Any, segments: Any, *, size: Any, reduction: str, axis: int
) -> tuple[Any, None]:
    own = segments if segments.dtype == "int64" else ops.astype(segments, "int64")
    inside = ops.logical_and(ops.greater_equal(own, 0), ops.less(own, ops.full((), size, "int64")))
    rows = _Rows(own, size, normalize_axis("segment_reduce", axis, len(x.shape)))
    return masked(rows.over(inside, x), _terms_adjoint(dy, y, x, rows, reduction)), None


def _terms_adjoint(dy: Any, y: Any, x: Any, rows: _Rows, reduction: str) -> Any:
    """The adjoint of the terms ``x`` of a reduction whose rows are in range."""
    if reduction == "add":
        return rows.at(dy)
    if reduction == "mul":
        return rows.at(dy) * _product_of_others(x, rows)
    best = ops.equal(x, rows.at(y))
    ties = rows.reduce(ops.astype(best, x.dtype), "add")
    return masked(best, rows.at(dy / ops.maximum(ties, 1.0)))


def _product_of_others(x: Any, rows: _Rows) -> Any:
    """For each term, the product of the others of its row: exact where some are 0."""
    zero = ops.equal(x, 0.0)
    nonzero = ops.where(zero, 1.0, x)
    product = rows.at(rows.reduce(nonzero, "mul"))
    zeros = rows.at(rows.reduce(ops.astype(zero, x.dtype), "add"))
    return masked(ops.equal(zeros - ops.astype(zero, x.dtype), 0.0), product / nonzero)


define(
    "segment_reduce",
    "x, segments | size, reduction='add', axis=0",
    infer=_segment_infer,
    te=_segment_te,
    numpy=in_wide(_segment),
    gradient=rule_in_wide(_segment_gradient),
    zeros="makes",
    family="scatter",
    doc="y[s, …] = the sum ('add'), product ('mul'), maximum ('max') or minimum ('min') of all x[n, …] with\n"
    "segments[n] = s, in the order of n: what the reduction begins with (0, 1, the least or the largest number) where\n"
    "there are none. n and s count along the axis; segments of the shape of x are those of each element:\n"
    "segments[n, …] = s. A segment outside 0 … size - 1 is left out. Equal extrema share the adjoint; the second\n"
    "derivative of a product that holds zeros is not complete. TensorFlow's unsorted_segment_sum and its kin.",
    samples=[
        sample((6, 2), Ints((6,), 0, 4), size=4),
        sample((7,), Ints((7,), -1, 4, "int32"), size=3),
        sample((5, 3), Ints((5,), 0, 2), size=2, reduction="mul"),
        sample((14, 2, 2), Ints((14,), 0, 2), size=2, reduction="max"),
        sample((5, 17), Ints((5,), 0, 1), size=1, reduction="min"),
        sample((0, 2), Ints((0,), 0, 1), size=3),
        sample([0.0, 2.0, 0.0, 3.0, 0.0], Ints((5,), 0, 2), size=2, reduction="mul", smooth=False),
        sample(Ints((5, 2), -5, 5), Ints((5,), 0, 3), size=3, reduction="max"),
        sample((3, 6, 2), Ints((6,), -1, 4), size=4, axis=1),
        sample((6, 3), Ints((6, 3), -1, 4, "int32"), size=4),
        sample((3, 7), Ints((3, 7), 0, 2), size=2, reduction="max", axis=-1),
        sample((3, 5, 17), Ints((3, 5, 17), 0, 2), size=2, reduction="mul", axis=1),
    ],
)

# -- rows of terms put into data: what the scatters share

_REDUCTIONS = ("update", "add", "mul", "mean", "max", "min")


def _mean_counts(rows: _Rows, data: Any) -> Any:
    ones = ops.ones(rows.numbers.shape, data.dtype)
    return rows.over(rows.reduce(ones, "add") + 1, data)


def _scattered(data: Any, rows: _Rows, updates: Any, reduction: str) -> Any:
    """``data`` with ``updates`` at the rows."""
    if reduction == "update":
        _, last = rows.last()
        return ops.where(rows.over(ops.greater_equal(last, 0), data), rows.chosen(updates, last), data)
    if reduction in ("max", "min"):
        return (ops.maximum if reduction == "max" else ops.minimum)(data, rows.reduce(updates, reduction))
    dtype, data, updates = data.dtype, widened(data), widened(updates)
    if reduction == "mul":
        return narrowed(data * rows.reduce(updates, "mul"), dtype)
    total = data + rows.reduce(updates, "add")
    return narrowed(total / _mean_counts(rows, data) if reduction == "mean" else total, dtype)


def _scattered_gradient(dy: Any, y: Any, data: Any, rows: _Rows, updates: Any, reduction: str) -> tuple[Any, Any]:
    """The adjoints of data and updates."""
    if reduction == "update":
        numbers, last = rows.last()
        stays = ops.equal(rows.at(last), numbers)
        return masked(rows.over(ops.less(last, 0), data), dy), masked(rows.over(stays, updates), rows.at(dy))
    if reduction == "add":
        return dy, rows.at(dy)
    if reduction == "mean":
        share = dy / _mean_counts(rows, data)
        return share, rows.at(share)
    if reduction == "mul":
        product = rows.reduce(updates, "mul")
        return dy * product, rows.at(dy * data) * _product_of_others(updates, rows)
    kept, best = ops.equal(data, y), ops.equal(updates, rows.at(y))
    ties = ops.astype(kept, data.dtype) + rows.reduce(ops.astype(best, data.dtype), "add")
    share = dy / ops.maximum(ties, 1.0)  # there are none where y is NaN
    return masked(kept, share), masked(best, rows.at(share))


def _scattered_array(
    data: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str
) -> np.ndarray:
    """``data`` with ``updates`` at the places, indices of the first axes."""
    result = np.array(data)
    if reduction == "update":
        result[places] = updates  # of several the last one stays
    elif reduction == "mean":
        count = np.ones_like(data)
        np.add.at(result, places, updates)
        np.add.at(count, places, np.ones_like(updates))
        result = result / count
    else:
        _UFUNCS[reduction].at(result, places, updates)
    return result


def _expect_updates(
    op: str, data: TensorStructInfo, updates: TensorStructInfo, shape: Sequence[Dim], reduction: str
) -> None:
    _expect_reduction(op, reduction, _REDUCTIONS)
    if not same_shape(known_shape(op, updates, "updates"), shape):
        raise ShapeError(f"{op}: updates must have the shape {format_shape(shape)}, got {format_shape(updates.sizes)}")
    expect_same_dtype(op, data, updates)
    if reduction != "update":
        expect_dtype(op, data, "number", "data")
    if reduction == "mean" and data.dtype not in FLOATS:
        raise DTypeError(f"{op}: the mean is of floating-point numbers, got {data.dtype}")


_REDUCTION_DOC = (
    "reduction: 'update' (of several updates of one element the last stays), 'add', 'mul', 'max', 'min', or 'mean' of\n"
    "the element and its updates. Equal extrema share the adjoint, as in PyTorch's scatter_reduce.\n"
)


def _scatter(
    op: str,
    signature: str,
    split: Callable[..., tuple[Any, _Rows, Any]],
    restored: Callable[[Any, Sequence[Dim]], Any],
    expect: Any,
    numpy: Any,
    doc: str,
    samples: Any,
) -> None:
    """A scatter of ``data, indices, updates``; ``split`` makes them data with rows, the rows' numbers and their terms,
    ``restored`` brings terms back into the shape of the updates."""

    def decompose(data: Any, indices: Any, updates: Any, *, reduction: str, **attrs: Any) -> Any:
        if _is_empty(indices.shape):
            return ops.reshape(data, data.shape)
        return ops.reshape(_scattered(*split(data, indices, updates, **attrs), reduction), data.shape)

    def gradient(dy: Any, y: Any, data: Any, indices: Any, updates: Any, *, reduction: str, **attrs: Any) -> Any:
        if _is_empty(indices.shape):
            return dy, None, None
        x, rows, terms = split(data, indices, updates, **attrs)
        adjoints = _scattered_gradient(ops.reshape(dy, x.shape), ops.reshape(y, x.shape), x, rows, terms, reduction)
        return ops.reshape(adjoints[0], data.shape), None, restored(adjoints[1], updates.shape)

    composite(
        op,
        signature,
        expect=expect,
        decompose=decompose,
        gradient=rule_in_wide(gradient),
        numpy=in_wide(numpy),
        check_message=INDEX_CHECK,
        precision="same",
        family="scatter",
        doc=doc + _REDUCTION_DOC + INDEX_MODES,
        samples=samples,
    )


def _is_empty(shape: Sequence[Dim]) -> bool:
    return any(isinstance(s, int) and s == 0 for s in shape)


# -- scatter_elements


def _split_elements(data: Any, indices: Any, updates: Any, *, axis: int, mode: str) -> tuple[Any, _Rows, Any]:
    at = normalize_axis("scatter_elements", axis, len(data.shape))
    numbers = ops.ravel_multi_index([indices], [data.shape[at]], mode)
    wanted = (*data.shape[:at], indices.shape[at], *data.shape[at + 1 :])
    if not same_shape(indices.shape, wanted):  # what indices do not reach has terms of no row
        after = [(0, dim(w - n)) for n, w in zip(indices.shape, wanted, strict=True)]
        numbers = ops.nn.pad(numbers, after, pad_value=-1)
        updates = ops.nn.pad(updates, after, pad_value=0)
    return data, _Rows(numbers, data.shape[at], at), updates


def _first(terms: Any, shape: Sequence[Dim]) -> Any:
    """The first elements along each axis, as many as the shape says."""
    if same_shape(terms.shape, shape):
        return terms
    return ops.strided_slice(terms, list(range(len(shape))), [0] * len(shape), list(shape))


def _elements_expect(
    data: TensorStructInfo,
    indices: TensorStructInfo,
    updates: TensorStructInfo,
    *,
    axis: int,
    reduction: str,
    mode: str,
) -> None:
    expect_elements("scatter_elements", data, indices, axis, mode)
    _expect_updates("scatter_elements", data, updates, indices.sizes, reduction)


def _elements(
    data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int, reduction: str, mode: str
) -> np.ndarray:
    places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    places[axis] = checked_rows(indices, data.shape[axis], mode)
    return _scattered_array(data, tuple(places), updates, reduction)


_scatter(
    "scatter_elements",
    "data, indices, updates | axis=0, reduction='update', mode='raise'",
    _split_elements,
    _first,
    _elements_expect,
    _elements,
    "data with y[i, indices[i, j, k], k] made of updates[i, j, k] along axis 1, and so on; indices and updates\n"
    "have one shape: the rank of data and, but along the axis, at most its sizes. ONNX's ScatterElements and\n"
    "PyTorch's scatter.\n",
    [
        sample((5, 4), Ints((3, 4), 0, 5), (3, 4)),
        sample((3, 4), Ints((3, 6), -4, 4, "int32"), (3, 6), axis=1),
        sample((3, 4), Ints((2, 6), 0, 4), (2, 6), axis=-1, reduction="add"),
        sample((3, 4), Ints((5, 4), 0, 3), (5, 4), reduction="mul"),
        sample((3, 4), Ints((5, 4), 0, 3), (5, 4), reduction="mean"),
        sample((3, 4, 2), Ints((3, 6, 2), 0, 4), (3, 6, 2), axis=1, reduction="max"),
        sample((3, 17), Ints((7, 17), -20, 20), (7, 17), reduction="min", mode="clip"),
        sample((3, 5, 4), Ints((2, 6, 3), 0, 4), (2, 6, 3), axis=1),
        sample((6, 3), Ints((4, 2), 0, 5), (4, 2), reduction="mean"),
        sample((6,), Ints((9,), -20, 20), (9,), mode="wrap"),
        sample((3, 2), Ints((0, 2), 0, 3), (0, 2)),
        sample(Ints((4,), -5, 5), Ints((6,), 0, 4), Ints((6,), -5, 5), reduction="add"),
    ],
)

# -- scatter_nd


def _split_nd(data: Any, indices: Any, updates: Any, *, mode: str) -> tuple[Any, _Rows, Any]:
    count = indices.shape[-1]
    rows = ops.flatten(ops.ravel_multi_index(coordinates(indices), data.shape[:count], mode))
    x = flattened(data, count)
    return x, _Rows(rows, x.shape[0], 0), flattened_to(updates, rows, len(indices.shape) - 1)


def flattened_to(updates: Any, rows: Any, count: int) -> Any:
    """The updates with their first ``count`` axes, those of the indices, as the one axis of the rows."""
    return ops.reshape(updates, (rows.shape[0], *updates.shape[count:]))


def _nd_expect(
    data: TensorStructInfo, indices: TensorStructInfo, updates: TensorStructInfo, *, reduction: str, mode: str
) -> None:
    count = expect_nd("scatter_nd", data, indices, 0, mode)
    shape = (*indices.sizes[:-1], *data.sizes[count:])
    _expect_updates("scatter_nd", data, updates, shape, reduction)


def _nd(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str, mode: str) -> np.ndarray:
    places = (checked_rows(indices[..., k], data.shape[k], mode) for k in range(indices.shape[-1]))
    return _scattered_array(data, tuple(places), updates, reduction)


_scatter(
    "scatter_nd",
    "data, indices, updates | reduction='update', mode='raise'",
    _split_nd,
    ops.reshape,
    _nd_expect,
    _nd,
    "data with y[indices[i…, 0], indices[i…, 1], …] made of updates[i…]: the last axis of indices names an element or\n"
    "slice of data, updates have the shape indices.shape[:-1] + data.shape[indices.shape[-1]:]. ONNX's ScatterND.\n",
    [
        sample((5, 4), Ints((6, 2), 0, 4), (6,)),
        sample((4, 3), Ints((6, 1), -4, 4, "int32"), (6, 3)),
        sample((3, 4, 2), Ints((2, 3, 2), 0, 3), (2, 3, 2), reduction="add"),
        sample((3, 17), Ints((5, 1), 0, 3), (5, 17), reduction="mul"),
        sample((3, 2), Ints((5, 1), 0, 3), (5, 2), reduction="mean"),
        sample((3, 2), Ints((7, 1), -9, 9), (7, 2), reduction="max", mode="clip"),
        sample((3, 2), Ints((7, 1), -9, 9), (7, 2), reduction="min", mode="wrap"),
        sample((3, 2), Ints((1,), 0, 3), (2,)),
        sample((3, 2), Ints((0, 1), 0, 3), (0, 2)),
    ],
)

# -- index_put


def _put_shape(data: Any, indices: Sequence[Any]) -> tuple[Dim, ...]:
    """The shape of what the indices choose."""
    return (*broadcast_shapes("index_put", *(i.shape for i in indices)), *data.shape[len(indices) :])


def _put_expect(*tensors: TensorStructInfo, accumulate: bool, mode: str) -> None:
    if len(tensors) < 3:
        raise ShapeError("index_put: data, values and at least one index are needed")
    data, values, *indices = tensors
    expect_indices("index_put", data, indices, mode)
    expect_same_dtype("index_put", data, values)
    if accumulate:
        expect_dtype("index_put", data, "number", "data")
    wanted = _put_shape(data, indices)
    if len(values.sizes) > len(wanted) or not same_shape(broadcast_shapes("index_put", values.sizes, wanted), wanted):
        raise ShapeError(
            f"index_put: values of shape {format_shape(values.sizes)} do not broadcast to {format_shape(wanted)}"
        )


def _split_put(data: Any, values: Any, indices: Sequence[Any], mode: str) -> tuple[Any, _Rows, Any]:
    shape, count = _put_shape(data, indices), len(indices)
    rows = ops.flatten(ops.ravel_multi_index(list(indices), data.shape[:count], mode))
    spread = values if same_shape(values.shape, shape) else ops.broadcast_to(values, shape)
    x = flattened(data, count)
    return x, _Rows(rows, x.shape[0], 0), flattened_to(spread, rows, len(shape) - len(data.shape) + count)


def _put(data: Any, values: Any, *indices: Any, accumulate: bool, mode: str) -> Any:
    if _is_empty(_put_shape(data, indices)):
        return ops.reshape(data, data.shape)
    x, rows, terms = _split_put(data, values, indices, mode)
    return ops.reshape(_scattered(x, rows, terms, "add" if accumulate else "update"), data.shape)


def _put_gradient(
    dy: Any, y: Any, data: Any, values: Any, *indices: Any, accumulate: bool, mode: str
) -> tuple[Any, ...]:
    shape = _put_shape(data, indices)
    if _is_empty(shape):
        return (dy, *(None for _ in (values, *indices)))
    x, rows, terms = _split_put(data, values, indices, mode)
    kind = "add" if accumulate else "update"
    dx, dterms = _scattered_gradient(ops.reshape(dy, x.shape), ops.reshape(y, x.shape), x, rows, terms, kind)
    dvalues = collapse_like(ops.reshape(dterms, shape), values)
    return (ops.reshape(dx, data.shape), dvalues, *(None for _ in indices))


def _put_array(data: np.ndarray, values: np.ndarray, *indices: np.ndarray, accumulate: bool, mode: str) -> np.ndarray:
    places = tuple(checked_rows(i, s, mode) for i, s in zip(indices, data.shape, strict=False))
    terms = np.broadcast_to(values, tuple(map(as_int, _put_shape(data, indices))))
    return _scattered_array(data, places, terms, "add" if accumulate else "update")


specialize(
    composite(
        "index_put",
        "tensors* | accumulate=False, mode='raise'",
        expect=_put_expect,
        decompose=_put,
        gradient=rule_in_wide(_put_gradient),
        numpy=in_wide(_put_array),
        check_message=INDEX_CHECK,
        precision="same",
        family="scatter",
        doc="index_put(data, [i, j, …], values): data with data[i, j, …] = values, or with accumulate += values; the\n"
        "integer tensors broadcast against each other, values to data[i, j, …]. Of several values of one element the\n"
        f"last stays, or all are added. PyTorch's index_put.\n{INDEX_MODES}",
        samples=[
            sample((5,), (3,), Ints((3,), 0, 5)),
            sample((3, 4), (2, 5), Ints((2, 1), 0, 3), Ints((5,), -4, 4, "int32")),
            sample((3, 4, 2), (6, 2), Ints((6,), -3, 3), Ints((), 0, 4), accumulate=True),
            sample((3, 17), (17,), Ints((2, 2), -9, 9), mode="clip"),
            sample((3, 4), (), Ints((5,), -9, 9), Ints((5,), -9, 9), mode="wrap", accumulate=True),
            sample((3, 2), (0, 2), Ints((0,), 0, 3)),
            sample(Ints((4,), -5, 5), Ints((6,), -5, 5), Ints((6,), 0, 4)),
        ],
    ),
    Indexed,
)
