"""Loops over a batch: a statement for each element, on parts of larger buffers.

B[i] = A[i] + 1        →        for k in range(n):
                                    B[k, i] = A[k, i] + 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.tir.expr import Buffer, BufferLoad, PrimExpr, Var, as_expr
from pullback.tir.stmt import Allocate, BufferStore, For, Prefetch, Stmt
from pullback.tir.visitor import Mutator, statements
from pullback.tir.workspace import large_locals_lifted


def batched(body: Stmt, mapped: Mapping[Buffer, Buffer], size: int | PrimExpr) -> Stmt:
    """``body`` for each index of an axis of ``size``, where each buffer of ``mapped`` is the part at that index of
    another. Elements are independent; they run in parallel unless the body has its own loops for that, or scratch
    memory, which all of them use.

    Checks: each buffer of ``mapped`` has one axis less than what stands for it. The body writes no other buffer that
    elements have in common.
    """
    index = Var("batch")
    body = large_locals_lifted(body)
    alone = any(
        (isinstance(s, For) and s.kind == "parallel") or (isinstance(s, Allocate) and s.buffer.scope == "workspace")
        for s in statements(body)
    )
    return For(index, as_expr(size), _AtIndex(mapped, index).stmt(body), "serial" if alone else "parallel")


class _AtIndex(Mutator):
    def __init__(self, mapped: Mapping[Buffer, Buffer], index: Var) -> None:
        super().__init__()
        self.mapped, self.index = mapped, index

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, BufferLoad) and node.buffer in self.mapped:
            return BufferLoad(self.mapped[node.buffer], (self.index, *(self.expr(i) for i in node.indices)))
        return super()._expr(node)

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, (BufferStore, Prefetch)) and node.buffer in self.mapped:
            indices = (self.index, *(self.expr(i) for i in node.indices))
            node = replace(node, buffer=self.mapped[node.buffer], indices=indices)
            return replace(node, value=self.expr(node.value)) if isinstance(node, BufferStore) else node
        return super().stmt(node)
