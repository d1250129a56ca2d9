"""Sorting and searching. Everything rests on ``argsort``: sorted values are gathered, so their adjoint is scattered.

``argsort`` merges runs of 1, 2, 4, … places, of one line at a time:

    for pair of neighbouring runs [low, middle) and [middle, high):
        left, right = low, middle
        for k from low to high: the lesser of source[left], source[right], of equal ones the left, goes to target[k]

It is stable, and NaN counts as greater than all numbers, as in NumPy and PyTorch.
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
    expect_same_dtype,
    known_shape,
    normalize_axis,
    wide,
    zero_gradient,
)
from pullback.relax.op.kernel import Lines
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, TupleStructInfo
from pullback.runtime.dtype import numpy_dtype
from pullback.tir import (
    Allocate,
    Buffer,
    If,
    Let,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    call,
    cast,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)
from pullback.tir.expr import FLOATS

_INDEX_DTYPES = ("int32", "int64")


def _expect_index_dtype(op: str, dtype: str) -> None:
    if dtype not in _INDEX_DTYPES:
        raise DTypeError(f"{op}: indices are {' or '.join(_INDEX_DTYPES)}, not {dtype!r}")


# -- argsort


def _argsort_infer(data: TensorStructInfo, *, axis: int, descending: bool, dtype: str) -> TensorStructInfo:
    shape = known_shape("argsort", data)
    normalize_axis("argsort", axis, len(shape))
    expect_dtype("argsort", data, "number")
    _expect_index_dtype("argsort", dtype)
    return TensorStructInfo(shape, dtype)


def _precedes(a: PrimExpr, b: PrimExpr, descending: bool) -> PrimExpr:
    """Whether ``a`` must stand before ``b``, wherever they stood."""
    less = b < a if descending else a < b
    if a.dtype not in FLOATS:
        return less
    nan, other = (a, b) if descending else (b, a)
    return less | (call("isnan", nan) & ~call("isnan", other))


def _argsort_kernel(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, axis: int, descending: bool, dtype: str
) -> Stmt:
    (data,), (out,) = inputs, outputs
    lines = Lines(tuple(data.shape), normalize_axis("argsort", axis, len(data.shape)))
    n = lines.length
    passes = max(n - 1, 0).bit_length() if isinstance(n, int) else 63
    shape = (2, lines.count, n)  # before and after a pass, by turns
    order, keys = Buffer("order", shape, dtype, "workspace"), Buffer("keys", shape, data.dtype, "workspace")
    run, turn = (Buffer(name, (1,), "int64", "local") for name in ("run", "turn"))

    def line(number: PrimExpr) -> Stmt:
        length, at = Var("length"), Var("at")

        def begin(k: PrimExpr) -> Stmt:
            start = as_expr(0), number, k
            return seq(store(order, start, cast(dtype, k)), store(keys, start, data[lines.place(number, k)]))

        merged = seq(
            _merged(n, length, order, keys, (at, number), descending),
            store(run, (0,), length * 2),
            store(turn, (0,), 1 - at),
        )
        one_pass = Let(length, run[0], Let(at, turn[0], If(length < n, merged)))
        work = seq(
            store(run, (0,), as_expr(1)),
            store(turn, (0,), as_expr(0)),
            loop("k", n, begin),
            loop("pass", passes, lambda _: one_pass),
            loop("k", n, lambda k: store(out, lines.place(number, k), order[turn[0], number, k])),
        )
        return Allocate(run, Allocate(turn, work))

    return Allocate(order, Allocate(keys, lines.each(line)))


def _merged(n: Any, run: PrimExpr, order: Buffer, keys: Buffer, source: tuple[Any, Any], descending: bool) -> Stmt:
    """All pairs of neighbouring runs of this length, merged: those of two whole runs from both ends at once, since one
    step waits for the one before it. Which run an element comes from is no branch: it could not be predicted."""
    heads = [Buffer(name, (1,), "int64", "local") for name in ("left", "right", "left_end", "right_end")]
    turn, line = source

    def taken(heads: list[Buffer], target: PrimExpr, step: int, ends: tuple[PrimExpr, PrimExpr] | None) -> Stmt:
        """One element moved to its place from the head of one of two runs, which goes on by ``step``."""
        i, j, place, second = Var("i"), Var("j"), Var("place"), Var("second", "bool")
        a, b = Var("a", keys.dtype), Var("b", keys.dtype)
        is_less = _precedes(b, a, descending)
        choice = is_less if step > 0 else ~is_less  # of equal ones the left comes first
        if ends is not None:
            choice = (j < ends[1]) & ((i >= ends[0]) | choice)
        move = seq(
            store(order, (1 - turn, line, target), order[turn, line, place]),
            store(keys, (1 - turn, line, target), select(second, b, a)),
            store(heads[0], (0,), select(second, i, i + step)),
            store(heads[1], (0,), select(second, j + step, j)),
        )
        move = Let(second, choice, Let(place, select(second, j, i), move))
        for key, at in ((b, j), (a, i)):
            held = at if ends is None else minimum(at, as_expr(n) - 1)  # behind the end it is not looked at
            move = Let(key, keys[turn, line, held], move)
        return Let(i, heads[0][0], Let(j, heads[1][0], move))

    def whole(number: PrimExpr) -> Stmt:
        low = number * run * 2
        starts = (low, low + run, low + run - 1, low + run * 2 - 1)
        begin = [store(head, (0,), start) for head, start in zip(heads, starts, strict=True)]

        def both(k: PrimExpr) -> Stmt:
            return seq(taken(heads[:2], low + k, 1, None), taken(heads[2:], low + run * 2 - 1 - k, -1, None))

        return seq(*begin, loop("k", run, both))

    pairs = as_expr(n) // (run * 2)
    low = pairs * run * 2
    middle = minimum(low + run, n)
    rest = loop("k", as_expr(n) - low, lambda k: taken(heads[:2], low + k, 1, (middle, as_expr(n))))
    body = seq(loop("pair", pairs, whole), store(heads[0], (0,), low), store(heads[1], (0,), middle), rest)
    for head in heads:
        body = Allocate(head, body)
    return body


def _argsort(data: np.ndarray, *, axis: int, descending: bool, dtype: str) -> np.ndarray:
    data = data.astype(wide(data.dtype.name))  # the half-precision types of NumPy do not know where NaN belongs
    if descending:  # the order of equal elements stays
        order = np.flip(data.shape[axis] - 1 - np.argsort(np.flip(data, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(data, axis, kind="stable")
    return np.ascontiguousarray(order.astype(numpy_dtype(dtype)))


_NAN = float("nan")
_ORDERS = [
    sample((17,)),
    sample((3, 5), axis=0, descending=True),
    sample((2, 4, 3), axis=1),
    sample((130,), descending=True),
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
    "data | axis=-1, descending=False, dtype='int32'",
    infer=_argsort_infer,
    kernel=_argsort_kernel,
    numpy=_argsort,
    gradient=zero_gradient,
    precision="same",
    family="sort",
    doc="The places of the elements along an axis in the order of their values, int32 or int64. Equal elements keep\n"
    "their order; NaN is greater than every number.",
    samples=_ORDERS,
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
    _expect_index_dtype("topk", dtype)
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
    order = np.take(_argsort(data, axis=axis, descending=largest, dtype=dtype), range(k), axis)
    return _topk_of(np.take_along_axis(data, order.astype(np.int64), axis), order, ret_type, tuple)


def _topk_decomposed(data: Any, *, k: int, axis: int, ret_type: str, largest: bool, dtype: str, training: bool) -> Any:
    order = ops.argsort(data, axis=axis, descending=largest, dtype=dtype)
    first = ops.strided_slice(order, [normalize_axis("topk", axis, len(data.shape))], [0], [k])
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

# -- places among sorted values


def _search_infer(
    sorted_sequence: TensorStructInfo, values: TensorStructInfo, *, right: bool, dtype: str
) -> TensorStructInfo:
    edges, shape = (known_shape("searchsorted", i) for i in (sorted_sequence, values))
    expect_same_dtype("searchsorted", sorted_sequence, values)
    expect_dtype("searchsorted", values, "number")
    _expect_index_dtype("searchsorted", dtype)
    if len(edges) != 1 and (len(edges) != len(shape) or tuple(edges[:-1]) != tuple(shape[:-1])):
        raise ShapeError(
            "searchsorted: sorted_sequence must have one axis, or the axes of values but for the last size,"
            f" got {tuple(edges)} and {tuple(shape)}"
        )
    return TensorStructInfo(shape, dtype)


def _search_kernel(inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, right: bool, dtype: str) -> Stmt:
    (edges, values), (out,) = inputs, outputs
    lines = Lines((*values.shape, 1), len(values.shape))
    n = edges.shape[-1]
    steps = as_expr(n).value.bit_length() if isinstance(n, int) else 63
    low, high = Buffer("low", (1,), "int64", "local"), Buffer("high", (1,), "int64", "local")

    def element(number: PrimExpr) -> Stmt:
        place = lines.place(number, as_expr(0))[:-1]
        value, a, b, middle = Var("value", values.dtype), Var("a"), Var("b"), Var("middle")
        edge = edges[(*(place[:-1] if len(edges.shape) > 1 else ()), minimum(middle, maximum(as_expr(n) - 1, 0)))]
        behind = ~_precedes(value, edge, False) if right else _precedes(edge, value, False)
        halve = If(
            a < b,
            If(behind, store(low, (0,), middle + 1), store(high, (0,), middle)),
        )
        step = Let(a, low[0], Let(b, high[0], Let(middle, (a + b) // 2, halve)))
        search = seq(store(low, (0,), as_expr(0)), store(high, (0,), as_expr(n)), loop("step", steps, lambda _: step))
        result = store(out, place, cast(dtype, low[0]))
        return Let(value, values[place], Allocate(low, Allocate(high, seq(search, result))))

    return lines.each(element)


def _searchsorted(sorted_sequence: np.ndarray, values: np.ndarray, *, right: bool, dtype: str) -> np.ndarray:
    side, kind = "right" if right else "left", numpy_dtype(dtype)
    sorted_sequence, values = (a.astype(wide(a.dtype.name)) for a in (sorted_sequence, values))
    if sorted_sequence.ndim == 1:
        return np.asarray(np.searchsorted(sorted_sequence, values, side)).astype(kind)
    result = np.empty(values.shape, kind)
    for at in np.ndindex(values.shape[:-1]):
        result[at] = np.searchsorted(sorted_sequence[at], values[at], side)
    return result


_EDGES = [-2.0, -1.0, 0.0, 0.0, 1.5]

define(
    "searchsorted",
    "sorted_sequence, values | right=False, dtype='int32'",
    infer=_search_infer,
    kernel=_search_kernel,
    numpy=_searchsorted,
    gradient=zero_gradient,
    precision="same",
    family="sort",
    doc="For each value the first place (with ``right`` the last) in the sorted sequence at which it could stand: how\n"
    "many elements are less (less or equal). The sequence has one axis, or one for each line of values along the\n"
    "last axis.",
    samples=[
        sample(_EDGES, (7,)),
        sample(_EDGES, [-3.0, -2.0, 0.0, 1.5, 2.0, float("nan")], right=True, smooth=False),
        sample([[0.0, 1.0, 2.0], [-1.0, 0.0, 0.0]], (2, 5), dtype="int64"),
        sample([1.0], (2, 3), right=True),
        sample((0,), (3,)),
        sample(_EDGES, (0, 2)),
    ],
)


def _bucketize_infer(
    input_tensor: TensorStructInfo, boundaries: TensorStructInfo, *, out_int32: bool, right: bool
) -> TensorStructInfo:
    if len(known_shape("bucketize", boundaries, "boundaries")) != 1:
        raise ShapeError("bucketize: boundaries must have one axis")
    return _search_infer(boundaries, input_tensor, right=right, dtype="int32" if out_int32 else "int64")


composite(
    "bucketize",
    "input_tensor, boundaries | out_int32=False, right=False",
    te=None,
    infer=_bucketize_infer,
    decompose=lambda x, boundaries, *, out_int32, right, training: ops.searchsorted(
        boundaries, x, right=right, dtype="int32" if out_int32 else "int64"
    ),
    numpy=lambda x, boundaries, *, out_int32, right: _searchsorted(
        boundaries, x, right=right, dtype="int32" if out_int32 else "int64"
    ),
    gradient=zero_gradient,
    precision="same",
    family="sort",
    doc="The number of the interval between sorted boundaries in which each element lies; a boundary belongs to the\n"
    "interval below it, with ``right`` to the one above.",
    samples=[
        sample((3, 4), _EDGES),
        sample([-2.0, 0.0, 1.5, 3.0], _EDGES, right=True, out_int32=True, smooth=False),
        sample((5,), (0,)),
    ],
)
