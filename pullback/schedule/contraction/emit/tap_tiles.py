"""Register tiles whose columns go on from tap to tap (``tap_columns.py``).

for task in parallel(parts of the sum):
    region = the part of the image that the task reads, its channels innermost
    for row tile: for q in tiles of C·X columns: partial[task, rows, q] += Σ a[rows, k] · region[C·w + q]
for o: for c: for y: for x: out[o, c, y, x] = f(Σ partial[:, o, y, C·x + c], …)
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.schedule.contraction.emit.flat_region import FlatRegion
from pullback.schedule.contraction.emit.lower import Lowering
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import Buffer, PrimExpr, Var


class TapLowering(Lowering):
    """Writes the kernel of a contraction whose columns go on from tap to tap."""

    def __init__(self, problem: Problem, blocking: Blocking, flat: dict[Buffer, Buffer]) -> None:
        assert blocking.taps is not None and blocking.flat is not None
        self.tap, self.channels, self.length = blocking.taps, blocking.flat.row, blocking.flat.length
        super().__init__(problem, blocking, flat)
        region = FlatRegion(problem, blocking.b, blocking.inner, blocking.column, blocking.flat)
        assert region.shape[-1] == self.channels, "a region of the channels of several groups"
        self.regions[blocking.b] = region
        one_row = {blocking.column: self.length}
        self.extents, self.inner = {**problem.extents, **one_row}, {**blocking.inner, **one_row}

    def _step(self, v: Var) -> int:
        return self.extents[v] if v is self.tap else super()._step(v)

    def _partial_buffer(self) -> Buffer:
        sizes = (self.problem.extents[v] for v in self._others())
        return Buffer("partial", (self.blocking.split_k or 1, *sizes, self.length), self.anchor.dtype, "workspace")

    def _partial_place(self, chunk: PrimExpr, value: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, ...]:
        column = value[self.tap] * self.channels + value[self.blocking.column]
        return (chunk, *(value[v] for v in self._others()), column)

    def _others(self) -> list[Var]:
        return [v for v in self.problem.outputs if v not in (self.blocking.column, self.tap)]
