"""Long sums: divided among tasks, and matrices of long lines, which few rows read: what a task takes at a time.

A task keeps its sums from round to round, so that rounds don't change the order of a sum; parts of sums do.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.schedule.contraction.plan.blocking import (
    FEW_TILES,
    LEAVES,
    REGION_BYTES,
    SECOND,
    STREAM,
    Blocking,
    matrix_count,
    region_bytes,
    round_count,
    task_count,
    tasks_of_rows,
)
from pullback.schedule.contraction.plan.k_rounds import PANEL_ROWS, ROUND, are_near, of_panels, round_of
from pullback.schedule.contraction.plan.tasks import PARTS, TASKS, chunked, even, grow, partial_sums
from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir.expr import nbytes

_CHUNK_DEPTH = 512  # terms of a partial sum, at the least
_FEW_COPIES = 8  # tasks that copy the same elements, at the most
_OWN_ROWS = 3 / 8  # of the second cache: rows that stay there while columns pass through it (of 2 MiB, on
#   graniterapids, 1024 x 384 x 1536, GFLOP/s: 192 KiB 358, 384 380, 576 385, 768 396, 1024 391)
_MANY_TASKS = 32  # so many that threads have even shares of such blocks
_MOST_PANELS = 4  # that a task multiplies, at the most (8: 1.03 of the time)
_FAR = 2048  # bytes from line to line of a matrix, so that most are in another page
_REACH = 4096 * 1024  # bytes of a matrix of which nearly all pages are known to the TLB
_LINES = 8  # lines that prefetchers follow at a time
_OWN_SUMS = 96 * 1024  # bytes of sums that a task keeps for itself: its stack may be small


def divided(problem: Problem, blocking: Blocking) -> Blocking:
    """Few and long sums are divided into partial sums."""
    if blocking.has_region:
        return blocking
    tasks = task_count(problem, blocking.inner)
    wanted = min(-(-TASKS // tasks), problem.depth // _CHUNK_DEPTH)
    if wanted < 2 or problem.extents[problem.reduced[0]] < wanted:
        return blocking
    outer = problem.reduced[0]
    size = -(-problem.extents[outer] // wanted)
    inner = dict(blocking.inner) | {outer: size}
    return replace(blocking, inner=inner, chunks=round_count(problem, inner))


def streamed(problem: Problem, blocking: Blocking) -> Blocking:
    """Where few rows read a long matrix, a task takes it some lines at a time, for many columns: column by column it
    would jump from page to page. The sums are kept from round to round, so that their order stays the same, by the task
    itself unless they are many (8 x 4096 sums of 1024 terms, both factors lying across: 0.83 of the time)."""
    b = blocking.b
    if len(problem.reduced) != 1 or blocking.chunks is not None or blocking.ways[b] != "direct" or blocking.has_region:
        return blocking
    (term,) = problem.reduced
    rows = [v for v in problem.outputs if v not in b.axes]
    tiles = tasks_of_rows(problem, b, blocking.inner)
    line = b.strides.get(term, 0) * nbytes(b.source.dtype)
    if tiles > FEW_TILES or line < _FAR or line * problem.extents[term] < STREAM:
        return blocking
    inner = {**blocking.inner, **{v: problem.extents[v] for v in rows}, term: min(_LINES, problem.extents[term])}
    grow(problem, blocking.column, inner, blocking.ways, blocking.tile.columns, PARTS)
    sums = math.prod(inner[v] for v in problem.outputs) * nbytes(problem.anchor.dtype)
    is_longer = inner[blocking.column] >= 4 * blocking.tile.columns
    return replace(blocking, inner=inner, chunks=1 if sums > _OWN_SUMS else None) if is_longer else blocking


def is_streamed(problem: Problem, blocking: Blocking) -> bool:
    """Whether tasks take a matrix some lines at a time, as :func:`streamed` has it."""
    is_plain = blocking.chunks in (None, 1) and not blocking.has_region and not blocking.has_round
    if not is_plain or len(problem.reduced) != 1:
        return False
    return blocking.inner[problem.reduced[0]] <= _LINES and round_count(problem, blocking.inner) > 1


def rows_together(problem: Problem, blocking: Blocking) -> Blocking:
    """Where neither factor stays in the second cache, a task takes as many rows as do so for the tasks after it, whose
    columns come from farther away, and are in the first cache for all of these rows (Goto & van de Geijn 2008); or some
    panels, if columns are in such."""
    a, b = blocking.a, blocking.b
    if blocking.chunks is not None or a.is_window or b.is_window or blocking.has_region or not blocking.rows:
        return blocking
    count = matrix_count(problem)
    if min(elements(problem, f) // count * nbytes(f.source.dtype) for f in (a, b)) <= SECOND:
        return blocking
    if round_count(problem, blocking.inner) > 1 or len(blocking.rows) > 1:
        return blocking
    if are_near(problem, blocking.ways[b]):
        return _panels_together(problem, blocking)
    ((v, step),) = blocking.rows
    most = int(_OWN_ROWS * problem.group.machine.second_bytes) // (problem.depth * nbytes(a.source.dtype))
    inner = {**blocking.inner, v: max(blocking.inner[v], even(problem.extents[v], most, step))}
    return replace(blocking, inner=inner) if task_count(problem, inner) >= _MANY_TASKS else blocking


def _panels_together(problem: Problem, blocking: Blocking) -> Blocking:
    """A task multiplies a few rows with a few panels, and the one after it the next rows with the same panels, which
    stay in the second cache."""
    most, depth, tile = of_panels(problem.group.machine), problem.depth, blocking.tile.columns
    ((v, step),) = blocking.rows
    rows = min(PANEL_ROWS, most.rows // (depth * nbytes(blocking.a.source.dtype)))
    columns = min(_MOST_PANELS, most.columns // (depth * tile * nbytes(blocking.b.source.dtype))) * tile
    inner = {
        **blocking.inner,
        v: max(blocking.inner[v], even(problem.extents[v], rows, step)),
        blocking.column: even(problem.extents[blocking.column], columns, tile),
    }
    return replace(blocking, inner=inner) if task_count(problem, inner) >= _MANY_TASKS else blocking


def in_parts(problem: Problem, blocking: Blocking) -> Blocking | None:
    """Very long sums are divided among several tasks, where whole ones would leave few tasks as large as the caches
    allow. A task takes its part in rounds. Where a matrix would be copied as a whole, and a few tasks have all rows,
    each round copies its own part."""
    a, b, ways, size = blocking.a, blocking.b, blocking.ways, nbytes(blocking.b.source.dtype)
    leaves = LEAVES // 2 if a.is_window else LEAVES  # rows of a window come again for every tap
    if b.is_window or elements(problem, b) // matrix_count(problem) * size <= leaves:
        return None
    own, inner = {**ways, b: "region"}, blocking.inner
    is_copied = ways[b] == "panels" and b.windows is not None and (a.is_window or not blocking.has_region)
    if is_copied:
        parts = partial_sums(problem, blocking.rows, blocking.tile, blocking.column, own, problem.lanes)
        is_copied = tasks_of_rows(problem, b, parts) <= _FEW_COPIES and region_bytes(own, parts) <= REGION_BYTES
    if is_copied:
        ways, inner = own, parts
    elif a.is_window or blocking.has_region or problem.depth * blocking.tile.columns * size <= SECOND:
        return None
    else:
        inner = round_of(problem, blocking, 1, ROUND)
    tasks, results = task_count(problem, inner), math.prod(problem.extents[v] for v in problem.outputs)
    few = is_copied and results * nbytes(problem.anchor.dtype) <= STREAM
    chunks = min(-(-TASKS // tasks), problem.depth // (_CHUNK_DEPTH if few else 2 * _CHUNK_DEPTH))
    if chunks < 2 or chunks * tasks < PARTS:
        return None
    return chunked(problem, replace(blocking, inner=inner, ways=ways), chunks)


def jumps(problem: Problem, blocking: Blocking) -> bool:
    """Whether tiles read the rows' factor, a matrix beyond the reach of the TLB, from page to page, a part of each
    line."""
    a, size = blocking.a, nbytes(blocking.a.source.dtype)
    if blocking.ways[a] != "direct" or not a.is_input or elements(problem, a) * size <= _REACH:
        return False
    return all(distance(problem, a, k) * size >= _FAR for k in problem.reduced if k in a.axes)
