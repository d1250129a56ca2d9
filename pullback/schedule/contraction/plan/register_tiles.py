"""Register tiles: the accumulators of a contraction, rows of one axis or two by vectors of columns."""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.schedule.contraction.plan.blocking import Rows
from pullback.schedule.contraction.problem.memory import LEAST_RUN, adjacent_rows, distance, exceeds_l2
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.tiles import Reads, Tile, best_tile
from pullback.tir import Var
from pullback.tir.caches import PAGE
from pullback.tir.expr import nbytes


def register_tiles(problem: Problem, a: Factor, row_axes: list[Var], column: Var) -> list[tuple[Rows, Tile]]:
    """Register tiles of one axis or two, the best first; of equal ones that whose rows lie closest in memory.

    The time includes storing the results, which is dear where neither columns nor rows are contiguous. ``row_axes``
    come in the order of their distance in memory.
    """
    columns, registers = problem.extents[column], problem.group.machine.registers
    found: list[tuple[float, Rows, Tile]] = []
    for v in row_axes:
        extent = problem.extents[v]
        own = replace(reads(problem, a, extent), far=_is_far(problem, a, v))
        cycles, tile = best_tile(extent, columns, problem.lanes, registers, _most_rows(problem, a, v), own)
        rows = ((v, tile.rows),)
        found.append((cycles / extent + _store_cycles(problem, column, rows), rows, tile))
    if not found:
        found.append((0.0, (), best_tile(1, columns, problem.lanes, registers)[1]))
    best: list[tuple[Rows, Tile]] = []
    while found:
        least = min(cost for cost, _, _ in found)
        first = next(option for option in found if 0.98 * option[0] <= least)
        found.remove(first)
        best.append(_more_rows(problem, *first[1:], {column}))
    return best


def reads(problem: Problem, a: Factor, rows: int) -> Reads:
    """How tiles of a block of rows read the other factor."""
    (b,) = (f for f in problem.factors if f is not a)
    every = math.prod(problem.extents[v] for v in problem.outputs if v not in b.axes)
    return Reads(b.is_window, every > rows, plain=not (a.is_window or b.is_window))


def _is_far(problem: Problem, a: Factor, v: Var) -> bool:
    """Whether the other factor exceeds L2, while rows of a window are contiguous."""
    (b,) = (f for f in problem.factors if f is not a)
    return a.is_window and distance(problem, a, v) == 1 and exceeds_l2(problem, b)


def _most_rows(problem: Problem, a: Factor, v: Var) -> int:
    """Rows that are whole pages apart compete for the 8 ways of a set of L1 (16 rows reach 49 GFLOP/s, 8 reach 100)."""
    apart = distance(problem, a, v) * nbytes(a.source.dtype)
    return 8 if a.is_input and apart and apart % PAGE == 0 else 16


def _store_cycles(problem: Problem, column: Var, rows: Rows) -> float:
    """Cycles that storing a column of a register tile costs for each term of a sum."""
    if column is problem.outputs[-1]:
        return 0.0
    return problem.extents[column] * store_cost(problem, column, rows) / (2 * problem.lanes * problem.depth)


def store_cost(problem: Problem, column: Var, rows: Rows) -> int:
    """FMAs that storing a result costs where columns are not contiguous."""
    is_transposed = adjacent_rows(problem, column, rows) >= LEAST_RUN
    return problem.figures.transpose if is_transposed else problem.figures.gather


def _more_rows(problem: Problem, rows: Rows, tile: Tile, columns: set[Var]) -> tuple[Rows, Tile]:
    """A tile of too few accumulators to hide the latency of FMAs gets several values of one more axis."""
    chains, registers = problem.figures.latency_chains, problem.group.machine.registers
    vectors = -(-tile.columns // problem.lanes)
    taken = {*columns, *(v for v, _ in rows)}
    more = next((v for v in reversed(problem.outputs) if v not in taken), None)
    if tile.rows * vectors >= chains or more is None:
        return rows, tile
    extent = problem.extents[more]
    if not rows:
        count = min(extent, -(-chains // vectors))
        return ((more, count),), Tile(count, tile.columns)
    whole = all(problem.extents[v] == count for v, count in rows)
    counts = range(2, min(chains, extent) + 1)
    fitting = [
        c for c in counts if c * (tile.rows + 1) * vectors < registers and (whole or extent % c == 0)
    ]  # fmt: skip
    if not fitting:
        return rows, tile
    enough = [c for c in fitting if c * tile.rows * vectors >= chains] or fitting[-1:]
    count = next((c for c in enough if extent % c == 0), enough[0])
    return _joined(problem, more, count, rows), Tile(count * tile.rows, tile.columns)


def _joined(problem: Problem, v: Var, count: int, rows: Rows) -> Rows:
    """One more axis of rows. Only the last axis may have a remainder, so that one must come after all others."""
    return ((v, count), *rows) if problem.extents[v] % count == 0 else (*rows, (v, count))
