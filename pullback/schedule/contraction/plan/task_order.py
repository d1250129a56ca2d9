"""In which order a blocked contraction goes through its tasks, a register tile through its terms, and a sum through all
of its terms."""

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

_MANY_ROWS = 1000  # that read a copy: then it does not count how long its lines take


def task_axes(problem: Problem, blocking: Draft) -> list[Var]:
    """The axes of the result as tasks go through them, outermost first."""
    if blocking.column is not problem.outputs[-1]:
        return list(problem.outputs)  # else threads would write to the same lines all the time
    return tile_axes(problem, blocking, is_by_rows(problem, blocking))


def tile_axes(problem: Problem, blocking: Draft, by_rows: bool = False) -> list[Var]:
    """Axes of the result, those of the register tile innermost; what needs no region of its own is outermost. Rows of a
    depthwise convolution share nothing, as each column has its own factors: there tiles go on with what is beside them
    in memory (the gradient of 96 channels of 64 x 64, stride 2: 0.7 of the time)."""
    rows, column = [v for v, _ in blocking.rows], blocking.column
    last = [*rows, column] if by_rows or column in blocking.a.axes else [column, *rows]
    return [*(v for v in problem.outputs if v not in last), *last]


def is_by_rows(problem: Problem, blocking: Draft) -> bool:
    """Whether tasks go through all columns before they go on to the next rows, not the other way round.

    A thread does neighbouring tasks, so the outer axis divides its factor, and with columns that stay in the second
    cache it had better be the larger one. Then a thread also owns whole lines of the result: the weights that a step
    updates stay in its cache from step to step, and no prefetcher asks for those that another one is writing."""
    a, b = blocking.a, blocking.b
    if blocking.has_region or not blocking.rows:
        return False
    if _has_rows_together(problem, blocking):
        return True
    if divides_copies(problem, blocking):
        return False
    rows, columns = elements(problem, a), elements(problem, b)
    return columns <= rows and columns * nbytes(b.source.dtype) <= problem.figures.l2


def divides_copies(problem: Problem, blocking: Draft) -> bool:
    """Whether threads had better divide the columns, so that each reads those panels that it copied itself: lines that
    another one wrote come slowly. Where the result's rows don't end with a line, two threads write to the one where
    their columns meet, in each row: less of these lines have to be than lines of the copy."""
    b, column = blocking.b, blocking.column
    if (
        blocking.packing[b] is not Packing.PANELS
        or matrix_count(problem) >= problem.figures.threads
        or column is not problem.outputs[-1]
    ):
        return False
    line = LINE // nbytes(problem.anchor.dtype)
    is_even = problem.extents[column] % line == 0 == blocking.tile.columns % line
    rows = math.prod(problem.extents[v] for v in problem.outputs if v is not column)
    return rows < (_MANY_ROWS if is_even else min(_MANY_ROWS, elements(problem, b) // (2 * line)))


def _has_rows_together(problem: Problem, blocking: Draft) -> bool:
    """Whether a task computes whole sums of several register tiles of rows, all with the same columns."""
    v, step = blocking.rows[-1]
    is_whole = blocking.split_k is None and round_count(problem, blocking.inner) == 1
    return is_whole and blocking.inner[v] > step and blocking.inner[blocking.column] <= blocking.tile.columns


def terms(problem: Problem, blocking: Draft) -> tuple[Var, ...]:
    """The axes of the sum in the order in which a register tile goes through its terms, outermost first. Where each
    value of the last one lies in another line of the rows' factor, and so many lines leave the nearest cache before the
    next tap reads its neighbour there, that axis comes first."""
    if len(problem.reduced) < 2:
        return problem.reduced
    a, last, size = blocking.a, problem.reduced[-1], nbytes(blocking.a.source.dtype)
    if (
        blocking.packing[a] is not Packing.DIRECT
        or not a.is_input
        or last not in a.axes
        or abs(a.strides[last]) * size < LINE
    ):
        return problem.reduced
    taps = problem.reduced[:-1]
    has_neighbours = any(k in a.axes and blocking.inner[k] > 1 and abs(a.strides[k]) * size < LINE for k in taps)
    rows = [(count, abs(a.strides[v]) * size) for v, count in blocking.rows if v in a.axes]
    lines = math.prod(-(-count * min(apart, LINE) // LINE) for count, apart in rows)
    leaves = lines * blocking.inner[last] * LINE > NEAR
    return (last, *taps) if has_neighbours and leaves else problem.reduced


def order_of_sums(problem: Problem, blocking: Draft) -> Hashable:
    """In which order a sum takes its terms. Whole sums take all of them one after another, in rounds or not."""
    reduced, axes = problem.reduced, terms(problem, blocking)
    rounds = tuple(blocking.inner[k] for k in reduced)
    cuts = [n for n, k in enumerate(reduced) if rounds[n] < problem.extents[k]]
    is_whole = blocking.split_k in (None, 1) and blocking.lane_axis is None
    if is_whole and axes == reduced and all(n == 1 for n in rounds[: max(cuts, default=0)]):
        rounds = ()  # they go on where the ones before have ended
    numbers = tuple(map(reduced.index, axes))
    lanes = None if blocking.lane_axis is None else reduced.index(blocking.lane_axis)
    extents = tuple(problem.extents[k] for k in reduced)
    return extents, numbers, rounds, blocking.split_k or 1, lanes, blocking.run is None, blocking.taps is None


def have_same_order(parts: Sequence[tuple[Problem, Draft]], others: Sequence[tuple[Problem, Draft]]) -> bool:
    """Whether each sum takes its terms in the same order in both packing to cut up one contraction."""
    own, found = ([order_of_sums(*part) for part in of] for of in (parts, others))
    if len({*own, *found}) == 1 and own and found:
        return True
    sizes, sizes_found = ([tuple(p.extents[v] for v in p.outputs) for p, _ in of] for of in (parts, others))
    return (own, sizes) == (found, sizes_found)


def is_thread_private(problem: Problem, factor: Factor, divided: bool) -> bool:
    """Whether threads had better copy a factor each for itself; ``divided``: a thread reads a part of it, mostly."""
    count = elements(problem, factor)
    if count * nbytes(factor.source.dtype) > min(
        problem.figures.private, problem.group.machine.second_bytes // problem.figures.private_of_l2
    ):
        return False
    copy = count * (problem.figures.copy_ns + (0.0 if factor.is_input else element_cost(problem.before)))
    passed = 0.0 if divided else count * problem.figures.hand_over_ns
    return copy < copy / problem.figures.threads + passed + problem.figures.parallel_loop_ns
