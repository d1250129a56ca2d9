"""The blocking of a contraction, chosen analytically: from sizes, strides, the width of vectors and the number of
registers.
"""

from __future__ import annotations

import math

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.cost import cost
from pullback.schedule.contraction.plan.counts import partial_bytes, round_count
from pullback.schedule.contraction.plan.k_rounds import k_blocked, rows_together
from pullback.schedule.contraction.plan.one_pass import read_once
from pullback.schedule.contraction.plan.packing import (
    packing_of_columns,
    packing_of_rows,
    plain_packing,
    roles,
)
from pullback.schedule.contraction.plan.register_tiles import register_tiles
from pullback.schedule.contraction.plan.split_k import (
    divided,
    is_better_split,
    split_over_tasks,
    with_split_k,
)
from pullback.schedule.contraction.plan.tasks import fitting, partial_sums
from pullback.schedule.contraction.plan.vector_axis import vector_axes
from pullback.schedule.contraction.problem.memory import distance
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.contraction.problem.widen import pays_to_widen
from pullback.tir import Var


def blocking_of(problem: Problem) -> Draft | None:
    """The draft for a problem, or None when it would be a bad one."""
    known, key = problem.group.known, ("blocking", problem)
    if key not in known:
        known[key] = _best(problem)
    found: Draft | None = known[key]
    return found


def _best(problem: Problem) -> Draft | None:
    """The vector axis that is the cheapest at first sight, unless a look at all blockings finds a better one."""
    axes = vector_axes(problem)
    best = _along(problem, axes[0]) if axes else None
    if best is None:
        return None
    others = [d for d in (_along(problem, v) for v in axes[1:]) if d is not None]
    other = min((d for d in others if _is_steady(problem, d)), key=lambda d: cost(problem, d), default=best)
    better = problem.figures.other_axis[is_of_matrices(problem)]
    is_better = not _is_steady(problem, best) or cost(problem, other) < better * cost(problem, best)
    return other if is_better else best


def _along(problem: Problem, column: Var) -> Draft | None:
    """The blocking with this vector axis."""
    lanes = problem.lanes
    a, b = roles(problem, column)
    packing = {a: plain_packing(a, column), b: packing_of_columns(problem, b, column)}
    row_axes = [v for v in problem.outputs if v in a.axes and v not in b.axes]
    if not row_axes and packing[b] is not Packing.DIRECT and not b.is_window:
        return None  # a matrix times a vector: sums along the rows of memory need no transposed copy
    row_axes = sorted(row_axes, key=lambda v: (distance(problem, a, v), -row_axes.index(v)))
    tilings = register_tiles(problem, a, row_axes, column)
    found = fitting(problem, tilings, column, packing, lanes)
    rows, tile, inner = found or (*tilings[0], None)
    packing[a] = packing_of_rows(problem, a, rows, packing[a])
    partial = Draft(column, a, b, rows, tile, packing, partial_sums(problem, rows, tile, column, packing, lanes))
    return _divided(problem, partial, partial if inner is None else partial.revised(inner=inner))


def _divided(problem: Problem, partial: Draft, whole: Draft) -> Draft | None:
    """Whole sums or partial ones, and what tasks share of them; ``whole is partial`` where whole sums don't fit."""
    if (once := read_once(problem, whole)) is not None:
        return once
    if (shared := split_over_tasks(problem, whole)) is not None:
        return shared
    if whole is partial and not (whole.a.is_window or whole.b.is_window or problem.group.fallback):
        return None  # what comes before the sum is better kept in memory than computed again and again
    if whole is partial or is_better_split(problem, whole, partial):
        return with_split_k(problem, partial)
    return rows_together(problem, k_blocked(problem, divided(problem, whole)))


def is_of_matrices(problem: Problem) -> bool:
    """Whether both factors are matrices of the accumulators' type, in memory: what these cost is known well."""
    return not any(f.is_window or f.dtype != f.source.dtype or pays_to_widen(problem, f) for f in problem.factors)


def _is_steady(problem: Problem, draft: Draft) -> bool:
    """Whether the sums are not spilled and reloaded after a few terms already, time and again, or once, if they are
    then reloaded from beyond L2."""
    terms = math.prod(draft.inner[k] for k in problem.reduced)
    is_far = 2 * partial_bytes(problem, draft) > problem.group.machine.second_bytes
    is_once = round_count(problem, draft.inner) <= (draft.split_k or 1)
    few = problem.figures.spill_terms_far if is_far else problem.figures.spill_terms
    return terms >= min(few, problem.depth) or (is_once and not is_far)
