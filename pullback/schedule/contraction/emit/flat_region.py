"""A region whose last two axes are one in memory, so that vectors go on from a row to the next one, or from the
channels of a place to those of the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.schedule.contraction.emit.region import Place, Region
from pullback.schedule.contraction.plan.blocking import Flat
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import For, PrimExpr, Stmt, Var, as_expr, const, maximum, seq, store


class FlatRegion(Region):
    """Rows one behind the other, and a vector more: tiles end behind the last one.

    Where rows that are read lie d apart, row u lies at ``u % d · ⌈U / d⌉ + u // d``, so that the next one that is read
    follows.
    """

    def __init__(self, problem: Problem, factor: Factor, inner: Mapping[Var, int], column: Var, flat: Flat) -> None:
        self.apart, self.behind, self.shared = flat.apart, problem.lanes + flat.shared, flat.shared
        super().__init__(problem, factor, inner, column)

    def _shape(self) -> list[int]:
        *outer, places = super()._shape()
        return [*outer, places - self.shared]

    @property
    def _each(self) -> int:
        """Rows that follow one another."""
        return -(-self.shape[-2] // self.apart)

    def _buffer_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-2], self.apart * self._each * self.shape[-1] + self.behind)

    def _at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        *outer, row, place = indices
        if self.apart > 1:
            row = row % self.apart * self._each + row // self.apart
        return (*outer, row * self.shape[-1] + place)

    def fill(self, bases: Place) -> Stmt:
        """And zeros behind the last rows: what is computed there is thrown away, but subnormal ones would be slow."""
        count, length = self._counts(bases)[-2], self.shape[-1]
        outer = [Var("i") for _ in self.shape[:-2]]
        clears: list[Stmt] = []
        for k in range(self.apart):
            i, filled = Var("j"), maximum(count - k + (self.apart - 1), 0) // self.apart
            first = (filled + k * self._each) * length
            end = (k + 1) * self._each * length + (self.behind if k + 1 == self.apart else 0)
            zero = store(self.buffer, (*outer, first + i), const(0, self.buffer.dtype))
            clears.append(For(i, as_expr(end) - first, zero, "vectorized"))
        body = seq(*clears)
        for v, size in reversed(list(zip(outer, self.shape[:-2], strict=True))):
            body = For(v, as_expr(size), body)
        return seq(super().fill(bases), body)
