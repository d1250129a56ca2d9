"""Register tiles of running rows (``runs.py``).

for rows of the tile:
    for q in tiles of the run: run[rows, q] = Σ a[rows, k] · region[q + S·k₁ + k₂]
    for r in rows: for y: for x in vectorized(W): out[r, y, x] = f(run[r, S·y + x], …)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pullback.schedule.contraction.emit.epilogue import epilogue, whole_or_tail
from pullback.schedule.contraction.emit.flat_region import FlatRegion
from pullback.schedule.contraction.emit.lower import Lowering, Spot
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.problem import Problem
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    const,
    loop,
    minimum,
    seq,
    store,
)


class RunLowering(Lowering):
    """Writes the kernel of a contraction whose vectors run on from row to row."""

    def __init__(self, problem: Problem, blocking: Blocking, flat: dict[Buffer, Buffer]) -> None:
        super().__init__(problem, blocking, flat)
        assert blocking.run is not None and blocking.flat is not None
        self.run, self.row, self.length = blocking.run, blocking.flat.row, blocking.flat.length
        region = FlatRegion(problem, blocking.b, blocking.inner, blocking.column, blocking.flat)
        self.regions = {blocking.b: region}

    def _round(self, bases: Mapping[Var, PrimExpr], tile: Callable[[Spot, int, int], Stmt]) -> Stmt:
        """Fill the region, then run along it for each tile's rows."""
        image = (self.run, self.blocking.column)
        place: dict[Var, PrimExpr] = {v: as_expr(0) for v in (*self.problem.reduced, *image)}
        body: Callable[[dict[Var, PrimExpr]], Stmt] = lambda found: self._rows(bases, found)  # noqa: E731
        order = [v for v in self.blocking.tile_order if v not in image]
        free = [v for v in order if not any(v in f.axes for f in self.regions)]
        for v in reversed([*(v for v in order if v not in free), *free]):
            body = self._along(v, bases, body)
        return seq(*(region.fill(bases) for region in self.regions.values()), body(place))

    def _rows(self, bases: Mapping[Var, PrimExpr], place: Mapping[Var, PrimExpr]) -> Stmt:
        """The rows of a tile, or those that are left at the end of their axis."""
        ((row, step),) = self.blocking.rows
        offset = {v: number * self._step(v) if v is row else number for v, number in place.items()}
        value = {v: bases[v] + offset[v] for v in offset}
        number = {row: bases[row] // step + place[row]}
        spot = Spot(value, offset, place, number, {row: as_expr(0)})
        return whole_or_tail(value[row], self.extents[row], step, lambda rows: self._run(bases, spot, rows))

    def _run(self, bases: Mapping[Var, PrimExpr], spot: Spot, rows: int) -> Stmt:
        column, columns = self.blocking.column, self.blocking.tile.columns
        kept = Buffer("run", (rows, self.length), self.anchor.dtype, "local")
        lines = self._lines(bases)

        def tile(number: PrimExpr) -> Stmt:
            first = number * columns
            at = spot.at({column: first})
            return whole_or_tail(first, self.length, columns, lambda count: self._tile(at, rows, count, kept, first))

        count = minimum((lines * self.row + (columns - 1)) // columns, -(-self.length // columns))
        return Allocate(kept, seq(loop("q", count, tile), self._written(spot, rows, kept, lines)))

    def _lines(self, bases: Mapping[Var, PrimExpr]) -> PrimExpr:
        """Rows of the image that the task computes."""
        inner, extent = self.inner[self.run], self.extents[self.run]
        return as_expr(inner) if extent % inner == 0 else minimum(as_expr(extent) - bases[self.run], inner)

    def _tile(self, spot: Spot, rows: int, columns: int, kept: Buffer, first: PrimExpr) -> Stmt:
        acc = self._acc(rows, columns)
        zero = const(0, self.anchor.dtype)
        clear = self._over_tile(spot, rows, columns, lambda r, j, _: store(acc, (r, j), zero))
        keep = self._over_tile(spot, rows, columns, lambda r, j, _: store(kept, (r, first + j), acc[r, j]))
        return Allocate(acc, seq(clear, self._accumulate(acc, spot, rows, columns), keep))

    def _written(self, spot: Spot, rows: int, kept: Buffer, lines: PrimExpr) -> Stmt:
        """The elementwise stages of all results of the tile's rows."""
        r, y, x = Var("r"), Var("y"), Var("x")
        moves = {self.blocking.rows[0][0]: r, self.run: y, self.blocking.column: x}
        value = epilogue(self.problem, spot.at(moves).value, kept[r, y * self.row + x])
        body = For(x, as_expr(self.extents[self.blocking.column]), value, "vectorized")
        return For(r, as_expr(rows), For(y, lines, body))
