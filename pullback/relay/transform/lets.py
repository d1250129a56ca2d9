"""What passes over chains of ``Let``s share: how long ones are rebuilt, and which values may stand anywhere."""

from __future__ import annotations

from typing import Any

from pullback.ir.op import Op
from pullback.relay.adt import Constructor
from pullback.relay.expr import Constant, Expr, Function, GlobalVar, Let, Var
from pullback.relay.visitor import ExprMutator

NAMES = (Var, GlobalVar, Op, Constructor)  # what has a name already
ATOMS = (*NAMES, Constant)
AT_NO_COST = (*ATOMS, Function)  # values that a function may make at each call


class LetMutator(ExprMutator):
    """Rebuilds chains of lets from their first to their last, however long: :meth:`binding` says what is bound."""

    def binding(self, let: Let) -> Expr | None:
        """What the variable is bound to now; None where the ``Let`` goes."""
        raise NotImplementedError

    def visit_let(self, let: Let) -> Expr:
        chain: list[tuple[Let, Expr | None]] = []
        body: Any = let
        while isinstance(body, Let) and body not in self.memo_map:
            chain.append((body, self.binding(body)))
            body = body.body
        result = self.visit(body)
        for old, value in reversed(chain):
            if value is not None:
                result = Let(self.visit(old.variable), value, result, span=old.span)
            self.memo_map[old] = result
        return result
