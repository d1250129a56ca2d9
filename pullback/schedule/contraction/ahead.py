"""What a register tile will read and write when its sums are done is asked for while they are computed.

    for r in rows:
        for line in unrolled(columns / line):
            prefetch(out[r, line], "write")        and whatever the elementwise stages after the sum read
        for k in this part of the terms:
            …

The sums take longer than memory does to answer, so that neither waits for the other. A core keeps track of some dozen
lines that it waits for, and would have none left for the factors, were all asked for at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pullback.schedule.contraction.blocking import STREAM
from pullback.tir import (
    Buffer,
    BufferLoad,
    BufferStore,
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

HINT_TERMS = 16  # between the hints of one row and those of the next, at the least


def hinted(hints: Hints, rows: int, terms: For, most: int) -> Stmt:
    """The loop over the terms, ``most`` of them, in equal parts, and before each the hints of its share of the rows."""
    parts = max(n for n in range(1, rows + 1) if rows % n == 0 and n * HINT_TERMS <= most)
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
