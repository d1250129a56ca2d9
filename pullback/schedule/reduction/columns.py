"""Columns: a kept axis is innermost in memory. Blocks of columns are vectorized, and the reduced axes are walked down.

for block in parallel(column blocks):
    for step: for lane in 16: for j in vectorized(block):
        partial[lane, j] = partial[lane, j] + ((x[…, j] + x[…, j]) + (x[…, j] + x[…, j]))
    for lane in 8: for j in vectorized(block): partial[lane, j] = partial[lane, j] + partial[lane + 8, j]
    …
    for j in vectorized(block): out[j] = f(partial[0, j])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.schedule.pointwise import tasks
from pullback.schedule.reduction.argument import index_dtype, keep_better
from pullback.schedule.reduction.nests import at_points, put, serial
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.schedule.reduction.walk import Walk
from pullback.te.graph import identity
from pullback.tir import Buffer, For, If, PrimExpr, Stmt, Var, as_expr, cast, const, loop, seq
from pullback.tir.expr import nbytes
from pullback.tir.visitor import substitute

BLOCK, BLOCK_BYTES = 4, 256  # vectors of columns in a block; and bytes, of which memory gives several lines at once


def block_width(program: Program) -> int:
    """Columns that one task takes; 1 by rows."""
    if program.column is None:
        return 1
    widest = max([4, *(nbytes(s.store.value.dtype) for s in program.reduces)])
    wanted = max(BLOCK * program.machine.vector_bytes, BLOCK_BYTES)
    return max(1, min(program.extents[program.column], wanted // widest))


def lower_columns(program: Program, threads: bool) -> Stmt:
    """Blocks along the kept axis that is innermost."""
    column, width = program.column, block_width(program)
    assert column is not None
    full, rest = divmod(program.extents[column], width)
    axis, block = program.axes[column], Var("block")
    outer = [(v, e) for k, (v, e) in enumerate(zip(program.axes, program.extents, strict=True)) if k != column]

    def body(size: int) -> Stmt:
        return substitute(_Block(program, axis, size).body(), {axis: block * width})

    inner = body(width) if full else body(rest)
    if full and rest:
        inner = If(block < full, inner, body(rest))
    return tasks([*(v for v, _ in outer), block], [*(e for _, e in outer), full + bool(rest)], inner, threads)


class _Block(Walk):
    """The steps for ``width`` columns side by side, from the column that the axis's variable says."""

    written_out = 8
    whole_vectors = False

    def __init__(self, program: Program, axis: Var, width: int) -> None:
        self.axis, self.width = axis, width
        self.lane = Var("j")
        super().__init__(program)

    def private(self, name: str, shape: Sequence[int | PrimExpr], dtype: str) -> Buffer:
        return Buffer(name, (*shape, self.width), dtype, "local")

    def at(self, buffer: Buffer, *indices: PrimExpr | int) -> PrimExpr:
        return buffer[(*indices, self.lane)]

    def everywhere(self, body: Stmt) -> Stmt:
        """The statement for all columns of the block: the axis is its base and the lane."""
        return For(self.lane, as_expr(self.width), substitute(body, {self.axis: self.axis + self.lane}), "vectorized")

    def lanes(self, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop("lane", count, lambda lane: self.here(body(lane)))

    def elements(self, steps: Sequence[Step], domain: Domain) -> Stmt:
        return serial(domain.axes, domain.extents, self.here(at_points(steps, [{}])))

    def argument(self, step: Step) -> Stmt:
        (axis,), (extent,) = step.reduced.axes or (Var("k"),), step.reduced.extents or (1,)
        index = index_dtype(extent)
        best, place = self.private("best", (), step.store.value.dtype), self.private("place", (), index)
        self.locals += [best, place]
        start = seq(
            put(self.at(best), identity(step.kind, best.dtype)),
            put(self.at(place), const(0, index)),
        )
        better = keep_better(step, step.store.value, cast(index, axis), best, place, self.lane)
        result = put(self.total(step), cast("int64", self.at(place)))
        return seq(self.everywhere(start), serial([axis], [extent], self.here(better)), self.everywhere(result))
