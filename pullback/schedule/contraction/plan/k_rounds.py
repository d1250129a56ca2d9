"""K-blocking: a task takes some terms of a long sum at a time, a round, for as many rows and columns as let what these
share stay in the caches, and spills its sums from round to round (Goto & van de Geijn 2008). Their order stays the
same.
"""

from __future__ import annotations

import math

from pullback.schedule.contraction.figures import KBlock
from pullback.schedule.contraction.plan.blocking import Draft, Packing, Rows
from pullback.schedule.contraction.plan.counts import FEW_TILES, matrix_count, round_count, task_count, tasks_of_rows
from pullback.schedule.contraction.plan.tasks import TASKS, even
from pullback.schedule.contraction.problem.memory import elements, exceeds_l2
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Var
from pullback.tir.caches import PAGE
from pullback.tir.expr import nbytes

_PANEL_ROWS = 64  # that a task multiplies with panels of columns, at the most
_MANY_TASKS = 32  # so many that threads have even shares of such blocks
_MOST_PANELS = 4  # that a task multiplies, at the most (8: 1.03 of the time)


def _of_panels(problem: Problem) -> KBlock:
    """Limits where columns come in panels from L2, which holds some of them beside the rows: the more terms a round
    has, the fewer are the spills (1024 x 1024 x 8192: 0.88 of the time of 128 terms)."""
    l2 = problem.group.machine.second_bytes
    return KBlock(l2 // 1024, l2 * 5 // 8, l2 // 4, problem.figures.stack_sums)


def k_blocked(problem: Problem, draft: Draft) -> Draft:
    """A long sum takes its terms in rounds, each for as many rows and columns as let what they share stay in the
    caches."""
    if draft.split_k is not None or draft.a.is_window or draft.b.is_window or draft.has_region:
        return draft
    if not _is_across_pages(problem, draft) and not _is_deep(problem, draft):
        return draft
    inner = round_of(problem, draft, TASKS, _limits(problem, draft))
    shares = any(inner[v] > step for v, step in _steps(draft))  # else a round is of one tile: nothing to share
    return draft.revised(inner=inner) if shares else draft


def _limits(problem: Problem, draft: Draft) -> KBlock:
    """Those of long panels, if columns are in such and rows do not cross a page with each term."""
    is_of_panels = _are_in_l2(problem, draft.packing[draft.b]) and _column_bytes(problem, draft) > problem.figures.l2
    is_long = is_of_panels and not _is_across_pages(problem, draft)
    return _of_panels(problem) if is_long else problem.figures.k_block


def round_of(problem: Problem, draft: Draft, least: int, most: KBlock) -> dict[Var, int]:
    """What a round covers of each axis: not ``most``, nor so much that there are less than ``least`` tasks."""
    steps = _steps(draft)
    inner, depth = dict(draft.inner), 1
    for k in reversed(problem.reduced):
        inner[k] = even(problem.extents[k], max(1, most.depth // depth), 1)
        depth *= inner[k]
    factors = ((draft.b, most.columns), (draft.a, most.rows))
    for (v, step), (factor, limit) in zip(steps, factors, strict=False):
        inner[v] = even(problem.extents[v], limit // (depth * nbytes(factor.dtype)), step)
    size = nbytes(problem.anchor.dtype)
    while task_count(problem, inner) < least or size * math.prod(inner[v] for v, _ in steps) > most.sums:
        v, step = max(steps, key=lambda s: inner[s[0]] // s[1])
        if inner[v] <= step:
            break
        inner[v] = even(problem.extents[v], inner[v] // 2, step)
    return inner


def _steps(draft: Draft) -> Rows:
    """The axes of which a round covers several register tiles, with their steps."""
    return ((draft.column, draft.tile.columns), *draft.rows[-1:])


def is_far_matrix(problem: Problem, factor: Factor) -> bool:
    """Whether a matrix does not stay in L2."""
    return not factor.is_window and exceeds_l2(problem, factor)


def _is_across_pages(problem: Problem, draft: Draft) -> bool:
    """Whether the rows' factor is large, and each term of a row is in another page of it."""
    a, figures = draft.a, problem.figures
    if draft.packing[a] is not Packing.DIRECT or not a.is_input or problem.depth <= figures.tlb_pages:
        return False
    size = nbytes(a.source.dtype)
    apart = min((abs(a.strides[k]) for k in problem.reduced if k in a.axes), default=0)
    return apart * size >= PAGE and math.prod(int(n) for n in a.source.shape) * size > figures.large


def _are_in_l2(problem: Problem, scheme: Packing) -> bool:
    """Whether columns are read in panels that come from L2: those of a single product, with tiles that have so much to
    compute meanwhile."""
    return scheme is Packing.PANELS and matrix_count(problem) == 1


def _column_bytes(problem: Problem, draft: Draft) -> int:
    """Of the columns of one register tile."""
    return problem.depth * draft.tile.columns * nbytes(draft.b.source.dtype)


def _is_deep(problem: Problem, draft: Draft) -> bool:
    """Whether the columns of one register tile exceed L2, or those of two panels beside some rows; or L1, from which
    many tiles of rows read them, if they lie apart or a few rounds do."""
    b, columns, figures = draft.b, _column_bytes(problem, draft), problem.figures
    if columns > figures.l2 and _are_in_l2(problem, draft.packing[b]):
        rows = problem.depth * _PANEL_ROWS * nbytes(draft.a.source.dtype)
        return 2 * columns + rows > problem.group.machine.second_bytes
    if columns <= figures.l1 or columns > figures.l2:
        return columns > figures.l2
    few = figures.panel_rounds * figures.k_block.depth
    is_worth_rounds = draft.packing[b] is Packing.DIRECT or problem.depth <= few
    return is_worth_rounds and tasks_of_rows(problem, b, draft.inner) > FEW_TILES


def rows_together(problem: Problem, draft: Draft) -> Draft:
    """Where neither factor stays in L2, a task takes as many rows as do so for the tasks after it, whose columns come
    from farther away, and are in L1 for all of these rows (Goto & van de Geijn 2008); or some panels, if columns are in
    such."""
    a, b = draft.a, draft.b
    if draft.split_k is not None or a.is_window or b.is_window or draft.has_region or len(draft.rows) != 1:
        return draft
    count = matrix_count(problem)
    smaller = min(elements(problem, f) // count * nbytes(f.source.dtype) for f in (a, b))
    if smaller <= problem.figures.l2 or round_count(problem, draft.inner) > 1:
        return draft
    ((v, step),) = draft.rows
    inner, row_bytes = dict(draft.inner), problem.depth * nbytes(a.source.dtype)
    if _are_in_l2(problem, draft.packing[b]):  # the task after it has the next rows, and the same panels
        most, tile = _of_panels(problem), draft.tile.columns
        rows = min(_PANEL_ROWS, most.rows // row_bytes)
        panels = min(_MOST_PANELS, most.columns // (problem.depth * tile * nbytes(b.source.dtype)))
        inner[draft.column] = even(problem.extents[draft.column], panels * tile, tile)
    else:
        rows = int(problem.figures.rows_of_l2 * problem.group.machine.second_bytes) // row_bytes
    inner[v] = max(draft.inner[v], even(problem.extents[v], rows, step))
    return draft.revised(inner=inner) if task_count(problem, inner) >= _MANY_TASKS else draft
