"""Register tiles whose columns go on from tap to tap (``tap_columns.py``).

for task in parallel(parts of the sum):
    region = the part of the image that the task reads, its channels innermost
    for row tile: for q in tiles of C·X columns: partial[task, rows, q] += Σ a[rows, k] · region[C·w + q]
for o: for c: for y: for x: out[o, c, y, x] = f(Σ partial[:, o, y, C·x + c], …)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.schedule.contraction.blocking import Blocking
from pullback.schedule.contraction.columns import lanes_of
from pullback.schedule.contraction.lower import Lowering
from pullback.schedule.contraction.problem import Problem
from pullback.schedule.contraction.region import Place, Region
from pullback.schedule.contraction.tap_columns import tap_length
from pullback.tir import Buffer, For, PrimExpr, Stmt, Var, as_expr, const, maximum, seq, store


class TapLowering(Lowering):
    """Writes the kernel of a contraction whose columns go on from tap to tap."""

    def __init__(self, problem: Problem, blocking: Blocking, flat: dict[Buffer, Buffer], threads: bool) -> None:
        assert blocking.taps is not None
        self.tap, self.channels = blocking.taps, problem.extents[blocking.column]
        self.length = tap_length(problem, blocking)
        one_row = {blocking.column: self.length}
        super().__init__(problem, replace(blocking, inner={**blocking.inner, **one_row}), flat, threads)
        self.extents = {**problem.extents, **one_row}
        self.regions[blocking.b] = TapRegion(problem, blocking)

    def _step(self, v: Var) -> int:
        return self.extents[v] if v is self.tap else super()._step(v)

    def _partial_buffer(self) -> Buffer:
        sizes = (self.problem.extents[v] for v in self._others())
        return Buffer("partial", (self.blocking.chunks or 1, *sizes, self.length), self.anchor.dtype, "workspace")

    def _partial_place(self, chunk: PrimExpr, value: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, ...]:
        column = value[self.tap] * self.channels + value[self.blocking.column]
        return (chunk, *(value[v] for v in self._others()), column)

    def _others(self) -> list[Var]:
        return [v for v in self.problem.outputs if v not in (self.blocking.column, self.tap)]


class TapRegion(Region):
    """A region whose last two axes, places and channels, are one in memory, with zeros behind them.

    ``apart``: places from tap to tap, d. Place u lies at ``u % d · ⌈U / d⌉ + u // d``, so that the next tap's follows.
    """

    def __init__(self, problem: Problem, blocking: Blocking) -> None:
        assert blocking.taps is not None and blocking.b.windows is not None
        self.apart = next(w.terms[blocking.taps] for w in blocking.b.windows if blocking.taps in w.terms)
        self.lanes = lanes_of(problem)
        super().__init__(problem, blocking.b, blocking.inner, blocking.column)
        assert self.shape[-1] == problem.extents[blocking.column], "a region of the channels of several groups"

    @property
    def _each(self) -> int:
        """Places of which the taps are neighbours."""
        return -(-self.shape[-2] // self.apart)

    def _buffer_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-2], self.apart * self._each * self.shape[-1] + self.lanes)

    def _at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        *outer, place, channel = indices
        if self.apart > 1:
            place = place % self.apart * self._each + place // self.apart
        return (*outer, place * self.shape[-1] + channel)

    def fill(self, bases: Place) -> Stmt:
        """And zeros where a vector reads behind the last place: these sums are thrown away, but subnormal numbers would
        be slow."""
        count, channels = self._counts(bases)[-2], self.shape[-1]
        outer = [Var("i") for _ in self.shape[:-2]]
        clears: list[Stmt] = []
        for k in range(self.apart):
            i, filled = Var("j"), maximum(count - k + (self.apart - 1), 0) // self.apart
            first = (filled + k * self._each) * channels
            end = (k + 1) * self._each * channels + (self.lanes if k + 1 == self.apart else 0)
            zero = store(self.buffer, (*outer, first + i), const(0, self.buffer.dtype))
            clears.append(For(i, as_expr(end) - first, zero, "vectorized"))
        body = seq(*clears)
        for v, size in reversed(list(zip(outer, self.shape[:-2], strict=True))):
            body = For(v, as_expr(size), body)
        return seq(super().fill(bases), body)
