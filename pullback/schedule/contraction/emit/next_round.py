"""What the next round copies of a matrix is asked for while this one multiplies.

    for round: copy;  for register tile: for r in rows:
        for line in this row's share of them: prefetch(b[next round + …])
        for k in this part of the terms: …

A copy alone waits for memory, and the units for the copy: 10 x 24x603x301 spent 46 of 100 cycles on it, 15 x 393x25x543
48. Asked for a round before, it comes from a near cache (0.75 to 0.85 of the time). The round after a task's last one
is the first of the task that follows, which is most often the same thread's. Images are left alone: their regions are
in fewer and longer pieces, which prefetchers follow (43 convolutions: 1.01 of the time).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pullback.schedule.contraction.emit.prefetch import Hints
from pullback.schedule.contraction.plan.blocking import Blocking, Packing
from pullback.schedule.contraction.problem.memory import distance, exceeds_l2
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.pointwise import point_of
from pullback.tir import If, Prefetch, PrimExpr, Stmt, Var, as_expr, seq
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import loads

Place = Mapping[Var, PrimExpr]


def following(axes: Sequence[Var], sizes: Sequence[int]) -> dict[Var, PrimExpr]:
    """The point after one, in row-major order; after the last one a place outside, which it does no harm to ask for."""
    number = as_expr(0)
    for axis, size in zip(axes, sizes, strict=True):
        number = number * size + axis
    return point_of(number + 1, axes, sizes)


@dataclass(frozen=True, eq=False)
class NextRound:
    """What the rounds of a contraction copy. ``element``: of a factor, at these values of its axes."""

    problem: Problem
    blocking: Blocking
    element: Callable[[Factor, Place], PrimExpr]

    def hints(self, tile: Place, bases: Place) -> Hints | None:
        """For each row of a register tile. ``tile``: its number in its round, along each axis of the result;
        ``bases``: the first values of the next round's axes."""
        copied = [f for f in self.blocking.packing if self._is_copied(f)]

        def of_row(row: PrimExpr) -> Stmt:
            return seq(*(hint for f in copied for hint in self._lines(f, tile, row, bases)))

        return of_row if copied else None

    def _is_copied(self, factor: Factor) -> bool:
        """Whether rounds copy a matrix from beyond the second cache."""
        if (
            self.blocking.packing[factor] not in (Packing.ROUND, Packing.REGION)
            or not factor.is_input
            or factor.is_window
        ):
            return False
        return exceeds_l2(self.problem, factor) and any(k in factor.axes for k in self.problem.reduced)

    def _lines(self, factor: Factor, tile: Place, row: PrimExpr, bases: Place) -> Iterator[Stmt]:
        """Of the tile's own columns (or rows), those terms that are the row's share among all tiles with the same."""
        inner, rows, column = self.blocking.inner, self.blocking.rows, self.blocking.column
        steps = dict(rows) | {column: self.blocking.tile.columns}
        own = column if column in factor.axes else next(v for v, _ in reversed(rows) if v in factor.axes)
        term = max((k for k in self.problem.reduced if k in factor.axes), key=lambda k: inner[k])
        share, shares = as_expr(0), 1
        for v in self.problem.outputs:
            if v not in factor.axes:
                count = -(-inner[v] // steps.get(v, 1))
                share, shares = share * count + tile[v], shares * count
        tall = math.prod(count for _, count in rows)
        share, shares = share * tall + row, shares * tall
        size = LINE // nbytes(factor.source.dtype)
        across = distance(self.problem, factor, own) != 1  # lines lie along the terms
        of_own, of_terms = (1, size) if across else (size, 1)
        count = -(-inner[term] // of_terms) + across  # as they do not begin with a line
        each = -(-count // shares)

        def hint(along: PrimExpr | int, number: PrimExpr) -> Stmt:
            place = {own: bases[own] + along, term: bases[term] + number * of_terms}
            (load,) = loads(self.element(factor, {**bases, **place}))
            return Prefetch(load.buffer, load.indices)

        for k in range(each):
            number = share * each + k
            ends = [tile[own] * steps[own] + (i + 1) * of_own - 1 for i in range(-(-steps[own] // of_own))]
            lines = seq(*(hint(end, number) for end in ends))
            if not across:  # the first one of all
                lines = seq(If(tile[own].equal(0), hint(0, number)), lines)
            yield If(number < count, lines) if count < shares * each else lines
