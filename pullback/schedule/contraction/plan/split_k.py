"""Split-K: sums that are divided among tasks as partial sums, which a second loop adds up.

A task keeps its sums from round to round, so that rounds don't change the order of a sum; partial sums do.
"""

from __future__ import annotations

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.counts import (
    copies,
    matrix_count,
    part_count,
    region_bytes,
    result_count,
    round_count,
    task_count,
    tasks_of_rows,
)
from pullback.schedule.contraction.plan.k_rounds import round_of
from pullback.schedule.contraction.plan.tasks import PARTS, TASKS, partial_sums
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir.expr import nbytes

_LEAST_SPLIT_DEPTH = 512  # terms of a partial sum, at the least
_FEW_COPIES = 8  # tasks that pack the same elements, at the most


def split_over_tasks(problem: Problem, draft: Draft) -> Draft | None:
    """Very long sums are divided among several tasks, where whole ones would leave few tasks as large as the caches
    allow. A task takes its part in rounds. Where a matrix would be packed as a whole, and a few tasks have all rows,
    each round packs its own part."""
    a, b, packing, figures = draft.a, draft.b, draft.packing, problem.figures
    size = nbytes(b.source.dtype)
    leaves = figures.leaves_l2 // 2 if a.is_window else figures.leaves_l2  # rows of a window come again for every tap
    if b.is_window or elements(problem, b) // matrix_count(problem) * size <= leaves:
        return None
    own, inner = {**packing, b: Packing.REGION}, draft.inner
    is_packed = packing[b] is Packing.PANELS and b.windows is not None and (a.is_window or not draft.has_region)
    if is_packed:
        parts = partial_sums(problem, draft.rows, draft.tile, draft.column, own, problem.lanes)
        is_packed = tasks_of_rows(problem, b, parts) <= _FEW_COPIES and region_bytes(own, parts) <= figures.region
    if is_packed:
        packing, inner = own, parts
    elif a.is_window or draft.has_region or problem.depth * draft.tile.columns * size <= figures.l2:
        return None
    else:
        inner = round_of(problem, draft, 1, figures.k_block)
    tasks = task_count(problem, inner)
    few = is_packed and result_count(problem) * nbytes(problem.anchor.dtype) <= figures.streamed
    parts_of_sum = min(-(-TASKS // tasks), problem.depth // (_LEAST_SPLIT_DEPTH if few else 2 * _LEAST_SPLIT_DEPTH))
    if parts_of_sum < 2 or parts_of_sum * tasks < PARTS:
        return None
    return with_split_k(problem, draft.revised(inner=inner, packing=packing), parts_of_sum)


def is_better_split(problem: Problem, whole: Draft, partial: Draft) -> bool:
    """Whether so many tasks pack the same elements that partial sums of a few terms take less, without that."""
    if not (whole.a.is_window or whole.b.is_window) or part_count(problem, partial.inner) < PARTS:
        return False
    spilled = result_count(problem) * round_count(problem, partial.inner)
    packed = sum(copies(problem, whole.packing, whole.inner).values())
    packed -= sum(copies(problem, partial.packing, partial.inner).values())
    figures = problem.figures
    pack = figures.pack if problem.group.machine.vectors else figures.pack_scalar
    return pack * packed - figures.spill * spilled > problem.work / 10


def divided(problem: Problem, draft: Draft) -> Draft:
    """Few and long sums are divided into partial sums."""
    if draft.has_region:
        return draft
    wanted = min(-(-TASKS // task_count(problem, draft.inner)), problem.depth // _LEAST_SPLIT_DEPTH)
    if wanted < 2 or problem.extents[problem.reduced[0]] < wanted:
        return draft
    outer = problem.reduced[0]
    inner = {**draft.inner, outer: -(-problem.extents[outer] // wanted)}
    return draft.revised(inner=inner, split_k=round_count(problem, inner))


def with_split_k(problem: Problem, draft: Draft, most: int = TASKS) -> Draft:
    """Enough partial sums, of ``most`` at the most, that there are tasks for a few threads."""
    total = round_count(problem, draft.inner)
    wanted = -(-TASKS // task_count(problem, draft.inner))
    parts = max(1, min(total, wanted, most))
    return draft.revised(split_k=-(-total // -(-total // parts)))  # as many rounds in each, the last one apart
