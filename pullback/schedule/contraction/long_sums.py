"""Long sums: divided among tasks, or taken in rounds of some terms, whose rows and columns stay in the caches.

A task keeps its sums from round to round, so that rounds don't change the order of a sum; parts of sums do.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.schedule.contraction.blocking import (
    FIRST,
    LARGE,
    REGION_BYTES,
    SECOND,
    STREAM,
    THREADS,
    Blocking,
    matrix_count,
    region_bytes,
    round_count,
    task_count,
    tasks_of_rows,
)
from pullback.schedule.contraction.columns import distance, elements, lanes_of
from pullback.schedule.contraction.order import divides_copies
from pullback.schedule.contraction.problem import Factor, Problem
from pullback.schedule.contraction.register_tiles import Rows
from pullback.schedule.contraction.tasks import PARTS, TASKS, chunked, enough_tasks, even, grow, partial_sums
from pullback.schedule.contraction.wide import is_worth_a_copy
from pullback.tir import Var
from pullback.tir.caches import PAGE
from pullback.tir.expr import nbytes

_CHUNK_DEPTH = 512  # terms of a partial sum, at the least
_FEW_TERMS = 256  # whose lines, each in another page, stay in it
_LEAVES = 1280 * 1024  # bytes of a matrix that leaves the second cache before its rows come again
_FEW_COPIES = 8  # tasks that copy the same elements, at the most
_ROUND_DEPTH = 128  # terms of a round of a longer one
_FEW_ROUNDS = 4  # that cost less than columns which come from the second cache for every tile
_ROUND_ROWS = 96 * 1024  # bytes that a round reads of the factor of rows
_ROUND_COLUMNS = 192 * 1024  # and of the other one
_ROUND_SUMS = 64 * 1024  # bytes of sums
_OWN_ROWS = 3 / 8  # of the second cache: rows that stay there while columns pass through it (of 2 MiB, on
#   graniterapids, 1024 x 384 x 1536, GFLOP/s: 192 KiB 358, 384 380, 576 385, 768 396, 1024 391)
_MANY_TASKS = 32  # so many that threads have even shares of such blocks
_FAR = 2048  # bytes from line to line of a matrix, so that most are in another page
_REACH = 4096 * 1024  # bytes of a matrix of which nearly all pages are known to the TLB
_APART = 256  # bytes from line to line, so that few of those that a tile reads are in one page
_COPIED_DEPTH = 256  # terms of a round that copies them
_RUN = 48  # and neighbours in memory that it copies, at the least
_READERS = 12  # rows or columns that an element is multiplied with: more make up for its copy
_FEW_TILES = 3  # of rows, that read the same column or line
_ROUND = 8  # lines that prefetchers follow at a time


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
    would jump from page to page. The sums are kept from round to round, so that their order stays the same."""
    b = blocking.b
    if len(problem.reduced) != 1 or blocking.chunks is not None or blocking.ways[b] != "direct" or blocking.has_region:
        return blocking
    (term,) = problem.reduced
    rows = [v for v in problem.outputs if v not in b.axes]
    tiles = tasks_of_rows(problem, b, blocking.inner)
    line = b.strides[term] * nbytes(b.source.dtype)
    if tiles > _FEW_TILES or line < _FAR or line * problem.extents[term] < STREAM:
        return blocking
    inner = {**blocking.inner, **{v: problem.extents[v] for v in rows}, term: min(_ROUND, problem.extents[term])}
    grow(problem, blocking.column, inner, blocking.ways, blocking.tile.columns, PARTS)
    is_longer = inner[blocking.column] >= 4 * blocking.tile.columns
    return replace(blocking, inner=inner, chunks=1) if is_longer else blocking


def is_streamed(problem: Problem, blocking: Blocking) -> bool:
    """Whether tasks take a matrix some lines at a time, as :func:`streamed` has it."""
    return blocking.chunks == 1 and not blocking.has_region and round_count(problem, blocking.inner) > 1


def in_rounds(problem: Problem, blocking: Blocking) -> Blocking:
    """A long sum takes its terms in rounds, each for as many rows and columns as let what they share stay in the
    caches. The task keeps its sums from round to round, so that their order is the same."""
    if blocking.chunks is not None or blocking.a.is_window or blocking.b.is_window or blocking.has_region:
        return blocking
    if (copying := _copying(problem, blocking)) is not None:
        return copying
    if not _is_across_pages(problem, blocking) and not _is_deep(problem, blocking):
        return blocking
    inner = _round(problem, blocking, TASKS, _ROUND_DEPTH)
    shares = any(inner[v] > step for v, step in _steps(blocking))  # else a round is of one tile: nothing to share
    return replace(blocking, inner=inner) if shares else blocking


def rows_together(problem: Problem, blocking: Blocking) -> Blocking:
    """Where neither factor stays in the second cache, a task takes as many rows as do so for the tasks after it, whose
    columns come from farther away, and are in the first cache for all of these rows (Goto & van de Geijn 2008)."""
    a, b = blocking.a, blocking.b
    if blocking.chunks is not None or a.is_window or b.is_window or blocking.has_region or not blocking.rows:
        return blocking
    count = matrix_count(problem)
    if min(elements(problem, f) // count * nbytes(f.source.dtype) for f in (a, b)) <= SECOND:
        return blocking
    if round_count(problem, blocking.inner) > 1 or len(blocking.rows) > 1:
        return blocking
    ((v, step),) = blocking.rows
    most = int(_OWN_ROWS * problem.group.machine.second_bytes) // (problem.depth * nbytes(a.source.dtype))
    inner = {**blocking.inner, v: max(blocking.inner[v], even(problem.extents[v], most, step))}
    return replace(blocking, inner=inner) if task_count(problem, inner) >= _MANY_TASKS else blocking


def in_parts(problem: Problem, blocking: Blocking) -> Blocking | None:
    """Very long sums are divided among several tasks, where whole ones would leave few tasks as large as the caches
    allow. A task takes its part in rounds. Where a matrix would be copied as a whole, and a few tasks have all rows,
    each round copies its own part."""
    a, b, ways, size = blocking.a, blocking.b, blocking.ways, nbytes(blocking.b.source.dtype)
    leaves = _LEAVES // 2 if a.is_window else _LEAVES  # rows of a window come again for every tap
    if b.is_window or elements(problem, b) // matrix_count(problem) * size <= leaves:
        return None
    own, inner = {**ways, b: "region"}, blocking.inner
    is_copied = ways[b] == "panels" and b.windows is not None and (a.is_window or not blocking.has_region)
    if is_copied:
        parts = partial_sums(problem, blocking.rows, blocking.tile, blocking.column, own, lanes_of(problem))
        is_copied = tasks_of_rows(problem, b, parts) <= _FEW_COPIES and region_bytes(own, parts) <= REGION_BYTES
    if is_copied:
        ways, inner = own, parts
    elif a.is_window or blocking.has_region or problem.depth * blocking.tile.columns * size <= SECOND:
        return None
    else:
        inner = _round(problem, blocking, 1, _ROUND_DEPTH)
    tasks, results = task_count(problem, inner), math.prod(problem.extents[v] for v in problem.outputs)
    few = is_copied and results * nbytes(problem.anchor.dtype) <= STREAM
    chunks = min(-(-TASKS // tasks), problem.depth // (_CHUNK_DEPTH if few else 2 * _CHUNK_DEPTH))
    if chunks < 2 or chunks * tasks < PARTS:
        return None
    return chunked(problem, replace(blocking, inner=inner, ways=ways), chunks)


def _steps(blocking: Blocking) -> Rows:
    """The axes of which a round covers several register tiles, with their steps."""
    return ((blocking.column, blocking.tile.columns), *blocking.rows[-1:])


def _round(problem: Problem, blocking: Blocking, least: int, most_depth: int) -> dict[Var, int]:
    """What a round of so many terms covers of each axis, if there are to be so many tasks."""
    steps = _steps(blocking)
    inner, depth = dict(blocking.inner), 1
    for k in reversed(problem.reduced):
        inner[k] = even(problem.extents[k], max(1, most_depth // depth), 1)
        depth *= inner[k]
    factors = ((blocking.b, _ROUND_COLUMNS), (blocking.a, _ROUND_ROWS))
    for (v, step), (factor, most) in zip(steps, factors, strict=False):
        inner[v] = even(problem.extents[v], most // (depth * nbytes(factor.source.dtype)), step)
    size, column = nbytes(problem.anchor.dtype), blocking.column
    narrow = max(blocking.tile.columns, problem.extents[column] // THREADS)  # enough to divide columns among threads
    if not divides_copies(problem, blocking):
        narrow = problem.extents[column]
    while task_count(problem, inner) < least or size * math.prod(inner[v] for v, _ in steps) > _ROUND_SUMS:
        v, step = max(steps, key=lambda s: inner[s[0]] // s[1])
        if inner[column] > narrow:
            v, step = steps[0]
        if inner[v] <= step:
            break
        inner[v] = even(problem.extents[v], inner[v] // 2, step)
    return inner


def _is_across_pages(problem: Problem, blocking: Blocking) -> bool:
    """Whether the rows' factor is large, and each term of a row lies in another page of it."""
    a = blocking.a
    if blocking.ways[a] != "direct" or not a.is_input or problem.depth <= _FEW_TERMS:
        return False
    size = nbytes(a.source.dtype)
    apart = min((abs(a.strides[k]) for k in problem.reduced if k in a.axes), default=0)
    return apart * size >= PAGE and math.prod(a.source.shape) * size > LARGE


def jumps(problem: Problem, blocking: Blocking) -> bool:
    """Whether tiles read the rows' factor, a matrix beyond the reach of the TLB, from page to page, a part of each
    line."""
    a, size = blocking.a, nbytes(blocking.a.source.dtype)
    if blocking.ways[a] != "direct" or not a.is_input or elements(problem, a) * size <= _REACH:
        return False
    return all(distance(problem, a, k) * size >= _FAR for k in problem.reduced if k in a.axes)


def _copying(problem: Problem, blocking: Blocking) -> Blocking | None:
    """Rounds that copy what they read of a factor from beyond the second cache, of which tiles would take a part of
    each line, from page to page; None where no copy pays."""
    a, b, ways = blocking.a, blocking.b, blocking.ways
    own = [b] if ways[b] == "direct" and _is_copied(problem, b, blocking.column) else []
    is_of_batch = ways[b] != "panels" and matrix_count(problem) > 1  # all panels at once would be as far away
    if ways[a] == "direct" or (ways[a] == "panels" and is_of_batch):
        rows = blocking.rows if len(blocking.rows) == 1 else ()
        own += [a] if _leaves_wide(problem, blocking) or any(_is_copied(problem, a, v) for v, _ in rows) else []
    if not own:
        return None
    inner = _round(problem, blocking, enough_tasks(problem), _COPIED_DEPTH)
    runs = [next(v for v in f.axes if distance(problem, f, v) == 1) for f in own]
    is_long = all(inner[v] >= min(_RUN, problem.extents[v]) for v in runs)
    return replace(blocking, inner=inner, ways={**ways, **dict.fromkeys(own, "round")}) if is_long else None


def _is_copied(problem: Problem, factor: Factor, along: Var) -> bool:
    """Whether a matrix, with such lines, is large and read often enough that copies pay."""
    if not factor.is_input or factor.strides[along] != 1:
        return False
    size = nbytes(factor.source.dtype)
    apart = min((distance(problem, factor, k) for k in problem.reduced), default=0) * size
    readers = problem.work // elements(problem, factor)
    return is_afar(problem, factor) and apart >= _APART and readers >= _READERS


def is_afar(problem: Problem, factor: Factor) -> bool:
    """Whether a matrix does not stay in the second cache."""
    size = elements(problem, factor) * nbytes(factor.source.dtype)
    return not factor.is_window and size > problem.group.machine.second_bytes


def _leaves_wide(problem: Problem, blocking: Blocking) -> bool:
    """Whether the rows' factor is of a half type, and a wide copy of it would leave the second cache."""
    a = blocking.a
    is_copied = blocking.ways[a] == "direct" and is_worth_a_copy(problem, a)
    return is_copied and elements(problem, a) * nbytes(a.dtype) > _LEAVES


def _is_deep(problem: Problem, blocking: Blocking) -> bool:
    """Whether the columns of one register tile are too much for the second cache; or for the first one, from which many
    tiles of rows read them, if they lie apart or a few rounds do."""
    b = blocking.b
    columns = problem.depth * blocking.tile.columns * nbytes(b.source.dtype)
    if columns <= FIRST or columns > SECOND:
        return columns > SECOND
    is_worth_rounds = blocking.ways[b] == "direct" or problem.depth <= _FEW_ROUNDS * _ROUND_DEPTH
    return is_worth_rounds and tasks_of_rows(problem, b, blocking.inner) > _FEW_TILES
