"""Sums in lanes: vectors along an axis of the sum, where those of the result are short.

    acc[r, c][lane] = Σ_k a[r, lanes·k + lane] · b[c, lanes·k + lane],     out[r, c] = Σ_lane acc[r, c][lane]

The gradient of a few channels' weights, as that of groups, has axes of 3, 4 or 7 values, and sums over an image whose
rows are contiguous in both factors: lanes are idle at the end of a row only, and nothing is transposed. Of a matrix
times one of a few columns, the first is so, and each task transposes what it reads of the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pullback.schedule.contraction.plan.blocking import Draft, Packing, Rows
from pullback.schedule.contraction.plan.counts import copies, matrix_count, part_count, region_bytes, task_count
from pullback.schedule.contraction.plan.split_k import is_better_split, with_split_k
from pullback.schedule.contraction.plan.tasks import PARTS, enough_tasks, fitting, moves_with_others, partial_sums
from pullback.schedule.contraction.problem.memory import distance, elements
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.tiles import Tile, waits
from pullback.tir import Var
from pullback.tir.expr import is_half, nbytes

_MOST = 8  # values of an axis in a register tile
_BETTER = 0.9  # of the time of whole sums: what partial sums must take
_ALL = 1.2  # calibration of the whole estimate


def in_lanes(problem: Problem) -> Draft | None:
    """The best blocking whose vector axis is one of the sum, if there is one."""
    summed = _lane_axis(problem)
    if summed is None:
        return None
    a, b = problem.factors
    best = min(_tiles(problem, a, b, problem.extents[summed]), key=lambda option: option[0], default=None)
    if best is None:
        return None
    _, rows, column, tile = best
    if column in a.axes:
        a, b = b, a
    is_direct = {f: f.is_input and _is_contiguous(problem, f, summed) for f in (a, b)}
    packing = {f: Packing.DIRECT if direct else Packing.REGION for f, direct in is_direct.items()}
    inner = partial_sums(problem, rows, tile, column, packing, 1) | {summed: problem.extents[summed]}
    if region_bytes(packing, inner) > problem.figures.most_region:
        return None
    partial = Draft(column, a, b, rows, tile, packing, inner, lane_axis=summed)
    split, enough = with_split_k(problem, partial), enough_tasks(problem)
    found = fitting(problem, [(rows, tile)], column, packing, 1, enough)
    if found is None:
        return split
    whole, parts = partial.revised(inner=found[-1]), part_count(problem, inner)
    again = [f for f in (a, b) if _is_read_again(problem, f, {**dict(rows), column: tile.columns})]
    data = sum(elements(problem, f) * nbytes(f.source.dtype) for f in again) // matrix_count(problem)
    if data > problem.group.machine.second_bytes // 2:  # every tile would read it all from farther away
        return split if parts >= PARTS else None
    tasks = task_count(problem, whole.inner)
    if is_better_split(problem, whole, partial) or tasks < min(parts, enough):
        return split
    is_cheaper = lane_cost(problem, split) < _BETTER * lane_cost(problem, whole)
    return split if is_cheaper and 2 * parts >= min(tasks, enough) else whole


def _lane_axis(problem: Problem) -> Var | None:
    """An axis of the sum, of more than half a vector, along which both factors are contiguous, or one is and the other
    is a matrix that can be transposed."""
    lanes = problem.lanes
    long = [k for k in reversed(problem.reduced) if 2 * problem.extents[k] > lanes > 1]
    lying = {k: [f for f in problem.factors if _is_contiguous(problem, f, k)] for k in long}
    both = next((k for k in long if len(lying[k]) == 2), None)
    one = (k for k in long if lying[k] and all(f in lying[k] or _can_be_transposed(f, k) for f in problem.factors))
    return both if both is not None else next(one, None)


def _is_contiguous(problem: Problem, factor: Factor, k: Var) -> bool:
    if not _is_plain(factor):
        return False
    if factor.windows is None:
        return factor.strides.get(k) == 1
    return [w.terms[k] for w in factor.windows if k in w.terms] == [1] and distance(problem, factor, k) == 1


def _can_be_transposed(factor: Factor, k: Var) -> bool:
    """Whether a task's packed copy of it can be contiguous along the axis."""
    is_matrix = factor.is_input and factor.windows is not None and not factor.is_window
    return is_matrix and _is_plain(factor) and k in factor.axes


def _is_plain(factor: Factor) -> bool:
    return not is_half(factor.source.dtype) and factor.dtype == factor.source.dtype


def _is_read_again(problem: Problem, factor: Factor, tile: Mapping[Var, int]) -> bool:
    """Whether several tiles read the same of it; neighbouring taps do of windows."""
    others = (v for v in problem.outputs if v not in factor.axes)
    return factor.is_window or any(tile.get(v, 1) < problem.extents[v] for v in others)


class _Block(NamedTuple):
    """So many values of an axis in a register tile: how many reads of each factor they take, how many of the reads are
    of lines of their own, and how much longer the axis takes as its last block is not full."""

    axis: Var
    size: int
    reads: tuple[int, int]
    lines: tuple[int, int]
    idle: float

    @staticmethod
    def of(problem: Problem, axis: Var, count: int) -> _Block:
        a, b = problem.factors
        extent = problem.extents[axis]
        reads = count if axis in a.axes else 1, count if axis in b.axes else 1
        # Windows of neighbouring taps are in the same lines, or in those that another row left in L1.
        lines = 1 if moves_with_others(a, axis) else reads[0], 1 if moves_with_others(b, axis) else reads[1]
        return _Block(axis, count, reads, lines, -(-extent // count) * count / extent)


def _tiles(problem: Problem, a: Factor, b: Factor, row: int) -> Iterator[tuple[float, Rows, Var, Tile]]:
    """(cycles of a multiply-add, rows, column, tile) of the register tiles of up to three axes, each of one factor."""
    own = [v for v in problem.outputs if (v in a.axes) != (v in b.axes)]
    blocks = {v: [_Block.of(problem, v, n) for n in _even_counts(problem.extents[v])] for v in own}
    for column in own:
        others = [v for v in own if v is not column]
        for axes in (rows for size in range(3) for rows in itertools.combinations(others, size)):
            # Only the last axis of rows may have a remainder.
            whole = [[n for n in blocks[v] if v is axes[-1] or n.idle == 1] for v in axes]
            for numbers in itertools.product(*whole, blocks[column]):
                cycles = _cycles(problem, numbers, row)
                if cycles is not None:
                    *rows, columns = ((block.axis, block.size) for block in numbers)
                    yield cycles, tuple(rows), column, Tile(math.prod(n for _, n in rows), columns[1])


def _even_counts(extent: int) -> list[int]:
    """The sizes of even blocks of an axis."""
    most = min(extent, _MOST)
    return sorted({-(-extent // -(-extent // n)) for n in range(1, most + 1)})


def _cycles(problem: Problem, blocks: Iterable[_Block], row: int) -> float | None:
    """Of the multiply-add of a vector, in a tile of these blocks, of ``row`` terms side by side; None where it does not
    fit."""
    figures, registers = problem.figures, problem.group.machine.registers
    of_a = of_b = lines_of_a = lines_of_b = 1
    idle = 1.0
    for block in blocks:
        of_a, of_b = of_a * block.reads[0], of_b * block.reads[1]
        lines_of_a, lines_of_b = lines_of_a * block.lines[0], lines_of_b * block.lines[1]
        idle *= block.idle
    chains = of_a * of_b
    if chains + min(of_a, of_b) + 1 > registers:
        return None
    lines = figures.lane_line_cycles[row < figures.lane_long] * (lines_of_a + lines_of_b)
    time = max(chains / 2, figures.lane_unaligned * (of_a + of_b) / 2, lines, 4.0) * waits(chains, registers)
    return time / chains * idle


def lane_cost(problem: Problem, draft: Draft) -> float:
    """Time relative to a perfect contraction."""
    assert draft.lane_axis is not None
    extent, tile, figures = problem.extents[draft.lane_axis], draft.tile, problem.figures
    vectors = -(-extent // problem.lanes)
    blocks = [_Block.of(problem, v, n) for v, n in (*draft.rows, (draft.column, tile.columns))]
    cycles = _cycles(problem, blocks, extent)
    assert cycles is not None
    each = cycles + figures.lane_row_cycles / (vectors * tile.rows * tile.columns)
    cost = 2 * each * vectors * problem.lanes / extent
    rows = math.prod(draft.inner[k] for k in problem.reduced) / extent
    cost *= 1 + figures.lane_total / (rows * vectors)
    packing = sum(
        count * (figures.pack if _is_contiguous(problem, f, draft.lane_axis) else figures.transpose)
        for f, count in copies(problem, draft.packing, draft.inner).items()
    )
    return _ALL * (cost + packing / problem.work)
