"""Columns: a kept axis is innermost in memory. Blocks of columns are vectorized, and the reduced axes are walked down.

    for block in parallel(column blocks):
        for group of 8 rows: for j in vectorized(block):
            acc[j] = acc[j] + (((x0[j] + x1[j]) + (x2[j] + x3[j])) + ((x4[j] + x5[j]) + (x6[j] + x7[j])))
        for j in vectorized(block): out[j] = f(acc[j])

Order of a sum: the rows of the innermost reduced axis in groups of eight, each added up in pairs, then to the running
sum; all outer axes one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.schedule.pointwise import tasks
from pullback.schedule.reduction.argument import index_dtype, keep_better
from pullback.schedule.reduction.nests import (
    Moved,
    Place,
    allocated,
    at_point,
    lane_loop,
    lanes_of,
    nests,
    outer_axes,
    serial,
    tree,
)
from pullback.schedule.reduction.program import Program, Step
from pullback.te.graph import combine, identity
from pullback.tir import Buffer, For, If, Let, PrimExpr, Stmt, Var, as_expr, cast, seq, store
from pullback.tir.visitor import substitute

GROUP = 8  # rows that are added up before they meet the running sum: as many loads at once, one step of its latency
BLOCK = 4  # vectors of columns in a block


def block_width(program: Program) -> int:
    """Columns that one task takes; 1 by rows."""
    if program.column is None:
        return 1
    return max(1, min(program.extents[program.column], BLOCK * lanes_of(program, program.steps)))


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


class _Block:
    """The steps for ``width`` columns side by side, from the column that the axis's variable says."""

    def __init__(self, program: Program, axis: Var, width: int) -> None:
        self.program, self.axis, self.width = program, axis, width
        self.lane = Var("j")
        self.locals: list[Buffer] = []
        self.own: dict[Buffer, Buffer] = {}
        self.places = {}
        for buffer in program.locals:
            own = self.own[buffer] = Buffer(buffer.name, (*buffer.shape, width), buffer.dtype, "local")
            self.locals.append(own)
            self.places[buffer] = lambda i, b=own: b[(*i, self.lane)]

    def body(self) -> Stmt:
        parts = [self.nest(steps) for steps in nests(self.program)]
        return allocated(self.locals, seq(*parts))

    def lanes(self, body: Stmt) -> Stmt:
        """The statement for all columns of the block: the axis is its base and the lane."""
        moved = substitute(Moved(self.places).stmt(body), {self.axis: self.axis + self.lane})
        return For(self.lane, as_expr(self.width), moved, "vectorized")

    def nest(self, steps: Sequence[Step]) -> Stmt:
        domain, reduces = steps[0].domain, [s for s in steps if s.role == "reduce"]
        if domain is None:
            return self.lanes(steps[0].store)
        if any(s.kind.startswith("arg") for s in reduces):
            return seq(*(self.argument(s) if s.kind.startswith("arg") else self.nest([s]) for s in steps))
        if not reduces:
            body = self.lanes(at_point(steps))
            return serial(domain.axes, domain.extents, body)
        return seq(*map(self.clear, reduces), self.groups(steps))

    def clear(self, step: Step) -> Stmt:
        total = self.own[step.total]  # type: ignore[index]
        return lane_loop("j", self.width, lambda j: store(total, j, identity(step.kind, total.dtype)))

    def add(self, step: Step, values: Sequence[PrimExpr]) -> Stmt:
        total = self.own[step.total]  # type: ignore[index]
        return store(total, self.lane, combine(step.kind, total[self.lane], tree(step.kind, values)))

    def groups(self, steps: Sequence[Step]) -> Stmt:
        domain = steps[0].domain
        assert domain is not None
        if not domain.axes:
            return self.rows(steps, None, as_expr(0), 1)
        axis, extent = domain.axes[-1], domain.extents[-1]
        full, rest = divmod(extent, GROUP)
        group = Var("group")
        main = For(group, as_expr(full), self.rows(steps, axis, group * GROUP, GROUP)) if full else None
        tail = self.rows(steps, axis, as_expr(full * GROUP), rest) if rest else None
        return outer_axes(domain, seq(main, tail)) if extent else seq()

    def rows(self, steps: Sequence[Step], axis: Var | None, first: PrimExpr, count: int) -> Stmt:
        """Some rows, one below the other; what is written of them is written after all is read."""
        values: dict[Step, list[PrimExpr]] = {}
        bound: list[tuple[Var, PrimExpr]] = []
        writes: list[Stmt] = []
        for k in range(count):
            places: dict[Buffer, Place] = {}
            for step in steps:
                at = substitute(step.store, {axis: first + k}) if axis is not None else step.store
                value = Moved(places).expr(at.value)
                if step.role == "reduce":
                    values.setdefault(step, []).append(value)
                    continue
                var = Var(f"v_{at.buffer.name}", value.dtype)
                bound.append((var, value))
                writes.append(store(at.buffer, at.indices, var))
                places[at.buffer] = lambda _, var=var: var  # type: ignore[misc]
        body = seq(*(self.add(s, v) for s, v in values.items()), *writes)
        for var, value in reversed(bound):
            body = Let(var, value, body)
        return self.lanes(body)

    def argument(self, step: Step) -> Stmt:
        (axis,), (extent,) = step.domain.axes or (Var("k"),), step.domain.extents or (1,)  # type: ignore[union-attr]
        total, index = self.own[step.total], index_dtype(extent)  # type: ignore[index]
        best = Buffer("best", (self.width,), step.store.value.dtype, "local")
        place = Buffer("place", (self.width,), index, "local")
        self.locals += [best, place]
        start = lane_loop(
            "j", self.width, lambda j: seq(store(best, j, identity(step.kind, best.dtype)), store(place, j, 0))
        )
        body = self.lanes(keep_better(step, step.store.value, cast(index, axis), best, place, self.lane))
        result = lane_loop("j", self.width, lambda j: store(total, j, cast("int64", place[j])))
        return seq(start, serial([axis], [extent], body), result)
