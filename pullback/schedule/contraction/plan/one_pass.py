"""Few rows of a matrix that exceeds L2: a task has all of them, so that the matrix is read once.

    for task: contiguous columns
        for round: a few terms
            for register tile: acc[r, j] += Σ_k a[r, k] · b[k, j]        each piece of a line of b is read from memory
                                                                        by the first rows, from L1 or L2 by others

A piece is long enough for prefetchers to follow. The task keeps its sums from round to round, so that their order is
that of whole sums. (On two threads, of the time of packing, or of short pieces of lines for a part of the rows:
8 x 4096 x 4096 0.45, 64 x 4096 x 4096 0.61, 24 x 2000 x 2000 0.67, 64 x 1024 x 4096 0.67, 64 x 2000 x 2000 0.84,
100 x 3000 x 1000 0.92, 20 x 1500 x 3000 and 60 x 1200 x 1200 1.02.)
"""

from __future__ import annotations

from pullback.schedule.contraction.plan.blocking import Draft, Packing
from pullback.schedule.contraction.plan.counts import matrix_count, rows_of
from pullback.schedule.contraction.plan.tasks import even
from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.contraction.problem.widen import pays_to_widen
from pullback.tir import Var
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes

_LEAST_ROWS, _MOST_ROWS = 8, 128  # of fewer, each element is used so few times that all time goes into memory
# Columns and terms of a round: for few rows, whose sums are few, longer pieces, where these are whole lines of memory
# (10 x 5000 x 1000, whose lines begin anywhere: 1.16 of the time that it took before, with the other ones 0.77).
_LONG, _SHORT = (512, 32), (192, 128)
_SOME_ROWS = 24
_NARROW = 192  # columns of a task, at the least: with fewer for each thread, long sums are split instead
_APART = 1024  # bytes from line to line of the matrix: a round of shorter ones would have all of each


def is_read_once(problem: Problem, b: Factor, column: Var) -> bool:
    """Whether few rows read a large matrix where it lies."""
    is_plain = b.is_input and not b.is_window and b.strides.get(column) == 1 and not pays_to_widen(problem, b)
    if not is_plain or len(problem.reduced) != 1 or matrix_count(problem) > 1:
        return False
    size = nbytes(b.source.dtype)
    is_far = elements(problem, b) * size > 2 * problem.group.machine.second_bytes  # where two threads keep half each
    is_apart = distance(problem, b, problem.reduced[0]) * size >= _APART
    is_wide = problem.extents[column] >= problem.figures.threads * _NARROW
    return is_far and is_apart and is_wide and _LEAST_ROWS <= rows_of(problem, b) <= _MOST_ROWS


def read_once(problem: Problem, draft: Draft) -> Draft | None:
    """The rounds of a task that has all rows; None where these are not few, or are windows or packed by tasks."""
    a, b, column, figures = draft.a, draft.b, draft.column, problem.figures
    is_direct = draft.packing[b] is Packing.DIRECT and not a.is_window and not draft.has_region
    if not is_direct or not is_read_once(problem, b, column):
        return None
    (term,) = problem.reduced
    apart = distance(problem, b, term) * nbytes(b.source.dtype)
    columns, terms = _LONG if apart % LINE == 0 and rows_of(problem, b) <= _SOME_ROWS else _SHORT
    terms = min(terms, figures.l2_lines(apart) // 2)  # else they would leave the cache meanwhile
    most = max(_NARROW, min(columns, problem.extents[column] // figures.threads))
    rows = {v: problem.extents[v] for v in problem.outputs if v not in b.axes}
    width = even(problem.extents[column], most, draft.tile.columns)
    inner = {**draft.inner, **rows, column: width, term: even(problem.extents[term], terms, 1)}
    return draft.revised(inner=inner)
