"""Factors packed as a whole: panels, blocks as wide as the register tile in which one term follows on the other.

    for panel: for k in the axes of the sum: for j in vectorized(width):
        panels[panel, k, j] = b[k, panel · width + j]

The whole factor is packed, before the tasks begin or by each thread for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.memory import distance
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.pointwise import tasks
from pullback.schedule.transpose import copied_across
from pullback.tir import Buffer, For, If, PrimExpr, Stmt, Var, as_expr, cast, const, minimum, seq, store
from pullback.tir.visitor import substitute

_LINES = 16  # of a factor that a task packs into a panel
_TERMS = 64  # in these lines, where each has several: few and large tasks would be uneven shares

Place = Mapping[Var, PrimExpr]


class Panels:
    """The panels of one factor. ``element``: of it, at these values of its axes; those left out stand for themselves.

    ``axis``: the one along which it is cut up, that of the tile's columns or rows."""

    def __init__(
        self, problem: Problem, blocking: Blocking, factor: Factor, scope: str, element: Callable[[Place], PrimExpr]
    ) -> None:
        self.problem, self.extents, self.element = problem, problem.extents, element
        self.axis = blocking.column if blocking.column in factor.axes else blocking.rows[-1][0]
        self.step = blocking.tile.columns if self.axis is blocking.column else blocking.rows[-1][1]
        self.is_of_columns = factor is blocking.b
        self.outer = [v for v in problem.outputs if v in factor.axes and v is not self.axis]
        self.summed = [k for k in problem.reduced if k in factor.axes]
        self.crossed = bool(self.summed) and distance(problem, factor, self.summed[-1]) == 1
        self.width = self._width()
        self.count = -(-self.extents[self.axis] // self.step)
        outer, summed = ([self.extents[v] for v in axes] for axes in (self.outer, self.summed))
        self.buffer = Buffer("panels", (*outer, self.count, *summed, self.width), factor.source.dtype, scope)

    def _width(self) -> int:
        """As wide as the tile; columns that are less than a vector, as that of so many lanes: it is read as a whole."""
        is_part = self.is_of_columns and self.step < self.problem.lanes
        return 1 << (self.step - 1).bit_length() if is_part else self.step

    def read(self, value: Place, tile: Place, lane: Place) -> PrimExpr:
        """The element at these values of the axes, at a place in the panel of this number."""
        outer, summed = ([value[v] for v in axes] for axes in (self.outer, self.summed))
        place = (*outer, tile[self.axis], *summed, lane[self.axis])
        return self.buffer[place]

    def copy(self, threads: bool, outermost: Var | None) -> Stmt:
        """Some lines for all panels, then the next ones: pages are read in order. All lines of a panel of columns, then
        the next panel, where the tasks that read them go along this axis, ``outermost``: so threads pack what they
        read. Panels of rows are so narrow that all of them are in the same lines."""
        panel = Var("panel")
        body, axes, sizes = self._panel(panel), [*self.outer], [self.extents[v] for v in self.outer]
        if self.summed[self.crossed :]:
            terms, extent, block = self.summed[0], self.extents[self.summed[0]], Var("block")
            lines = min(_LINES, max(1, _TERMS // math.prod(self.extents[k] for k in self.summed[1:])))
            count = as_expr(lines) if extent % lines == 0 else minimum(as_expr(extent) - block * lines, lines)
            k = Var(terms.name)
            body = For(k, count, substitute(body, {terms: block * lines + k}))
            axes, sizes = [*axes, block], [*sizes, -(-extent // lines)]
        place = len(self.outer) if self.is_of_columns and self.axis is outermost else len(axes)
        return tasks([*axes[:place], panel, *axes[place:]], [*sizes[:place], self.count, *sizes[place:]], body, threads)

    def _panel(self, panel: PrimExpr) -> Stmt:
        """Packs one line of a panel, or all of its lines where it is transposed."""
        full, rest = divmod(self.extents[self.axis], self.step)
        if not full or not rest:
            return self._lines(panel, self.step if full else rest)
        return If(panel < full, self._lines(panel, self.step), self._lines(panel, rest))

    def _lines(self, panel: PrimExpr, columns: int) -> Stmt:
        j, summed, crossed = Var("j"), self.summed, self.crossed

        def put(k: Sequence[PrimExpr], j: PrimExpr, value: PrimExpr) -> Stmt:
            return store(self.buffer, (*self.outer, panel, *k, j), value)

        def element(k: PrimExpr, j: PrimExpr) -> PrimExpr:
            return self.element({self.axis: panel * self.step + j, **({summed[-1]: k} if crossed else {})})

        if crossed:
            body = copied_across(
                self.extents[summed[-1]], columns, self.problem.group.machine, element,
                lambda k, j, value: put([*summed[:-1], k], j, value),
            )  # fmt: skip
        else:
            body = For(j, as_expr(columns), put(summed, j, element(as_expr(0), j)), "vectorized")
        if columns < self.width and summed and self.is_of_columns:  # subnormal numbers there would be slow
            k, j = (Var(summed[-1].name), Var("j")) if crossed else (summed[-1], Var("j"))
            zero = put([*summed[:-1], k], columns + j, const(0, self.buffer.dtype))
            zeros: Stmt = For(j, as_expr(self.width - columns), zero, "vectorized")
            body = seq(body, For(k, as_expr(self.extents[summed[-1]]), zeros) if crossed else zeros)
        for k in reversed(summed[1 : -1 if crossed else None]):
            body = For(k, as_expr(self.extents[k]), body)
        return body


class TransposedCopy:
    """A factor packed with the rows of the register tile innermost. ``element``: as of :class:`Panels`."""

    def __init__(
        self, problem: Problem, blocking: Blocking, factor: Factor, scope: str, element: Callable[[Place], PrimExpr]
    ) -> None:
        rows = [v for v, _ in blocking.rows if v in factor.axes]
        outer = [v for v in problem.outputs if v in factor.axes and v not in rows]
        self.axes = [*outer, *(k for k in problem.reduced if k in factor.axes), *rows]
        self.sizes, self.element = [problem.extents[v] for v in self.axes], element
        self.buffer = Buffer("turned", tuple(self.sizes), factor.dtype, scope)

    def read(self, value: Place, tile: Place, lane: Place) -> PrimExpr:
        return self.buffer[tuple(value[v] for v in self.axes)]

    def copy(self, threads: bool, outermost: Var | None) -> Stmt:
        *outer, last = self.axes
        value = store(self.buffer, tuple(self.axes), cast(self.buffer.dtype, self.element({})))
        body = For(last, as_expr(self.sizes[-1]), value, "vectorized")
        return tasks(outer, self.sizes[:-1], body, threads)
