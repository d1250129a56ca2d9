"""The epilogue of a contraction: its elementwise stages, and with split-K the loop over all results.

    for other axes: for lines of columns:
        acc[r, j] = Σ_c partial[c, …, j]         j in vectorized(columns)
        for j: for r in vectorized(rows): out[…, j, r] = f(acc[r, j], …)             (transposed_store.py)

Where columns are not contiguous in memory, those axes that are become the rows of a tile, and are transposed in
registers: else each lane would be a scalar store, and each number of an optimizer a scalar load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pullback.schedule.contraction.emit.transposed_store import transposed_store
from pullback.schedule.contraction.plan.blocking import Rows
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.cost import worth_threads
from pullback.schedule.pointwise import buffer_readers, point, tasks
from pullback.tir import Allocate, Buffer, For, If, PrimExpr, Stmt, Var, as_expr, loop, seq, store
from pullback.tir.visitor import substitute

Total = Callable[[Mapping[Var, PrimExpr]], PrimExpr]


def epilogue(problem: Problem, value: Mapping[Var, PrimExpr], total: PrimExpr) -> Stmt:
    """The elementwise stages at one element of the result, whose sum is ``total``."""
    group, anchor = problem.group, problem.anchor
    axes = [substitute(problem.place[axis], value) for axis in anchor.axes]
    members = [s for s in group.stages if s.shape == anchor.shape and s not in problem.before]
    return point(group, members, axes, buffer_readers(group) | {anchor: lambda _: total})


def epilogue_over_results(problem: Problem, column: Var, total: Total, terms: int) -> Stmt:
    """The elementwise stages at all elements. ``total``: the sum at these values of the result's axes, computed from so
    many ``terms`` with vectors along ``column``."""
    extents, value = problem.extents, {v: as_expr(v) for v in problem.outputs}
    others, body = [v for v in problem.outputs if v is not column], _transposed(problem, column, total)
    if body is None:
        along = epilogue(problem, value, total(value))
        body = For(column, as_expr(extents[column]), along, "vectorized")
    else:
        inside = {v for v, _ in _beside(problem, column)}
        others = [v for v in others if v not in inside]
    threads = worth_threads(math.prod(extents[v] for v in problem.outputs) * terms / 4)
    return tasks(others, [extents[v] for v in others], body, threads) if others else body


def _beside(problem: Problem, column: Var) -> Rows:
    """The axes whose elements are contiguous in memory, as many as a vector takes."""
    found, count = Rows(), 1
    for v in reversed(problem.outputs):
        count *= problem.extents[v]
        if v is column or count > problem.lanes:
            break
        found = ((v, problem.extents[v]), *found)
    return found


def _transposed(problem: Problem, column: Var, total: Total) -> Stmt | None:
    """The results along the column, transposed in registers; None where that does not pay."""
    rows, lanes, extent = _beside(problem, column), problem.lanes, problem.extents[column]
    if not rows or _tile(problem, column, rows, total, as_expr(0), min(lanes, extent)) is None:
        return None

    def plain(first: PrimExpr, columns: int) -> Stmt:
        j, value = Var("j"), {v: as_expr(v) for v in problem.outputs}
        place = {**value, column: first + j}
        body: Stmt = For(j, as_expr(columns), epilogue(problem, place, total(place)), "vectorized")
        for v, n in reversed(rows):
            body = For(v, as_expr(n), body)
        return body

    def line(number: PrimExpr) -> Stmt:
        first = number * lanes
        return whole_or_tail(
            first, extent, lanes, lambda n: _tile(problem, column, rows, total, first, n) or plain(first, n)
        )

    return loop("line", -(-extent // lanes), line)


def _tile(problem: Problem, column: Var, rows: Rows, total: Total, first: PrimExpr, columns: int) -> Stmt | None:
    """Those of so many columns."""
    count, j = math.prod(n for _, n in rows), Var("j")
    acc = Buffer("acc", (count, columns), problem.anchor.dtype, "local")
    start = {v: as_expr(v) for v in problem.outputs} | {v: as_expr(0) for v, _ in rows} | {column: first}

    def at(moves: Mapping[Var, PrimExpr]) -> dict[Var, PrimExpr]:
        return {**start, **{v: start[v] + move for v, move in moves.items()}}

    def row(number: PrimExpr) -> Stmt:
        moves, rest = {column: as_expr(j)}, number
        for v, n in reversed(rows):
            moves[v], rest = rest % n, rest // n
        return store(acc, (number, j), total(at(moves)))

    put = transposed_store(
        problem, column, rows, columns, acc, problem.lanes, lambda moves, one: epilogue(problem, at(moves), one)
    )
    fill = For(j, as_expr(columns), loop("r", count, row, "unrolled"), "vectorized")
    return None if put is None else Allocate(acc, seq(fill, put))


def whole_or_tail(first: PrimExpr, extent: int, step: int, then: Callable[[int], Stmt]) -> Stmt:
    """What is done for so many values of an axis from ``first`` on: a whole step, or those that are left at its end."""
    full, rest = divmod(extent, step)
    if not rest or not full:
        return then(step if full else rest)
    return If(first < full * step, then(step), then(rest))
