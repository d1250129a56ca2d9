"""From a blocked contraction to loops.

    for task in parallel(blocks of the result's axes):
        region = the part of the data that the task reads          where it has to be padded, computed or transposed
        for panel, other axes, row tile of the block:
            acc = register tile of rows × columns, 0
            for k in the axes of the sum:
                for j in vectorized(columns): for r in unrolled(rows): acc[r, j] = fma(a[r, k], b[k, j], acc[r, j])
            for j: for r: out[r, j] = f(acc[r, j], …)              (or transposed in registers: transposed_store.py)

A long sum takes its terms in rounds, and the task spills ``acc`` to memory of its own from round to round. With split-K
it spills partial sums to a workspace, and a second loop adds them up, pair by pair, and runs the epilogue. Each element
is one sum, in an order that the shapes fix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pullback.schedule.contraction.emit.epilogue import epilogue, epilogue_over_results, whole_or_tail
from pullback.schedule.contraction.emit.functions import functions_in_own_loops
from pullback.schedule.contraction.emit.panels import Panels, TransposedCopy
from pullback.schedule.contraction.emit.region import Region
from pullback.schedule.contraction.emit.transposed_store import transposed_store
from pullback.schedule.contraction.emit.widened_copy import WidenedCopy
from pullback.schedule.contraction.plan.blocking import Blocking, Packing, Rows, packed
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.pointwise import buffer_readers, point_of, tasks
from pullback.te.graph import Lower
from pullback.tir import Allocate, Buffer, For, If, PrimExpr, Stmt, Var, as_expr, cast, const, loop, minimum, seq, store
from pullback.tir.visitor import substitute

_UNROLLED = 192  # FMAs of a short innermost loop that is unrolled


@dataclass(frozen=True)
class Spot:
    """Where a register tile is: the first value of each axis, and its offset from the task's first values. ``tile`` and
    ``lane``: for the axes of the tile, its number along the whole axis, and the place in it."""

    value: Mapping[Var, PrimExpr]
    offset: Mapping[Var, PrimExpr]
    tile: Mapping[Var, PrimExpr]
    lane: Mapping[Var, PrimExpr]

    def at(self, changes: Mapping[Var, PrimExpr]) -> Spot:
        """Some axes moved on from the tile's corner."""
        value = {**self.value, **{v: self.value[v] + d for v, d in changes.items()}}
        offset = {**self.offset, **{v: self.offset[v] + d for v, d in changes.items()}}
        return Spot(value, offset, self.tile, {**self.lane, **changes})


class Lowering:
    """Writes the kernel of a blocked contraction."""

    def __init__(self, problem: Problem, blocking: Blocking, flat: dict[Buffer, Buffer]) -> None:
        """``flat``: inputs of the kernel that have one axis in it; filled here."""
        self.problem, self.blocking, self.threads = problem, blocking, blocking.threads
        self.group, self.anchor = problem.group, problem.anchor
        self.extents, self.inner, self.skips = problem.extents, blocking.inner, blocking.skips
        self.lower = Lower(buffer_readers(self.group))
        self.private = blocking.thread_private
        packing = blocking.packing
        self.regions = {f: Region(problem, f, blocking.inner, blocking.column) for f in packed(packing, Packing.REGION)}
        kinds: Sequence[tuple[Packing, type[Panels | TransposedCopy]]] = (
            (Packing.PANELS, Panels), (Packing.TRANSPOSED, TransposedCopy),
        )  # fmt: skip
        self.whole = {
            f: kind(problem, blocking, f, self._scope(f), partial(self._element, f))
            for scheme, kind in kinds
            for f in packed(packing, scheme)
        }
        self.wide = {f: WidenedCopy.of(self.group, f, flat) for f in packing if f in blocking.widened}
        self.partial = self._partial_buffer() if blocking.split_k is not None else None

    def _scope(self, factor: Factor) -> str:
        return "local" if factor in self.private else "workspace"

    def kernel(self) -> Stmt:
        """Packing for all threads, the loop over the tasks, and the one that adds up partial sums."""
        if not self.problem.terms:
            return self._finish_everywhere(lambda _: const(0, self.anchor.dtype), 1)
        shared = [copy for f, copy in self.whole.items() if f not in self.private]
        body = seq(
            *(copy.copy(self.threads, self.blocking.outermost) for copy in shared),
            *(wide.copy(self.threads) for wide in self.wide.values()),
            self._with_private_copies(self._tasks()),
            None if self.partial is None else self._finish_partial(),
        )
        for buffer in (*(copy.buffer for copy in shared), *(wide.buffer for wide in self.wide.values())):
            body = Allocate(buffer, body)
        return body if self.partial is None else Allocate(self.partial, body)

    def _with_private_copies(self, loop: Stmt) -> Stmt:
        """The loop over the tasks, each of which begins with what a thread packs for itself, once."""
        private = [self.whole[f] for f in self.whole if f in self.private]
        if not private:
            return loop
        assert isinstance(loop, For)
        body = seq(*(copy.copy(False, None) for copy in private), loop.body)
        for copy in private:
            body = Allocate(copy.buffer, body)
        return replace(loop, body=body)

    # -- factors

    def _element(self, factor: Factor, value: Mapping[Var, PrimExpr]) -> PrimExpr:
        """The source's element at these values of the axes, read from memory or computed."""
        indices = [substitute(r, value) for r in factor.reads]
        return self.lower.element(factor.source, indices)

    def read(self, factor: Factor, spot: Spot) -> PrimExpr:
        if factor in self.regions:
            element = self.regions[factor].read(spot.offset)
        elif factor in self.whole:
            element = self.whole[factor].read(spot.value, spot.tile, spot.lane)
        elif factor in self.wide:
            element = self.wide[factor].read([substitute(r, spot.value) for r in factor.reads])
        else:
            element = self._element(factor, spot.value)
        return cast(factor.dtype, element)

    # -- tasks

    def _step(self, v: Var) -> int:
        """How far a register tile reaches along an axis of the result."""
        if v is self.blocking.column:
            return self.blocking.tile.columns
        return dict(self.blocking.rows).get(v, 1)

    def _tasks(self) -> Stmt:
        blocks = [(v, -(-self.extents[v] // self.inner[v])) for v in self.blocking.task_order]
        numbers = {v: Var(f"{v.name}_block") for v, count in blocks if count > 1}
        bases: dict[Var, PrimExpr] = {v: numbers[v] * self.inner[v] if v in numbers else as_expr(0) for v, _ in blocks}
        axes, sizes = list(numbers.values()), [count for _, count in blocks if count > 1]
        if self.blocking.split_k is None and self.blocking.round_count > 1:
            body = self._spilled(bases)
        elif self.blocking.split_k is None:
            first = {k: as_expr(0) for k in self.problem.reduced}
            body = self._round(bases | first, self._whole_tile)
        else:
            chunk = Var("chunk")
            body = self._rounds(bases, chunk)
            axes, sizes = [chunk, *axes], [self.blocking.split_k, *sizes]
            if self.blocking.split_k == 1:
                axes, sizes, body = axes[1:], sizes[1:], substitute(body, {chunk: as_expr(0)})
        for region in self.regions.values():
            body = Allocate(region.buffer, body)
        return tasks(axes, sizes, body, self.threads) if axes else body

    def _spilled(self, bases: Mapping[Var, PrimExpr]) -> Stmt:
        """Whole sums in rounds: the task spills its sums from round to round."""
        inner, turn = self.inner, Var("turn")
        count = self.blocking.round_count
        axes = [*(v for v in self.problem.outputs if v is not self.blocking.column), self.blocking.column]  # as vectors
        shape = tuple(-(-inner[v] // self._step(v)) * self._step(v) for v in axes)
        sums = Buffer("sums", shape, self.anchor.dtype, "local")
        is_last = turn.equal(count - 1)

        def tile(spot: Spot, rows: int, columns: int) -> Stmt:
            acc = self._acc(rows, columns)
            finish = self._finish(acc, spot, rows, columns)
            return self._reloaded_tile(
                acc, spot, rows, columns, turn, sums, lambda at: tuple(at.offset[v] for v in axes),
                lambda keep: If(is_last, finish, keep),
            )  # fmt: skip

        return Allocate(sums, For(turn, as_expr(count), self._round({**bases, **self._starts(turn)}, tile)))

    def _starts(self, number: PrimExpr) -> dict[Var, PrimExpr]:
        """Where the round of this number begins along each axis of the sum."""
        inner, axes = self.inner, self.problem.reduced
        place = point_of(number, axes, [-(-self.extents[k] // inner[k]) for k in axes])
        return {k: block * inner[k] for k, block in place.items()}

    def _rounds(self, bases: Mapping[Var, PrimExpr], chunk: Var) -> Stmt:
        """The rounds of one partial sum."""
        chunks = self.blocking.split_k
        assert chunks is not None
        total = self.blocking.round_count
        each = -(-total // chunks)
        turn = Var("turn")
        number: PrimExpr = chunk * each + turn if each > 1 else chunk
        body = self._round(
            {**bases, **self._starts(number)},
            lambda spot, rows, columns: self._partial_tile(spot, rows, columns, chunk, turn if each > 1 else None),
        )
        if each == 1:
            return body
        return For(turn, minimum(as_expr(total) - chunk * each, each) if total % each else as_expr(each), body)

    def _round(self, bases: Mapping[Var, PrimExpr], tile: Callable[[Spot, int, int], Stmt]) -> Stmt:
        """Fill the regions, then run over all register tiles of the task."""
        fills = [region.fill(bases) for region in self.regions.values()]
        place: dict[Var, PrimExpr] = {k: as_expr(0) for k in self.problem.reduced}
        body: Callable[[dict[Var, PrimExpr]], Stmt] = lambda found: self._edges(bases, found, tile)  # noqa: E731
        free = [v for v in self.blocking.tile_order if not any(v in f.axes for f in self.regions)]
        for v in reversed([*free, *(v for v in self.blocking.tile_order if v not in free)]):
            body = self._along(v, bases, body)
        return seq(*fills, body(place))

    def _along(
        self, v: Var, bases: Mapping[Var, PrimExpr], body: Callable[[dict[Var, PrimExpr]], Stmt]
    ) -> Callable[[dict[Var, PrimExpr]], Stmt]:
        """A loop over the steps of an axis inside the task; ``place`` holds the number of the step."""
        step, inner, extent = self._step(v), self.inner[v], self.extents[v]
        count = -(-min(inner, extent) // step)
        size = as_expr(count)
        if extent % inner and inner < extent and count > 1:
            size = minimum((as_expr(extent) - bases[v] + (step - 1)) // step, count)

        def nest(place: dict[Var, PrimExpr]) -> Stmt:
            return loop(v.name, size, lambda number: body({**place, v: number}))

        return nest

    def _edges(
        self, bases: Mapping[Var, PrimExpr], place: Mapping[Var, PrimExpr], tile: Callable[[Spot, int, int], Stmt]
    ) -> Stmt:
        """A whole register tile, or at the lower and right edge a smaller one."""
        column = self.blocking.column
        offset = {v: number * self._step(v) if v in self.problem.outputs else number for v, number in place.items()}
        value = {v: bases[v] + offset[v] for v in offset}
        number = {v: bases[v] // self._step(v) + place[v] for v in (column, *(v for v, _ in self.blocking.rows))}
        spot = Spot(value, offset, number, dict.fromkeys(number, as_expr(0)))

        def variants(v: Var, then: Callable[[int], Stmt]) -> Stmt:
            return whole_or_tail(value[v], self.extents[v], self._step(v), then)

        row = self.blocking.rows[-1][0] if self.blocking.rows else None
        if row is None:
            return variants(column, lambda columns: tile(spot, 1, columns))
        return variants(row, lambda rows: variants(column, lambda columns: tile(spot, rows, columns)))

    # -- register tiles

    def _counts(self, rows: int) -> Rows:
        """The row axes of a tile whose last one has ``rows``."""
        return (*self.blocking.rows[:-1], *((v, rows) for v, _ in self.blocking.rows[-1:]))

    def _count(self, rows: int) -> int:
        """Rows of that tile."""
        return math.prod(count for _, count in self._counts(rows))

    def _acc(self, rows: int, columns: int) -> Buffer:
        return Buffer("acc", (self._count(rows), columns), self.anchor.dtype, "local")

    def _over_rows(self, rows: int, body: Callable[[PrimExpr, dict[Var, PrimExpr]], Stmt]) -> Stmt:
        """``body(number, moves)`` for every row of the tile."""
        counts = self._counts(rows)

        def nest(k: int, number: PrimExpr, moves: dict[Var, PrimExpr]) -> Stmt:
            if k == len(counts):
                return body(number, moves)
            v, count = counts[k]
            return loop("r", count, lambda r: nest(k + 1, number * count + r, {**moves, v: r}), "unrolled")

        return nest(0, as_expr(0), {})

    def _over_tile(self, spot: Spot, rows: int, columns: int, body: Callable[[PrimExpr, PrimExpr, Spot], Stmt]) -> For:
        j = Var("j")

        def at(r: PrimExpr, moves: dict[Var, PrimExpr]) -> Stmt:
            return body(r, j, spot.at({**moves, self.blocking.column: j}))

        return For(j, as_expr(columns), self._over_rows(rows, at), "vectorized")

    def _accumulate(self, acc: Buffer, spot: Spot, rows: int, columns: int) -> Stmt:
        """The terms of this round."""
        inner, axes = self.inner, self.problem.reduced
        whole = {k: Var(k.name) for k in self.problem.reduced}
        moved = spot.at(whole)

        def multiply(r: PrimExpr, j: PrimExpr, at: Spot) -> Stmt:
            a, b = self.read(self.blocking.a, at), self.read(self.blocking.b, at)
            return store(acc, (r, j), self.group.machine.multiply_add(a, b, acc[r, j]))

        body: Stmt = self._over_tile(moved, rows, columns, multiply)
        lanes = max(1, self.group.machine.vector_bytes // 4)
        size = self._count(rows) * -(-columns // lanes)
        for k in reversed(axes):
            if k in self.skips:
                first, count = self.skips[k].taps(spot.value)
                body = For(whole[k], count, substitute(body, {whole[k]: whole[k] + first}))
                size = _UNROLLED + 1
                continue
            even = self.extents[k] % inner[k] == 0
            extent = as_expr(inner[k]) if even else minimum(as_expr(self.extents[k]) - spot.value[k], inner[k])
            short = even and size * inner[k] <= _UNROLLED and inner[k] <= 8
            body = For(whole[k], extent, body, "unrolled" if short else "serial")
            size = size * inner[k] if short else _UNROLLED + 1
        return body

    def _whole_tile(self, spot: Spot, rows: int, columns: int) -> Stmt:
        """Clear, accumulate, and the epilogue."""
        acc = self._acc(rows, columns)
        zero = const(0, self.anchor.dtype)
        clear = self._over_tile(spot, rows, columns, lambda r, j, _: store(acc, (r, j), zero))
        finish = self._finish(acc, spot, rows, columns)
        return Allocate(acc, seq(clear, self._accumulate(acc, spot, rows, columns), finish))

    def _finish(self, acc: Buffer, spot: Spot, rows: int, columns: int) -> Stmt:
        """The epilogue of a register tile, stored row by row or transposed."""
        across = transposed_store(
            self.problem, self.blocking.column, self._counts(rows), columns, acc, self.problem.lanes,
            lambda moves, total: epilogue(self.problem, spot.at(moves).value, total),
        )  # fmt: skip
        if across is not None:
            return across
        number, total = as_expr(0), acc[0, 0]

        def element(r: PrimExpr, j: PrimExpr, at: Spot) -> Stmt:
            nonlocal number, total
            number, total = r * columns + j, acc[r, j]
            return epilogue(self.problem, at.value, total)

        nest = self._over_tile(spot, rows, columns, element)
        whole_vectors = columns % self.problem.lanes == 0
        return functions_in_own_loops(nest, number, self._count(rows) * columns, total) if whole_vectors else nest

    # -- partial sums

    def _partial_buffer(self) -> Buffer:
        column = self.blocking.column
        sizes = [self.extents[v] for v in self.problem.outputs if v is not column]
        shape = (self.blocking.split_k or 1, *sizes, self.extents[column])
        return Buffer("partial", shape, self.anchor.dtype, "workspace")

    def _partial_place(self, chunk: PrimExpr, value: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, ...]:
        column = self.blocking.column
        return (chunk, *(value[v] for v in self.problem.outputs if v is not column), value[column])

    def _partial_tile(self, spot: Spot, rows: int, columns: int, chunk: Var, turn: Var | None) -> Stmt:
        """Reload the sums, accumulate, spill them."""
        assert self.partial is not None
        return self._reloaded_tile(
            self._acc(rows, columns), spot, rows, columns, turn, self.partial,
            lambda at: self._partial_place(chunk, at.value), lambda keep: keep,
        )  # fmt: skip

    def _reloaded_tile(
        self, acc: Buffer, spot: Spot, rows: int, columns: int, turn: Var | None, sums: Buffer,
        place: Callable[[Spot], tuple[PrimExpr, ...]], end: Callable[[Stmt], Stmt],
    ) -> Stmt:  # fmt: skip
        """Reload the sums, accumulate, and what ``end`` makes of spilling them."""
        zero = const(0, self.anchor.dtype)
        start: Stmt = self._over_tile(spot, rows, columns, lambda r, j, _: store(acc, (r, j), zero))
        if turn is not None:
            resume = self._over_tile(spot, rows, columns, lambda r, j, at: store(acc, (r, j), sums[place(at)]))
            start = If(turn.equal(0), start, resume)
        keep = self._over_tile(spot, rows, columns, lambda r, j, at: store(sums, place(at), acc[r, j]))
        return Allocate(acc, seq(start, self._accumulate(acc, spot, rows, columns), end(keep)))

    def _finish_partial(self) -> Stmt:
        """Add the partial sums, pair by pair, and run the epilogue."""
        assert self.partial is not None
        partial = self.partial
        chunks = self.blocking.split_k or 1

        def total(value: Mapping[Var, PrimExpr]) -> PrimExpr:
            terms: list[PrimExpr] = [partial[self._partial_place(as_expr(c), value)] for c in range(chunks)]
            while len(terms) > 1:
                pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
                terms = [*pairs, *([terms[-1]] if len(terms) % 2 else [])]
            return terms[0]

        return self._finish_everywhere(total, chunks)

    def _finish_everywhere(self, total: Callable[[Mapping[Var, PrimExpr]], PrimExpr], terms: int) -> Stmt:
        """The epilogue of all results, without the register tiles."""
        column = self.blocking.column if self.problem.terms else self.problem.outputs[-1]
        return epilogue_over_results(self.problem, column, total, terms)
