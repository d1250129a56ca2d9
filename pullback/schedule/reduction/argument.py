"""Argmax and argmin: each lane keeps the best value it has met and its index; then the lanes are halved.

Of equal values the first index wins, and NaN wins over numbers, as in NumPy. The order of comparisons changes nothing.
"""

from __future__ import annotations

from pullback.schedule.reduction.nests import lane_loop, put
from pullback.schedule.reduction.program import Step
from pullback.te.graph import better, identity
from pullback.tir import Buffer, For, Let, PrimExpr, Stmt, Var, as_expr, call, cast, const, select, seq, store
from pullback.tir.expr import is_float, nbytes
from pullback.tir.visitor import substitute

_INDEX = "int32"  # as wide as a float: half of int64's vectors


def index_dtype(extent: int) -> str:
    return _INDEX if extent < 2**31 else "int64"


def keep_better(step: Step, value: PrimExpr, index: PrimExpr, best: Buffer, place: Buffer, lane: PrimExpr) -> Stmt:
    """Take the value and its index if it is better than the best so far; indices come in rising order."""
    new, wins = Var("value", best.dtype), Var("wins", "bool")
    replace = seq(
        store(place, lane, select(wins, index, place[lane])),
        store(best, lane, select(wins, new, best[lane])),
    )
    return Let(new, value, Let(wins, better(step.kind, new, best[lane], const(False, "bool")), replace))


def reduce_row_argument(step: Step, total: PrimExpr, vector_bytes: int) -> tuple[Stmt, list[Buffer]]:
    """The index of the best element of a row, stored to where ``total`` is, and the buffers that it needs."""
    (axis,), (extent,) = step.reduced.axes or (Var("k"),), step.reduced.extents or (1,)
    value_dtype, index = step.store.value.dtype, index_dtype(extent)
    lanes = max(1, vector_bytes // max(4, nbytes(value_dtype)))
    parts = lanes * 4 if extent >= lanes * 8 else lanes
    best = Buffer("best", (parts,), value_dtype, "local")
    place = Buffer("place", (parts,), index, "local")

    def piece(size: int, base: PrimExpr) -> Stmt:
        def body(lane: PrimExpr) -> Stmt:
            at = base + lane
            value = substitute(step.store.value, {axis: at})
            return keep_better(step, value, cast(index, at), best, place, lane)

        return lane_loop("lane", size, body)

    start = lane_loop(
        "lane",
        parts,
        lambda k: seq(store(best, k, identity(step.kind, value_dtype)), store(place, k, cast(index, k))),
    )
    full, rest = divmod(extent, parts)
    chunk = Var("chunk")
    main = For(chunk, as_expr(full), piece(parts, chunk * parts)) if full else None
    tail = piece(rest, as_expr(full * parts)) if rest else None
    result = put(total, cast("int64", place[0]))
    return seq(start, main, tail, _halve(step.kind, best, place, parts), result), [best, place]


def _halve(kind: str, best: Buffer, place: Buffer, parts: int) -> Stmt:
    steps = []
    while parts > 1:
        parts //= 2

        def body(k: PrimExpr, half: int = parts) -> Stmt:
            wins = Var("wins", "bool")
            a, b = best[k], best[k + half]
            tie = a.equal(b)
            if is_float(best.dtype):
                tie = tie | (call("isnan", a) & call("isnan", b))
            replaces = better(kind, b, a, tie & (place[k + half] < place[k]))
            stores = seq(store(place, k, select(wins, place[k + half], place[k])), store(best, k, select(wins, b, a)))
            return Let(wins, replaces, stores)

        steps.append(lane_loop("lane", parts, body))
    return seq(*steps)
