"""Rounds: a task takes some terms of a long sum at a time, for as many rows and columns as let what these share stay in
the caches, and keeps its sums from round to round (Goto & van de Geijn 2008). So their order stays the same.

What a round reads of a matrix from beyond the second cache it copies, if tiles would take a part of each line; not so
where the first cache holds whole lines of both matrices.
"""

from __future__ import annotations

import math
from functools import partial

from pullback.schedule.contraction.figures import KBlock
from pullback.schedule.contraction.plan.blocking import Draft, Packing, Rows
from pullback.schedule.contraction.plan.counts import FEW_TILES, matrix_count, round_count, task_count, tasks_of_rows
from pullback.schedule.contraction.plan.packing import is_one_vector
from pullback.schedule.contraction.plan.task_order import divides_copies
from pullback.schedule.contraction.plan.tasks import TASKS, enough_tasks, even
from pullback.schedule.contraction.problem.memory import distance, elements, exceeds_l2
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.contraction.problem.widen import pays_to_widen
from pullback.tir import Var
from pullback.tir.caches import PAGE
from pullback.tir.expr import nbytes

PANEL_ROWS = 64  # which a task multiplies with columns in panels, at the most
_APART = 256  # bytes from line to line, so that few of those that a tile reads are in one page
_RUN = 48  # neighbours in memory that a copy takes at a time, at the least
# Terms of a round of whole lines, at the least: for fewer, to put sums away and take them up again costs more than
# copies do, and than lines that are read again and again from farther caches.
_FEW_LINES = 16, 32
_MANY_TASKS = 32  # so many that threads have even shares of such blocks
_MOST_PANELS = 4  # that a task multiplies, at the most (8: 1.03 of the time)


def of_panels(problem: Problem) -> KBlock:
    """Limits where columns come in panels from the second cache, which holds some of them beside the rows: the more
    terms a round has, the fewer times are sums taken up (1024 x 1024 x 8192: 0.88 of the time of 128 terms)."""
    second = problem.group.machine.second_bytes
    return KBlock(second // 1024, second * 5 // 8, second // 4, problem.figures.stack_sums)


def k_blocked(problem: Problem, blocking: Draft) -> Draft:
    """A long sum takes its terms in rounds, each for as many rows and columns as let what they share stay in the
    caches. The task keeps its sums from round to round, so that their order is the same."""
    if blocking.split_k is not None or blocking.a.is_window or blocking.b.is_window or blocking.has_region:
        return blocking
    copying, whole = _copying(problem, blocking), _of_whole_lines(problem, blocking)
    if whole is not None and whole.inner[problem.reduced[0]] >= _FEW_LINES[copying is None]:
        return whole
    if copying is not None:
        return copying
    if not _is_across_pages(problem, blocking) and not _is_deep(problem, blocking):
        return blocking
    inner = round_of(problem, blocking, TASKS, _limits(problem, blocking))
    shares = any(inner[v] > step for v, step in _steps(blocking))  # else a round is of one tile: nothing to share
    return blocking.revised(inner=inner) if shares else blocking


def _limits(problem: Problem, blocking: Draft) -> KBlock:
    """Those of long panels, if columns are in such and rows do not cross a page with each term."""
    is_of_panels = (
        are_near(problem, blocking.packing[blocking.b]) and _column_bytes(problem, blocking) > problem.figures.l2
    )
    is_long = is_of_panels and not _is_across_pages(problem, blocking)
    return of_panels(problem) if is_long else problem.figures.k_block


def round_of(problem: Problem, blocking: Draft, least: int, most: KBlock) -> dict[Var, int]:
    """What a round covers of each axis: not ``most``, nor so much that there are less than ``least`` tasks."""
    steps = _steps(blocking)
    inner, depth = dict(blocking.inner), 1
    for k in reversed(problem.reduced):
        inner[k] = even(problem.extents[k], max(1, most.depth // depth), 1)
        depth *= inner[k]
    factors = ((blocking.b, most.columns), (blocking.a, most.rows))
    for (v, step), (factor, limit) in zip(steps, factors, strict=False):
        inner[v] = even(problem.extents[v], limit // (depth * nbytes(factor.dtype)), step)
    size, column = nbytes(problem.anchor.dtype), blocking.column
    narrow = max(
        blocking.tile.columns, problem.extents[column] // problem.figures.threads
    )  # enough to divide columns among threads
    if not divides_copies(problem, blocking):
        narrow = problem.extents[column]
    while task_count(problem, inner) < least or size * math.prod(inner[v] for v, _ in steps) > most.sums:
        v, step = max(steps, key=lambda s: inner[s[0]] // s[1])
        if inner[column] > narrow:
            v, step = steps[0]
        if inner[v] <= step:
            break
        inner[v] = even(problem.extents[v], inner[v] // 2, step)
    return inner


def _steps(blocking: Draft) -> Rows:
    """The axes of which a round covers several register tiles, with their steps."""
    return ((blocking.column, blocking.tile.columns), *blocking.rows[-1:])


def _copying(problem: Problem, blocking: Draft) -> Draft | None:
    """Rounds that copy what they read of factors that tiles would read a part of each line of, from page to page; None
    where no copy pays."""
    a, b, packing = blocking.a, blocking.b, blocking.packing
    own = [b] if is_copied_in_rounds(problem, b, blocking.column, packing[b]) else []
    is_of_batch = packing[b] is not Packing.PANELS and matrix_count(problem) > 1
    plain = (
        (Packing.DIRECT, Packing.PANELS) if is_of_batch else (Packing.DIRECT,)
    )  # all panels of a batch would be as far away
    rows = blocking.rows if len(blocking.rows) == 1 and packing[a] in plain else ()
    both = problem.figures.rounds_of_both
    if both:  # others had better stay where they are (8 x 639 x 85 of 509 terms: 0.85)
        rows = tuple((v, step) for v, step in rows if is_one_vector(step))
    if _leaves_wide(problem, blocking) or any(is_copied_in_rounds(problem, a, v, Packing.DIRECT) for v, _ in rows):
        own.append(a)
    if not own:
        return None
    if both and b not in own and is_copied_in_rounds(problem, b, blocking.column, packing[b], is_beside=True):
        own.append(b)
    inner = round_of(
        problem, blocking, max(problem.figures.threads, enough_tasks(problem) // 2), problem.figures.packed_k_block
    )  # larger ones copy less
    runs = [min(f.axes, key=partial(distance, problem, f)) for f in own]
    is_long = all(inner[v] >= min(_RUN, problem.extents[v]) for v in runs)
    return blocking.revised(inner=inner, packing={**packing, **dict.fromkeys(own, Packing.ROUND)}) if is_long else None


def _of_whole_lines(problem: Problem, blocking: Draft) -> Draft | None:
    """Rounds of as many terms as the first cache holds lines of both factors, if these are whole lines of matrices: so
    memory is read as it comes, and nothing copied (on znver3, of the time with copies, 14 x 128 x 128 sums of 512 terms
    0.74, 26 x 14 x 263 of 356 terms 0.72; without any, 50 x 40 x 40 of 300 terms 0.74, 64 x 64 x 64 of 64 0.79). None
    where there are too many sums. With large tiles nobody measured it."""
    if len(problem.reduced) != 1 or not problem.figures.whole_lines:
        return None
    (k,), factors, extents = problem.reduced, (blocking.a, blocking.b), problem.extents
    lines = {v: f for f in factors for v in problem.outputs if v in f.axes and f.strides[v] == 1}
    are_whole = all(f.strides.get(k) == extents[v] for v, f in lines.items()) and {*lines.values()} == {*factors}
    are_read = all(f.is_input and f.dtype == f.source.dtype for f in factors)
    sums = math.prod(extents[v] for v in lines) * nbytes(problem.anchor.dtype)
    if len(lines) != 2 or not are_whole or not are_read or sums > problem.figures.whole_line_sums:
        return None
    terms = problem.figures.l1 // sum(extents[v] * nbytes(f.source.dtype) for v, f in lines.items())
    inner = {**blocking.inner, **{v: extents[v] for v in lines}, k: even(extents[k], terms, 1)}
    if task_count(problem, inner) < enough_tasks(problem) // 2:
        return None
    return blocking.revised(inner=inner, packing={**blocking.packing, **dict.fromkeys(factors, Packing.DIRECT)})


def is_copied_in_rounds(problem: Problem, factor: Factor, along: Var, scheme: Packing, is_beside: bool = False) -> bool:
    """Whether a factor, whose tiles lie along this axis, had better be copied round by round than read in this way: it
    is large, its lines lie apart, and it is read often enough. Panels are better, but for those of a large batch.

    ``is_beside``: a copy of the other one. Then it need not be large: both have so many lines that those of columns
    leave the nearest cache, unless one follows on the other (2 x 280 x 93 of 240 terms: 0.72 of the time)."""
    if are_near(problem, scheme):
        return False
    if (
        scheme not in (Packing.DIRECT, Packing.PANELS)
        or not factor.is_input
        or factor.is_window
        or factor.strides.get(along) != 1
    ):
        return False
    size = nbytes(factor.source.dtype)
    apart = min((distance(problem, factor, k) for k in problem.reduced), default=0) * size
    readers, terms = problem.figures.round_readers, problem.figures.round_terms
    if apart < _APART or problem.work <= readers * elements(problem, factor) or problem.depth < terms:
        return False
    if scheme is Packing.DIRECT:
        return is_beside or is_far_matrix(problem, factor)
    return elements(problem, factor) * size > problem.figures.l3_batch


def is_far_matrix(problem: Problem, factor: Factor) -> bool:
    """Whether a matrix does not stay in the second cache."""
    return not factor.is_window and exceeds_l2(problem, factor)


def _leaves_wide(problem: Problem, blocking: Draft) -> bool:
    """Whether the rows' factor is of a half type, and a wide copy of it would leave the second cache."""
    a = blocking.a
    is_copied = blocking.packing[a] is Packing.DIRECT and pays_to_widen(problem, a)
    return is_copied and elements(problem, a) * nbytes(a.dtype) > problem.figures.leaves_l2


def _is_across_pages(problem: Problem, blocking: Draft) -> bool:
    """Whether the rows' factor is large, and each term of a row lies in another page of it."""
    a = blocking.a
    if blocking.packing[a] is not Packing.DIRECT or not a.is_input or problem.depth <= problem.figures.tlb_pages:
        return False
    size = nbytes(a.source.dtype)
    apart = min((abs(a.strides[k]) for k in problem.reduced if k in a.axes), default=0)
    return apart * size >= PAGE and math.prod(a.source.shape) * size > problem.figures.large


def are_near(problem: Problem, scheme: Packing) -> bool:
    """Whether columns are read in panels that come from the second cache: those of a single product, with large tiles,
    which have so much to compute meanwhile (of the time of rounds that copy, 2048 x 2048 x 2048 0.80, 1000 x 1500 x
    2000 0.90; the gradient of 768 x 3072 weights 0.78). With small tiles it is all one (znver3, 15 products: 1.00)."""
    return scheme is Packing.PANELS and matrix_count(problem) == 1 and problem.figures.panels_in_l2


def _column_bytes(problem: Problem, blocking: Draft) -> int:
    """Of the columns of one register tile."""
    return problem.depth * blocking.tile.columns * nbytes(blocking.b.source.dtype)


def _is_deep(problem: Problem, blocking: Draft) -> bool:
    """Whether the columns of one register tile are too much for the second cache, or those of two in panels beside some
    rows; or for the first one, from which many tiles of rows read them, if they lie apart or a few rounds do."""
    b, columns = blocking.b, _column_bytes(problem, blocking)
    if columns > problem.figures.l2 and are_near(problem, blocking.packing[b]):
        rows = problem.depth * PANEL_ROWS * nbytes(blocking.a.source.dtype)
        return 2 * columns + rows > problem.group.machine.second_bytes
    if columns <= problem.figures.l1 or columns > problem.figures.l2:
        return columns > problem.figures.l2
    few = problem.figures.panel_rounds
    is_worth_rounds = blocking.packing[b] is Packing.DIRECT or problem.depth <= few * problem.figures.k_block.depth
    return is_worth_rounds and tasks_of_rows(problem, b, blocking.inner) > FEW_TILES


def rows_together(problem: Problem, blocking: Draft) -> Draft:
    """Where neither factor stays in the second cache, a task takes as many rows as do so for the tasks after it, whose
    columns come from farther away, and are in the first cache for all of these rows (Goto & van de Geijn 2008); or some
    panels, if columns are in such."""
    a, b = blocking.a, blocking.b
    if blocking.split_k is not None or a.is_window or b.is_window or blocking.has_region or not blocking.rows:
        return blocking
    count = matrix_count(problem)
    if min(elements(problem, f) // count * nbytes(f.source.dtype) for f in (a, b)) <= problem.figures.l2:
        return blocking
    if round_count(problem, blocking.inner) > 1 or len(blocking.rows) > 1:
        return blocking
    if are_near(problem, blocking.packing[b]):
        return _panels_together(problem, blocking)
    ((v, step),) = blocking.rows
    most = int(problem.figures.rows_of_l2 * problem.group.machine.second_bytes) // (
        problem.depth * nbytes(a.source.dtype)
    )
    inner = {**blocking.inner, v: max(blocking.inner[v], even(problem.extents[v], most, step))}
    return blocking.revised(inner=inner) if task_count(problem, inner) >= _MANY_TASKS else blocking


def _panels_together(problem: Problem, blocking: Draft) -> Draft:
    """A task multiplies a few rows with a few panels, and the one after it the next rows with the same panels, which
    stay in the second cache."""
    most, depth, tile = of_panels(problem), problem.depth, blocking.tile.columns
    ((v, step),) = blocking.rows
    rows = min(PANEL_ROWS, most.rows // (depth * nbytes(blocking.a.source.dtype)))
    columns = min(_MOST_PANELS, most.columns // (depth * tile * nbytes(blocking.b.source.dtype))) * tile
    inner = {
        **blocking.inner,
        v: max(blocking.inner[v], even(problem.extents[v], rows, step)),
        blocking.column: even(problem.extents[blocking.column], columns, tile),
    }
    return blocking.revised(inner=inner) if task_count(problem, inner) >= _MANY_TASKS else blocking
