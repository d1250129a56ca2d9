"""In which order a blocked contraction goes through its tasks, a register tile through its terms, and a sum through all
of its terms."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from pullback.schedule.contraction.plan.blocking import SECOND, THREADS, Blocking, matrix_count, round_count
from pullback.schedule.contraction.problem.memory import elements
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import Var
from pullback.tir.caches import LINE, NEAR
from pullback.tir.expr import nbytes

_MANY_ROWS = 1000  # that read a copy: then it does not count how long its lines take


def is_by_rows(problem: Problem, blocking: Blocking) -> bool:
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
    return columns <= rows and columns * nbytes(b.source.dtype) <= SECOND


def divides_copies(problem: Problem, blocking: Blocking) -> bool:
    """Whether threads had better divide the columns, so that each reads those panels that it copied itself: lines that
    another one wrote come slowly. Where the result's rows don't end with a line, two threads write to the one where
    their columns meet, in each row: less of these lines have to be than lines of the copy."""
    b, column = blocking.b, blocking.column
    if blocking.ways[b] != "panels" or matrix_count(problem) >= THREADS or column is not problem.outputs[-1]:
        return False
    line = LINE // nbytes(problem.anchor.dtype)
    is_even = problem.extents[column] % line == 0 == blocking.tile.columns % line
    rows = math.prod(problem.extents[v] for v in problem.outputs if v is not column)
    return rows < (_MANY_ROWS if is_even else min(_MANY_ROWS, elements(problem, b) // (2 * line)))


def _has_rows_together(problem: Problem, blocking: Blocking) -> bool:
    """Whether a task computes whole sums of several register tiles of rows, all with the same columns."""
    v, step = blocking.rows[-1]
    is_whole = blocking.chunks is None and round_count(problem, blocking.inner) == 1
    return is_whole and blocking.inner[v] > step and blocking.inner[blocking.column] <= blocking.tile.columns


def terms(problem: Problem, blocking: Blocking) -> tuple[Var, ...]:
    """The axes of the sum in the order in which a register tile goes through its terms, outermost first. Where each
    value of the last one lies in another line of the rows' factor, and so many lines leave the nearest cache before the
    next tap reads its neighbour there, that axis comes first."""
    if len(problem.reduced) < 2:
        return problem.reduced
    a, last, size = blocking.a, problem.reduced[-1], nbytes(blocking.a.source.dtype)
    if blocking.ways[a] != "direct" or not a.is_input or last not in a.axes or abs(a.strides[last]) * size < LINE:
        return problem.reduced
    taps = problem.reduced[:-1]
    has_neighbours = any(k in a.axes and blocking.inner[k] > 1 and abs(a.strides[k]) * size < LINE for k in taps)
    rows = [(count, abs(a.strides[v]) * size) for v, count in blocking.rows if v in a.axes]
    lines = math.prod(-(-count * min(apart, LINE) // LINE) for count, apart in rows)
    leaves = lines * blocking.inner[last] * LINE > NEAR
    return (last, *taps) if has_neighbours and leaves else problem.reduced


def order_of_sums(problem: Problem, blocking: Blocking) -> Hashable:
    """In which order a sum takes its terms. Whole sums take all of them one after another, in rounds or not."""
    reduced, axes = problem.reduced, terms(problem, blocking)
    rounds = tuple(blocking.inner[k] for k in reduced)
    cuts = [n for n, k in enumerate(reduced) if rounds[n] < problem.extents[k]]
    is_whole = blocking.chunks in (None, 1) and blocking.summed is None
    if is_whole and axes == reduced and all(n == 1 for n in rounds[: max(cuts, default=0)]):
        rounds = ()  # they go on where the ones before have ended
    numbers = tuple(map(reduced.index, axes))
    lanes = None if blocking.summed is None else reduced.index(blocking.summed)
    extents = tuple(problem.extents[k] for k in reduced)
    return extents, numbers, rounds, blocking.chunks or 1, lanes, blocking.run is None, blocking.taps is None


def have_same_order(parts: Sequence[tuple[Problem, Blocking]], others: Sequence[tuple[Problem, Blocking]]) -> bool:
    """Whether each sum takes its terms in the same order in both ways to cut up one contraction."""
    own, found = ([order_of_sums(*part) for part in of] for of in (parts, others))
    if len({*own, *found}) == 1 and own and found:
        return True
    sizes, sizes_found = ([tuple(p.extents[v] for v in p.outputs) for p, _ in of] for of in (parts, others))
    return (own, sizes) == (found, sizes_found)
