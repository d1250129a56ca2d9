"""The blocking of a contraction, chosen analytically: from sizes, strides, the width of vectors and the number of
registers."""

from __future__ import annotations

import math

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.cost import cost
from pullback.schedule.contraction.plan.counts import copies, partial_bytes, round_count
from pullback.schedule.contraction.plan.k_rounds import is_packed_by_rounds, k_blocked, rows_together
from pullback.schedule.contraction.plan.one_pass import is_streamed, read_once, streamed
from pullback.schedule.contraction.plan.packing import (
    is_copied_by_tasks,
    may_be_copied_by_tasks,
    packing_of_columns,
    packing_of_rows,
    plain_packing,
    roles,
)
from pullback.schedule.contraction.plan.register_tiles import register_tiles
from pullback.schedule.contraction.plan.split_k import (
    divided,
    in_own_lines,
    is_better_split,
    split_for_locality,
    split_over_tasks,
    with_split_k,
)
from pullback.schedule.contraction.plan.tasks import TASKS, enough_tasks, fitting, partial_sums
from pullback.schedule.contraction.plan.vector_axis import vector_axes
from pullback.schedule.contraction.problem.memory import distance, elements
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
    if best is None or not _is_doubtful(problem, best):
        return best
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
    own = packing | {b: Packing.REGION}
    found = None
    if may_be_copied_by_tasks(b, packing[b]) and not is_packed_by_rounds(problem, b, column, packing[b]):
        # many tasks, or at least as many as are worth their while
        tried = (fitting(problem, tilings, column, own, lanes, n) for n in (TASKS, enough_tasks(problem)))
        found = next((f for f in tried if f is not None and is_copied_by_tasks(problem, a, b, f[-1])), None)
    if found is not None:
        packing = own
    else:
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
    if (apart := split_for_locality(problem, whole, partial)) is not None:
        return apart
    found = streamed(problem, divided(problem, whole))
    if not is_streamed(problem, found):
        found = rows_together(problem, k_blocked(problem, found))
    return in_own_lines(problem, found)


def _is_doubtful(problem: Problem, draft: Draft) -> bool:
    """Whether another vector axis may well be better."""
    is_full = problem.extents[draft.column] > problem.lanes // 2
    is_good = is_full and _is_steady(problem, draft) and not _packs_again(problem, draft)
    return not is_good or is_of_matrices(problem) or problem.figures.compares_axes


def is_of_matrices(problem: Problem) -> bool:
    """Whether both factors are matrices of the accumulators' type, in memory: what these cost is known well."""
    return not any(f.is_window or f.dtype != f.source.dtype or pays_to_widen(problem, f) for f in problem.factors)


def _is_steady(problem: Problem, draft: Draft) -> bool:
    """Whether the sums are not spilled and reloaded after a few terms already, time and again, or once, if they are
    then reloaded from beyond L2."""
    if is_streamed(problem, draft):
        return True  # they are, and :func:`cost` knows it
    terms = math.prod(draft.inner[k] for k in problem.reduced)
    is_far = 2 * partial_bytes(problem, draft) > problem.group.machine.second_bytes
    is_once = round_count(problem, draft.inner) <= (draft.split_k or 1)
    few = problem.figures.spill_terms_far if is_far else problem.figures.spill_terms
    return terms >= min(few, problem.depth) or (is_once and not is_far)


def _packs_again(problem: Problem, draft: Draft) -> bool:
    """Whether tasks pack the same elements of a window into their regions so often that it counts."""
    again = sum(n - elements(problem, f) for f, n in copies(problem, draft.packing, draft.inner).items() if f.is_window)
    return problem.figures.transpose * again > problem.work / 10
