"""Transposed stores: results of a register tile whose columns lie apart in memory, and whose rows are contiguous.

    acc[r, j], r in rows, j in vectorized(columns)
    tile = acc transposed in registers                      size × size elements at a time; of many, in a loop
    for j in columns: for r in vectorized(rows): out[j, r] = f(tile[j, r], …)

So the gradient of a convolution's weights is stored (and what its optimizer reads and writes with it): its vectors lie
along the channels, its rows along the filter, which is innermost in memory. Else each lane would be a scalar store.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from pullback.schedule.contraction.problem.memory import LEAST_RUN, adjacent_rows
from pullback.schedule.contraction.problem.problem import Problem
from pullback.schedule.transpose import turned_tile
from pullback.tir import Allocate, Buffer, For, PrimExpr, Stmt, Var, as_expr, loop, minimum, seq, store
from pullback.tir.visitor import walk

_MANY = 3  # squares of a tile: from so many on a long epilogue is a loop over them, not written out
_LONG = 40  # nodes of an epilogue beside which reloading a square from memory takes nothing
Counts = Sequence[tuple[Var, int]]
Finish = Callable[[Mapping[Var, PrimExpr], PrimExpr], Stmt]


def transposed_store(
    problem: Problem, column: Var, counts: Counts, columns: int, acc: Buffer, lanes: int, finish: Finish
) -> Stmt | None:
    """The epilogue of a register tile, or None where its rows are not contiguous.

    ``counts``: the axes of the rows, outermost first, as ``acc`` has them. ``finish(moves, total)`` is the statement
    for the element that is moved so far from the tile's corner.
    """
    rows, run = math.prod(count for _, count in counts), adjacent_rows(problem, column, counts)
    size = max(LEAST_RUN, 1 << (rows - 1).bit_length())
    if run < LEAST_RUN or size > lanes or not _pays_to_transpose(rows, min(size, columns), size):
        return None
    in_memory = sorted(counts, key=lambda c: problem.outputs.index(c[0]))

    def moves(place: PrimExpr) -> dict[Var, PrimExpr]:
        """Of the row that has this place in memory."""
        found: dict[Var, PrimExpr] = {}
        for v, count in reversed(in_memory):
            found[v] = place % count if v is not in_memory[0][0] else place
            place = place // count
        return found

    def number(place: PrimExpr) -> PrimExpr:
        """Of that row in ``acc``."""
        move, result = moves(place), as_expr(0)
        for v, count in counts:
            result = result * count + move[v]
        return result

    def block(source: Buffer, first: PrimExpr, count: int) -> Stmt:

        def element(r: PrimExpr, lane: PrimExpr) -> PrimExpr:
            lane = lane if count == size else minimum(lane, count - 1)
            return source[number(minimum(r, rows - 1)), lane + first]

        steps, tiles = turned_tile(size, source.dtype, element)

        def of_column(c: PrimExpr) -> Stmt:
            return loop("run", rows // run, lambda k: of_run(c, k), "unrolled")

        def of_run(c: PrimExpr, k: PrimExpr) -> Stmt:
            i = Var("i")
            place = k * run + i
            body = finish({**moves(place), column: c + first}, tiles[-1][c * size + place])
            return For(i, as_expr(run), body, "vectorized")

        brief = of_column(as_expr(0))
        is_long = sum(1 for _ in islice(walk(brief), _LONG)) == _LONG
        body = seq(steps, loop("column", count, of_column, "serial" if is_long else "unrolled"))
        for buffer in reversed(tiles):
            body = Allocate(buffer, body)
        return body

    def rest(source: Buffer, first: int) -> Stmt:
        """The last columns, row by row."""
        j = Var("j")

        def of_row(p: PrimExpr) -> Stmt:
            return finish({**moves(p), column: j + first}, source[number(p), j + first])

        return For(j, as_expr(columns - first), loop("r", rows, of_row, "unrolled"), "vectorized")

    blocks, left = divmod(columns, size)

    def last(source: Buffer) -> Stmt | None:
        if not left:
            return None
        one_more = _pays_to_transpose(rows, left, size)
        return block(source, as_expr(blocks * size), left) if one_more else rest(source, blocks * size)

    if blocks < _MANY:
        return seq(*(block(acc, as_expr(k * size), size) for k in range(blocks)), last(acc))
    return _spilled_first(
        acc, lambda kept: seq(loop("block", blocks, lambda k: block(kept, k * size, size)), last(kept))
    )


def _spilled_first(acc: Buffer, finish: Callable[[Buffer], Stmt]) -> Stmt:
    """An epilogue that reloads the sums of a tile from memory, where a loop can index them. It is for epilogues that
    are much longer than the spill, and would be written out for all sums."""
    (rows, columns), j = acc.shape, Var("j")
    kept = Buffer("kept", acc.shape, acc.dtype, "local")
    keep = loop("r", rows, lambda r: store(kept, (r, j), acc[r, j]), "unrolled")
    return Allocate(kept, seq(For(j, as_expr(columns), keep, "vectorized"), finish(kept)))


def _pays_to_transpose(rows: int, columns: int, size: int) -> bool:
    """Whether so many results are stored sooner from a square that is transposed as a whole, which takes log2(size)
    moves for each of its rows, than one by one."""
    return rows * columns >= size * (size.bit_length() - 1)
