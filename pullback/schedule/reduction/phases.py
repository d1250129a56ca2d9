"""Phases: long reductions into few results. Chunks are reduced in parallel, then their partial results.

    column sums of a tall matrix:

    for chunk in parallel(chunks):                 partial[chunk, j] = Σ x[chunk · rows + k, j] over the chunk's rows
    then                                           total[j] = Σ partial[chunk, j] over the chunks

Both are programs again, lowered as any other, so the order of a sum is that of columns or rows, in each chunk and then
over the chunks. The size of a chunk follows from the shapes alone. It also keeps rounding errors small: they grow with
the length of a chunk plus the number of chunks, not with their product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from pullback.schedule.reduction.nests import Moved
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.tir import Buffer, BufferLoad, BufferStore, PrimExpr, Var, as_expr, store
from pullback.tir.visitor import substitute, walk

TASKS = 64  # that the first phase should have
CHUNK = 1 << 14  # elements that a chunk has at least, of all columns of a task


def chunk_of(domain: Domain, tasks: int, columns: int) -> tuple[int, int] | None:
    """``(axis, size)``: cut this axis of the domain in chunks of that size; None where there is enough to do in
    parallel, or too little at all. ``tasks`` of ``columns`` results each exist already."""
    wanted = min(-(-TASKS // max(1, tasks)), domain.size * columns // CHUNK)
    if wanted < 2:
        return None
    extents = domain.extents
    axis = next((k for k, e in enumerate(extents) if e >= wanted), extents.index(max(extents)))
    least = -(-extents[axis] // wanted)
    even = [s for s in range(least, min(2 * least, extents[axis])) if extents[axis] % s == 0]
    return axis, min(even, key=lambda s: (s % 8 != 0, s), default=least)


def in_phases(program: Program, tasks: int, columns: int) -> tuple[list[Program], list[Buffer]] | None:
    """Programs that together do what this one does, and the workspace that they share; None where chunks gain nothing.

    Programs with rows of elements that wait for a reduction are not cut.
    """
    domains = list(dict.fromkeys(s.domain for s in program.reduces))
    chunks = {d: chunk_of(d, tasks, columns) for d in domains if d is not None}
    arguments = any(s.kind.startswith("arg") for s in program.reduces)
    waits = program.late_vectors or any(chunks.get(s.domain) is None for s in program.vectors)  # type: ignore[arg-type]
    if waits or arguments or all(c is None for c in chunks.values()):
        return None
    return _Phases(program, chunks).split()


class _Phases:
    def __init__(self, program: Program, chunks: dict[Domain, tuple[int, int] | None]) -> None:
        self.program, self.chunks = program, chunks
        self.workspace: list[Buffer] = []
        self.places = {}  # where values of a row are found after the phase that computes them

    def split(self) -> tuple[list[Program], list[Buffer]]:
        program, waiting = self.program, list(self.program.steps)
        result: list[Program] = []
        for depth in sorted({s.depth for s in program.reduces}):
            now = [s for s in waiting if s.role != "row" and s.depth == depth]
            rows = [s for s in waiting if s.role == "row" and s.depth <= depth + 1]
            waiting = [s for s in waiting if s not in now and s not in rows]
            result += self.phase([self.moved(s) for s in now], [self.moved(s) for s in rows], waiting)
        return result, self.workspace

    def moved(self, step: Step) -> Step:
        return dataclasses.replace(step, store=Moved(self.places).stmt(step.store))

    def phase(self, now: list[Step], rows: list[Step], later: list[Step]) -> Iterator[Program]:
        """The programs for what happens over domains at one depth, and for the rows' values that follow."""
        finishing: list[Step] = []
        for domain in dict.fromkeys(s.domain for s in now):
            steps = [s for s in now if s.domain is domain]
            if self.chunks[domain] is None:  # type: ignore[index]
                finishing += steps
                continue
            partial, axis, size = self.partials(steps, domain)  # type: ignore[arg-type]
            full, rest = divmod(domain.extents[axis], size)  # type: ignore[union-attr]
            if full:
                chunk = Var("chunk")
                yield self.chunk(steps, partial, axis, size, chunk, full)
            if rest:
                yield self.chunk(steps, partial, axis, rest, as_expr(full), 1, offset=full * size)
            over = Domain((Var("chunk"),), (full + bool(rest),))
            for step in partial:
                value = partial[step][(*over.axes, *self.program.axes)]
                finishing.append(dataclasses.replace(step, store=store(step.store.buffer, (), value), domain=over))
        yield self.finish(finishing, rows, later)

    def partials(self, steps: Sequence[Step], domain: Domain) -> tuple[dict[Step, Buffer], int, int]:
        axis, size = self.chunks[domain]  # type: ignore[misc]
        count = -(-domain.extents[axis] // size)
        shape = (count, *self.program.extents)
        partial = {s: Buffer("partials", shape, s.total.dtype, "workspace") for s in steps if s.total is not None}
        self.workspace += partial.values()
        return partial, axis, size

    def chunk(
        self,
        steps: Sequence[Step],
        partial: dict[Step, Buffer],
        axis: int,
        size: int,
        chunk: PrimExpr,
        count: int,
        offset: int | None = None,
    ) -> Program:
        """The partial results of ``count`` chunks, or of the last and smaller one, which begins at ``offset``."""
        program, old = self.program, steps[0].domain
        assert old is not None
        var = old.axes[axis]
        place = (chunk * size if offset is None else as_expr(offset)) + var
        domain = Domain(old.axes, (*old.extents[:axis], size, *old.extents[axis + 1 :]))
        inner: list[Step] = []
        for step in steps:
            inner.append(dataclasses.replace(step, store=substitute(step.store, {var: place}), domain=domain, depth=0))
        for step in partial:
            target = store(partial[step], (chunk, *program.axes), step.total[()])  # type: ignore[index]
            inner.append(Step("row", 1, target))
        totals = tuple(s.total for s in partial)
        lead = ((chunk,), (count,)) if isinstance(chunk, Var) else ((), ())
        return Program(program.machine, (*lead[0], *program.axes), (*lead[1], *program.extents), tuple(inner), totals)  # type: ignore[arg-type]

    def finish(self, reduces: list[Step], rows: list[Step], later: list[Step]) -> Program:
        """The results from the partial ones, and the rows' values that follow; what is read later goes to memory."""
        program = self.program
        own = [b for s in (*reduces, *rows) if (b := s.total or s.store.buffer) in program.locals]
        steps = [dataclasses.replace(s, depth=0) for s in reduces] + [dataclasses.replace(s, depth=1) for s in rows]
        needed = {n.buffer for s in later for n in walk(s.store) if isinstance(n, BufferLoad)}
        for buffer in own:
            if buffer in needed:
                saved = Buffer(buffer.name, program.extents, buffer.dtype, "workspace")
                self.workspace.append(saved)
                self.places[buffer] = lambda _, b=saved: b[program.axes]
                steps.append(Step("row", 1, BufferStore(saved, buffer[()], program.axes)))
        return Program(program.machine, program.axes, program.extents, tuple(steps), tuple(own))
