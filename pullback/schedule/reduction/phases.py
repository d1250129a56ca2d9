"""Phases: long reductions into few results. Chunks are reduced in parallel, then their partial results.

    column sums of a tall matrix:

    for chunk in parallel(chunks):                 partial[chunk, j] = Σ x[chunk · rows + k, j] over the chunk's rows
    then                                           total[j] = Σ partial[chunk, j] over the chunks

Both are programs again, lowered as any other. What a chunk is the sums' order says, whether it is cut in phases or not.
Chunks also keep rounding errors small: they grow with the length of a chunk plus the number of chunks, not with their
product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from pullback.schedule.reduction.nests import Moved, Place, value_at
from pullback.schedule.reduction.program import Chunks, Program, Step
from pullback.tir import Buffer, BufferLoad, BufferStore, Var, store
from pullback.tir.visitor import substitute, walk

TASKS = 64  # that need no chunks to be enough


def in_phases(program: Program, tasks: int) -> tuple[list[Program], list[Buffer]] | None:
    """Programs that together do what this one does, and the workspace that they share; None where chunks are as well
    computed one after another: no sum is in chunks, or there are ``tasks`` enough, or rows of elements wait for a
    reduction, or lie where no sum in chunks reads them."""
    arguments = any(s.kind.startswith("arg") for s in program.reduces)
    cut = {s.domain for s in program.reduces if _is_cut(s)}
    waits = program.late_vectors or any(s.domain not in cut for s in program.vectors)
    if tasks >= TASKS or waits or arguments or not any(map(_is_cut, program.reduces)):
        return None
    return _Phases(program).split()


def _is_cut(step: Step) -> bool:
    return step.domain is not None and step.domain.order.cut is not None


class _Phases:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.workspace: list[Buffer] = []
        self.places: dict[Buffer, Place] = {}  # where values of a row are found after the phase that computes them

    def split(self) -> tuple[list[Program], list[Buffer]]:
        program, waiting = self.program, list(self.program.steps)
        result: list[Program] = []
        for depth in sorted({s.depth for s in program.reduces}):
            now = [s for s in waiting if s.role != "row" and s.depth == depth]
            before = [s for s in waiting if s.role == "row" and s.depth <= depth]
            if _read(now).isdisjoint(s.store.buffer for s in before):
                before = []  # they may as well be computed afterwards, with the others
            waiting = [s for s in waiting if s not in before]
            if before:
                result.append(self.finish([], [self.moved(s) for s in before], waiting))
            rows = [s for s in waiting if s.role == "row" and s.depth <= depth + 1]
            waiting = [s for s in waiting if s not in now and s not in rows]
            result += self.phase([self.moved(s) for s in now], [self.moved(s) for s in rows], waiting)
        return result, self.workspace

    def moved(self, step: Step) -> Step:
        return dataclasses.replace(step, store=Moved(self.places).store(step.store))

    def phase(self, now: list[Step], rows: list[Step], later: list[Step]) -> Iterator[Program]:
        """The programs for what happens over domains at one depth, and for the rows' values that follow."""
        finishing: list[Step] = []
        for domain in dict.fromkeys(s.domain for s in now):
            steps = [s for s in now if s.domain is domain]
            if domain is None or domain.order.cut is None:
                finishing += steps
                continue
            over = domain.of_chunks
            partial = self.partials(steps, over.size)
            for chunks in domain.chunks:
                yield self.chunk(steps, partial, chunks)
            for step in partial:
                value = partial[step][(*over.axes, *self.program.axes)]
                body = store(step.store.buffer, (), value)
                finishing.append(dataclasses.replace(step, store=body, domain=over, products=False))
        yield self.finish(finishing, rows, later)

    def partials(self, steps: Sequence[Step], count: int) -> dict[Step, Buffer]:
        shape = (count, *self.program.extents)
        partial = {s: Buffer("partials", shape, s.total.dtype, "workspace") for s in steps if s.total is not None}
        self.workspace += partial.values()
        return partial

    def chunk(self, steps: Sequence[Step], partial: dict[Step, Buffer], chunks: Chunks) -> Program:
        """The partial results of some chunks."""
        program, number = self.program, chunks.number
        inner = [
            dataclasses.replace(s, store=substitute(s.store, chunks.place), domain=chunks.domain, depth=0)
            for s in steps
        ]
        for step in partial:
            target = store(partial[step], (number, *program.axes), step.result[()])
            inner.append(Step("row", 1, target))
        totals = tuple(s.result for s in partial)
        axes, extents = program.axes, program.extents
        if isinstance(number, Var):
            axes, extents = (number, *axes), (chunks.count, *extents)
        return Program(program.machine, axes, extents, tuple(inner), totals)

    def finish(self, reduces: list[Step], rows: list[Step], later: list[Step]) -> Program:
        """The results from the partial ones, and the rows' values that follow; what is read later goes to memory."""
        program = self.program
        own = [b for s in (*reduces, *rows) if (b := s.total or s.store.buffer) in program.locals]
        steps = [dataclasses.replace(s, depth=0) for s in reduces] + [dataclasses.replace(s, depth=1) for s in rows]
        needed = _read(later)
        for buffer in own:
            if buffer in needed:
                saved = Buffer(buffer.name, program.extents, buffer.dtype, "workspace")
                self.workspace.append(saved)
                self.places[buffer] = value_at(saved[program.axes])
                steps.append(Step("row", 1, BufferStore(saved, buffer[()], program.axes)))
        return Program(program.machine, program.axes, program.extents, tuple(steps), tuple(own))


def _read(steps: Sequence[Step]) -> set[Buffer]:
    return {n.buffer for s in steps for n in walk(s.store) if isinstance(n, BufferLoad)}
