"""A task's own copy of what one round of it reads of a factor: few lines, one after the other, in the type that they
are multiplied as. A matrix from beyond the second cache is then read once, a long piece of each line at a time.

    for round of terms:
        for k in terms: for line in columns: prefetch(b[round + k + 8, block + line])
                        for j in vectorized(columns): copy[k, j] = b[round + k, block + j]
        for register tile: acc[r, j] += Σ_k a[r, round + k] · copy[k, j]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pullback.schedule.contraction.columns import distance
from pullback.schedule.contraction.problem import Factor, Problem
from pullback.tir import (
    Buffer,
    For,
    Prefetch,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    cast,
    loop,
    minimum,
    seq,
    store,
)
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import loads

Place = Mapping[Var, PrimExpr]
_AHEAD = 8  # lines that are asked for before they are copied (4: as fast; of 10 x 24x603x301 0.84 of the time without)
_FEW = 16  # prefetches that are written out


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

        def read(changes: Place) -> PrimExpr:
            return element({v: bases[v] + offset for v, offset in (offsets | changes).items()})

        *outer, last = self.inner
        value = cast(self.buffer.dtype, read({}))
        copy = store(self.buffer, tuple(offsets.values()), value)
        for v in reversed(self.inner):
            size = self.inner[v]
            count = as_expr(size) if extents[v] % size == 0 else minimum(as_expr(extents[v]) - bases[v], size)
            copy = For(offsets[v], count, copy, "vectorized" if v is last else "serial")
            if v is last and outer and self.inner[outer[-1]] > _AHEAD:
                copy = seq(self._ahead(read, {outer[-1]: offsets[outer[-1]] + _AHEAD}), copy)
        return copy

    def _ahead(self, read: Callable[[Place], PrimExpr], place: Place) -> Stmt:
        """Hints for a whole piece of a line, along its last axis."""
        last, size = list(self.inner.items())[-1]
        (load,) = loads(read(place))
        lines = -(-size * nbytes(load.dtype) // LINE) + 1  # as pieces do not begin with a line

        def hint(line: PrimExpr) -> Stmt:
            (element,) = loads(read({**place, last: line * (LINE // nbytes(load.dtype))}))
            return Prefetch(element.buffer, element.indices)

        return loop("line", lines, hint, "unrolled" if lines <= _FEW else "serial")
