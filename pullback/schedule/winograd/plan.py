"""Which contractions are filters, and how they are blocked.

A filter's data are read in windows of three along each axis: ``data[y + i]``, y a long axis and i a tap. Either the
taps are summed (a convolution, or its gradient by the data), and tiles of two y give two results of three terms; or y
is summed (the gradient by the weights), and tiles of two y are two terms of each of the three results i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pullback.schedule.contraction.plan.blocking import Packing
from pullback.schedule.contraction.plan.choice import blocking_of
from pullback.schedule.contraction.plan.cost import time
from pullback.schedule.contraction.plan.counts import region_bytes
from pullback.schedule.contraction.plan.tails import split_tails
from pullback.schedule.contraction.plan.vector_axis import vector_axis_cost
from pullback.schedule.contraction.problem.memory import distance
from pullback.schedule.contraction.problem.phases import phases
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.cost import worth_threads
from pullback.schedule.tiles import Tile, choose_tile, waits
from pullback.schedule.winograd.algebra import POINTS
from pullback.tir import Var
from pullback.tir.expr import nbytes

_TAPS = 3
_MOST_AXES = 2  # 64 points, those of three axes, are more values than registers ever hold
# Multiply-adds in the time that a vector of one point costs beside its own, if it lies in a row and if it has to be
# turned round: of anything; and of data and of a result where squares are turned in half of the time and results stored
# in pairs, with 16 registers (64 x 16x32x32 by 16x3x3: 0.83 of the plain sum's time, forward and both gradients).
_MOVES = 8, 12
_DATA_BY_FEW_REGISTERS, _RESULT_BY_FEW_REGISTERS = (4, 5), (6, 8)
_GATHER = 1  # cycles to read a weight, which lie apart in memory
_GAIN = 0.95  # of the plain contraction's time: what a filter must be better than
_ENOUGH_TILES = 512  # in all, below which what comes once for all of them, or for a task, takes longer than is known
_GAIN_OF_FEW = 0.6  # then (14 filters of fewer, emeraldrapids: 0.88 of the time as plain contractions, 0.72 to 1.09)
_LOCAL_BYTES = 128 * 1024  # of a task's transformed data and products
_BUFFER_BYTES = 192 * 1024  # of one local buffer, at most
_SHARED_BYTES = 1024 * 1024  # of what all tasks, or rounds, read again: the transformed weights, or the sums
_SHARED_BY_FEW_REGISTERS = 4 * 1024 * 1024  # of weights, where a task multiplies long for each byte that comes from L3
_GOOD_TILES = 16  # of a task: what comes once for each task is small beside them
_MANY_TILES = 64  # in all, that make up for weights which go to L3 and come back
_LEAST_TILES = 4
_LEAST_SUMMED = 128  # tiles of a partial sum, so that adding up is little work beside it
_LEAST_SHARED = 32  # where a few cores would else have no partial sum each
_TASKS = 16
_CORES = 4  # a few


@dataclass(frozen=True)
class Pair:
    """A window of data, ``data[long + tap]`` or, ``backwards``, ``data[long - tap]``."""

    long: Var
    tap: Var
    backwards: bool

    def data_at(self, u: int) -> tuple[int, int]:
        """(offset of ``long`` in its tile, tap) at which place u of the window is read."""
        tap = min(u, _TAPS - 1)
        return u - tap, _TAPS - 1 - tap if self.backwards else tap

    def tap_at(self, number: int) -> int:
        """The tap that takes part number ``number`` in the sum, or in the results."""
        return _TAPS - 1 - number if self.backwards else number


@dataclass(frozen=True, eq=False)
class Filter:
    """A contraction as a found. ``channel``: the axis of the data, ``column`` that of the weights, along which vectors
    lie. ``blocks``: how many values of each axis one task (or one round of it) takes; of long axes, how many tiles.

    ``summed``: whether the tiles are summed. Then ``chunks`` partial sums take ``rounds`` rounds each.
    """

    problem: Problem
    data: Factor
    weights: Factor
    pairs: tuple[Pair, ...]
    batch: tuple[Var, ...]  # the other axes of the data, outermost first
    channel: Var
    column: Var
    summed: bool
    blocks: Mapping[Var, int]
    chunks: int = 1
    rounds: int = 1

    @property
    def points(self) -> int:
        """Products for each tile, channel and column."""
        return POINTS ** len(self.pairs)

    @property
    def tiled(self) -> tuple[Var, ...]:
        """The axes over which tiles are counted."""
        return (*self.batch, *(p.long for p in self.pairs))

    @property
    def tiles(self) -> int:
        """Tiles of a task."""
        return math.prod(self.blocks[v] for v in self.tiled)

    @property
    def threads(self) -> bool:
        """Whether they are worth it."""
        return worth_threads(self.problem.nanoseconds / 2)

    @property
    def tasks(self) -> int:
        """Blocks of tiles, or where tiles are summed their chunks."""
        blocks = math.prod(-(-self.count(v) // self.blocks[v]) for v in self.tiled)
        return self.chunks if self.summed else blocks

    def count(self, v: Var) -> int:
        """How many tiles there are along an axis."""
        return _count(self.problem, self.pairs, v)

    @staticmethod
    def of(problem: Problem) -> Filter | None:
        """The filter that a problem is, where that is faster than the plain sum."""
        if len(phases(problem)) != 1 or problem.anchor.dtype not in ("float32", "float64"):
            return None
        if any(f.dtype != problem.anchor.dtype or f.windows is None for f in problem.factors):
            return None
        first, second = problem.factors
        ways = [(a, b, summed) for summed in (False, True) for a, b in ((first, second), (second, first))]
        return next(filter(None, (_filter(problem, *way) for way in ways)), None)


def _filter(problem: Problem, data: Factor, weights: Factor, summed: bool) -> Filter | None:
    pairs = _pairs(problem, data, weights, summed)
    if not 1 <= len(pairs) <= _MOST_AXES or any(step != (1, 0) for f in (data, weights) for step in f.steps):
        return None
    windows = {v for p in pairs for v in (p.long, p.tap)}
    results, terms = ([v for v in axes if v not in windows] for axes in (problem.outputs, problem.reduced))
    columns = [v for v in results if v not in data.axes]
    own = [v for v in results if v not in weights.axes]
    channels, batch = (own, terms) if summed else (terms, own)
    whole = len(columns) == len(channels) == 1 and len(columns) + len(own) == len(results)
    if not whole or not all(v in data.axes and v in weights.axes for v in terms):
        return None
    found = Filter(problem, data, weights, pairs, tuple(batch), channels[0], columns[0], summed, {})
    return _blocked(found) if _is_faster(found) else None


def _pairs(problem: Problem, data: Factor, weights: Factor, summed: bool) -> tuple[Pair, ...]:
    """All windows of the data; none, unless all are of three taps and of stride 1. ``summed``: over the long axes."""
    pairs: list[Pair] = []
    once: list[Var] = []
    for window in data.windows or ():
        once += window.terms
        if len(window.terms) < 2:
            continue
        inside = [v for v in window.terms if v in problem.reduced and v in weights.axes]
        across = [v for v in window.terms if v in problem.outputs and v not in weights.axes]
        if len(window.terms) != 2 or len(inside) != 1 or len(across) != 1:
            return ()
        long, tap = (inside[0], across[0]) if summed else (across[0], inside[0])
        if problem.extents[tap] != _TAPS or window.terms[long] != 1 or abs(window.terms[tap]) != 1:
            return ()
        pairs.append(Pair(long, tap, window.terms[tap] < 0))
    return tuple(pairs) if len(set(once)) == len(once) else ()


def _count(problem: Problem, pairs: tuple[Pair, ...], v: Var) -> int:
    extent = problem.extents[v]
    return -(-extent // 2) if any(p.long is v for p in pairs) else extent


def _is_faster(found: Filter) -> bool:
    problem, lanes = found.problem, found.problem.lanes
    blocking = blocking_of(problem)
    if blocking is None:
        return False
    waits = _waits(blocking.tile, lanes, problem.group.machine.registers)
    if tile_count(found) < _ENOUGH_TILES and not problem.group.machine.has_few_registers:
        return vectors(found) < _GAIN_OF_FEW * time(split_tails(problem)) / lanes
    return vectors(found) < _GAIN * problem.work / lanes * vector_axis_cost(problem, blocking.column) * waits


def tile_count(found: Filter) -> int:
    """Tiles in all."""
    return math.prod(found.count(v) for v in found.tiled)


def vectors(found: Filter) -> float:
    """Vectors of multiply-adds in the time that a filter takes."""
    problem, lanes = found.problem, found.problem.lanes
    registers = problem.group.machine.registers
    channels, columns = problem.extents[found.channel], problem.extents[found.column]
    sizes = [-(-n // lanes) for n in (channels, columns)]
    long = [problem.extents[p.long] for p in found.pairs]
    points = math.prod(problem.extents[v] for v in found.batch)
    points *= math.prod(POINTS * (n // 2) + (POINTS - 1) * (n % 2) for n in long)  # of a tile that is cut, three
    once = channels * columns * _TAPS ** len(found.pairs) * _GATHER
    is_cheap = problem.group.machine.has_few_registers and min(channels, columns) >= lanes  # whole squares are turned
    read = _DATA_BY_FEW_REGISTERS if is_cheap else _MOVES
    other = _RESULT_BY_FEW_REGISTERS if is_cheap and not found.summed else _MOVES
    is_apart = distance(problem, found.data, found.channel) != 1
    moved = sizes[0] * read[is_apart] + sizes[1] * other[not _is_row(found)]
    products = channels * sizes[1] * _waits(choose_tile(_GOOD_TILES, columns, lanes, registers), lanes, registers)
    return points * (products + moved) + once


def _waits(tile: Tile, lanes: int, registers: int) -> float:
    return waits(tile.rows * -(-tile.columns // lanes), registers)


def _is_row(found: Filter) -> bool:
    """Whether what is transformed along the columns, the other factor or the result, has them in a row of memory."""
    if found.summed:
        return distance(found.problem, found.weights, found.column) == 1
    return found.column is found.problem.outputs[-1]


def _blocked(found: Filter) -> Filter | None:
    """Blocks of tiles, as many as the nearer caches hold; None where those would be too few."""
    problem = found.problem
    size = found.points * nbytes(problem.anchor.dtype)
    channels, columns = problem.extents[found.channel], problem.extents[found.column]
    total = tile_count(found)
    most = max(_GOOD_TILES, _LOCAL_BYTES // ((channels + columns) * size))
    most = min(most, max(_GOOD_TILES, total // (_CORES if found.summed else _TASKS)))
    most = min(most, _BUFFER_BYTES // (max(channels, columns) * size))
    is_long = problem.group.machine.has_few_registers and not found.summed and total >= _MANY_TILES
    shared = _SHARED_BY_FEW_REGISTERS if is_long else _SHARED_BYTES
    if channels * columns * size > shared or most < _LEAST_TILES:
        return None
    blocks, left = {}, float(most)
    for v in reversed(found.tiled):
        blocks[v] = _even(found.count(v), left)
        left = max(1.0, left / blocks[v]) if blocks[v] == found.count(v) else 1.0
    if region_bytes({found.data: Packing.REGION}, region_extents(found, blocks)) > _BUFFER_BYTES:
        return None
    blocked = replace(found, blocks=blocks)
    return _divided(blocked, total) if found.summed else blocked


def _even(count: int, most: float) -> int:
    """The size of blocks of at most ``most`` tiles: rather a divisor, even a little larger, as a shorter last block
    takes as long as a whole one."""
    divisor = max(d for d in range(1, min(int(most * 5 / 4), count) + 1) if count % d == 0)
    return divisor if 2 * divisor > min(most, count) else -(-count // -(-count // int(most)))


def _divided(found: Filter, total: int) -> Filter:
    """Partial sums: tasks for a few threads, and enough tiles in each."""
    rounds = math.prod(-(-found.count(v) // found.blocks[v]) for v in found.tiled)
    wanted = max(total // _LEAST_SUMMED, min(_CORES, total // _LEAST_SHARED), 1)
    each = -(-rounds // min(_TASKS, rounds, wanted))
    return replace(found, chunks=-(-rounds // each), rounds=each)


def region_extents(found: Filter, blocks: Mapping[Var, int]) -> dict[Var, int]:
    """How far each axis runs inside a task."""
    long = {p.long: 2 * blocks[p.long] for p in found.pairs}
    taps = {p.tap: _TAPS for p in found.pairs}
    rest = {found.channel: found.problem.extents[found.channel], found.column: 1}
    return {**blocks, **long, **taps, **rest}
