"""From a filter to loops. Where the taps are summed:

    for c: for j in vectorized(columns):            u[p, c, j] = G·weights
    for task in parallel(blocks of tiles):
        region = the data that the task reads
        for tile: for c in vectorized(channels):    t[p, tile, c] = Bᵀ·region
        for p:                                      m[p, tile, j] = Σ_c t[p, tile, c]·u[p, c, j]
        for tile: for j in vectorized(columns):     out[tile's results, j] = f(Aᵀ·m, …)

and where the tiles are summed, as in the gradient by the weights:

    for chunk in parallel(chunks of the tiles): for round of it:
        region, t as before; for tile: for j:       u[p, tile, j] = G·weights
        for p:                                      m[chunk, p, c, j] += Σ_tile t[p, tile, c]·u[p, tile, j]
    for c in parallel: for lines of columns:
        for j in vectorized(columns):               acc[tap, j] = Aᵀ·Σ_chunk m
        for taps and j:                             out[tap, c, j] = f(acc[tap, j], …)

A point is multiplied for the tiles that need it (``order.py``). Each element of m is one sum; blocks, rounds and chunks
follow from the shapes, so the order of all sums is fixed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from pullback.schedule.contraction.emit.epilogue import epilogue, whole_or_tail
from pullback.schedule.contraction.emit.region import Region
from pullback.schedule.contraction.emit.transposed_store import transposed_store
from pullback.schedule.microkernel import Product
from pullback.schedule.pointwise import buffer_readers, outer_loops, point_of, tasks
from pullback.schedule.tiles import choose_tile
from pullback.schedule.winograd.algebra import DATA, RESULTS, WEIGHTS, Grid, Values, grid_points
from pullback.schedule.winograd.order import Order, Part
from pullback.schedule.winograd.plan import Filter, region_extents
from pullback.te.graph import Lower
from pullback.tir import (
    Allocate,
    Buffer,
    For,
    If,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    cast,
    const,
    loop,
    minimum,
    select,
    seq,
    store,
)
from pullback.tir.visitor import substitute

Place = Mapping[Var, PrimExpr]


class Lowering:
    """Writes the kernel of a filter."""

    def __init__(self, filter: Filter) -> None:
        self.filter, self.problem = filter, filter.problem
        problem = filter.problem
        self.dtype, self.extents, self.machine = problem.anchor.dtype, problem.extents, problem.group.machine
        self.threads = filter.threads
        self.lower = Lower(buffer_readers(problem.group))
        self.channels, self.columns = self.extents[filter.channel], self.extents[filter.column]
        self.order = Order(filter)
        self.points = self.order.points
        self.region = Region(problem, filter.data, region_extents(filter, filter.blocks), filter.channel)
        self.t = self._local("t", self.channels)

    def _local(self, name: str, width: int) -> Buffer:
        """A value for each point and tile. An odd number of rows keeps the points out of each other's cache lines."""
        return Buffer(name, (self.filter.points, self.filter.tiles | 1, width), self.dtype, "local")

    def body(self) -> Stmt:
        return self._sums_of_tiles() if self.filter.summed else self._sums_of_taps()

    # -- the two kinds

    def _sums_of_taps(self) -> Stmt:
        filter = self.filter
        u = Buffer("u", (filter.points, self.channels, self.columns), self.dtype, "workspace")
        m = self._local("m", self.columns)
        bases, axes, counts = self._blocks()
        work = seq(
            self.region.fill(self._corner(bases)),
            self._data(bases),
            *(self._products(part, m, u) for part in self.order.parts()),
            self._results(bases, m),
        )
        for buffer in (m, self.t, self.region.buffer):
            work = Allocate(buffer, work)
        pack = tasks([filter.channel], [self.channels], self._weights_of_taps(u), self.threads)
        return Allocate(u, seq(pack, tasks(axes, counts, work, self.threads) if axes else work))

    def _sums_of_tiles(self) -> Stmt:
        filter = self.filter
        m = Buffer("m", (filter.chunks, filter.points, self.channels, self.columns), self.dtype, "workspace")
        u = self._local("u", self.columns)
        chunk, turn = Var("chunk"), Var("turn")
        bases, axes, counts = self._blocks()
        number = chunk * filter.rounds + turn
        place = point_of(number, axes, counts)
        ragged = any(filter.count(v) % filter.blocks[v] for v in filter.tiled)
        work = seq(
            *([self._zero(self.t), self._zero(u)] if ragged else []),
            self._zero(self.region.buffer) if self._reads_beyond() else None,
            self.region.fill(self._corner(bases)),
            self._data(bases),
            self._weights_of_tiles(bases, u),
            *(self._products(part, m, u, lead=(chunk,)) for part in self.order.parts()),
        )
        work = substitute(work, place)
        total = math.prod(counts)
        turns = as_expr(filter.rounds)
        if total % filter.rounds:
            turns = minimum(as_expr(total) - chunk * filter.rounds, filter.rounds)
        work = seq(self._clear(m, chunk), For(turn, turns, work))
        for buffer in (u, self.t, self.region.buffer):
            work = Allocate(buffer, work)
        kind = "parallel" if self.threads else "serial"
        return Allocate(m, seq(For(chunk, as_expr(filter.chunks), work, kind), self._results_of_sums(m)))

    def _blocks(self) -> tuple[dict[Var, PrimExpr], list[Var], list[int]]:
        """The number of a task's first tile along each axis; the loops over blocks."""
        bases: dict[Var, PrimExpr] = {}
        axes, counts = [], []
        for v in self.filter.tiled:
            block = self.filter.blocks[v]
            count = -(-self.filter.count(v) // block)
            bases[v] = as_expr(0)
            if count > 1:
                axes.append(Var(f"{v.name}_block"))
                counts.append(count)
                bases[v] = axes[-1] * block
        return bases, axes, counts

    def _corner(self, bases: Place) -> dict[Var, PrimExpr]:
        """The first values of all axes."""
        zero = dict.fromkeys((*self.problem.outputs, *self.problem.reduced), as_expr(0))
        long = {p.long: bases[p.long] * 2 for p in self.filter.pairs}
        return {**zero, **bases, **long}

    def _is_odd(self, v: Var) -> bool:
        return bool(self.extents[v] % 2)

    def _reads_beyond(self) -> bool:
        """Whether values behind the end of an axis take part, as ones that are multiplied by zeros."""
        return any(
            self._is_odd(p.long) and not apart for p, apart in zip(self.filter.pairs, self.order.apart, strict=True)
        )

    # -- loops

    def _over_tiles(
        self, bases: Place, body: Callable[[Place, PrimExpr, tuple[int, ...]], Stmt], apart: bool = False
    ) -> Stmt:
        """``body(offsets from the task's first tile, number of the tile, values along each long axis)`` for all tiles
        of a task; ``apart``: all those that the end of an axis cuts have one value there, not only those which have
        numbers of their own."""
        axes = self.filter.tiled
        is_cut = {
            p.long: self._is_odd(p.long) and (apart or own)
            for p, own in zip(self.filter.pairs, self.order.apart, strict=True)
        }

        def nest(k: int, offsets: dict[Var, PrimExpr], sizes: tuple[int, ...]) -> Stmt:
            if k == len(axes):
                return body(offsets, self.order.number(offsets, sizes), sizes)
            v, block, count = axes[k], self.filter.blocks[axes[k]], self.filter.count(axes[k])

            def at(i: PrimExpr, size: int = 2) -> Stmt:
                return nest(k + 1, {**offsets, v: i}, (*sizes, size) if v in is_cut else sizes)

            if not is_cut.get(v):
                even = count % block == 0
                return loop(v.name, as_expr(block) if even else minimum(as_expr(count) - bases[v], block), at)
            if count == block:
                return seq(loop(v.name, count - 1, at), at(as_expr(count - 1), 1))
            last = as_expr(count - 1) - bases[v]  # its place in the block, or behind it
            return seq(loop(v.name, minimum(last, block), at), If(last < block, at(last, 1)))

        return nest(0, {}, ())

    def _zero(self, buffer: Buffer) -> Stmt:
        zero = const(0, buffer.dtype)
        return self._everywhere(buffer.shape, lambda at: store(buffer, at, zero))

    def _clear(self, m: Buffer, chunk: Var) -> Stmt:
        zero = const(0, self.dtype)
        return self._everywhere(m.shape[1:], lambda at: store(m, (chunk, *at), zero))

    def _everywhere(self, shape: Sequence[int | PrimExpr], body: Callable[[tuple[PrimExpr, ...]], Stmt]) -> Stmt:
        axes = [Var("i") for _ in shape]
        result = body(tuple(axes))
        for k in range(len(shape) - 1, -1, -1):
            result = For(axes[k], as_expr(shape[k]), result, "vectorized" if k == len(shape) - 1 else "serial")
        return result

    def _kept(
        self, values: Values, grid: Grid, buffer: Buffer, row: PrimExpr, lane: Var, sizes: tuple[int, ...] | None = None
    ) -> Stmt:
        """Store the values of all points, or of those that a tile of such sizes needs, for a row and a lane of it."""
        needed = [(p, at) for p, at in enumerate(self.points) if sizes is None or self.order.needs(sizes, at)]
        return values.around(seq(*(store(buffer, (p, row, lane), grid[at]) for p, at in needed)))

    # -- transforms

    def _data(self, bases: Place) -> Stmt:
        filter = self.filter

        def tile(offsets: Place, number: PrimExpr, sizes: tuple[int, ...]) -> Stmt:
            c, values = Var("c"), Values()
            grid: Grid = {}
            for at in self.points:
                place = {**offsets, filter.channel: c}
                for pair, u in zip(filter.pairs, at, strict=True):
                    step, tap = pair.data_at(u)
                    place |= {pair.long: offsets[pair.long] * 2 + step, pair.tap: as_expr(tap)}
                grid[at] = cast(self.dtype, self.region.read(place))
            t = self._kept(values, values.transformed(grid, DATA), self.t, number, c, sizes)
            return For(c, as_expr(self.channels), t, "vectorized")

        return self._over_tiles(bases, tile)

    def _element(self, value: Place) -> PrimExpr:
        weights = self.filter.weights
        return cast(self.dtype, self.lower.element(weights.source, [substitute(r, value) for r in weights.reads]))

    def _weights_of_taps(self, u: Buffer) -> Stmt:
        filter, values, j = self.filter, Values(), Var("j")
        grid: Grid = {}
        for at in grid_points(len(filter.pairs), 3):
            taps = {p.tap: as_expr(p.tap_at(s)) for p, s in zip(filter.pairs, at, strict=True)}
            grid[at] = self._element({**taps, filter.channel: filter.channel, filter.column: j})
        body = self._kept(values, values.transformed(grid, WEIGHTS[3]), u, filter.channel, j)
        return For(j, as_expr(self.columns), body, "vectorized")

    def _weights_of_tiles(self, bases: Place, u: Buffer) -> Stmt:
        filter = self.filter

        def tile(offsets: Place, number: PrimExpr, sizes: tuple[int, ...]) -> Stmt:
            j, values = Var("j"), Values()
            grid: Grid = {}
            for at in grid_points(len(filter.pairs), 2):
                if any(s >= size for s, size in zip(at, sizes, strict=True)):
                    grid[at] = const(0, self.dtype)
                    continue
                place = {v: bases[v] + offsets[v] for v in filter.batch} | {filter.column: j}
                inside: list[PrimExpr] = []
                for pair, s, apart in zip(filter.pairs, at, self.order.apart, strict=True):
                    index, extent = (bases[pair.long] + offsets[pair.long]) * 2 + s, self.extents[pair.long]
                    if s and extent % 2 and not apart:
                        inside.append(index < extent)
                        index = minimum(index, extent - 1)
                    place[pair.long] = index
                value = self._element(place)
                for condition in inside:
                    value = select(condition, value, const(0, self.dtype))
                grid[at] = value
            body = self._kept(values, values.transformed(grid, WEIGHTS[2]), u, number, j, sizes)
            return For(j, as_expr(self.columns), body, "vectorized")

        return self._over_tiles(bases, tile)

    # -- products

    def _products(self, part: Part, m: Buffer, u: Buffer, lead: tuple[PrimExpr, ...] = ()) -> Stmt:
        """``m[p, tile, j] = Σ_c t[p, tile, c]·u[p, c, j]`` for the points of a part and the tiles that need them; where
        tiles are summed, ``m[lead, p, c, j] += Σ_tile t[p, tile, c]·u[p, tile, j]``."""
        t, rows, depth, row, term = self.t, part.tiles, self.channels, part.first_tile, 0
        if lead:
            rows, depth, row, term = self.channels, part.tiles, 0, part.first_tile
        tile = choose_tile(rows, self.columns, self.problem.lanes, self.machine.registers)

        def at_point(number: PrimExpr) -> Stmt:
            p = number + part.first_point
            product = Product(
                self.machine,
                self.dtype,
                depth,
                (lambda i, k: t[p, k + term, i]) if lead else (lambda i, k: t[p, i + row, k]),
                lambda k, j: u[p, k + term, j],
                lambda i, j, total: store(m, (*lead, p, i + row, j), total),
                (lambda i, j: m[(*lead, p, i + row, j)]) if lead else None,
            )
            return product.tiles(rows, self.columns, tile)

        return loop("point", part.points, at_point)

    # -- results

    def _results(self, bases: Place, m: Buffer) -> Stmt:
        filter = self.filter

        def tile(offsets: Place, number: PrimExpr, sizes: tuple[int, ...]) -> Stmt:
            first = {p.long: (bases[p.long] + offsets[p.long]) * 2 for p in filter.pairs}
            batch, j = {v: bases[v] + offsets[v] for v in filter.batch}, Var("j")

            def place(at: tuple[int, ...]) -> Place | None:
                if any(i >= size for i, size in zip(at, sizes, strict=True)):
                    return None
                long = {p.long: first[p.long] + i for p, i in zip(filter.pairs, at, strict=True)}
                return {**batch, **long, filter.column: j}

            grid: Grid = {at: m[as_expr(p), number, j] for p, at in enumerate(self.points)}
            return For(j, as_expr(self.columns), self._finish(grid, place), "vectorized")

        return self._over_tiles(bases, tile, apart=True)

    def _results_of_sums(self, m: Buffer) -> Stmt:
        lanes, columns = self.problem.lanes, self.columns

        def line(number: PrimExpr) -> Stmt:
            first = number * lanes
            return whole_or_tail(first, columns, lanes, lambda n: self._taps(m, first, n))

        return tasks([self.filter.channel], [self.channels], loop("line", -(-columns // lanes), line), self.threads)

    def _taps(self, m: Buffer, first: PrimExpr, columns: int) -> Stmt:
        """The results of all taps for so many columns, which ``acc`` holds one row a tap."""
        filter, j = self.filter, Var("j")
        taps = [(p.tap, 3) for p in filter.pairs]
        acc = Buffer("acc", (math.prod(n for _, n in taps), columns), self.dtype, "local")
        values = Values()
        totals = values.transformed({at: self._total(m, p, first + j) for p, at in enumerate(self.points)}, RESULTS[3])

        def row(at: tuple[int, ...]) -> PrimExpr:
            return _number(as_expr(p.tap_at(i)) for p, i in zip(filter.pairs, at, strict=True))

        fill = values.around(seq(*(store(acc, (row(at), j), total) for at, total in totals.items())))
        corner = {v: as_expr(0) for v, _ in taps} | {filter.channel: filter.channel, filter.column: first}

        def finish(moves: Place, total: PrimExpr) -> Stmt:
            return epilogue(self.problem, {**corner, **moves, filter.column: first + moves[filter.column]}, total)

        put = transposed_store(self.problem, filter.column, taps, columns, acc, self.problem.lanes, finish)
        if put is None:
            i, place = Var("i"), {v: as_expr(v) for v, _ in taps}
            put = For(
                i, as_expr(columns), finish({**place, filter.column: i}, acc[_number(place.values()), i]), "vectorized"
            )
            put = outer_loops(list(place), [n for _, n in taps], put, threads=False)
        return Allocate(acc, seq(For(j, as_expr(columns), fill, "vectorized"), put))

    def _total(self, m: Buffer, p: int, j: PrimExpr) -> PrimExpr:
        """The sum of the partial sums, pair by pair."""
        terms: list[PrimExpr] = [m[as_expr(c), as_expr(p), self.filter.channel, j] for c in range(self.filter.chunks)]
        while len(terms) > 1:
            pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = [*pairs, *([terms[-1]] if len(terms) % 2 else [])]
        return terms[0]

    def _finish(self, grid: Grid, place: Callable[[tuple[int, ...]], Place | None]) -> Stmt:
        """The results of a grid of products, and the elementwise stages on each."""
        values = Values()
        totals = values.transformed(grid, RESULTS[2])
        wanted = [(value, total) for at, total in totals.items() if (value := place(at)) is not None]
        return values.around(seq(*(epilogue(self.problem, value, total) for value, total in wanted)))


def _number(taps: Iterable[PrimExpr]) -> PrimExpr:
    """The row that these taps have."""
    return functools.reduce(lambda number, tap: number * 3 + tap, taps)
