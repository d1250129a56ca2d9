"""What the next round copies is asked for while this one multiplies.

    for round: copy;  for register tile: for r in rows:
        for line in this row's share of the terms: prefetch(b[next round + line, the tile's columns])
        for k in this part of the terms: …

A copy alone waits for memory, and the units for the copy: 10 x 24x603x301 spent 46 of 100 cycles on it, 15 x 393x25x543
48. Asked for a round before, it comes from a near cache (0.75 to 0.85 of the time). The round after a task's last one
is the first of the task that follows, which is most often the same thread's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pullback.schedule.contraction.ahead import Hints
from pullback.schedule.contraction.blocking import Blocking
from pullback.schedule.contraction.problem import Factor, Problem
from pullback.schedule.contraction.round_copy import RoundCopy
from pullback.tir import BufferLoad, Prefetch, PrimExpr, Stmt, Var, as_expr, seq
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes

Place = Mapping[Var, PrimExpr]


def following(axes: Sequence[Var], sizes: Sequence[int]) -> dict[Var, PrimExpr]:
    """The point after one, in row-major order; behind the last one there is none, and nothing is asked for in vain."""
    number = as_expr(0)
    for axis, size in zip(axes, sizes, strict=True):
        number = number * size + axis
    number, place = number + 1, {}
    for axis, size in reversed(list(zip(axes, sizes, strict=True))):
        place[axis] = number % size if axis is not axes[0] else number
        number = number // size
    return place


@dataclass(frozen=True, eq=False)
class NextRound:
    """What a round copies of some factors. ``element``: of a factor, at these values of its axes."""

    problem: Problem
    blocking: Blocking
    copies: Mapping[Factor, RoundCopy]
    element: Callable[[Factor, Place], PrimExpr]

    def hints(self, tile: Place, bases: Place) -> Hints | None:
        """For each row of a register tile. ``tile``: its number in its round, along each axis of the result;
        ``bases``: the first values of the next round's axes."""
        steps = dict(self.blocking.rows) | {self.blocking.column: self.blocking.tile.columns}
        asked = [f for f, copy in self.copies.items() if len(copy.inner) > 1 and list(copy.inner)[-1] in steps]

        def of_row(row: PrimExpr) -> Stmt:
            return seq(*(hint for f in asked for hint in self._lines(f, steps, tile, row, bases)))

        return of_row if asked else None

    def _lines(
        self, factor: Factor, steps: Mapping[Var, int], tile: Place, row: PrimExpr, bases: Place
    ) -> Iterator[Stmt]:
        """The lines of the tile's own columns (or rows) in a share of the terms, which tiles and rows divide that have
        the same ones."""
        inner = self.blocking.inner
        *outer, last = self.copies[factor].inner
        term = max(outer, key=lambda v: inner[v])
        share, shares = as_expr(0), 1
        for v in self.problem.outputs:
            if v not in factor.axes:
                count = -(-inner[v] // steps.get(v, 1))
                share, shares = share * count + tile[v], shares * count
        rows = math.prod(count for _, count in self.blocking.rows)
        each = -(-inner[term] // (shares * rows))
        first = bases[term] + (share * rows + row) * each
        elements = LINE // nbytes(factor.source.dtype)
        for k, line in itertools.product(range(each), range(-(-steps[last] // elements))):
            place = {term: first + k, last: bases[last] + tile[last] * steps[last] + line * elements}
            load = self.element(factor, {**bases, **place})
            assert isinstance(load, BufferLoad)
            yield Prefetch(load.buffer, load.indices)
