"""Rows: what is reduced is innermost in memory. Softmax, norms and the like are one kernel.

    for p in parallel(rows):
        for chunk: for lane in vectorized(parts): partial[lane] = partial[lane] + x[p, chunk · parts + lane]
        total = partial, halved until one is left
        for j in vectorized(columns): out[p, j] = f(x[p, j], total, …)

Order of a sum: ``parts`` partial sums (one vector of lanes, or four for long rows) take every ``parts``-th element, all
outer axes one after another; then they are halved. Rows of fewer than four elements are summed one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.schedule.pointwise import tasks
from pullback.schedule.reduction.argument import reduce_row_argument
from pullback.schedule.reduction.nests import (
    Moved,
    allocated,
    at_point,
    halve,
    lane_loop,
    lanes_of,
    nests,
    outer_axes,
    serial,
)
from pullback.schedule.reduction.program import Program, Step
from pullback.te.graph import combine, identity
from pullback.tir import Buffer, For, PrimExpr, Stmt, Var, as_expr, seq, store
from pullback.tir.visitor import substitute


def lower_rows(program: Program, threads: bool) -> Stmt:
    """All steps of a row in one task."""
    return tasks(program.axes, program.extents, _Row(program).body(), threads)


class _Row:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.locals: list[Buffer] = []
        self.own: dict[Buffer, Buffer] = {}
        self.places = {}
        for buffer in program.locals:
            own = self.own[buffer] = Buffer(buffer.name, buffer.shape or (1,), buffer.dtype, "local")
            self.locals.append(own)
            self.places[buffer] = lambda i, b=own: b[i or (0,)]

    def body(self) -> Stmt:
        parts = [self.nest(steps) for steps in nests(self.program)]
        return allocated(self.locals, Moved(self.places).stmt(seq(*parts)))

    def nest(self, steps: Sequence[Step]) -> Stmt:
        domain, reduces = steps[0].domain, [s for s in steps if s.role == "reduce"]
        if domain is None:
            return steps[0].store
        if any(s.kind.startswith("arg") for s in reduces):
            return seq(*(self.argument(s) if s.kind.startswith("arg") else self.nest([s]) for s in steps))
        if not reduces:
            return self.elements(steps)
        extent = domain.extents[-1] if domain.axes else 1
        return self.one_by_one(steps) if extent < 4 else self.by_lanes(steps, extent)

    def elements(self, steps: Sequence[Step]) -> Stmt:
        """Rows of elements, with nothing reduced."""
        domain = steps[0].domain
        body = at_point(steps)
        return outer_axes(domain, For(domain.axes[-1], as_expr(domain.extents[-1]), body, "vectorized"))  # type: ignore[union-attr, arg-type]

    def total(self, step: Step) -> Buffer:
        return self.own[step.total]  # type: ignore[index]

    def one_by_one(self, steps: Sequence[Step]) -> Stmt:
        def reduce(step: Step, value: PrimExpr) -> Stmt:
            total = self.total(step)
            return store(total, 0, combine(step.kind, total[0], value))

        domain = steps[0].domain
        start = [store(self.total(s), 0, identity(s.kind, s.total.dtype)) for s in steps if s.role == "reduce"]  # type: ignore[union-attr]
        return seq(*start, serial(domain.axes, domain.extents, at_point(steps, reduce)))  # type: ignore[union-attr]

    def by_lanes(self, steps: Sequence[Step], extent: int) -> Stmt:
        lanes = lanes_of(self.program, steps)
        parts = lanes * 4 if extent >= lanes * 8 else lanes
        axis, partial = steps[0].domain.axes[-1], {}  # type: ignore[union-attr]
        for step in steps:
            if step.role == "reduce":
                partial[step] = Buffer("partial", (parts,), step.total.dtype, "local")  # type: ignore[union-attr]
        self.locals += partial.values()

        def piece(size: int, base: PrimExpr) -> Stmt:
            lane = Var("lane")

            def reduce(step: Step, value: PrimExpr) -> Stmt:
                return store(partial[step], lane, combine(step.kind, partial[step][lane], value))

            body = substitute(at_point(steps, reduce), {axis: base + lane})
            return For(lane, as_expr(size), body, "vectorized")

        full, rest = divmod(extent, parts)
        chunk = Var("chunk")
        main = For(chunk, as_expr(full), piece(parts, chunk * parts)) if full else None
        tail = piece(rest, as_expr(full * parts)) if rest else None
        clear = [
            lane_loop("lane", parts, lambda k, s=s, b=b: store(b, k, identity(s.kind, b.dtype)))  # type: ignore[misc]
            for s, b in partial.items()
        ]
        final = [seq(halve(s.kind, b, parts), store(self.total(s), 0, b[0])) for s, b in partial.items()]
        return seq(*clear, outer_axes(steps[0].domain, seq(main, tail)), *final)  # type: ignore[arg-type]

    def argument(self, step: Step) -> Stmt:
        body, buffers = reduce_row_argument(step, self.total(step), lanes_of(self.program, [step]))
        self.locals += buffers
        return body
