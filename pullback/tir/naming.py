"""Names for parts of expressions that several have in common."""

from __future__ import annotations

from pullback.tir.expr import (
    FloatImm,
    IntImm,
    PrimExpr,
    Var,
)
from pullback.tir.visitor import Mutator, children


def named(parts: list[PrimExpr]) -> tuple[list[tuple[Var, PrimExpr]], list[PrimExpr]]:
    """The expressions with names for what they share, and what the names stand for, each after those in it."""
    seen: dict[int, int] = {}
    order: list[PrimExpr] = []

    def visit(node: PrimExpr) -> None:
        seen[id(node)] = seen.get(id(node), 0) + 1
        if seen[id(node)] == 1:
            for child in children(node):
                visit(child)
            order.append(node)

    for part in parts:
        visit(part)
    names: list[tuple[Var, PrimExpr]] = []
    naming = _Naming()
    for node in order:
        if seen[id(node)] > 1 and not isinstance(node, (Var, IntImm, FloatImm)):
            names.append((Var(f"t{len(names)}", node.dtype), naming.expr(node)))
            naming.names[id(node)] = names[-1][0]
    return names, [naming.expr(part) for part in parts]


class _Naming(Mutator):
    """Replaces expressions, known by identity, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[int, Var] = {}

    def expr(self, node: PrimExpr) -> PrimExpr:
        name = self.names.get(id(node))
        return super().expr(node) if name is None else name
