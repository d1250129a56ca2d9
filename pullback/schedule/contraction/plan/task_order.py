"""In which order tasks and the register tiles of a task come, and what threads pack for themselves.

    for task in parallel(n):
        panels = …                      the same in every task, so a thread packs it once (codegen/own_copies.py)
        …

A line that another core wrote comes slowly, and so does the right to write one that another core has read since. Where
all threads read all of a packed copy, it takes less to make it in each of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from pullback.schedule.contraction.plan.blocking import Draft
from pullback.schedule.contraction.plan.counts import round_count
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import element_cost
from pullback.tir import Var
from pullback.tir.expr import nbytes


def task_axes(problem: Problem, draft: Draft) -> list[Var]:
    """The axes of the result as tasks go through them, outermost first."""
    if draft.column is not problem.outputs[-1]:
        return list(problem.outputs)  # else threads would write to the same lines all the time
    return tile_axes(problem, draft, is_by_rows(problem, draft))


def tile_axes(problem: Problem, draft: Draft, by_rows: bool = False) -> list[Var]:
    """Axes of the result, those of the register tile innermost; what needs no region of its own is outermost. Rows of a
    depthwise convolution share nothing, as each column has its own factors: there tiles go on with what is beside them
    in memory (the gradient of 96 channels of 64 x 64, stride 2: 0.7 of the time)."""
    rows, column = [v for v, _ in draft.rows], draft.column
    last = [*rows, column] if by_rows or column in draft.a.axes else [column, *rows]
    return [*(v for v in problem.outputs if v not in last), *last]


def is_by_rows(problem: Problem, draft: Draft) -> bool:
    """Whether tasks go through all columns before the next rows, not the other way round.

    A thread does neighbouring tasks, so the outer axis divides its factor, and with columns that stay in L2 that should
    be the larger one. Then a thread also owns whole lines of the result: the weights that a step updates stay in its
    cache from step to step, and no prefetcher asks for lines that another thread is writing.
    """
    a, b = draft.a, draft.b
    if draft.has_region or not draft.rows:
        return False
    if _has_rows_together(problem, draft):
        return True
    rows, columns = elements(problem, a), elements(problem, b)
    return columns <= rows and columns * nbytes(b.source.dtype) <= problem.figures.l2


def _has_rows_together(problem: Problem, draft: Draft) -> bool:
    """Whether a task computes whole sums of several register tiles of rows, all with the same columns."""
    v, step = draft.rows[-1]
    is_whole = draft.split_k is None and round_count(problem, draft.inner) == 1
    return is_whole and draft.inner[v] > step and draft.inner[draft.column] <= draft.tile.columns


def order_of_sums(problem: Problem, draft: Draft) -> Hashable:
    """In which order a sum takes its terms. Whole sums take all of them one after another, in rounds or not."""
    reduced = problem.reduced
    rounds = tuple(draft.inner[k] for k in reduced)
    divided = [n for n, k in enumerate(reduced) if rounds[n] < problem.extents[k]]
    is_whole = draft.split_k in (None, 1) and draft.lane_axis is None
    if is_whole and all(n == 1 for n in rounds[: max(divided, default=0)]):
        rounds = ()  # they go on where the ones before have ended
    lanes = None if draft.lane_axis is None else reduced.index(draft.lane_axis)
    extents = tuple(problem.extents[k] for k in reduced)
    return extents, rounds, draft.split_k or 1, lanes


def have_same_order(parts: Sequence[tuple[Problem, Draft]], others: Sequence[tuple[Problem, Draft]]) -> bool:
    """Whether each sum takes its terms in the same order in both blockings of one contraction."""
    own, found = ([order_of_sums(*part) for part in of] for of in (parts, others))
    if len({*own, *found}) == 1 and own and found:
        return True
    sizes, sizes_found = ([tuple(p.extents[v] for v in p.outputs) for p, _ in of] for of in (parts, others))
    return (own, sizes) == (found, sizes_found)


def is_thread_private(problem: Problem, factor: Factor, divided: bool) -> bool:
    """Whether each thread packs a factor for itself. ``divided``: a thread reads a part of it, mostly."""
    count, figures = elements(problem, factor), problem.figures
    most = min(figures.private, problem.group.machine.second_bytes // figures.private_of_l2)
    if count * nbytes(factor.source.dtype) > most:
        return False
    copy = count * (figures.copy_ns + (0.0 if factor.is_input else element_cost(problem.before)))
    handed_over = 0.0 if divided else count * figures.hand_over_ns
    return copy < copy / figures.threads + handed_over + figures.parallel_loop_ns
