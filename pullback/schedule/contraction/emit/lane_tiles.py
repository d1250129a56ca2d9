"""Register tiles of sums in lanes (``lane_sums.py``).

    for vector of the axis: for c: for r: acc[r, c, lanes] = fma(a[r, lanes], b[c, lanes], acc[r, c, lanes])
    log2(lanes) times, all sums at once: acc[i] = acc[2i] + acc[2i + 1]

The last vector of a row is filled with zeros: what follows in memory belongs to other terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from pullback.schedule.contraction.emit.epilogue import epilogue
from pullback.schedule.contraction.emit.lower import Lowering, Spot
from pullback.schedule.contraction.emit.region import Region
from pullback.schedule.contraction.plan.blocking import Blocking, Rows
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Allocate, Buffer, For, If, PrimExpr, Stmt, Var, as_expr, const, loop, minimum, seq, store

Values = Mapping[Var, PrimExpr]

_WRITTEN_OUT = 6  # vectors of a row


class LaneLowering(Lowering):
    """Writes the kernel of a contraction whose vectors lie along an axis of the sum."""

    def __init__(self, problem: Problem, blocking: Blocking, flat: dict[Buffer, Buffer]) -> None:
        super().__init__(problem, blocking, flat)
        assert blocking.lane_axis is not None
        self.summed, self.lanes = blocking.lane_axis, problem.lanes
        self.regions = {f: Region(problem, f, blocking.inner, blocking.lane_axis) for f in self.regions}

    def _whole_tile(self, spot: Spot, rows: int, columns: int) -> Stmt:
        return self._totals(spot, rows, columns, lambda at, total: epilogue(self.problem, at.value, total))

    def _partial_tile(self, spot: Spot, rows: int, columns: int, chunk: Var, turn: Var | None) -> Stmt:
        assert self.partial is not None
        partial = self.partial

        def put(at: Spot, total: PrimExpr) -> Stmt:
            place = self._partial_place(chunk, at.value)
            first = store(partial, place, total)
            return first if turn is None else If(turn.equal(0), first, store(partial, place, partial[place] + total))

        return self._totals(spot, rows, columns, put)

    def _totals(self, spot: Spot, rows: int, columns: int, put: Callable[[Spot, PrimExpr], Stmt]) -> Stmt:
        """Accumulate, add the lanes, and ``put(place, total)`` for each sum."""
        count = self._count(rows) * columns
        acc = Buffer("acc", (count * self.lanes,), self.anchor.dtype, "local")
        clear = self._elements(count * self.lanes, lambda i: store(acc, (i,), const(0, acc.dtype)))
        steps, buffers = self._added(acc, count)
        ends = self._over_tile(spot, rows, columns, lambda r, j, at: put(at, buffers[-1][r * columns + j]))
        body = seq(clear, self._multiply(acc, spot, rows, columns), *steps, ends)
        for buffer in reversed(buffers):
            body = Allocate(buffer, body)
        return body

    def _elements(self, size: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """The body for each of so many elements, vector by vector."""
        whole, rest = divmod(size, self.lanes)

        def vector(first: PrimExpr, lanes: int) -> Stmt:
            return loop("lane", lanes, lambda lane: body(first + lane), "vectorized")

        return seq(
            loop("q", whole, lambda q: vector(q * self.lanes, self.lanes), "unrolled") if whole else None,
            vector(as_expr(whole * self.lanes), rest) if rest else None,
        )

    def _added(self, acc: Buffer, count: int) -> tuple[list[Stmt], list[Buffer]]:
        """Sums of neighbours, until there is one number for each sum; all buffers, ``acc`` the first."""
        steps: list[Stmt] = []
        buffers, size = [acc], count * self.lanes
        while size > count:
            size //= 2
            old, new = buffers[-1], Buffer("added", (size,), acc.dtype, "local")

            def add(i: PrimExpr, old: Buffer = old, new: Buffer = new) -> Stmt:
                return store(new, (i,), old[i * 2] + old[i * 2 + 1])

            steps.append(self._elements(size, add))
            buffers.append(new)
        return steps, buffers

    def _multiply(self, acc: Buffer, spot: Spot, rows: int, columns: int) -> Stmt:
        """All terms of this round."""
        inner, summed = self.inner, self.summed
        others = {k: Var(k.name) for k in self.problem.reduced if k is not summed}
        whole, rest = divmod(self.extents[summed], self.lanes)
        tile = (*self._counts(rows), (self.blocking.column, columns))
        kind = "unrolled" if whole <= _WRITTEN_OUT else "serial"
        body = seq(
            loop("vector", whole, lambda k: self._vector(acc, spot.at({**others, summed: k * self.lanes}), tile), kind)
            if whole
            else None,
            self._vector(acc, spot.at({**others, summed: as_expr(whole * self.lanes)}), tile, rest) if rest else None,
        )
        for k in reversed(others):
            size = as_expr(inner[k])
            if self.extents[k] % inner[k]:
                size = minimum(as_expr(self.extents[k]) - spot.value[k], inner[k])
            body = For(others[k], size, body)
        return body

    def _vector(self, acc: Buffer, spot: Spot, tile: Rows, rest: int | None = None) -> Stmt:
        """One vector's terms; ``rest``: of only so many lanes, the others being 0. The vectors of one factor are kept,
        those of the other come one after the other, as registers are few."""
        a, b = (_Vectors(self, f, spot, tile, rest) for f in (self.blocking.a, self.blocking.b))
        kept, passing = (a, b) if a.count <= b.count else (b, a)

        def multiply(values: Values, lane: Var) -> Stmt:
            place = _number(tile, values) * self.lanes + lane
            product = self.group.machine.multiply_add(a.read(values, lane), b.read(values, lane), acc[place])
            return store(acc, (place,), product)

        def lanes(over: Rows, values: Values) -> Stmt:
            lane = Var("lane")
            return For(
                lane, as_expr(self.lanes), _over(over, lambda more: multiply({**values, **more}, lane)), "vectorized"
            )

        if rest is None:
            return lanes((*passing.tile, *kept.tile), {})
        body = seq(
            _over(kept.tile, kept.load),
            _over(passing.tile, lambda values: seq(passing.load(values), lanes(kept.tile, values))),
        )
        for buffer in (a.buffer, b.buffer):
            body = Allocate(buffer, body)
        return body


class _Vectors:
    """The vectors of a factor, one for each value of the axes of a register tile that it has."""

    def __init__(self, lowering: LaneLowering, factor: Factor, spot: Spot, tile: Rows, rest: int | None) -> None:
        self.lowering, self.factor, self.spot, self.rest = lowering, factor, spot, rest
        self.tile = tuple((v, count) for v, count in tile if v in factor.axes)
        self.count = math.prod(count for _, count in self.tile)
        self.buffer = Buffer("vectors", (self.count * lowering.lanes,), factor.dtype, "local")

    def read(self, values: Values, lane: PrimExpr) -> PrimExpr:
        if self.rest is not None:
            return self.buffer[_number(self.tile, values) * self.lowering.lanes + lane]
        return self._element(values, lane)

    def load(self, values: Values) -> Stmt | None:
        """Fill a vector that is not whole, with zeros behind its lanes."""
        if self.rest is None:
            return None
        first, zero = _number(self.tile, values) * self.lowering.lanes, const(0, self.buffer.dtype)

        def fill(lanes: int, value: Callable[[PrimExpr], PrimExpr]) -> Stmt:
            return loop("lane", lanes, lambda lane: store(self.buffer, (first + lane,), value(lane)), "vectorized")

        return seq(fill(self.lowering.lanes, lambda _: zero), fill(self.rest, lambda lane: self._element(values, lane)))

    def _element(self, values: Values, lane: PrimExpr) -> PrimExpr:
        """Where it lies, or from the task's own copy."""
        at = self.spot.at({**{v: values[v] for v, _ in self.tile}, self.lowering.summed: lane})
        return self.lowering.read(self.factor, at)


def _number(tile: Rows, values: Values) -> PrimExpr:
    """Of these values among all of a tile's."""
    number: PrimExpr = as_expr(0)
    for v, count in tile:
        number = number * count + values[v]
    return number


def _over(tile: Rows, body: Callable[[Values], Stmt | None]) -> Stmt:
    """The body for all values of a tile's axes, written out."""

    def nest(k: int, values: dict[Var, PrimExpr]) -> Stmt:
        if k == len(tile):
            return seq(body(values))
        v, count = tile[k]
        return loop("r", count, lambda r: nest(k + 1, {**values, v: r}), "unrolled")

    return nest(0, {})
