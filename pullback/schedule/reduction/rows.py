"""Rows: what is reduced is innermost in memory. Softmax, norms and the like are one kernel.

for p in parallel(rows):
    for step: for lane in vectorized(16):
        partial[lane] = partial[lane] + ((x[p, …] + x[p, …]) + (x[p, …] + x[p, …]))
    total = partial, halved until one is left
    for j in vectorized(columns): out[p, j] = f(x[p, j], total, …)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.schedule.pointwise import tasks
from pullback.schedule.reduction.argument import reduce_row_argument
from pullback.schedule.reduction.nests import at_points, lane_loop, serial
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.schedule.reduction.walk import Walk
from pullback.tir import Buffer, For, PrimExpr, Stmt, as_expr


def lower_rows(program: Program, threads: bool) -> Stmt:
    """All steps of a row in one task."""
    return tasks(program.axes, program.extents, _Row(program).body(), threads)


class _Row(Walk):
    written_out = 3
    whole_vectors = True

    def private(self, name: str, shape: Sequence[int | PrimExpr], dtype: str) -> Buffer:
        return Buffer(name, tuple(shape) or (1,), dtype, "local")

    def at(self, buffer: Buffer, *indices: PrimExpr | int) -> PrimExpr:
        return buffer[indices or (0,)]

    def everywhere(self, body: Stmt) -> Stmt:
        return body

    def lanes(self, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return self.here(lane_loop("lane", count, body))

    def elements(self, steps: Sequence[Step], domain: Domain) -> Stmt:
        inner = For(domain.axes[-1], as_expr(domain.extents[-1]), at_points(steps, [{}]), "vectorized")
        return self.here(serial(domain.axes[:-1], domain.extents[:-1], inner))

    def argument(self, step: Step) -> Stmt:
        body, buffers = reduce_row_argument(step, self.total(step), self.program.machine.vector_bytes)
        self.locals += buffers
        return self.here(body)
