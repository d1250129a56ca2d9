"""What each thread of a parallel loop does once, instead of each of its tasks.

    for task in parallel(n):                    each thread:  panels = …
        panels = alloc_buffer(…)         →                    for panel: panels[panel] = …
        for panel: panels[panel] = …                          for each task that it gets: …
        …

What fills a task's own memory with the same in every task need be done once in the memory of each thread. So copies
that all tasks read are written and read by the same core: lines that another core wrote come slowly.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pullback.codegen.statements import stored_buffers
from pullback.tir.expr import Buffer, BufferLoad
from pullback.tir.stmt import Allocate, For, Seq, Stmt, seq
from pullback.tir.visitor import walk


@dataclass(frozen=True)
class OwnCopies:
    """The buffers that each thread has, what fills them, and the loop that is left."""

    buffers: tuple[Buffer, ...]
    fills: tuple[Stmt, ...]
    loop: For

    @staticmethod
    def of(loop: For) -> OwnCopies | None:
        """Those of a parallel loop; None where its tasks fill nothing with the same."""
        buffers: list[Buffer] = []
        body = loop.body
        while isinstance(body, Allocate):
            buffers.append(body.buffer)
            body = body.body
        statements = body.stmts if isinstance(body, Seq) else (body,)
        changed = set(stored_buffers(loop)) - set(buffers)
        number = next((k for k, s in enumerate(statements) if not _fills(s, loop, buffers, changed)), len(statements))
        fills, rest = statements[:number], statements[number:]
        filled = dict.fromkeys(b for s in fills for b in stored_buffers(s) if b in buffers)
        if not rest or not filled or any(b in filled for s in rest for b in stored_buffers(s)):
            return None
        left = seq(*rest)
        for buffer in reversed([b for b in buffers if b not in filled]):
            left = Allocate(buffer, left)
        return OwnCopies(tuple(filled), fills, replace(loop, body=left))


def _fills(node: Stmt, loop: For, buffers: list[Buffer], changed: set[Buffer]) -> bool:
    """Whether a statement does the same in each task: it stores to the task's own buffers, and what it reads neither
    depends on the task nor is changed by any of them."""
    nodes = set(walk(node))
    inside = {n.buffer for n in nodes if isinstance(n, Allocate)}
    stored = [b for b in stored_buffers(node) if b not in inside]
    read = {n.buffer for n in nodes if isinstance(n, BufferLoad)} - inside
    is_own = bool(stored) and all(b in buffers for b in stored)
    return is_own and loop.var not in nodes and not read & changed
