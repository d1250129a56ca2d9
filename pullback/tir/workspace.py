"""Workspace buffers: scratch memory that a kernel asks for becomes a parameter, so that the planner gives it a place.

def k(A, B):                                def k(A, B, panels):
    panels = T.alloc_buffer(…, "workspace")     …
    …                               →
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.tir.expr import Buffer, as_expr, nbytes
from pullback.tir.stmt import Allocate, For, PrimFunc, Stmt
from pullback.tir.visitor import Mutator, Substitute, statements

MOST_LOCAL_BYTES = 128 * 1024  # of a buffer that is left on the stack


def large_locals_lifted(body: Stmt) -> Stmt:
    """The statement with large local buffers as workspaces, but for those of single tasks and lanes."""
    large = _Large()
    large.stmt(body)
    return Substitute(buffers=large.found).stmt(body) if large.found else body


class _Large(Mutator):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Buffer, Buffer] = {}

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, For) and node.kind in ("parallel", "vectorized"):
            return node
        if isinstance(node, Allocate) and node.buffer.scope == "local":
            sizes = [getattr(as_expr(s), "value", 0) for s in node.buffer.shape]
            if math.prod(sizes) * nbytes(node.buffer.dtype) > MOST_LOCAL_BYTES:
                self.found[node.buffer] = replace(node.buffer, scope="workspace")
        return super().stmt(node)


def lift_workspaces(function: PrimFunc) -> tuple[PrimFunc, list[Buffer]]:
    """The kernel with its workspace buffers as further parameters, and those parameters."""
    found = [n.buffer for n in statements(function.body) if isinstance(n, Allocate) and n.buffer.scope == "workspace"]
    if not found:
        return function, []
    params = {old: Buffer(old.name, old.shape, old.dtype) for old in found}
    body = _Lift(buffers=params).stmt(function.body)
    attrs = {**function.attrs, "workspaces": len(params)}
    return PrimFunc(function.name, (*function.params, *params.values()), body, attrs), list(params.values())


class _Lift(Substitute):
    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, Allocate) and node.buffer in self.buffers:
            return self.stmt(node.body)
        return super().stmt(node)
