"""The algebra of minimal filtering: sums of products of overlapping windows with fewer multiplications.

    y[i] = Σ_s d[i + s] · g[s]            2 results of 3 terms each, or 3 of 2: 6 multiplications

are, with t = Bᵀ·d, u = G·g and y = Aᵀ·(t ∘ u), only 4 (Winograd 1980; for convolutions Lavin & Gray 2015). Evaluation
at the points 0, 1, -1, ∞ makes all constants 0, ±1 or ½, so that the rounding errors are about those of the plain sum.
Windows over several axes are transformed along one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pullback.tir import Let, PrimExpr, Stmt, Var, const

POINTS = 4  # values of a window, products of it
Row = tuple[tuple[int, ...], float]  # the coefficients of a linear combination, and a factor for all of it

DATA: tuple[Row, ...] = (((1, 0, -1, 0), 1), ((0, 1, 1, 0), 1), ((0, -1, 1, 0), 1), ((0, 1, 0, -1), 1))  # Bᵀ
WEIGHTS: dict[int, tuple[Row, ...]] = {  # G, for so many terms
    3: (((1, 0, 0), 1), ((1, 1, 1), 0.5), ((1, -1, 1), 0.5), ((0, 0, 1), 1)),
    2: (((1, 0), 1), ((1, 1), 0.5), ((1, -1), 0.5), ((0, 1), 1)),
}
RESULTS: dict[int, tuple[Row, ...]] = {  # Aᵀ, for so many results
    2: (((1, 1, 1, 0), 1), ((0, 1, -1, -1), 1)),
    3: (((1, 1, 1, 0), 1), ((0, 1, -1, 0), 1), ((0, 1, 1, -1), 1)),
}

Grid = dict[tuple[int, ...], PrimExpr]  # values at the points of a small grid, one coordinate for each axis


class Values:
    """Intermediate values, each computed once."""

    def __init__(self) -> None:
        self._bound: list[tuple[Var, PrimExpr]] = []

    def bind(self, value: PrimExpr) -> Var:
        var = Var("t", value.dtype)
        self._bound.append((var, value))
        return var

    def around(self, body: Stmt) -> Stmt:
        """The statement, with all values computed before it."""
        for var, value in reversed(self._bound):
            body = Let(var, value, body)
        return body

    def transformed(self, grid: Grid, matrix: Sequence[Row]) -> Grid:
        """The matrix applied along every axis of the grid."""
        grid = {at: self.bind(value) for at, value in grid.items()}
        for axis in range(len(next(iter(grid)))):
            lines = dict.fromkeys((at[:axis], at[axis + 1 :]) for at in grid)
            grid = {
                (*before, number, *after): self.bind(
                    _combined(row, [grid[(*before, k, *after)] for k in range(len(row[0]))])
                )
                for before, after in lines
                for number, row in enumerate(matrix)
            }
        return grid


def _combined(row: Row, values: Sequence[PrimExpr]) -> PrimExpr:
    """The linear combination; it begins with a term that is added."""
    coefficients, factor = row
    signs = sorted(zip(coefficients, range(len(values)), strict=True), key=lambda t: -t[0])
    total: PrimExpr | None = None
    for sign, k in signs:
        if sign:
            total = values[k] if total is None else total + values[k] if sign > 0 else total - values[k]
    assert total is not None
    return total if factor == 1 else total * const(factor, total.dtype)


def grid_points(axes: int, size: int) -> list[tuple[int, ...]]:
    """The points of a grid, row by row."""
    return list(itertools.product(range(size), repeat=axes))
