"""What a register tile will read and write when its sums are done is asked for while they are computed.

    for r in rows:
        for line in unrolled(columns / line):
            prefetch(out[r, line], "write")        and whatever the elementwise stages after the sum read
        for k in this part of the terms:
            …

And where columns come from a farther cache, those of some terms later are asked for with each term. Prefetchers follow
panels well, but lose lines apart that no vector begins with (64 x 127 x 784: 0.89 of the time, 512 x 511 x 512: 0.94;
46 products: 0.96).

The sums take longer than memory does to answer, so that neither waits for the other. A core keeps track of some dozen
lines that it waits for, and would have none left for the factors, were all asked for at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pullback.schedule.contraction.figures import STREAM
from pullback.schedule.contraction.problem.memory import lines_of_rows
from pullback.tir import (
    Buffer,
    BufferLoad,
    BufferStore,
    Cast,
    For,
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
from pullback.tir.visitor import substitute, walk

Place = tuple[Buffer, tuple[PrimExpr, ...], str]
Hints = Callable[[PrimExpr], Stmt]  # for the row of a number

TERMS_AHEAD = 8  # whose columns are asked for (4: 1.01 of the time, 16: 1.00 to 1.01)
HINT_TERMS = 16  # between the hints of one row and those of the next, at the least


def are_many(terms: int, others: int) -> bool:
    """Whether the terms of an axis, the outermost, can be divided for hints between. ``others``: that each of them is,
    of the axes inside."""
    return terms >= 2 and terms * others >= 2 * HINT_TERMS


def hinted(hints: Hints, rows: int, terms: For, most: int, others: int) -> Stmt:
    """The loop over the terms, ``most`` of them, in equal parts, and before each the hints of its share of the rows."""
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


def prefetched(finish: Stmt, column: Var, columns: int) -> list[Stmt]:
    """Hints for all that ``finish`` touches in the loop of ``columns`` over ``column``, line by line."""
    hints: list[Stmt] = []
    for buffer, indices, kind in _places(finish, column):
        elements = LINE // nbytes(buffer.dtype)

        def hint(line: PrimExpr, buffer=buffer, indices=indices, kind=kind, elements=elements) -> Stmt:
            return Prefetch(buffer, tuple(substitute(i, {column: line * elements}) for i in indices), kind)

        hints.append(loop("line", -(-columns // elements), hint, "unrolled"))
    return hints


def columns_ahead(load: PrimExpr, column: Var, columns: int, apart: int) -> Stmt:
    """Hints for all lines of a load in the loop of ``columns`` over ``column``, whose rows lie ``apart`` elements."""
    load = load.value if isinstance(load, Cast) else load
    assert isinstance(load, BufferLoad)
    size, indices = nbytes(load.dtype), load.indices

    def hint(line: PrimExpr) -> Stmt:
        place = minimum(line * (LINE // size), columns - 1)
        return Prefetch(load.buffer, tuple(substitute(i, {column: place}) for i in indices))

    return loop("line", lines_of_rows(columns * size, apart * size), hint, "unrolled")


def _places(finish: Stmt, column: Var) -> Sequence[Place]:
    """One access of each large buffer that is touched along the column, writes first."""
    found: dict[Buffer, Place] = {}
    nodes = list(walk(finish))
    bound = {n.var for n in nodes if isinstance(n, Let)}
    for node in sorted(nodes, key=lambda n: not isinstance(n, BufferStore)):
        if (
            isinstance(node, (BufferLoad, BufferStore))
            and _is_far(node.buffer)
            and _is_along(node.indices, column, bound)
        ):
            kind = "write" if isinstance(node, BufferStore) else "read"
            found.setdefault(node.buffer, (node.buffer, node.indices, kind))
    return list(found.values())


def _is_far(buffer: Buffer) -> bool:
    sizes = [s for s in buffer.shape if isinstance(s, int)]
    return len(sizes) == len(buffer.shape) and math.prod(sizes) * nbytes(buffer.dtype) > STREAM


def _is_along(indices: Sequence[PrimExpr], column: Var, bound: set[Var]) -> bool:
    """Whether the column runs along the last axis, and the place depends on no value in memory."""
    parts = [n for i in indices for n in walk(i)]
    if any(isinstance(n, BufferLoad) or n in bound for n in parts):
        return False
    uses = [any(n is column for n in walk(i)) for i in indices]
    return uses[-1:] == [True] and not any(uses[:-1])
