"""How a contraction is cut up: the vector axis, the register tile, and what one task does (chosen by `choice.py`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pullback.schedule.contraction.plan.register_tiles import Rows
from pullback.schedule.contraction.problem.memory import region_shape
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.group import Machine
from pullback.schedule.tiles import Tile
from pullback.tir import Var
from pullback.tir.expr import nbytes

THREADS = 4  # among which tasks are divided, as a rule
REGION_BYTES = 64 * 1024  # of data that a task copies or computes for itself: it is to stay in the nearer caches
FIRST = 32 * 1024  # bytes of columns that stay in the first cache
SECOND = 384 * 1024  # bytes that stay in the second cache
LARGE = 1024 * 1024  # of a matrix that does not
LEAVES = 1280 * 1024  # of one that leaves the second cache before its rows come again
STREAM = 256 * 1024  # of one that does not stay there beside what else is read
FEW_TILES = 3  # of rows, that read the same column or line
_SETS = 64 * 1024  # bytes from one line of a set of the second cache to the next one, at the least
_WAYS = {64: 16}  # lines that a set holds, by the bytes of a vector: CPUs with narrower ones have smaller caches
_FEW_WAYS = 8


@dataclass(frozen=True, eq=False)
class Blocking:
    """``a`` is read along rows, ``b`` along ``column``, the axis of vectors (but for those with ``summed``).

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
    summed: Var | None = None  # the axis of vectors, if it is one of the sum: the tile's sums have a vector each
    run: Var | None = None  # the axis of an image's rows, if vectors and columns of a tile go on from one to the next
    taps: Var | None = None  # that of a filter's taps, likewise

    @property
    def has_region(self) -> bool:
        return "region" in self.ways.values()

    @property
    def has_round(self) -> bool:
        """Whether each round of a task copies what it reads of a factor."""
        return "round" in self.ways.values()


def region_bytes(ways: Mapping[Factor, str], inner: Mapping[Var, int]) -> int:
    """Bytes of all regions of a task."""
    regions = [f for f, way in ways.items() if way == "region"]
    return sum(math.prod(region_shape(f, inner)) * nbytes(f.source.dtype) for f in regions)


def task_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """How many tasks there are, if each computes whole sums."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs)


def tasks_of_rows(problem: Problem, b: Factor, inner: Mapping[Var, int]) -> int:
    """How many tasks read the same of ``b``."""
    return math.prod(-(-problem.extents[v] // inner[v]) for v in problem.outputs if v not in b.axes)


def round_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """How many rounds the whole sums take."""
    return math.prod(-(-problem.extents[k] // inner[k]) for k in problem.reduced)


def part_count(problem: Problem, inner: Mapping[Var, int]) -> int:
    """Tasks, if each round is one."""
    return task_count(problem, inner) * round_count(problem, inner)


def lines_of_sets(machine: Machine, apart: int) -> int:
    """How many lines of memory, so many bytes apart, stay in the second cache: whole powers of two apart, they compete
    for a few sets of it."""
    return _WAYS.get(machine.vector_bytes, _FEW_WAYS) * _SETS // math.gcd(_SETS, apart)


def matrix_count(problem: Problem) -> int:
    """How many there are of each factor, one for each product of the batch or of the groups."""
    return math.prod(problem.extents[v] for v in problem.outputs if all(v in f.axes for f in problem.factors))


def copies(problem: Problem, blocking: Blocking) -> dict[Factor, int]:
    """Elements of each region that all tasks copy, in all rounds."""
    return copies_of(problem, blocking.ways, blocking.inner)


def copies_of(problem: Problem, ways: Mapping[Factor, str], inner: Mapping[Var, int]) -> dict[Factor, int]:
    """Likewise, of tasks that are not chosen yet."""
    regions = [f for f, way in ways.items() if way == "region"]
    return {f: math.prod(region_shape(f, inner)) * part_count(problem, inner) for f in regions}


def partial_bytes(problem: Problem, blocking: Blocking) -> int:
    """Of all partial sums, if there are such."""
    return (blocking.chunks or 0) * problem.work // problem.depth * nbytes(problem.anchor.dtype)
