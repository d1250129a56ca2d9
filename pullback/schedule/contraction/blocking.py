"""How a contraction is cut up: the vector axis, the register tile, and what one task does.

The choice is analytical: it depends on sizes, strides, the width of vectors and the number of registers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pullback.schedule.contraction.columns import (
    columns_of,
    cost_along,
    distance,
    elements,
    lanes_of,
    moves,
    region_shape,
)
from pullback.schedule.contraction.problem import Factor, Problem, memory_strides
from pullback.schedule.contraction.register_tiles import Rows, reads, register_tiles, store_cost
from pullback.schedule.contraction.wide import is_worth_a_copy
from pullback.schedule.tiles import Tile, slowness
from pullback.tir import Var
from pullback.tir.caches import LINE, PAGE
from pullback.tir.expr import nbytes
from pullback.tir.pairs import DTYPE

REGION_BYTES = 64 * 1024  # of data that a task copies or computes for itself: it is to stay in the nearer caches
_MOST_REGION_BYTES = 192 * 1024  # before sums are cut into parts
_TASKS = 16  # as many as let a few threads share the work evenly
_PARTS = 8  # tasks, where each of them costs partial sums
_CHUNK_DEPTH = 512  # terms of a partial sum, at the least
_FIRST = 32 * 1024  # bytes of columns that stay in the first cache
SECOND = 384 * 1024  # and in the second one
_FEW_TERMS = 256  # that lines in other pages stay in that for
_LARGE = 1024 * 1024  # bytes of a matrix that does not
_LEAVES = 1280 * 1024  # of one that leaves the second cache before its rows come again
_FEW_COPIES = 8  # tasks that copy the same elements, at the most
_ROUND_DEPTH = 128  # terms of a round of a longer one
_FEW_ROUNDS = 4  # that cost less than columns which come from the second cache for every tile
_ROUND_ROWS = 96 * 1024  # bytes that a round reads of the factor of rows
_ROUND_COLUMNS = 192 * 1024  # and of the other one
_ROUND_SUMS = 64 * 1024  # bytes of sums
_OWN_ROWS = 192 * 1024  # bytes of rows that stay in the second cache while columns pass through it
_MANY_TASKS = 64  # so many that threads have even shares of such blocks
_FEW = 16  # terms that take no longer than to put sums away and take them up again
_SETS = 64 * 1024  # bytes from one line of a set of the second cache to the next one, at the least
_WAYS = {64: 16}  # lines that a set holds, by the bytes of a vector: CPUs with narrower ones have smaller caches
_FEW_WAYS = 8
_NEAR = 16 * 1024  # bytes that stay in the nearest cache
STREAM = 256 * 1024  # bytes of a matrix that does not stay in the nearer caches
_FAR = 2048  # bytes from line to line of it, so that each is in another page
_FEW_ROWS = 24  # that read the same column
_SOME_ROWS = 128  # likewise
_SOME_LINES = 128  # of rows side by side, one for each term: their rest leaves the nearest cache before it is read
# What makes panels pay: bytes from line to line, so that prefetchers lose the way and most of each line is not used;
# bytes of all matrices, or of each where tiles are small, which wait for lines while larger ones still multiply; and
# rows that read the same.
_PANELS_PAY = (1024, _LARGE, 256)
_PANELS_PAY_SMALL_TILES = (256, 128 * 1024, 140)
_FEW_TILES = 3  # and the same line
_ROUND = 8  # lines that prefetchers follow at a time
_COPY = 8  # multiply-adds in the time that one element takes to be copied into a region
_TO_PANELS = 8  # and to be copied into panels of rows
_KEEP = 4  # and in which one partial sum is kept and taken up again
_BETTER = 0.9  # of the time along an axis: what another one must take to be preferred, as it is roughly known


@dataclass(frozen=True, eq=False)
class Blocking:
    """``a`` is read along rows, ``b`` along ``column``, the axis of vectors.

    ``inner`` says how many values of an axis one task (or, for an axis of the sum, one round of a task) covers. A task
    keeps its sums from round to round. With ``chunks``, the rounds are divided among that many partial sums, which a
    second loop adds up.
    """

    column: Var
    a: Factor
    b: Factor
    rows: Rows  # axes of the register tile with their number of rows, outermost first
    tile: Tile
    ways: Mapping[Factor, str]  # direct: read from memory; region, round: a task's own copy, that of a round of terms;
    #   else copied as a whole before: panels: in blocks of the tile's columns or rows; turned: its rows innermost
    inner: Mapping[Var, int]
    chunks: int | None

    @property
    def has_region(self) -> bool:
        return "region" in self.ways.values()

    @staticmethod
    def of(problem: Problem) -> Blocking | None:
        """The blocking of a problem, or None when it would be a bad one."""
        known, key = problem.group.known, ("blocking", problem)
        if key not in known:
            known[key] = Blocking._of(problem)
        blocking: Blocking | None = known[key]
        return blocking

    @staticmethod
    def _of(problem: Problem) -> Blocking | None:
        columns = columns_of(problem, lanes_of(problem))
        best = Blocking._along(problem, columns[0]) if columns else None
        if best is None or not _is_doubtful(problem, best):
            return best
        others = [b for b in (Blocking._along(problem, v) for v in columns[1:]) if b is not None]
        other = min((b for b in others if _is_steady(problem, b)), key=lambda b: _cost(problem, b), default=best)
        better = 1.0 if problem.group.machine.has_small_tiles else _BETTER
        is_better = not _is_steady(problem, best) or _cost(problem, other) < better * _cost(problem, best)
        return other if is_better else best

    @staticmethod
    def _along(problem: Problem, column: Var) -> Blocking | None:
        """The blocking whose vectors lie along this axis."""
        machine, lanes = problem.group.machine, lanes_of(problem)
        a, b = _roles(problem, column)
        ways = {f: _way(f, column) for f in (a, b)}
        if ways[b] == "direct" and not b.is_window and (is_worth_a_copy(problem, b) or _is_apart(problem, b)):
            ways[b] = "panels"
        row_axes = [v for v in problem.outputs if v in a.axes and v not in b.axes]
        if not row_axes and ways[b] != "direct" and not b.is_window:
            return None  # a matrix times a vector: sums along the rows of memory need no transposed copy
        row_axes = sorted(row_axes, key=lambda v: (distance(problem, a, v), -row_axes.index(v)))
        tilings = register_tiles(problem, a, row_axes, column, lanes, machine)
        own = ways | {b: "region"}
        found = _fitting(problem, tilings, column, own, lanes) if _is_read_once(problem, b, ways[b]) else None
        if found is not None and _tasks_of_rows(problem, b, found[-1]) == 1:
            ways = own
        else:
            found = _fitting(problem, tilings, column, ways, lanes)
        rows, tile, inner = found or (*tilings[0], None)
        is_one = ways[a] == "direct" and len(rows) == 1  # axis, of which panels can be made
        if _is_scattered(problem, a, rows):  # tiles of few rows read but a part of each line of a matrix that is turned
            ways[a] = "panels" if is_one and machine.has_small_tiles else "turned"
        elif is_one and (_is_apart(problem, a) or _leaves_nearest(problem, a)):
            ways[a] = "panels"
        parts = Blocking(column, a, b, rows, tile, ways, _partial_sums(problem, rows, tile, column, ways, lanes), None)
        whole = parts if inner is None else replace(parts, inner=inner)
        if (shared := _in_parts(problem, whole)) is not None:
            return shared
        if inner is None and (a.is_window or b.is_window or problem.group.fallback):
            return _chunked(problem, parts)
        if inner is None:
            return None  # what comes before the sum is better kept in memory than computed again and again
        if _is_better_in_parts(problem, whole, parts):
            return _chunked(problem, parts)
        return _rows_together(problem, _in_rounds(problem, _streamed(problem, _divided(problem, whole))))


def _is_doubtful(problem: Problem, blocking: Blocking) -> bool:
    """Whether another axis of vectors may well be better: how fast the tile is along each counts where it is small."""
    is_good = _is_steady(problem, blocking) and not _copies_again(problem, blocking)
    return not is_good or problem.group.machine.has_small_tiles


def _is_steady(problem: Problem, blocking: Blocking) -> bool:
    """Whether the sums are not put away and taken up again after a few terms already, time and again."""
    terms = math.prod(blocking.inner[k] for k in problem.reduced)
    return terms >= min(_FEW, problem.depth) or rounds(problem, blocking.inner) <= (blocking.chunks or 1)


def _copies_again(problem: Problem, blocking: Blocking) -> bool:
    """Whether tasks copy the same elements of a window into their regions so often that it counts."""
    copied = {f: n for f, n in _copies(problem, blocking).items() if f.is_window}
    return moves(problem).turn * sum(n - elements(problem, f) for f, n in copied.items()) > problem.work / 10


def _cost(problem: Problem, blocking: Blocking) -> float:
    """Time with these vectors, relative to a perfect one: here it is known how often tasks copy the same elements."""
    column, tile, lanes, machine = blocking.column, blocking.tile, lanes_of(problem), problem.group.machine
    store = store_cost(problem, column, blocking.rows)
    cost = cost_along(problem, column, lanes, store, _copies(problem, blocking))
    if machine.has_small_tiles:
        if blocking.ways[blocking.a] == "panels":
            cost *= 1 + _TO_PANELS * elements(problem, blocking.a) / problem.work
        cost *= slowness(tile, lanes, machine.registers, reads(problem, blocking.a, tile.rows, machine))
    return cost


def _roles(problem: Problem, column: Var) -> tuple[Factor, Factor]:
    first, second = problem.factors
    if column in first.axes and column in second.axes:
        smaller = math.prod(first.source.shape) < math.prod(second.source.shape)
        return (second, first) if smaller else (first, second)
    return (second, first) if column in first.axes else (first, second)


def _way(factor: Factor, column: Var) -> str:
    if column not in factor.axes:
        if factor.dtype == DTYPE and not factor.is_input and not factor.is_window:
            return "turned"  # pairs are made once
        return "direct" if factor.is_input else "region"
    if factor.is_input and factor.strides[column] == 1:
        return "direct"
    return "region" if factor.is_window else "panels"


def _is_apart(problem: Problem, factor: Factor) -> bool:
    """Whether the lines that a register tile reads of a matrix where it lies are so far apart that panels pay, in which
    one follows on the other: because they compete for a few sets of the second cache, as lines whole powers of two
    apart do (measured, of 1024 x 1024: 42 GFLOP/s, in panels 70), or because each is in another page of many (of
    1000 x 1000, transposed: 77, in panels 130)."""
    if factor.is_window or not factor.is_input:
        return False
    terms, size = [k for k in problem.reduced if k in factor.axes], nbytes(factor.source.dtype)
    apart = min((abs(factor.strides[k]) for k in terms), default=0) * size
    lines, count = math.prod(problem.extents[k] for k in terms), elements(problem, factor)
    ways = _WAYS.get(problem.group.machine.vector_bytes, _FEW_WAYS)
    if lines > ways * _SETS // math.gcd(_SETS, apart):
        return problem.work >= _FEW_ROWS * count
    is_small = problem.group.machine.has_small_tiles
    far, large, rows = _PANELS_PAY_SMALL_TILES if is_small else _PANELS_PAY
    own = count * size // (_matrices(problem) if is_small else 1)
    return apart >= far and own > large and problem.work >= rows * count


def _matrices(problem: Problem) -> int:
    """How many there are of each factor, one for each product of the batch or of the groups."""
    return math.prod(problem.extents[v] for v in problem.outputs if all(v in f.axes for f in problem.factors))


def _leaves_nearest(problem: Problem, a: Factor) -> bool:
    """Whether rows lie side by side, so that each term is in another line of the cache, and too many of these come
    before the next rows take the rest of them. Tiles of 16 registers are so small that they feel it (measured on
    znver3, 128 x 1024 x 256: 69 GFLOP/s, in panels 84)."""
    if a.is_window or not a.is_input or not problem.group.machine.has_small_tiles:
        return False
    terms, size = [k for k in problem.reduced if k in a.axes], nbytes(a.source.dtype)
    apart = min((abs(a.strides[k]) for k in terms), default=0) * size
    lines = math.prod(problem.extents[k] for k in terms)
    return LINE <= apart < PAGE and lines >= _SOME_LINES and problem.work >= _SOME_ROWS * elements(problem, a)


def _is_read_once(problem: Problem, b: Factor, way: str) -> bool:
    """Whether so few rows read a large matrix that each task should copy its own part of it."""
    rows = math.prod(problem.extents[v] for v in problem.outputs if v not in b.axes)
    large = math.prod(b.source.shape) * nbytes(b.source.dtype) > STREAM
    return way == "panels" and b.windows is not None and large and rows <= _FEW_ROWS


def _tasks_of_rows(problem: Problem, b: Factor, inner: Mapping[Var, int]) -> int:
    """How many tasks read the same of ``b``."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs if v not in b.axes)


def _is_scattered(problem: Problem, a: Factor, rows: Rows) -> bool:
    """Whether each term of each row lies in a line of its own, and so many lines come before the first is read again
    that they leave the nearest cache: so are the weights of a convolution, where vectors lie along the image."""
    term = next((k for k in reversed(problem.reduced) if k in a.axes), None)
    own = [(v, count) for v, count in rows if v in a.axes]
    if term is None or not own or not a.is_input or a.is_window:
        return False
    step = min(a.strides[term], a.strides[own[-1][0]])
    between = math.prod(count for _, count in own) * problem.extents[term]
    near = between * min(step * nbytes(a.source.dtype), LINE) <= _NEAR
    return step > 1 and not near and problem.work >= moves(problem).move * elements(problem, a)


# -- what a task covers


def region_bytes(ways: Mapping[Factor, str], inner: Mapping[Var, int]) -> int:
    """Bytes of all regions of a task."""
    regions = [f for f, way in ways.items() if way == "region"]
    return sum(math.prod(region_shape(f, inner)) * nbytes(f.source.dtype) for f in regions)


def _least(
    problem: Problem, rows: Rows, tile: Tile, column: Var, ways: Mapping[Factor, str], lanes: int
) -> dict[Var, int]:
    """One register tile, or as many as that whole vectors can be copied into the regions."""
    inner = dict.fromkeys(problem.outputs, 1) | dict(rows) | {column: min(tile.columns, problem.extents[column])}
    for factor in (f for f, way in ways.items() if way == "region"):
        for v in _neighbours(problem, factor):
            if v in inner:
                inner[v] = min(problem.extents[v], -(-lanes // inner[v]) * inner[v])
    return inner


def _tasks(problem: Problem, inner: Mapping[Var, int]) -> int:
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs)


def _whole_sums(
    problem: Problem, rows: Rows, tile: Tile, column: Var, ways: Mapping[Factor, str], lanes: int
) -> dict[Var, int] | None:
    """Tasks that compute whole sums; None where the regions would not fit."""
    inner = _least(problem, rows, tile, column, ways, lanes) | {k: problem.extents[k] for k in problem.reduced}
    regions = [f for f, way in ways.items() if way == "region"]
    if not regions:
        return inner
    if region_bytes(ways, inner) > _MOST_REGION_BYTES:
        return None
    for v in _growth(problem, regions):
        _grow(problem, v, inner, ways, dict(rows).get(v, 1) if v is not column else tile.columns)
    return inner


def _is_better_in_parts(problem: Problem, whole: Blocking, parts: Blocking) -> bool:
    """Whether so many tasks copy the same elements that partial sums of a few terms take less, without them."""
    if not (whole.a.is_window or whole.b.is_window) or _parts(problem, parts.inner) < _PARTS:
        return False
    kept = math.prod(problem.extents[v] for v in problem.outputs) * rounds(problem, parts.inner)
    saved = _COPY * (_copied(problem, whole) - _copied(problem, parts)) - _KEEP * kept
    return saved > problem.work / 10


def _copies(problem: Problem, blocking: Blocking) -> dict[Factor, int]:
    """Elements of each region that all tasks copy, in all rounds."""
    regions = [f for f, way in blocking.ways.items() if way == "region"]
    return {f: math.prod(region_shape(f, blocking.inner)) * _parts(problem, blocking.inner) for f in regions}


def _copied(problem: Problem, blocking: Blocking) -> int:
    """Elements that all tasks copy, in all rounds."""
    return sum(_copies(problem, blocking).values())


def _fitting(
    problem: Problem, tilings: list[tuple[Rows, Tile]], column: Var, ways: Mapping[Factor, str], lanes: int
) -> tuple[Rows, Tile, dict[Var, int]] | None:
    """The best register tile whose tasks compute whole sums, and what these cover: one whose regions stay in the nearer
    caches, if there is one."""
    first: tuple[Rows, Tile, dict[Var, int]] | None = None
    for rows, tile in tilings:
        inner = _whole_sums(problem, rows, tile, column, ways, lanes)
        if inner is not None and region_bytes(ways, inner) <= REGION_BYTES:
            return rows, tile, inner
        if inner is not None and first is None:
            first = rows, tile, inner
    return first


def _growth(problem: Problem, regions: list[Factor]) -> list[Var]:
    """The axes that cost no region first, then the others, innermost first."""
    free = [v for v in problem.outputs if not any(v in f.axes for f in regions)]
    return [*free, *(v for v in reversed(problem.outputs) if v not in free)]


def _grow(
    problem: Problem, v: Var, inner: dict[Var, int], ways: Mapping[Factor, str], step: int, least: int = _TASKS
) -> None:
    """Let a task, or a round of it, cover as much of the axis as regions and the number of those allow, in even
    blocks."""
    count = _tasks if v in problem.outputs else _parts
    extent, most = problem.extents[v], max(REGION_BYTES, region_bytes(ways, inner))
    windows = [w for f, way in ways.items() if way == "region" for w in f.windows or ()]
    backwards = any(w.terms.get(v, 0) < 0 for w in windows)

    def size(blocks: int) -> int:
        return min(extent, -(-extent // blocks // step) * step)

    def fits(blocks: int) -> bool:
        grown = inner | {v: size(blocks)}
        return region_bytes(ways, grown) <= most and count(problem, grown) >= least

    numbers = range(1, -(-extent // step) + 1)
    for blocks in numbers[bisect_left(numbers, True, key=fits) :]:  # if few enough fit, then more do
        if not backwards or extent % size(blocks) == 0:  # a last, shorter block would begin before the source does
            inner[v] = max(size(blocks), inner[v])
            return


def _partial_sums(
    problem: Problem, rows: Rows, tile: Tile, column: Var, ways: Mapping[Factor, str], lanes: int
) -> dict[Var, int]:
    """Tasks that compute parts of sums, in rounds of as many terms as their regions hold."""
    inner = _least(problem, rows, tile, column, ways, lanes) | dict.fromkeys(problem.reduced, 1)
    regions = [f for f, way in ways.items() if way == "region"]
    free = [v for v in problem.outputs if not any(v in f.axes for f in regions)]
    shared = [  # an axis that moves in the same index as an axis of the sum hardly enlarges a region
        v for v in problem.outputs
        if v not in free and any(v in w.terms and len(w.terms) > 1 for f in regions for w in f.windows or ())
    ]  # fmt: skip
    others = [v for v in problem.outputs if v not in free and v not in shared]
    for v in [*shared, *free]:
        _grow(problem, v, inner, ways, dict(rows).get(v, 1) if v is not column else tile.columns, 1)
    taps = [  # likewise
        k for k in problem.reduced
        if any(k in w.terms and len(w.terms) > 1 for f in regions for w in f.windows or ())
    ]  # fmt: skip
    for k in reversed(taps):
        _grow(problem, k, inner, ways, 1, 1)
    for k in reversed([k for k in problem.reduced if k not in taps]):
        _grow(problem, k, inner, ways, 1, _PARTS)
    for v in others:
        _grow(problem, v, inner, ways, inner[v], min(4, _tasks(problem, inner)))
    return inner


def _neighbours(problem: Problem, factor: Factor) -> Collection[Var]:
    """The axes that move from an element of the source to its neighbour in memory."""
    strides = memory_strides(problem.group, factor.source)
    assert factor.windows is not None
    return factor.windows[min(range(len(strides)), key=strides.__getitem__)].terms.keys()


def _parts(problem: Problem, inner: Mapping[Var, int]) -> int:
    """Tasks, if each round is one."""
    return _tasks(problem, inner) * rounds(problem, inner)


def rounds(problem: Problem, inner: Mapping[Var, int]) -> int:
    """How many rounds the whole sums take."""
    return math.prod(-(-problem.extents[k] // inner[k]) for k in problem.reduced)


def _chunked(problem: Problem, blocking: Blocking, most: int = _TASKS) -> Blocking:
    """Enough partial sums, of ``most`` at the most, that there are tasks for a few threads."""
    total = rounds(problem, blocking.inner)
    wanted = -(-_TASKS // _tasks(problem, blocking.inner))
    chunks = max(1, min(total, wanted, most))
    chunks = -(-total // -(-total // chunks))  # the same number of rounds in each, the last one apart
    return replace(blocking, chunks=chunks)


def _divided(problem: Problem, blocking: Blocking) -> Blocking:
    """Few and long sums are divided into partial sums."""
    if blocking.has_region:
        return blocking
    tasks = _tasks(problem, blocking.inner)
    wanted = min(-(-_TASKS // tasks), problem.depth // _CHUNK_DEPTH)
    if wanted < 2 or problem.extents[problem.reduced[0]] < wanted:
        return blocking
    outer = problem.reduced[0]
    size = -(-problem.extents[outer] // wanted)
    inner = dict(blocking.inner) | {outer: size}
    return replace(blocking, inner=inner, chunks=rounds(problem, inner))


def _streamed(problem: Problem, blocking: Blocking) -> Blocking:
    """Where few rows read a long matrix, a task takes it some lines at a time, for many columns: column by column it
    would jump from page to page. The sums are kept from round to round, so that their order stays the same."""
    b = blocking.b
    if len(problem.reduced) != 1 or blocking.chunks is not None or blocking.ways[b] != "direct" or blocking.has_region:
        return blocking
    (term,) = problem.reduced
    rows = [v for v in problem.outputs if v not in b.axes]
    tiles = _tasks_of_rows(problem, b, blocking.inner)
    line = b.strides[term] * nbytes(b.source.dtype)
    if tiles > _FEW_TILES or line < _FAR or line * problem.extents[term] < STREAM:
        return blocking
    inner = {**blocking.inner, **{v: problem.extents[v] for v in rows}, term: min(_ROUND, problem.extents[term])}
    _grow(problem, blocking.column, inner, blocking.ways, blocking.tile.columns, _PARTS)
    is_longer = inner[blocking.column] >= 4 * blocking.tile.columns
    return replace(blocking, inner=inner, chunks=1) if is_longer else blocking


def _in_rounds(problem: Problem, blocking: Blocking) -> Blocking:
    """A long sum takes its terms in rounds, each for as many rows and columns as let what they share stay in the
    caches. The task keeps its sums from round to round, so that their order is the same."""
    if blocking.chunks is not None or blocking.a.is_window or blocking.b.is_window or blocking.has_region:
        return blocking
    a, is_wide = blocking.a, _leaves_wide(problem, blocking)
    if not is_wide and not _is_across_pages(problem, blocking) and not _is_deep(problem, blocking):
        return blocking
    inner = _round(problem, blocking, _TASKS)
    shares = any(inner[v] > step for v, step in _steps(blocking))  # else a round is of one tile: nothing to share
    ways = {**blocking.ways, a: "round"} if is_wide else blocking.ways
    return replace(blocking, inner=inner, ways=ways) if shares else blocking


def _rows_together(problem: Problem, blocking: Blocking) -> Blocking:
    """Where neither factor stays in the second cache, a task takes as many rows as do so for the tasks after it, whose
    columns come from farther away, and are in the first cache for all of these rows (Goto & van de Geijn 2008)."""
    a, b = blocking.a, blocking.b
    if blocking.chunks is not None or a.is_window or b.is_window or blocking.has_region or not blocking.rows:
        return blocking
    count = _matrices(problem)
    if min(elements(problem, f) // count * nbytes(f.source.dtype) for f in (a, b)) <= SECOND:
        return blocking
    if rounds(problem, blocking.inner) > 1 or len(blocking.rows) > 1:
        return blocking
    ((v, step),) = blocking.rows
    most = _OWN_ROWS // (problem.depth * nbytes(a.source.dtype))
    inner = {**blocking.inner, v: max(blocking.inner[v], _even(problem.extents[v], most, step))}
    return replace(blocking, inner=inner) if _tasks(problem, inner) >= _MANY_TASKS else blocking


def _in_parts(problem: Problem, blocking: Blocking) -> Blocking | None:
    """Very long sums are divided among several tasks, where whole ones would leave few tasks as large as the caches
    allow. A task takes its part in rounds. Where a matrix would be copied as a whole, and a few tasks have all rows,
    each round copies its own part."""
    a, b, ways, size = blocking.a, blocking.b, blocking.ways, nbytes(blocking.b.source.dtype)
    leaves = _LEAVES // 2 if a.is_window else _LEAVES  # rows of a window come again for every tap
    if b.is_window or elements(problem, b) // _matrices(problem) * size <= leaves:
        return None
    own, inner = {**ways, b: "region"}, blocking.inner
    is_copied = ways[b] == "panels" and b.windows is not None and (a.is_window or not blocking.has_region)
    if is_copied:
        parts = _partial_sums(problem, blocking.rows, blocking.tile, blocking.column, own, lanes_of(problem))
        is_copied = _tasks_of_rows(problem, b, parts) <= _FEW_COPIES and region_bytes(own, parts) <= REGION_BYTES
    if is_copied:
        ways, inner = own, parts
    elif a.is_window or blocking.has_region or problem.depth * blocking.tile.columns * size <= SECOND:
        return None
    else:
        inner = _round(problem, blocking, 1)
    tasks, results = _tasks(problem, inner), math.prod(problem.extents[v] for v in problem.outputs)
    few = is_copied and results * nbytes(problem.anchor.dtype) <= STREAM
    chunks = min(-(-_TASKS // tasks), problem.depth // (_CHUNK_DEPTH if few else 2 * _CHUNK_DEPTH))
    if chunks < 2 or chunks * tasks < _PARTS:
        return None
    return _chunked(problem, replace(blocking, inner=inner, ways=ways), chunks)


def _steps(blocking: Blocking) -> Rows:
    """The axes of which a round covers several register tiles, with their steps."""
    return ((blocking.column, blocking.tile.columns), *blocking.rows[-1:])


def _round(problem: Problem, blocking: Blocking, least: int) -> dict[Var, int]:
    """What a round covers of each axis, if there are to be so many tasks."""
    steps = _steps(blocking)
    inner, depth = dict(blocking.inner), 1
    for k in reversed(problem.reduced):
        inner[k] = _even(problem.extents[k], max(1, _ROUND_DEPTH // depth), 1)
        depth *= inner[k]
    factors = ((blocking.b, _ROUND_COLUMNS), (blocking.a, _ROUND_ROWS))
    for (v, step), (factor, most) in zip(steps, factors, strict=False):
        inner[v] = _even(problem.extents[v], most // (depth * nbytes(factor.source.dtype)), step)
    size = nbytes(problem.anchor.dtype)
    while _tasks(problem, inner) < least or size * math.prod(inner[v] for v, _ in steps) > _ROUND_SUMS:
        v, step = max(steps, key=lambda s: inner[s[0]] // s[1])
        if inner[v] <= step:
            break
        inner[v] = _even(problem.extents[v], inner[v] // 2, step)
    return inner


def _is_across_pages(problem: Problem, blocking: Blocking) -> bool:
    """Whether the rows' factor is large, and each term of a row lies in another page of it."""
    a = blocking.a
    if blocking.ways[a] != "direct" or not a.is_input or problem.depth <= _FEW_TERMS:
        return False
    size = nbytes(a.source.dtype)
    apart = min((abs(a.strides[k]) for k in problem.reduced if k in a.axes), default=0)
    return apart * size >= PAGE and math.prod(a.source.shape) * size > _LARGE


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
    if columns <= _FIRST or columns > SECOND:
        return columns > SECOND
    is_worth_rounds = blocking.ways[b] == "direct" or problem.depth <= _FEW_ROUNDS * _ROUND_DEPTH
    return is_worth_rounds and _tasks_of_rows(problem, b, blocking.inner) > _FEW_TILES


def _even(extent: int, most: int, step: int) -> int:
    """The size of even blocks of about ``most`` at the most, each a number of steps."""
    blocks = -(-extent // max(step, most))
    return min(extent, -(-extent // (blocks * step)) * step)
