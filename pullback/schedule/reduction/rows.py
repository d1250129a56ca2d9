"""Rows: what is reduced is innermost in memory. Softmax, norms and the like are one kernel.

for p in parallel(rows):                                some rows side by side, or in a pipeline, where there are many
    for step: for lane in vectorized(16):
        partial[lane] = partial[lane] + ((x[p, …] + x[p, …]) + (x[p, …] + x[p, …]))
    total = partial, halved until one is left
    for j in vectorized(columns): out[p, j] = f(x[p, j], total, …)
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce

from pullback.schedule.cost import calls_function
from pullback.schedule.microkernel import cover
from pullback.schedule.order import halves
from pullback.schedule.pointwise import TASKS, tasks
from pullback.schedule.reduction.ahead import Ahead, is_last_pass, rows_ahead, stretches_ahead
from pullback.schedule.reduction.argument import reduce_row_argument
from pullback.schedule.reduction.build import LOCAL_ROW
from pullback.schedule.reduction.nests import Moved, Point, at_points, lane_loop, put, serial
from pullback.schedule.reduction.pipeline import Pipeline
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.schedule.reduction.walk import Lanes, Target, Walk
from pullback.te.graph import combine
from pullback.tir import Binary, Buffer, BufferLoad, For, If, PrimExpr, Stmt, Var, as_expr, loop, seq
from pullback.tir.caches import NEAR, PAGE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import substitute, walk

_FROM_MEMORY = 1024  # bytes of rows that are read together from there
_FROM_CACHE = {True: 2 * 1024, False: 6 * 1024}  # and from the last cache, where registers are few or not
_MANY = 8  # blocks of rows, beside which the last may have fewer
_WRITTEN_OUT = 64  # elements, where the last axis of a sum has fewer
_PIECE = 128  # elements, beside which memory is asked for


def lower_rows(program: Program, threads: bool) -> tuple[Stmt, str]:
    """All steps of some rows in one task; those that are left over of the last axis, too few, are another. Which rows
    are taken together, in words."""
    pipeline = Pipeline.of(program)
    if pipeline is not None:
        staged = pipeline.body(_Staged(pipeline))
        way = f"pipelines of {pipeline.size} rows, {pipeline.count} at a time"
        return _blocks(program, pipeline.size, staged, partial(_row_by_row, program), threads), way
    count = _side_by_side(program)
    if count == 1:
        return tasks(program.axes, program.extents, _Row(program).body(), threads), "rows"
    together = _blocks(program, count, _Rows(program, count).body(), partial(_together, program), threads)
    return together, f"{count} rows side by side"


def _blocks(program: Program, size: int, body: Stmt, left_over: Callable[[int], Stmt], threads: bool) -> Stmt:
    """A task for each ``size`` rows of the last axis, from the one on that its variable says in the body, and one for
    what is left over."""
    *outer, axis = program.axes
    block, (blocks, rest) = Var("block"), divmod(program.extents[-1], size)
    if rest:
        body = If(block < blocks, body, left_over(rest))
    body = substitute(body, {axis: block * size})
    return tasks([*outer, block], [*program.extents[:-1], blocks + (rest > 0)], body, threads)


def _together(program: Program, count: int) -> Stmt:
    return (_Rows(program, count) if count > 1 else _Row(program)).body()


def _row_by_row(program: Program, count: int) -> Stmt:
    axis = program.axes[-1]
    return loop("row", count, lambda row: substitute(_Row(program).body(), {axis: axis + row}))


def _side_by_side(program: Program) -> int:
    """How many rows are taken together: as many as divide them, or leave few over, where tasks enough are left, and
    rows are so short that these stay in the nearest cache from pass to pass. Where rows come from beyond the second
    caches of two cores, also so short that their sums would wait longer than they read: one long row is read faster
    than several. From memory a layer norm's gradient of 384 elements one by one is 0.67 of the time (znver3; 0.57 of
    that of four: znver4). From the last cache four rows of 128 are 0.73 for a layer norm, two of 256 0.83, and two of
    384 are 1.2 within a step (znver3); with twice the registers, twice as wide, four of 384 are 0.84, and of the time
    of four two of 512 are 0.85, of 768 for the gradient 0.78 (znver4)."""
    if not program.axes or any(s.kind.startswith("arg") for s in program.steps):
        return 1
    sizes = (s.domain.size * nbytes(s.store.value.dtype) for s in program.steps if s.domain is not None)
    rows, last, most = program.rows, program.extents[-1], NEAR // max((1, *sizes))
    if program.is_far:
        from_cache = _FROM_CACHE[program.machine.has_few_registers]
        together = _FROM_MEMORY if program.bytes > 2 * program.machine.cached_bytes else from_cache
        most = min(most, together // max(1, program.read_of_a_row))
    possible = [c for c in (4, 2) if c <= most and rows >= TASKS * c]
    return next((c for c in possible if last % c == 0 or last >= _MANY * c), 1)


class _Row(Walk):
    written_out = 3
    whole_vectors = True
    count = 1  # rows that are taken together, and
    row: PrimExpr = as_expr(0)  # which of them a statement is for

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.ahead: Ahead | None = None
        self.last: Sequence[Step] | None = None  # the nest beside which the next rows are asked for

    def nests(self) -> list[Sequence[Step]]:
        found = []
        for steps in super().nests():
            parts = self.apart(steps)
            if is_last_pass(steps, self.program):
                self.last = parts[0]
            found += parts
        return found

    def nest(self, steps: Sequence[Step]) -> Stmt:
        self.ahead = self.asked_for(steps)
        return super().nest(steps)

    def asked_for(self, steps: Sequence[Step]) -> Ahead | None:
        domain, stretches = steps[0].domain, stretches_ahead(steps, self.program)
        if stretches is None and steps is self.last and domain is not None:
            return rows_ahead(domain, self.program, self.count)
        return stretches

    def beside(self, domain: Domain, first: PrimExpr | int, count: int, place: Point) -> Stmt | None:
        hints = self.ahead.hints(domain.axes[-1], first, count, place) if self.ahead is not None else []
        return self.everywhere(seq(*hints)) if hints else None

    def outer(self, domain: Domain, body: Stmt) -> Stmt:
        """Of few elements in a loop, those of several rounds are written out: statistics of 16 x 16 pixels from the
        second cache 0.95 of the time (znver4)."""
        if len(domain.axes) < 2:
            return body
        *axes, axis = domain.axes[:-1]
        *extents, extent = domain.extents[:-1]
        count = math.gcd(extent, max(1, _WRITTEN_OUT // domain.extents[-1]))
        times = loop("again", count, lambda k: substitute(body, {axis: axis * count + k}), "unrolled")
        return serial([*axes, axis], [*extents, extent // count], times)

    def apart(self, steps: Sequence[Step]) -> list[Sequence[Step]]:
        """Elementary functions first, then what is reduced of them: a loop that does nothing but compute them keeps
        more units busy than reading their values again costs."""
        domain, reduces = steps[0].domain, [s for s in steps if s.role == "reduce"]
        functions = [s for s in steps if calls_function(s.store.value)]
        if domain is None or not (functions and reduces) or not self.written_out < domain.size <= LOCAL_ROW:
            return [steps]
        elements, sums = [s for s in steps if s.role != "reduce"], []
        for step in reduces:
            if step in functions:
                value = step.store.value
                factors = (value.a, value.b) if step.products and isinstance(value, Binary) else (value,)
                kept = {f: f for f in factors}  # of a product the factors, as it is rounded with its sum
                for factor in filter(calls_function, kept):
                    row = self.private("row", domain.extents, factor.dtype)
                    self.locals.append(row)
                    kept[factor] = self.at(row, *domain.axes)
                    elements.append(Step("vector", step.depth, put(kept[factor], factor), domain))
                value = reduce(operator.mul, (kept[f] for f in factors))
                step = dataclasses.replace(step, store=put(step.store.buffer[()], value))
            sums.append(step)
        return [elements, sums]

    def private(self, name: str, shape: Sequence[int | PrimExpr], dtype: str) -> Buffer:
        return Buffer(name, tuple(shape) or (1,), dtype, "local")

    def at(self, buffer: Buffer, *indices: PrimExpr | int) -> PrimExpr:
        return buffer[indices or (0,)]

    def everywhere(self, body: Stmt) -> Stmt:
        return body

    def lanes(self, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return lane_loop("lane", count, lambda lane: self.here(body(lane)))

    def together(self, reduces: Sequence[Step]) -> Iterable[Sequence[Step]]:
        """Those of one kind and type."""
        groups: dict[object, list[Step]] = {}
        for step in reduces:
            groups.setdefault((step.kind, step.result.dtype), []).append(step)
        return groups.values()

    def left(self, lanes: Lanes, target: Target) -> Stmt:
        """The lanes of several sums, and of rows side by side, as one: of fewer each, a vector holds those of more.

        for half in 8, 4, 2, 1: for j in vectorized(sums · half):
            fewer[j // half, j % half] = lanes[j // half, j % half] + lanes[j // half, j % half + half]
        """
        kind, number, dtype = lanes.steps[0].kind, len(lanes.steps), lanes.buffer.dtype
        vector = self.program.machine.vector_bytes // nbytes(dtype)
        parts: list[Stmt] = []
        old: Callable[..., PrimExpr] = lanes.of
        for half, _ in halves(lanes.size):
            size = self.count * number * half
            fewer = Buffer("fewer", (size,), dtype, "local")
            self.locals.append(fewer)
            add = partial(_halved, kind, old, fewer, half)
            parts += [lane_loop("lane", min(vector, size - k), partial(add, k)) for k in range(0, size, vector)]
            old = partial(_of_row, fewer, half)
        results = [put(target(s), old(self.row * number + k, 0)) for k, s in enumerate(lanes.steps)]
        return seq(*parts, self.everywhere(seq(*results)))

    def elements(self, steps: Sequence[Step], domain: Domain) -> Stmt:
        axis, extent = domain.axes[-1], domain.extents[-1]

        def piece(first: PrimExpr, count: int) -> Stmt:
            lane = Var("lane")
            body = self.here(at_points(steps, [{axis: first + lane}]))
            return seq(self.beside(domain, first, count, {}), For(lane, as_expr(count), body, "vectorized"))

        inner = piece(as_expr(0), extent) if self.ahead is None else cover(extent, _PIECE, piece)
        return serial(domain.axes[:-1], domain.extents[:-1], inner)

    def argument(self, step: Step) -> Stmt:
        body, buffers = reduce_row_argument(step, self.total(step), self.program.machine.vector_bytes)
        self.locals += buffers
        return self.here(body)


def _halved(kind: str, old: Callable[..., PrimExpr], fewer: Buffer, half: int, first: int, lane: PrimExpr) -> Stmt:
    number, k = (first + lane) // half, (first + lane) % half
    return put(fewer[first + lane], combine(kind, old(number, k), old(number, k + half)))


def _of_row(buffer: Buffer, size: int, number: PrimExpr, lane: PrimExpr | int) -> PrimExpr:
    return buffer[number * size + lane]


class _Rows(_Row):
    """``count`` rows side by side, from the one that the last axis's variable says: what is the same for all rows is
    read once, and while the last sums of one are added up, lane by lane, so are the others'.

    One row after another is where elementary functions are computed (a row's keep all units busy, and more at a time
    don't fit registers), where rows are written past the caches (lines of several rows would be sent in parts), and
    where sums share nothing and come from beyond the second cache: in the order of memory they come sooner (mean and
    variance of 256 elements from the last cache in 0.87 of the time, with half as wide vectors in 0.94: znver4). Only
    their last lanes are added up together then."""

    def __init__(self, program: Program, count: int) -> None:
        self.axis, self.count = program.axes[-1], count
        self.row = self._number = Var("r")
        self.one_by_one = False
        super().__init__(program)

    def elements(self, steps: Sequence[Step], domain: Domain) -> Stmt:
        if not self.program.passes_caches and not any(calls_function(s.store.value) for s in steps):
            return super().elements(steps, domain)
        return self.in_turn(partial(super().elements, steps, domain))

    def nest(self, steps: Sequence[Step]) -> Stmt:
        if steps[0].domain is None:  # the rows' values are the lanes of a vector
            return self.of_rows(Moved(self.places).stmt(steps[0].store), "vectorized")
        return super().nest(steps)

    def added_up(self, steps: Sequence[Step], domain: Domain, sums: Sequence[Lanes], place: Point) -> Stmt:
        add_up = partial(super().added_up, steps, domain, sums, place)
        return self.in_turn(add_up) if self.by_turns(steps) else add_up()

    def by_turns(self, steps: Sequence[Step]) -> bool:
        """Whether the terms of one row follow those of another."""
        return self.program.is_far and all(s.role == "reduce" for s in steps) and not self.shares(steps)

    def shares(self, steps: Sequence[Step]) -> bool:
        """Whether something is read that is the same for all rows."""
        loads = (n for s in steps for n in walk(s.store.value) if isinstance(n, BufferLoad))
        return any(self.axis not in walk(n) for n in loads if n.buffer not in self.own)

    def in_turn(self, body: Callable[[], Stmt]) -> Stmt:
        self.one_by_one = True
        stmt = body()
        self.one_by_one = False
        return self.everywhere(stmt)

    def private(self, name: str, shape: Sequence[int | PrimExpr], dtype: str) -> Buffer:
        return Buffer(name, (self.count, *(tuple(shape) or (1,))), dtype, "local")

    def at(self, buffer: Buffer, *indices: PrimExpr | int) -> PrimExpr:
        return buffer[(self.row, *(indices or (0,)))]

    def everywhere(self, body: Stmt) -> Stmt:
        return body if self.one_by_one else self.of_rows(body, "unrolled")

    def of_rows(self, body: Stmt, kind: str) -> Stmt:
        return For(self._number, as_expr(self.count), substitute(body, {self.axis: self.axis + self.row}), kind)


class _Staged(_Rows):
    """Such rows in the stages of a pipeline. What is the CPU's prefetcher's to find from the second cache is asked for
    where it comes from the last one, a page ahead, beside what is written, and alone: of several arrays as many lines
    are on their way as can be (a layer norm's gradient would take 1.1 times as long)."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__(pipeline.program, pipeline.count)

    def asked_for(self, steps: Sequence[Step]) -> Ahead | None:
        program, domain = self.program, steps[0].domain
        sums = [s for s in steps if s.role == "reduce"]
        if domain is None or not sums or not program.is_far or self.by_turns(steps):
            return None
        found = rows_ahead(domain, program, max(self.count, PAGE // program.read_of_a_row))
        return found if found is not None and len(found.loads) == 1 else None
