"""A task's own copy of what one round of it reads of a factor: few lines, one after the other, in the type that they
are multiplied as. A matrix from beyond the second cache is then read once, a long piece of each line at a time.

    for round of terms:
        copy[k, j] = b[round + k, block + j]                                  for the terms and the columns of the round
        for register tile: acc[r, j] += Σ_k a[r, round + k] · copy[k, j]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pullback.schedule.contraction.columns import distance
from pullback.schedule.contraction.problem import Factor, Problem
from pullback.tir import Buffer, For, PrimExpr, Stmt, Var, as_expr, cast, minimum, store

Place = Mapping[Var, PrimExpr]


@dataclass(frozen=True, eq=False)
class RoundCopy:
    """A task's own copy of what one round of it reads of a factor."""

    buffer: Buffer
    inner: Mapping[Var, int]  # how far each axis of the factor runs in a round, in the order of memory

    @staticmethod
    def of(problem: Problem, factor: Factor, inner: Mapping[Var, int]) -> RoundCopy:
        """``inner``: how far each axis runs in a round."""
        axes = sorted(factor.axes, key=lambda v: -distance(problem, factor, v))
        own = {v: inner[v] for v in axes}
        return RoundCopy(Buffer("round", tuple(own.values()), factor.dtype, "local"), own)

    def read(self, offsets: Mapping[Var, PrimExpr]) -> PrimExpr:
        return self.buffer[tuple(offsets[v] for v in self.inner)]

    def copy(
        self, bases: Mapping[Var, PrimExpr], extents: Mapping[Var, int], element: Callable[[Place], PrimExpr]
    ) -> Stmt:
        """``element``: the factor's source at these values of its axes."""
        offsets = {v: Var(v.name) for v in self.inner}
        value = cast(self.buffer.dtype, element({v: bases[v] + offset for v, offset in offsets.items()}))
        body, kind = store(self.buffer, tuple(offsets.values()), value), "vectorized"
        for v, size in reversed(self.inner.items()):
            count = as_expr(size) if extents[v] % size == 0 else minimum(as_expr(extents[v]) - bases[v], size)
            body, kind = For(offsets[v], count, body, kind), "serial"
        return body
