"""Sorting. Everything rests on ``argsort``: sorted values are gathered, so their adjoint is scattered.

``argsort`` goes line by line. Of a long line the places are dealt out by the lowest eight bits of their elements, then
by the next eight, and so on, each time in the order of the time before: a radix sort, for bits that say the order of
floats too. Of a short one runs of 1, 2, 4, … places are merged:

    for pair of neighbouring runs [low, middle) and [middle, high):
        left, right = low, middle
        for k from low to high: the lesser of source[left], source[right], of equal ones the left, goes to target[k]

Where only the first few places are asked for, as in topk, each element is put where it belongs among the first few so
far, which most elements of a long line need not be.

All three are stable, and NaN counts as greater than all numbers, as in NumPy and PyTorch.
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
    const,
    loop,
    minimum,
    select,
    seq,
    store,
)
from pullback.tir.expr import FLOATS

_INDEX_DTYPES = ("int32", "int64")
_FEW = 32  # places that are found by insertion
_LONG = 64  # elements of a line that are worth a table of all values of eight bits
_DIGITS = 256


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


def _precedes(a: PrimExpr, b: PrimExpr, descending: bool) -> PrimExpr:
    """Whether ``a`` must stand before ``b``, wherever they stood."""
    less = b < a if descending else a < b
    if a.dtype not in FLOATS:
        return less
    nan, other = (a, b) if descending else (b, a)
    return less | (call("isnan", nan) & ~call("isnan", other))


def _argsort_kernel(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, axis: int, descending: bool, dtype: str, first: int | None
) -> Stmt:
    (data,), (out,) = inputs, outputs
    if first is not None and first <= _FEW:
        return _first_kernel(data, out, axis, descending, first)
    lines = Lines(tuple(data.shape), normalize_axis("argsort", axis, len(data.shape)))
    n = lines.length
    if isinstance(n, int) and n >= _LONG:
        return _radix_kernel(data, out, lines, descending, n if first is None else first)
    passes = max(n - 1, 0).bit_length() if isinstance(n, int) else 63
    count = n if first is None else first
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
            loop("k", count, lambda k: store(out, lines.place(number, k), order[turn[0], number, k])),
        )
        return Allocate(run, Allocate(turn, work))

    return Allocate(order, Allocate(keys, lines.each(line)))


def _sortable(x: PrimExpr, descending: bool) -> PrimExpr:
    """An unsigned word for each number, in whose order the numbers are sorted. Of a float it is its bits, of a negative
    one inverted; both zeros have one word, and all NaN the greatest."""
    bits = int(x.dtype.lstrip("uintfloa"))
    kind = f"uint{bits}"
    top, ones = const(1 << (bits - 1), kind), const((1 << bits) - 1, kind)
    word = x if x.dtype == kind else call("reinterpret", x, dtype=kind)
    if x.dtype in FLOATS:
        word = select(x.equal(0.0), const(0, kind), word)
        word = select(word >= top, word ^ ones, word | top)
        word = select(call("isnan", x), ones, word)
    elif x.dtype != kind:
        word = word ^ top
    return word ^ ones if descending else word


def _radix_kernel(data: Buffer, out: Buffer, lines: Lines, descending: bool, first: int) -> Stmt:
    kind = _sortable(Var("x", wide(data.dtype)), descending).dtype
    passes = int(kind.removeprefix("uint")) // 8
    shape = (2, lines.count, lines.length)  # before and after a pass, by turns
    order, keys = Buffer("order", shape, out.dtype, "workspace"), Buffer("keys", shape, kind, "workspace")
    starts = Buffer("starts", (passes, _DIGITS), "int64", "local")  # of a digit: how many have it, then its next place
    total = Buffer("total", (1,), "int64", "local")

    def digit(word: PrimExpr, number: int) -> PrimExpr:
        return cast("int64", (word >> const(8 * number, kind)) & const(_DIGITS - 1, kind))

    def begin(line: PrimExpr, k: PrimExpr) -> Stmt:
        word = Var("word", kind)
        seen = [(number, digit(word, number)) for number in range(passes)]
        counted = [store(starts, place, starts[place] + 1) for place in seen]
        made = seq(store(keys, (0, line, k), word), store(order, (0, line, k), cast(out.dtype, k)), *counted)
        return Let(word, _sortable(cast(wide(data.dtype), data[lines.place(line, k)]), descending), made)

    def deal(line: PrimExpr, number: int) -> Stmt:
        """One pass, from one half of the workspace to the other; the last one to the result."""
        turn, is_last = number % 2, number == passes - 1

        def start(d: PrimExpr) -> Stmt:
            before, these = Var("before"), Var("these")
            update = seq(store(starts, (number, d), before), store(total, (0,), before + these))
            return Let(before, total[0], Let(these, starts[number, d], update))

        def one(k: PrimExpr) -> Stmt:
            word, place, at = Var("word", kind), Var("place", "int64"), Var("at")
            if is_last:
                move = store(out, lines.place(line, at), order[turn, line, k])
                move = move if first == lines.length else If(at < first, move)
            else:
                move = seq(
                    store(keys, (1 - turn, line, at), word),
                    store(order, (1 - turn, line, at), order[turn, line, k]),
                )
            move = seq(store(starts, (number, place), at + 1), move)
            return Let(word, keys[turn, line, k], Let(place, digit(word, number), Let(at, starts[number, place], move)))

        return seq(store(total, (0,), as_expr(0)), loop("d", _DIGITS, start), loop("k", lines.length, one))

    def line(number: PrimExpr) -> Stmt:
        clear = [loop("d", _DIGITS, lambda d, p=p: store(starts, (p, d), as_expr(0))) for p in range(passes)]
        work = seq(
            *clear, loop("k", lines.length, lambda k: begin(number, k)), *(deal(number, p) for p in range(passes))
        )
        return Allocate(starts, Allocate(total, work))

    return Allocate(order, Allocate(keys, lines.each(line)))


def _first_kernel(data: Buffer, out: Buffer, axis: int, descending: bool, first: int) -> Stmt:
    """The places of the first few elements in their order, which is kept in registers: an element that precedes the
    last of them moves on those that it precedes."""
    lines = Lines(tuple(data.shape), normalize_axis("argsort", axis, len(data.shape)))
    keys, order = (Buffer(n, (first,), dtype, "local") for n, dtype in (("keys", data.dtype), ("order", "int64")))
    moving = (Buffer("moved", (1,), data.dtype, "local"), Buffer("moved_from", (1,), "int64", "local"))

    def put(key: PrimExpr, k: PrimExpr) -> Stmt:
        """Insert element k, of that key."""

        def slot(q: PrimExpr) -> Stmt:
            a, place, held, held_place = Var("a", data.dtype), Var("place"), Var("b", data.dtype), Var("held")
            # what has been moved on goes before all that follows, and a slot that is still empty takes anything
            goes = (place.not_equal(k)) | (q >= k) | _precedes(a, held, descending)
            swap = If(
                goes,
                seq(
                    store(keys, (q,), a), store(order, (q,), place),
                    store(moving[0], (0,), held), store(moving[1], (0,), held_place),
                ),
            )  # fmt: skip
            for var, value in (held_place, order[q]), (held, keys[q]), (place, moving[1][0]), (a, moving[0][0]):
                swap = Let(var, value, swap)
            return swap

        return seq(store(moving[0], (0,), key), store(moving[1], (0,), k), loop("slot", first, slot))

    def element(number: PrimExpr, k: PrimExpr) -> Stmt:
        key = Var("key", data.dtype)
        belongs = (k < first) | _precedes(key, keys[first - 1], descending)
        return Let(key, data[lines.place(number, k)], If(belongs, put(key, k)))

    def line(number: PrimExpr) -> Stmt:
        start = [store(keys, (q,), cast(data.dtype, 0)) for q in range(first)]
        start += [store(order, (q,), as_expr(-1)) for q in range(first)]
        result = loop("k", first, lambda k: store(out, lines.place(number, k), cast(out.dtype, order[k])))
        body = seq(*start, loop("k", lines.length, lambda k: element(number, k)), result)
        for buffer in (keys, order, *moving):
            body = Allocate(buffer, body)
        return body

    return lines.each(line)


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
