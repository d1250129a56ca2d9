"""Rows in a pipeline: while some are summed up, what follows from the sums of those before is written, or summed up.

    a layer norm of the n rows of a task

    sums of row 0
    for b in n - 1:
        for step: sums of row b + 1 | out of row b
        mean, scale = of these sums                 the last stage first: what a later one reads of the same row is kept
    out of row n - 1

The last additions of a sum wait for one another, and what needs the sum for them: other rows have work for the while.
And elements come from beyond the nearest cache beside all arithmetic, not the first stage's only. On a Zen 4 a layer
norm of 512 elements from the second cache takes 0.95 of the time, from the last one 0.9, its gradient 0.95 and 0.8;
with half as wide vectors 1.05. What is one stage has longer tasks only: 0.98.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.schedule.cost import calls_function
from pullback.schedule.order import LANES
from pullback.schedule.reduction.nests import Moved, Place, nests
from pullback.schedule.reduction.program import Program, Step
from pullback.schedule.reduction.walk import Walk
from pullback.tir import Buffer, BufferLoad, For, PrimExpr, Stmt, Var, as_expr, seq, store
from pullback.tir.caches import FAR, NEAR, PAGE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import Substitute, substitute, walk

_TOGETHER = (4, 2, 1)  # rows, so that sums need not wait for their own additions
_ROWS = (16, 64)  # that a task has at the least and at the most
_FEW_TASKS = 4  # that there are at the least
_TASKS = 64  # of which one more or less does not matter


@dataclass(frozen=True, eq=False)
class Stage:
    """What happens over the domain at one depth, and the values of the row that follow."""

    nest: tuple[Step, ...]
    rows: tuple[Step, ...]

    @property
    def values(self) -> list[Buffer]:
        """Private values of the row that it computes."""
        totals = [s.total for s in self.nest if s.total is not None]
        return totals + [s.store.buffer for s in self.rows if s.store.buffer.scope == "local"]

    @property
    def stores(self) -> list[Buffer]:
        """What it writes elements to."""
        return [s.store.buffer for s in self.nest if s.role == "vector"]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Stages of a program for ``blocks`` times ``count`` rows of its last axis, ``count`` at a time, each a round after
    the one before.

    ``kept[value]``: where it is after each of the rounds until the last stage reads it. ``written``: other names of the
    buffers that one stage writes: when another one reads them it is not at the same point.
    """

    program: Program
    stages: tuple[Stage, ...]
    count: int
    blocks: int
    kept: dict[Buffer, list[Buffer]]
    written: dict[Buffer, Buffer]

    @staticmethod
    def of(program: Program) -> Pipeline | None:
        """None where the stages are not passes of sums and elements over one and the same domain, where rows are near,
        in memory (which gives one row faster than several), few, or too long to have several in the nearest cache, and
        where vectors are narrower than a line and there is more than one stage's work for registers. As many rows are
        taken together as are a page: of more, the lines that are read at once are in too many places."""
        machine, stages = program.machine, _stages(program)
        if stages is None or not FAR <= program.bytes <= 2 * machine.cached_bytes or program.passes_caches:
            return None
        if len(stages) > 1 and machine.has_narrow_vectors:
            return None
        last, behind, read = program.extents[-1], len(stages) - 1, program.read_of_a_row
        for count in _TOGETHER:
            fits = count == 1 or (count * read <= PAGE and 2 * count * _registers(stages, program) <= machine.registers)
            if fits and (behind + 1) * count * read <= NEAR and last % count == 0:
                blocks = _blocks_of_a_task(last // count, program.rows // count, count, 4 * behind)
                return Pipeline.made(program, stages, count, blocks) if blocks else None
        return None

    @staticmethod
    def made(program: Program, stages: tuple[Stage, ...], count: int, blocks: int) -> Pipeline:
        kept: dict[Buffer, list[Buffer]] = {}
        for number, stage in enumerate(stages):
            reads = [_loaded(later) for later in stages[number + 1 :]]
            for value in stage.values:
                rounds = max((k for k, loaded in enumerate(reads, 1) if value in loaded), default=0)
                kept[value] = [Buffer(f"{value.name}_{k}", (), value.dtype, "local") for k in range(1, rounds + 1)]
        stores = [b for stage in stages for b in stage.stores]
        written = {b: Buffer(b.name, b.shape, b.dtype, b.scope) for b in stores}
        program = dataclasses.replace(program, locals=(*program.locals, *(b for bs in kept.values() for b in bs)))
        return Pipeline(program, stages, count, blocks, kept, written)

    @property
    def size(self) -> int:
        """Rows."""
        return self.blocks * self.count

    def body(self, walk: Walk) -> Stmt:
        """All stages of all rows, from the one on that the axis's variable says."""
        axis, last, b = self.program.axes[-1], len(self.stages) - 1, Var("b")

        def newest(block: PrimExpr | int, first: int, last: int) -> Stmt:
            return substitute(self.round(walk, first, last), {axis: axis + block * self.count})

        parts = [newest(k, 0, k) for k in range(last)]
        parts.append(For(b, as_expr(self.blocks - last), newest(b + last, 0, last)))
        parts += [newest(self.blocks - 1 + k, k, last) for k in range(1, last + 1)]
        return Substitute(buffers={alias: b for b, alias in self.written.items()}).stmt(walk.allocated(seq(*parts)))

    def round(self, walk: Walk, first: int, last: int) -> Stmt:
        """Some stages, each with the rows that are its turn when the axis's variable says those of the first stage."""
        parts = [walk.nest([self.turn(s, k) for k in range(first, last + 1) for s in self.stages[k].nest])]
        for k in range(last, -1, -1):
            if k >= first:
                parts += [walk.nest([self.turn(s, k)]) for s in self.stages[k].rows]
            parts += [walk.nest([s]) for value in self.stages[k].values for s in self.keep(value)]
        return seq(*parts)

    def turn(self, step: Step, number: int) -> Step:
        """A step of this stage: behind the first stage's rows, with values as they were then."""
        places: dict[Buffer, Place] = {}
        for k, stage in enumerate(self.stages[:number]):
            rounds = number - k
            places |= {v: _always(self.kept[v][rounds - 1][()]) for v in stage.values if len(self.kept[v]) >= rounds}
            places |= {b: _same_place_of(self.written[b]) for b in stage.stores}
        axis = self.program.axes[-1]
        body = substitute(Moved(places).stmt(step.store), {axis: axis - number * self.count})
        return dataclasses.replace(step, store=body, depth=0)

    def keep(self, value: Buffer) -> list[Step]:
        """The value, and those of the rounds before, each one round older."""
        places = [value, *self.kept[value]]
        moves = zip(places[:0:-1], places[-2::-1], strict=True)
        return [Step("row", 0, store(old, (), new[()])) for old, new in moves]


def _stages(program: Program) -> tuple[Stage, ...] | None:
    if not program.axes or any(b.shape for b in program.locals):
        return None
    stages: list[Stage] = []
    for steps in nests(program):
        if steps[0].domain is not None:
            stages.append(Stage(tuple(steps), ()))
        elif stages:
            stages[-1] = dataclasses.replace(stages[-1], rows=(*stages[-1].rows, *steps))
        else:
            return None
    steps = [s for stage in stages for s in stage.nest]
    is_other = any(s.kind.startswith("arg") or calls_function(s.store.value) for s in steps)
    return None if not stages or is_other or len({s.domain for s in steps}) > 1 else tuple(stages)


def _loaded(stage: Stage) -> set[Buffer]:
    return {n.buffer for s in (*stage.nest, *stage.rows) for n in walk(s.store) if isinstance(n, BufferLoad)}


def _registers(stages: Sequence[Stage], program: Program) -> int:
    """Of vectors, in which the sums of a row are."""
    sums = [[nbytes(s.total.dtype) for s in stage.nest if s.total is not None] for stage in stages]
    return max(-(-LANES * sum(sizes) // program.machine.vector_bytes) for sizes in sums)


def _always(place: PrimExpr) -> Place:
    return lambda indices: place


def _same_place_of(buffer: Buffer) -> Place:
    return lambda indices: buffer[indices]


def _blocks_of_a_task(along: int, everywhere: int, count: int, least: int) -> int:
    """How many blocks of ``count`` rows a task has: rather such that they divide those along the axis, and tasks are
    even, or many. 0: there are too few, along the axis or for tasks."""
    least, most = (max(least, rows // count) for rows in _ROWS)
    most = min(most, along, everywhere // _FEW_TASKS)
    possible = range(most, least - 1, -1)
    tasks = {n: everywhere // n for n in possible if along % n == 0}
    return next((n for n, number in tasks.items() if number % 2 == 0 or number >= _TASKS), most if possible else 0)
