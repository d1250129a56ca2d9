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
from pullback.tir import Buffer, For, PrimExpr, Stmt, Var, as_expr, minimum, store

Place = Mapping[Var, PrimExpr]


@dataclass(frozen=True, eq=False)
class RoundCopy:
    """A task's own copy of what one round of it reads of a factor."""

    buffer: Buffer
    axes: tuple[Var, ...]  # of the factor, in the order of memory

    @staticmethod
    def of(problem: Problem, factor: Factor, inner: Mapping[Var, int]) -> RoundCopy:
        """``inner``: how far each axis runs in a round."""
        axes = tuple(sorted(factor.axes, key=lambda v: -distance(problem, factor, v)))
        return RoundCopy(Buffer("round", tuple(inner[v] for v in axes), factor.dtype, "local"), axes)

    def read(self, offsets: Mapping[Var, PrimExpr]) -> PrimExpr:
        return self.buffer[tuple(offsets[v] for v in self.axes)]

    def copy(
        self, bases: Mapping[Var, PrimExpr], extents: Mapping[Var, int], element: Callable[[Place], PrimExpr]
    ) -> Stmt:
        """``element``: the factor's at these values of its axes."""
        offsets = {v: Var(v.name) for v in self.axes}
        value = element({v: bases[v] + offset for v, offset in offsets.items()})
        body = store(self.buffer, tuple(offsets.values()), value)
        for v, size in reversed(list(zip(self.axes, self.buffer.shape, strict=True))):
            whole = extents[v] % size == 0  # type: ignore[operator]
            count = as_expr(size) if whole else minimum(as_expr(extents[v]) - bases[v], size)
            body = For(offsets[v], count, body, "vectorized" if v is self.axes[-1] else "serial")
        return body
