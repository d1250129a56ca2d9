"""Workspace buffers: scratch memory that a kernel asks for becomes a parameter, so that the planner gives it a place.

def k(A, B):                                def k(A, B, panels):
    panels = T.alloc_buffer(…, "workspace")     …
    …                               →
"""

from __future__ import annotations

from pullback.tir.expr import Buffer
from pullback.tir.stmt import Allocate, PrimFunc, Stmt
from pullback.tir.visitor import Substitute, statements


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
