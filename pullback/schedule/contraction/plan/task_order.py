"""In which order tasks, the register tiles of a task, and the terms of a tile come, and what threads pack for
themselves.

    for task in parallel(n):
        panels = …                      the same in every task, so a thread packs it once (codegen/own_copies.py)
        …

A line that another core wrote comes slowly, and so does the right to write one that another core has read since. Where
all threads read all of a packed copy, it takes less to make it in each of them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.counts import matrix_count, round_count
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import element_cost
from pullback.tir import Var
from pullback.tir.caches import LINE, NEAR
from pullback.tir.expr import nbytes

_MANY_ROWS = 1000  # that read a packed copy: then handing its lines over does not count


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
    cache from step to step, and no prefetcher asks for lines that another thread is writing."""
    a, b = draft.a, draft.b
    if draft.has_region or not draft.rows:
        return False
    if _has_rows_together(problem, draft):
        return True
    if divides_copies(problem, draft):
        return False
    rows, columns = elements(problem, a), elements(problem, b)
    return columns <= rows and columns * nbytes(b.source.dtype) <= problem.figures.l2


def divides_copies(problem: Problem, draft: Draft) -> bool:
    """Whether threads divide the columns, so that each reads those panels that it packed itself. Where the result's
    rows don't end with a line, two threads write to the line where their columns meet, in each row: these lines have to
    be fewer than those of the panels."""
    b, column = draft.b, draft.column
    is_whole = draft.packing[b] is Packing.PANELS and column is problem.outputs[-1]
    if not is_whole or matrix_count(problem) >= problem.figures.threads:
        return False
    line = LINE // nbytes(problem.anchor.dtype)
    is_even = problem.extents[column] % line == 0 == draft.tile.columns % line
    rows = math.prod(problem.extents[v] for v in problem.outputs if v is not column)
    return rows < (_MANY_ROWS if is_even else min(_MANY_ROWS, elements(problem, b) // (2 * line)))


def _has_rows_together(problem: Problem, draft: Draft) -> bool:
    """Whether a task computes whole sums of several register tiles of rows, all with the same columns."""
    v, step = draft.rows[-1]
    is_whole = draft.split_k is None and round_count(problem, draft.inner) == 1
    return is_whole and draft.inner[v] > step and draft.inner[draft.column] <= draft.tile.columns


def terms(problem: Problem, draft: Draft) -> tuple[Var, ...]:
    """The axes of the sum as a register tile goes through its terms, outermost first. Where each value of the last one
    is in another line of the rows' factor, and so many lines leave L1 before the next tap reads its neighbour there,
    that axis comes first."""
    if len(problem.reduced) < 2:
        return problem.reduced
    a, (*taps, last), size = draft.a, problem.reduced, nbytes(draft.a.source.dtype)
    is_plain = draft.packing[a] is Packing.DIRECT and a.is_input and last in a.axes
    if not is_plain or abs(a.strides[last]) * size < LINE:
        return problem.reduced
    has_neighbours = any(k in a.axes and draft.inner[k] > 1 and abs(a.strides[k]) * size < LINE for k in taps)
    rows = [(count, abs(a.strides[v]) * size) for v, count in draft.rows if v in a.axes]
    lines = math.prod(-(-count * min(apart, LINE) // LINE) for count, apart in rows)
    leaves = lines * draft.inner[last] * LINE > NEAR
    return (last, *taps) if has_neighbours and leaves else problem.reduced


def order_of_sums(problem: Problem, draft: Draft) -> Hashable:
    """In which order a sum takes its terms. Whole sums take all of them one after another, in rounds or not."""
    reduced, axes = problem.reduced, terms(problem, draft)
    rounds = tuple(draft.inner[k] for k in reduced)
    divided = [n for n, k in enumerate(reduced) if rounds[n] < problem.extents[k]]
    is_whole = draft.split_k in (None, 1) and draft.lane_axis is None
    if is_whole and axes == reduced and all(n == 1 for n in rounds[: max(divided, default=0)]):
        rounds = ()  # they go on where the ones before have ended
    numbers = tuple(map(reduced.index, axes))
    lanes = None if draft.lane_axis is None else reduced.index(draft.lane_axis)
    extents = tuple(problem.extents[k] for k in reduced)
    return extents, numbers, rounds, draft.split_k or 1, lanes, draft.run is None, draft.taps is None


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
