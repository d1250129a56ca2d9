"""What one task covers: as many register tiles as let its regions stay in L1 and L2, and threads have even shares.

A task computes whole sums where the regions of their factors fit, else partial sums, in rounds of some terms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from pullback.schedule.contraction.plan.blocking import Packing, Packings, Rows, packed
from pullback.schedule.contraction.plan.counts import part_count, region_bytes, task_count
from pullback.schedule.contraction.problem.memory import memory_strides
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.tiles import Tile
from pullback.tir import Var

TASKS = 16  # that let a few threads share the work evenly
PARTS = 8  # tasks, where each costs partial sums


def enough_tasks(problem: Problem) -> int:
    """As many as let a few threads share the work evenly; fewer where they would be short."""
    return max(problem.figures.threads, min(TASKS, int(problem.nanoseconds / problem.figures.short_task_ns)))


def fitting(
    problem: Problem,
    tilings: list[tuple[Rows, Tile]],
    column: Var,
    packing: Packings,
    lanes: int,
    least: int = TASKS,
) -> tuple[Rows, Tile, dict[Var, int]] | None:
    """The best register tile whose tasks compute whole sums, and what these cover: the first whose regions stay in L1
    and L2, else the first that fits at all. ``lanes``: of the vectors that pack regions; ``least``: tasks."""
    first: tuple[Rows, Tile, dict[Var, int]] | None = None
    for rows, tile in tilings:
        inner = _whole_sums(problem, rows, tile, column, packing, lanes, least)
        if inner is not None and region_bytes(packing, inner) <= problem.figures.region:
            return rows, tile, inner
        if inner is not None and first is None:
            first = rows, tile, inner
    return first


def _whole_sums(
    problem: Problem, rows: Rows, tile: Tile, column: Var, packing: Packings, lanes: int, least: int
) -> dict[Var, int] | None:
    """Tasks that compute whole sums; None where the regions would not fit."""
    figures = problem.figures
    inner = _least(problem, rows, tile, column, packing, lanes) | {k: problem.extents[k] for k in problem.reduced}
    regions = packed(packing, Packing.REGION)
    if not regions:
        return inner
    if region_bytes(packing, inner) > figures.most_region:
        return None
    for v in _growth(problem, regions):
        # Blocks that share no elements cost nothing where they are small, and stay where they were packed.
        is_apart = not any(moves_with_others(f, v) for f in regions)
        step = dict(rows).get(v, 1) if v is not column else tile.columns
        grow(problem, v, inner, packing, step, least, figures.l1 if is_apart else figures.region)
    return inner


def _least(problem: Problem, rows: Rows, tile: Tile, column: Var, packing: Packings, lanes: int) -> dict[Var, int]:
    """One register tile, or as many as let whole vectors be packed into the regions."""
    inner = dict.fromkeys(problem.outputs, 1) | dict(rows) | {column: min(tile.columns, problem.extents[column])}
    for factor in packed(packing, Packing.REGION):
        for v in _neighbours(problem, factor):
            if v in inner:
                inner[v] = min(problem.extents[v], -(-lanes // inner[v]) * inner[v])
    return inner


def _growth(problem: Problem, regions: list[Factor]) -> list[Var]:
    """The axes that cost no region first, then the others, innermost first: not those of a batch, whose products share
    nothing, if regions are of matrices."""
    free = [v for v in problem.outputs if not any(v in f.axes for f in regions)]
    others = [v for v in reversed(problem.outputs) if v not in free]
    if not any(f.is_window for f in regions):
        others = [v for v in others if not all(v in f.axes for f in problem.factors)]
    return [*free, *others]


def grow(
    problem: Problem,
    v: Var,
    inner: dict[Var, int],
    packing: Packings,
    step: int,
    least: int,
    near: int | None = None,
) -> None:
    """Let a task, or a round of it, cover as much of the axis as regions and the number of tasks allow, in even blocks.
    ``near``: bytes of regions, if not as many as stay near enough."""
    count = task_count if v in problem.outputs else part_count
    extent, most = problem.extents[v], max(near or problem.figures.region, region_bytes(packing, inner))
    windows = [w for f in packed(packing, Packing.REGION) for w in f.windows or ()]
    backwards = any(w.terms.get(v, 0) < 0 for w in windows)

    def size(blocks: int) -> int:
        return min(extent, -(-extent // blocks // step) * step)

    def fits(blocks: int) -> bool:
        grown = inner | {v: size(blocks)}
        return region_bytes(packing, grown) <= most and count(problem, grown) >= least

    numbers = range(1, -(-extent // step) + 1)
    for blocks in numbers[bisect_left(numbers, True, key=fits) :]:  # if few enough fit, then more do
        if not backwards or extent % size(blocks) == 0:  # a last, shorter block would begin before the source does
            inner[v] = max(size(blocks), inner[v])
            return


def partial_sums(
    problem: Problem, rows: Rows, tile: Tile, column: Var, packing: Packings, lanes: int
) -> dict[Var, int]:
    """Tasks that compute partial sums, in rounds of as many terms as their regions hold."""
    inner = _least(problem, rows, tile, column, packing, lanes) | dict.fromkeys(problem.reduced, 1)
    regions = packed(packing, Packing.REGION)
    free = [v for v in problem.outputs if not any(v in f.axes for f in regions)]
    # An axis that moves in the same index as another one hardly enlarges a region.
    shared = [v for v in problem.outputs if v not in free and any(moves_with_others(f, v) for f in regions)]
    others = [v for v in problem.outputs if v not in free and v not in shared]
    for v in [*shared, *free]:
        grow(problem, v, inner, packing, dict(rows).get(v, 1) if v is not column else tile.columns, 1)
    _grow_sums(problem, regions, inner, packing)
    for v in others:
        grow(problem, v, inner, packing, inner[v], min(4, task_count(problem, inner)))
    return inner


def _grow_sums(problem: Problem, regions: Collection[Factor], inner: dict[Var, int], packing: Packings) -> None:
    """As many terms in a round as the regions hold, taps first, which hardly enlarge them."""
    taps = [k for k in problem.reduced if any(moves_with_others(f, k) for f in regions)]
    for k in reversed(taps):
        grow(problem, k, inner, packing, 1, 1)
    for k in reversed([k for k in problem.reduced if k not in taps]):
        grow(problem, k, inner, packing, 1, PARTS)


def _neighbours(problem: Problem, factor: Factor) -> Collection[Var]:
    """The axes that move from an element of the source to its neighbour in memory."""
    strides = memory_strides(problem.group, factor.source)
    assert factor.windows is not None
    return factor.windows[min(range(len(strides)), key=strides.__getitem__)].terms.keys()


def moves_with_others(factor: Factor, v: Var) -> bool:
    """Whether the axis moves in the same index of the source as another one."""
    return any(v in w.terms and len(w.terms) > 1 for w in factor.windows or ())


def even(extent: int, most: int, step: int) -> int:
    """The size of even blocks of about ``most`` at the most, each a number of steps."""
    blocks = -(-extent // max(step, most))
    return min(extent, -(-extent // (blocks * step)) * step)
