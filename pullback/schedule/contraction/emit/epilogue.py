"""The epilogue of a contraction: its elementwise stages, and with split-K the loop over all results.

for other axes: for j in vectorized(columns): out[…, j] = f(Σ_c partial[c, …, j])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.cost import worth_threads
from pullback.schedule.pointwise import buffer_readers, point, tasks
from pullback.tir import For, If, PrimExpr, Stmt, Var, as_expr
from pullback.tir.visitor import substitute


def epilogue(problem: Problem, value: Mapping[Var, PrimExpr], total: PrimExpr) -> Stmt:
    """The elementwise stages at one element of the result, whose sum is ``total``."""
    group, anchor = problem.group, problem.anchor
    axes = [substitute(problem.place[axis], value) for axis in anchor.axes]
    members = [s for s in group.stages if s.shape == anchor.shape and s not in problem.before]
    return point(group, members, axes, buffer_readers(group) | {anchor: lambda _: total})


def epilogue_over_results(
    problem: Problem, column: Var, total: Callable[[Mapping[Var, PrimExpr]], PrimExpr], terms: int
) -> Stmt:
    """The elementwise stages at all elements. ``total``: the sum at these values of the result's axes, computed from so
    many ``terms`` with vectors along ``column``."""
    extents, value = problem.extents, {v: as_expr(v) for v in problem.outputs}
    others = [v for v in problem.outputs if v is not column]
    body = For(column, as_expr(extents[column]), epilogue(problem, value, total(value)), "vectorized")
    threads = worth_threads(math.prod(extents[v] for v in problem.outputs) * terms / 4)
    return tasks(others, [extents[v] for v in others], body, threads) if others else body


def whole_or_tail(first: PrimExpr, extent: int, step: int, then: Callable[[int], Stmt]) -> Stmt:
    """What is done for so many values of an axis from ``first`` on: a whole step, or those that are left at its end."""
    full, rest = divmod(extent, step)
    if not rest or not full:
        return then(step if full else rest)
    return If(first < full * step, then(step), then(rest))
