"""Places among sorted values: by halving, without branches.

NaN counts as greater than all numbers, as in sorting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_same_dtype,
    known_shape,
    wide,
    zero_gradient,
)
from pullback.relax.op.index.sort import expect_index_dtype
from pullback.relax.op.kernel import Lines
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import sample
from pullback.relax.struct_info import TensorStructInfo
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
    select,
    seq,
    store,
)
from pullback.tir.expr import FLOATS, const


def _search_infer(
    sorted_sequence: TensorStructInfo, values: TensorStructInfo, *, right: bool, dtype: str
) -> TensorStructInfo:
    edges, shape = (known_shape("searchsorted", i) for i in (sorted_sequence, values))
    expect_same_dtype("searchsorted", sorted_sequence, values)
    expect_dtype("searchsorted", values, "number")
    expect_index_dtype("searchsorted", dtype)
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

    def element(number: PrimExpr) -> Stmt:
        place = lines.place(number, as_expr(0))[:-1]
        line = place[:-1] if len(edges.shape) > 1 else ()
        value = Var("value", values.dtype)

        def search(before: Callable[[PrimExpr], PrimExpr]) -> Stmt:
            return _count(n, lambda k: before(edges[(*line, k)]), lambda found: store(out, place, cast(dtype, found)))

        found = search(lambda edge: edge <= value if right else edge < value)  # not so of a NaN among the edges
        if values.dtype in FLOATS:
            found = If(call("isnan", value), search(lambda edge: const(right, "bool") | ~call("isnan", edge)), found)
        return Let(value, values[place], found)

    return lines.each(element)


def _count(n: Any, holds: Callable[[PrimExpr], PrimExpr], then: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``then`` with the number of the first of n places at which the predicate holds no more. Half of what is left is
    decided at a time, without a branch: it could not be predicted, and so the searches of several values overlap."""
    found = Buffer("found", (1,), "int64", "local")

    def advance(by: Any, at: Any) -> Stmt:
        low = Var("low")
        return Let(low, found[0], store(found, (0,), select(holds(low + at), low + by, low)))

    begin, last = store(found, (0,), as_expr(0)), advance(1, 0)
    if isinstance(n, int):
        halves = []
        while n > 1:
            halves.append(advance(n // 2, n // 2 - 1))
            n -= n // 2
        return Allocate(found, seq(begin, *halves, last if n else None, then(found[0])))
    rest, left = Buffer("rest", (1,), "int64", "local"), Var("left")
    halve = seq(advance(left // 2, left // 2 - 1), store(rest, (0,), left - left // 2))
    search = seq(store(rest, (0,), n), loop("step", 62, lambda _: Let(left, rest[0], If(left > 1, halve))))
    return Allocate(found, Allocate(rest, seq(begin, search, If(as_expr(n) > 0, last), then(found[0]))))


def _searchsorted(sorted_sequence: np.ndarray, values: np.ndarray, *, right: bool, dtype: str) -> np.ndarray:
    side: Literal["left", "right"] = "right" if right else "left"
    kind = numpy_dtype(dtype)
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
