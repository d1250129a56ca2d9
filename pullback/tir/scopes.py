"""Names in a kernel: each variable and each buffer that it uses is a parameter, or bound around the place."""

from __future__ import annotations

from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import UserError
from pullback.tir.expr import Buffer, BufferLoad, PrimExpr, Var, as_expr
from pullback.tir.stmt import Allocate, BufferStore, For, Let, Prefetch, PrimFunc, Seq, Stmt
from pullback.tir.visitor import children, distinct


@deep
def check_scopes(function: PrimFunc) -> None:
    """Raise a UserError at the first variable or buffer that is used where it is not bound."""
    sizes = {v for b in function.buffers for s in b.shape for v in distinct(as_expr(s)) if isinstance(v, Var)}
    _Scopes(function.name).stmt(function.body, sizes | set(function.params))


class _Scopes:
    def __init__(self, name: str) -> None:
        self.name = name

    def stmt(self, node: Stmt, bound: set[Any]) -> None:
        """A statement, where these variables and buffers are bound."""
        if isinstance(node, (BufferStore, Prefetch)):
            self.expect(node.buffer, bound, node)
        if isinstance(node, Allocate):
            self.values(list(map(as_expr, node.buffer.shape)), bound, node)
        named = getattr(node, "var", None)
        self.values([c for c in children(node) if isinstance(c, PrimExpr) and c is not named], bound, node)
        own = node.var if isinstance(node, (For, Let)) else node.buffer if isinstance(node, Allocate) else None
        inner = bound if own is None else bound | {own}
        for part in node.stmts if isinstance(node, Seq) else children(node):
            if isinstance(part, Stmt):
                self.stmt(part, inner)

    def values(self, values: list[PrimExpr], bound: set[Any], node: Stmt) -> None:
        for part in distinct(*values):
            if isinstance(part, Var):
                self.expect(part, bound, part, node)
            elif isinstance(part, BufferLoad):
                self.expect(part.buffer, bound, part, node)

    def expect(self, found: Var | Buffer, bound: set[Any], *places: Any) -> None:
        if found in bound:
            return
        span = next((p.span for p in places if p.span is not None), None)
        if isinstance(found, Var):
            hint = "a loop, an assignment or the shape of a parameter binds a variable"
            raise UserError(f"{self.name}: the variable {found.name} is not bound here", span=span, hint=hint)
        hint = "T.alloc_buffer(shape, dtype) makes a buffer for the statements after it"
        raise UserError(f"{self.name}: the buffer {found.name} is not allocated here", span=span, hint=hint)
