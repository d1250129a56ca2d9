"""Prefetches, which are issued while the sums of a register tile are computed.

Of what its epilogue will read and write:

    for r in rows:
        for line in unrolled(columns / line):
            prefetch(out[r, line], "write")        and whatever the elementwise stages after the sum read
        for k in this part of the terms:
            …

Of columns that come from beyond L1, those of some terms later with each term. Hardware prefetchers follow panels well,
but lose rows of lines apart that do not begin with a line (64 x 127 x 784: 0.89 of the time, 512 x 511 x 512: 0.94; 46
products: 0.96).

Of a matrix from beyond L2, what the next round packs:

    for round: pack;  for register tile: for r in rows:
        for line in this row's share of them: prefetch(b[next round + …])
        for k in this part of the terms: …

Packing alone waits for memory, and the units for packing: 10 x 24x603x301 spent 46 of 100 cycles on it, 15 x 393x25x543
48 (prefetched, 0.75 to 0.85 of the time). The round after a task's last one is the first of the next task, which is
most often the same thread's. Images are left alone: their regions are in fewer and longer pieces, which hardware
prefetchers follow (43 convolutions: 1.01 of the time).

The sums take longer than memory does to answer. A core tracks some dozen outstanding lines, and would have none left
for the factors, were all prefetched at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pullback.schedule.contraction.plan.blocking import Blocking, Packing
from pullback.schedule.contraction.problem.memory import distance, exceeds_l2, lines_of_rows
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.pointwise import point_of
from pullback.tir import (
    Buffer,
    BufferLoad,
    BufferStore,
    Cast,
    For,
    If,
    Let,
    Prefetch,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    loop,
    maximum,
    minimum,
    seq,
)
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import loads, substitute, walk

Place = tuple[Buffer, tuple[PrimExpr, ...], str]
Values = Mapping[Var, PrimExpr]
Prefetches = Callable[[PrimExpr], Stmt]  # for the row of a number

TERMS_AHEAD = 8  # whose columns are prefetched (4: 1.01 of the time, 16: 1.00 to 1.01)
HINT_TERMS = 16  # between the prefetches of one row and those of the next, at the least


def are_many(terms: int, others: int) -> bool:
    """Whether the terms of the outermost axis can be divided, with prefetches between. ``others``: terms of the axes
    inside."""
    return terms >= 2 and terms * others >= 2 * HINT_TERMS


def interleaved(hints: Prefetches, rows: int, terms: For, most: int, others: int) -> Stmt:
    """The loop over the terms, ``most`` of them, in equal parts, each after the prefetches of its share of the rows."""
    if most < 2 * HINT_TERMS:  # but each of them is many
        each = -(-rows // most)
        own = [hints(minimum(terms.var * each + r, rows - 1)) for r in range(each)]
        return For(terms.var, terms.extent, seq(*own, terms.body))
    parts = max(n for n in range(1, rows + 1) if rows % n == 0 and n * HINT_TERMS <= most * others)
    each, share, part = rows // parts, -(-most // parts), Var("part")
    rest = minimum(terms.extent - part * share, share)
    count = as_expr(share) if parts * share == getattr(terms.extent, "value", None) else maximum(rest, 0)
    body = substitute(terms.body, {terms.var: part * share + terms.var})
    own = [hints(part * each + r) for r in range(each)]
    return For(part, as_expr(parts), seq(*own, For(terms.var, count, body)))


def epilogue_prefetches(problem: Problem, finish: Stmt, column: Var, columns: int) -> list[Stmt]:
    """Prefetches for all that ``finish`` touches in the loop of ``columns`` over ``column``, line by line."""
    hints: list[Stmt] = []
    for buffer, indices, kind in _places(problem, finish, column):
        elements = LINE // nbytes(buffer.dtype)

        def hint(line: PrimExpr, place: Place = (buffer, indices, kind), elements: int = elements) -> Stmt:
            buffer, indices, kind = place
            return Prefetch(buffer, tuple(substitute(i, {column: line * elements}) for i in indices), kind)

        hints.append(loop("line", -(-columns // elements), hint, "unrolled"))
    return hints


def columns_ahead(load: PrimExpr, column: Var, columns: int, apart: int) -> Stmt:
    """Prefetches of all lines of a load in a loop of ``columns`` over ``column``, whose rows are ``apart`` elements."""
    load = load.value if isinstance(load, Cast) else load
    assert isinstance(load, BufferLoad)
    size, indices = nbytes(load.dtype), load.indices

    def hint(line: PrimExpr) -> Stmt:
        place = minimum(line * (LINE // size), columns - 1)
        return Prefetch(load.buffer, tuple(substitute(i, {column: place}) for i in indices))

    return loop("line", lines_of_rows(columns * size, apart * size), hint, "unrolled")


def _places(problem: Problem, finish: Stmt, column: Var) -> Sequence[Place]:
    """One access of each large buffer that is touched along the column, writes first."""
    found: dict[Buffer, Place] = {}
    nodes = list(walk(finish))
    bound = {n.var for n in nodes if isinstance(n, Let)}
    for node in sorted(nodes, key=lambda n: not isinstance(n, BufferStore)):
        if (
            isinstance(node, (BufferLoad, BufferStore))
            and _is_far(problem, node.buffer)
            and _is_along(node.indices, column, bound)
        ):
            kind = "write" if isinstance(node, BufferStore) else "read"
            found.setdefault(node.buffer, (node.buffer, node.indices, kind))
    return list(found.values())


def _is_far(problem: Problem, buffer: Buffer) -> bool:
    sizes = [s for s in buffer.shape if isinstance(s, int)]
    return len(sizes) == len(buffer.shape) and math.prod(sizes) * nbytes(buffer.dtype) > problem.figures.streamed


def _is_along(indices: Sequence[PrimExpr], column: Var, bound: set[Var]) -> bool:
    """Whether the column runs along the last axis, and the place depends on no value in memory."""
    parts = [n for i in indices for n in walk(i)]
    if any(isinstance(n, BufferLoad) or n in bound for n in parts):
        return False
    uses = [any(n is column for n in walk(i)) for i in indices]
    return uses[-1:] == [True] and not any(uses[:-1])


def following(axes: Sequence[Var], sizes: Sequence[int]) -> dict[Var, PrimExpr]:
    """The point after one, in row-major order; after the last one a place outside, which is harmless to prefetch."""
    number = as_expr(0)
    for axis, size in zip(axes, sizes, strict=True):
        number = number * size + axis
    return point_of(number + 1, axes, sizes)


@dataclass(frozen=True, eq=False)
class NextRoundPrefetch:
    """Prefetches of what the next round packs. ``element``: of a factor, at these values of its axes."""

    problem: Problem
    blocking: Blocking
    element: Callable[[Factor, Values], PrimExpr]

    def hints(self, tile: Values, bases: Values) -> Prefetches | None:
        """For each row of a register tile. ``tile``: its number in its round, along each axis of the result;
        ``bases``: the first values of the next round's axes."""
        copied = [f for f in self.blocking.packing if self._is_copied(f)]

        def of_row(row: PrimExpr) -> Stmt:
            return seq(*(hint for f in copied for hint in self._lines(f, tile, row, bases)))

        return of_row if copied else None

    def _is_copied(self, factor: Factor) -> bool:
        """Whether rounds pack a matrix from beyond L2."""
        if (
            self.blocking.packing[factor] not in (Packing.ROUND, Packing.REGION)
            or not factor.is_input
            or factor.is_window
        ):
            return False
        return exceeds_l2(self.problem, factor) and any(k in factor.axes for k in self.problem.reduced)

    def _lines(self, factor: Factor, tile: Values, row: PrimExpr, bases: Values) -> Iterator[Stmt]:
        """Of the tile's own columns (or rows), those terms that are the row's share among all tiles with the same."""
        inner, rows, column = self.blocking.inner, self.blocking.rows, self.blocking.column
        steps = dict(rows) | {column: self.blocking.tile.columns}
        own = column if column in factor.axes else next(v for v, _ in reversed(rows) if v in factor.axes)
        term = max((k for k in self.problem.reduced if k in factor.axes), key=lambda k: inner[k])
        share, shares = as_expr(0), 1
        for v in self.problem.outputs:
            if v not in factor.axes:
                count = -(-inner[v] // steps.get(v, 1))
                share, shares = share * count + tile[v], shares * count
        tall = math.prod(count for _, count in rows)
        share, shares = share * tall + row, shares * tall
        size = LINE // nbytes(factor.source.dtype)
        across = distance(self.problem, factor, own) != 1  # lines lie along the terms
        of_own, of_terms = (1, size) if across else (size, 1)
        count = -(-inner[term] // of_terms) + across  # as they do not begin with a line
        each = -(-count // shares)

        def hint(along: PrimExpr | int, number: PrimExpr) -> Stmt:
            place = {own: bases[own] + along, term: bases[term] + number * of_terms}
            (load,) = loads(self.element(factor, {**bases, **place}))
            return Prefetch(load.buffer, load.indices)

        for k in range(each):
            number = share * each + k
            ends = [tile[own] * steps[own] + (i + 1) * of_own - 1 for i in range(-(-steps[own] // of_own))]
            lines = seq(*(hint(end, number) for end in ends))
            if not across:  # the first one of all
                lines = seq(If(tile[own].equal(0), hint(0, number)), lines)
            yield If(number < count, lines) if count < shares * each else lines
