"""The size of a register tile, from the vector width and the number of registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pullback.tir.figures import FEW_REGISTERS

_EDGE = 0.03, 0.01  # of the time: what an edge costs at the least, and of plain products in large tiles


@dataclass(frozen=True)
class Tile:
    """``rows × columns`` accumulators; columns is a number of whole vectors, or all the columns there are."""

    rows: int
    columns: int


@dataclass(frozen=True)
class Reads:
    """How tiles read B: ``near``, from a task's copy of a window; ``again``, for several tiles of rows; ``plain``,
    with an A that is not a window either; ``far``, from beyond the second cache, with rows of A in a line or two."""

    near: bool = False
    again: bool = False
    plain: bool = False
    far: bool = False


def choose_tile(rows: int, columns: int, lanes: int, registers: int) -> Tile:
    """The tile with the least estimated time for a ``rows × columns`` result; see :func:`best_tile`."""
    return best_tile(rows, columns, lanes, registers)[1]


def best_tile(
    rows: int, columns: int, lanes: int, registers: int, most_rows: int = 16, reads: Reads | None = None
) -> tuple[float, Tile]:
    """(cycles for one term of all sums, tile) with the least estimated time for a ``rows × columns`` result.

    A step of k in a tile of m rows and v vectors takes m·v/2 cycles of multiply-adds (two units), m/2 + v/2 cycles of
    loads (two ports), and not less than 4 cycles (the latency of a chain); see :func:`_step`. m·v accumulators, v
    vectors of B and a broadcast of A must fit the registers. More than 8 rows of A are more streams than the
    prefetchers follow (measured: 14 rows reach 104 GFLOP/s where 8 reach 115), unless they lie side by side, and worth
    it where B comes from afar (8 x 256 x 14 x 14 by 256 x 3 x 3, 14 rows of an image: 0.9 of the time). Edges are more
    code, and of a few blocks they are a large part, which threads can't share evenly; a last vector that is not full is
    a mask, and no edge.
    """
    return min(tiles(rows, columns, lanes, registers, most_rows, reads), key=lambda t: t[0])


def slowness(tile: Tile, lanes: int, registers: int, reads: Reads) -> float:
    """The time of a tile, relative to one whose units multiply and add in every cycle."""
    vectors = -(-tile.columns // lanes)
    return _alone(vectors, registers, reads) * _step(tile.rows, vectors, registers, reads) / (tile.rows * vectors / 2)


def _alone(vectors: int, registers: int, reads: Reads) -> float:
    """What tiles of one vector take besides: for each multiply-add they load a broadcast, and their terms are steps of
    a loop one by one (on znver3, 16 products whose best tile seemed to be one: 0.69 to 0.96 with two or three). In
    windows, rows that lie side by side make up for it."""
    return 1.15 if reads.plain and vectors == 1 and registers <= FEW_REGISTERS else 1.0


def waits(chains: int, registers: int, plain: bool = False) -> float:
    """The time of a tile of so many accumulators, relative to one whose units always find work.

    The fewer chains there are, the more often a unit waits for one although the other has work left: ``1 + 24/c²`` with
    32 registers (measured on emeraldrapids, 240 x 256 x 192, GFLOP/s: 8 chains 128, 12 158, 16 167, 18 172, 20 173,
    24 176). In ``plain`` products tiles of fewer chains also load more for each of them from farther caches: ``36/c²``
    (68 products, most of them of 128 rows, in tiles of 24 rather than 16: 0.98 of the time, to 0.82). With 16 registers
    of 256 bits it is not seen (on znver3: 8 chains 97, 9 97, 10 98, 12 98)."""
    return 1 + (36 if plain else 24) / chains**2 if registers > FEW_REGISTERS else 1.0


def _step(rows: int, vectors: int, registers: int, reads: Reads) -> float:
    """Cycles of a step of k.

    Where it reads B again, that comes from a farther cache. With 32 registers tiles are large, and two cycles a vector
    pass meanwhile, or else are waited for: 2 rows of many reach 30 GFLOP/s. With 16 these loads are in the way (on
    znver3, 640 x 128 x 128, GFLOP/s: tiles of 6 by 2 98, 5 by 2 and 4 by 2 89, 4 by 3 84, 3 by 3 76). Near ones are
    not, but every second one lies across two lines of the cache, which takes as long for each tile (6 by 2 90, 4 by 3
    92, 4 by 2 84, 3 by 3 84). All loads take somewhat longer than two ports would (8 by 1 72 to 80, 14 by 1 77 to 84).
    Since several terms are one step of the loop, a third vector is hardly felt (in 69 products, edges apart, 4 by 3
    takes 0.97 to 1.03 of the time of 6 by 2).
    """
    chains, loads = rows * vectors, rows + vectors
    if registers > FEW_REGISTERS:
        cycles = max(chains / 2, loads / 2, 2.0 * vectors if reads.again else 0.0, 4.0)
        cycles *= waits(chains, registers, reads.plain)
    else:
        cycles = max(chains / 2, 0.57 * (rows + (1.4 if reads.near else 1.0) * vectors), 4.0)
        farther = 0.65 * min(vectors, 2) + 0.15 * max(vectors - 2, 0)
        cycles += 0.8 if reads.near else farther if reads.again else 0.0
    return cycles + 0.01 * loads  # of equal tiles that of fewer loads


def tiles(
    rows: int, columns: int, lanes: int, registers: int, most_rows: int = 16, reads: Reads | None = None
) -> Iterator[tuple[float, Tile]]:
    """(cycles for one term of all sums, tile) for each tile that fits the registers."""
    once = reads or Reads()
    again = replace(once, again=True)
    for vectors in (1, 2, 3, 4, 6, 8, 12):
        if vectors > 1 and (vectors - 1) * lanes >= columns:
            break
        if vectors > 4 and rows > 4:
            break  # where rows come again, so do the vectors of B: wide panels would leave the nearest cache
        streams = 16 if vectors == 1 or once.far else 8
        most = min((registers - vectors - 1) // vectors, streams)
        for m in range(1, min(most, most_rows, rows) + 1):
            width = min(vectors * lanes, columns) if columns < lanes else vectors * lanes
            own = again if rows > m else once
            step = functools.partial(_step, registers=registers, reads=own)
            least = _EDGE[own.plain and registers > FEW_REGISTERS]
            cycles = _alone(vectors, registers, own) * _cycles(rows, columns, m, vectors, lanes, step, least)
            yield cycles, Tile(m, width)


def _cycles(
    rows: int, columns: int, m: int, vectors: int, lanes: int, step: Callable[[int, int], float], edge: float
) -> float:
    """Cycles for one term of all sums, in tiles of m rows and so many vectors, each of which takes a ``step``."""

    def across(height: int) -> float:
        full, rest = divmod(columns, vectors * lanes)
        return full * step(height, vectors) + (step(height, -(-rest // lanes)) if rest else 0.0)

    full, rest = divmod(rows, m)
    total = full * across(m) + (across(rest) if rest else 0.0)
    mask = 1.01 if columns > lanes and columns % lanes else 1.0
    return total * _edge(rows, m, edge) * _edge(-(-columns // lanes), vectors, edge) * mask


def _edge(extent: int, size: int, least: float) -> float:
    """What an edge along an axis costs besides its terms."""
    full, rest = divmod(extent, size)
    return 1 + least + 0.1 / (full + 1) if full and rest else 1.0
