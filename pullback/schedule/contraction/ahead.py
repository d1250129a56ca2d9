"""What a register tile will read and write when its sums are done is asked for before they begin.

    for r in unrolled(rows): for line in unrolled(columns / line):
        prefetch(out[r, line], "write")        and whatever the elementwise stages after the sum read

The sums take longer than memory does to answer, so that neither waits for the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.schedule.contraction.blocking import STREAM
from pullback.tir import Buffer, BufferLoad, BufferStore, Let, Prefetch, PrimExpr, Stmt, Var, loop
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import substitute, walk

Place = tuple[Buffer, tuple[PrimExpr, ...], str]


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
