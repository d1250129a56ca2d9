"""Transposes: elementwise nests in which some input is contiguous along another axis than the output.

    for i in rows: for j in vectorized(columns): out[i, j] = f(x[j, i])

is done in square tiles of whole vectors. A tile of x is read along x's own rows, and turned in registers: log2(size)
times, two rows become two others, until row and column have changed places. The copies that contractions make of what
they read are turned in the same way.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence

from pullback.schedule.group import Machine
from pullback.schedule.pointwise import outer_loops
from pullback.tir import Allocate, Buffer, BufferLoad, For, PrimExpr, Stmt, Var, as_expr, minimum, seq, store
from pullback.tir.expr import nbytes
from pullback.tir.visitor import loads, rewrite, substitute, walk

_TILE = 16  # elements along each side of a tile that is not turned in registers
_LEAST = 4  # and of one that is
_BLOCK = 16  # bytes inside of which elements change places most easily

Extents = Sequence[int | PrimExpr]


def crossed_axis(axes: Sequence[Var], extents: Extents, body: Stmt) -> int | None:
    """An axis, not the last, along which some access is contiguous: a transpose, if both axes are long."""
    for load in loads(body):
        for k, axis in enumerate(axes[:-1]):
            if all(isinstance(e, int) and e >= _TILE for e in (extents[k], extents[-1])) and _turns(
                load, axis, axes[-1]
            ):
                return k
    return None


def _turns(load: BufferLoad, crossed: Var, last: Var) -> bool:
    """Whether an access is contiguous along one axis and moves along the other too: else it is the same for a row."""
    return bool(load.indices) and load.indices[-1] is crossed and any(n is last for i in load.indices for n in walk(i))


def transposed(
    axes: Sequence[Var], extents: Extents, body: Stmt, threads: bool, crossed: int, machine: Machine
) -> Stmt:
    """Loops over tiles of the last and the crossed axis."""
    turning = [x for x in loads(body) if _turns(x, axes[crossed], axes[-1])]
    size = machine.vector_bytes // max(4, *(nbytes(x.dtype) for x in turning))
    whole = all(extents[k] % size == 0 for k in (crossed, len(axes) - 1))
    if not whole or any(nbytes(x.dtype) != nbytes(turning[0].dtype) or nbytes(x.dtype) < 4 for x in turning):
        size, turning = _TILE, []
    blocks, places, ends = {}, {}, {}
    for k in (crossed, len(axes) - 1):
        block, offset, extent = Var("block"), Var("offset"), as_expr(extents[k])
        ends[k] = as_expr(size) if extents[k] % size == 0 else minimum(extent - block * size, size)
        blocks[k], places[k] = (block, (extent + (size - 1)) // size), (block * size, offset)
    last = len(axes) - 1
    tile = _Tile(size, (axes[crossed], *places[crossed]), (axes[last], *places[last]))
    inner = tile.loops(body, turning, ends[crossed], ends[last])
    loops = [(axes[k], as_expr(extents[k])) for k in range(last) if k != crossed] + [blocks[crossed], blocks[last]]
    return outer_loops([v for v, _ in loops], [_number(e) for _, e in loops], inner, threads)


def _number(extent: PrimExpr) -> int | PrimExpr:
    return getattr(extent, "value", extent)


class _Tile:
    """A tile of ``size`` × ``size`` points; each axis as (variable, where the tile begins, place in the tile)."""

    def __init__(self, size: int, row: tuple[Var, PrimExpr, Var], column: tuple[Var, PrimExpr, Var]) -> None:
        self.size, self.row, self.column = size, row, column
        self.buffers: list[Buffer] = []

    def loops(self, body: Stmt, turning: Sequence[BufferLoad], rows: PrimExpr, columns: PrimExpr) -> Stmt:
        (i, i0, di), (j, j0, dj) = self.row, self.column
        turned: dict[object, Buffer] = {}
        before = []
        for load in turning:
            if _place(load) not in turned:
                statements, turned[_place(load)] = self.turn(load)
                before.append(statements)

        def from_tile(node: PrimExpr) -> PrimExpr | None:
            tile = turned.get(_place(node)) if isinstance(node, BufferLoad) else None
            return tile[di * self.size + dj] if tile is not None else None

        body = substitute(rewrite(body, from_tile), {i: i0 + di, j: j0 + dj})
        result = seq(*before, For(di, rows, For(dj, columns, body, "vectorized")))
        for buffer in reversed(self.buffers):
            result = Allocate(buffer, result)
        return result

    def turn(self, load: BufferLoad) -> tuple[Stmt, Buffer]:
        """Read the tile of one access along its own rows, and turn it."""
        (i, i0, _), (j, j0, _) = self.row, self.column
        steps, tiles = turned_tile(self.size, load.dtype, lambda r, lane: substitute(load, {j: j0 + r, i: i0 + lane}))
        self.buffers += tiles
        return steps, tiles[-1]


def turned_tile(size: int, dtype: str, element: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> tuple[Stmt, list[Buffer]]:
    """Compute ``element(r, lane)`` for a square of a power of two, along the lanes, and turn it in registers: the last
    of the buffers then has ``element(lane, r)`` at ``r · size + lane``.

    Each step takes rows 2i and 2i + 1 for rows i and i + size / 2. First elements change places inside of blocks of 128
    bits, then whole blocks do: so each row of a step is one instruction, wherever vectors consist of such blocks."""
    block = min(size, _BLOCK // nbytes(dtype))
    inside = block.bit_length() - 1  # steps
    tiles = [Buffer("tile", (size * size,), dtype, "local") for _ in range(size.bit_length())]
    r, lane = Var("r"), Var("lane")
    steps: list[Stmt] = [_lines(r, lane, size, store(tiles[0], r * size + lane, element(r, lane)))]
    for step, (old, new) in enumerate(itertools.pairwise(tiles)):
        r, lane = Var("r"), Var("lane")
        pair, second, at = r % (size // 2) * (2 * size), r // (size // 2), lane % block
        if step < inside:
            unit = 1 << step  # elements of one row that have come side by side
            row, place = at // unit % 2, at // (2 * unit) * unit + at % unit
            place = row * size + lane // block * block + place + second * (block // 2)
        else:
            place = (lane // block * 2 + second) * block + at
        row = _turned_row(r, inside) if new is tiles[-1] else r
        steps.append(_lines(r, lane, size, store(new, row * size + lane, old[pair + place])))
    return seq(*steps), tiles


def _turned_row(row: PrimExpr, inside: int) -> PrimExpr:
    """Where a row of the last step belongs: steps inside of blocks came upon the bits of its number from above."""
    bits = [row // (1 << k) % 2 * (1 << (inside - 1 - k)) for k in range(inside)]
    return functools.reduce(operator.add, bits, row // (1 << inside) * (1 << inside))


def copied_across(
    rows: int,
    columns: int,
    machine: Machine,
    element: Callable[[PrimExpr, PrimExpr], PrimExpr],
    write: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt],
) -> Stmt:
    """``for i in rows: for j in vectorized(columns): write(i, j, element(i, j))``, where elements lie side by side in
    memory along the rows, and what is written along the columns. The last tiles overlap those before them."""
    i, j = Var("i"), Var("j")
    plain = write(i, j, element(i, j))
    dtype = element(i, j).dtype
    size = machine.vector_bytes // nbytes(dtype)
    while size > min(rows, columns):
        size //= 2
    if size < _LEAST or nbytes(dtype) < 4:
        return For(i, as_expr(rows), For(j, as_expr(columns), plain, "vectorized"))

    def first(tile: Var, extent: int) -> PrimExpr:
        return tile * size if extent % size == 0 else minimum(tile * size, extent - size)

    row_tile, column_tile, r, lane = Var("row_tile"), Var("column_tile"), Var("r"), Var("lane")
    i0, j0 = first(row_tile, rows), first(column_tile, columns)
    steps, tiles = turned_tile(size, dtype, lambda r, lane: element(i0 + lane, j0 + r))
    body = seq(steps, _lines(r, lane, size, write(i0 + r, j0 + lane, tiles[-1][r * size + lane])))
    for buffer in reversed(tiles):
        body = Allocate(buffer, body)
    body = For(column_tile, as_expr(-(-columns // size)), body)
    return For(row_tile, as_expr(-(-rows // size)), body)


def _lines(row: Var, lane: Var, size: int, body: Stmt) -> Stmt:
    return For(lane, as_expr(size), For(row, as_expr(size), body, "unrolled"), "vectorized")


def _place(load: BufferLoad) -> object:
    return load.buffer, tuple(map(id, load.indices))
