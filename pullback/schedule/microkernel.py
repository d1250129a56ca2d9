"""The micro-kernel of products: a register tile, accumulated over k, and the tiles that cover a block.

for panel in columns / width: for tile in rows / height:
    acc = start(i, j)                                   height × width registers
    for k in depth: for j in vectorized(width): for r in unrolled(height):
        acc[r, j] = fma(a(i0 + r, k), b(k, j0 + j), acc[r, j])
    finish(i, j, acc)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pullback.schedule.group import Machine
from pullback.schedule.tiles import Tile
from pullback.tir import Allocate, Buffer, For, PrimExpr, Stmt, Var, as_expr, const, loop, seq, store

Element = Callable[[PrimExpr, PrimExpr], PrimExpr]
Finish = Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]


@dataclass(frozen=True, eq=False)
class Product:
    """``start[i, j] + Σ_k a[i, k]·b[k, j]`` on a block of floats, in the order of k.

    Elements of ``b`` at neighbouring columns lie side by side. ``finish(i, j, sum)`` is a statement for each element.
    """

    machine: Machine
    dtype: str
    depth: int | PrimExpr
    a: Element
    b: Element
    finish: Finish
    start: Element | None = None

    def tiles(self, rows: int | PrimExpr, columns: int, tile: Tile) -> Stmt:
        """All tiles of a block. Where the number of rows is a run-time value all tiles have the whole height: the last
        may compute rows beyond, which ``a`` and ``start`` must be able to read."""

        def panel(j0: PrimExpr, width: int) -> Stmt:
            def strip(i0: PrimExpr, height: int) -> Stmt:
                return self.tile(i0, j0, height, width)

            if isinstance(rows, int):
                return cover(rows, tile.rows, strip)
            count = (rows + (tile.rows - 1)) // tile.rows
            return loop("row_tile", count, lambda t: strip(t * tile.rows, tile.rows))

        return cover(columns, tile.columns, panel)

    def tile(self, i0: PrimExpr, j0: PrimExpr, rows: int, columns: int) -> Stmt:
        """One register tile: start, accumulate over k, finish."""
        acc = Buffer("acc", (rows, columns), self.dtype, "local")
        k = Var("k")

        def over_tile(element: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
            j = Var("j")
            return For(j, as_expr(columns), loop("r", rows, lambda r: element(r, j), "unrolled"), "vectorized")

        def begin(r: PrimExpr, j: PrimExpr) -> Stmt:
            return store(acc, (r, j), const(0, self.dtype) if self.start is None else self.start(i0 + r, j0 + j))

        def step(r: PrimExpr, j: PrimExpr) -> Stmt:
            total = self.machine.multiply_add(self.a(i0 + r, k), self.b(k, j0 + j), acc[r, j])
            return store(acc, (r, j), total)

        steps = For(k, as_expr(self.depth), over_tile(step))
        finish = over_tile(lambda r, j: self.finish(i0 + r, j0 + j, acc[r, j]))
        return Allocate(acc, seq(over_tile(begin), steps, finish))


def cover(extent: int, size: int, body: Callable[[PrimExpr, int], Stmt]) -> Stmt:
    """``body(begin, size)`` for the whole pieces of an extent, then for what is left."""
    full, rest = divmod(extent, size)
    whole = loop("piece", full, lambda p: body(p * size, size)) if full else None
    return seq(whole, body(as_expr(full * size), rest) if rest else None)
