"""ToBasicBlockNormalForm: what several blocks use has a name, bound in the block around them all.

    if (%c) {                     let %x = add(%a, %a);
      add(%a, %a)           →     if (%c) {
    } else {                        %x
      multiply(add(%a, %a), %b)   } else {
    }                               multiply(%x, %b)
                                  }

(where both ``add``s are one node). A block is the body of a function, a branch, the right side of a clause or a
``Let``; what one block uses alone stays as it is, in graph form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.module import IRModule
from pullback.relay.adt import Clause, Match
from pullback.relay.duplicate import bound_once
from pullback.relay.expr import Expr, Function, If, Let, Var
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.lets import ATOMS
from pullback.relay.transform.scopes import Scope, Scopes
from pullback.relay.transform.to_anf import is_primitive
from pullback.relay.visitor import ExprMutator


@dataclass(frozen=True)
class ToBasicBlockNormalForm(FunctionPass):
    """The functions of a module in basic block normal form.

    Checks: a node of several blocks is bound once. Fused functions stay whole.
    """

    opt_level = 1

    def function(self, function: Function, module: IRModule) -> Function:
        return to_basic_block_normal_form(function)


@deep
def to_basic_block_normal_form(expr: Any) -> Any:
    """The expression in basic block normal form; of a function, its body."""
    expr = bound_once(expr)
    if isinstance(expr, Function):
        return expr if is_primitive(expr) else expr.replace(body=_blocks(expr.body))
    return _blocks(expr)


def _blocks(expr: Any) -> Expr:
    scopes = Scopes(expr, lets=True)
    body = _Lifter(scopes).visit(expr)
    return scopes.root.bindings.get(body)


class _Lifter(ExprMutator):
    def __init__(self, scopes: Scopes) -> None:
        super().__init__()
        self.scopes = scopes

    def visit(self, expr: Any) -> Any:
        known = expr in self.memo_map
        result = super().visit(expr)
        if known or expr not in self.scopes.crossing or isinstance(expr, ATOMS) or isinstance(result, Var):
            return result
        bound = self.scopes.of[expr].bindings.push(result)
        self.memo_map[expr] = bound
        return bound

    def _block(self, scope: Scope, body: Any) -> Expr:
        result = self.visit(body)
        return scope.bindings.get(result)

    def visit_let(self, let: Let) -> Expr:
        (scope,) = self.scopes.inner[let]
        body: Any = let
        while isinstance(body, Let) and self.scopes.inner[body][0] is scope:
            scope.bindings.push(self.visit(body.value), body.variable)
            body = body.body
        return self._block(scope, body)

    def visit_function(self, function: Function) -> Expr:
        if is_primitive(function):
            return function
        (scope,) = self.scopes.inner[function]
        return function.replace(body=self._block(scope, function.body))

    def visit_if(self, if_: If) -> Expr:
        cond = self.visit(if_.cond)
        on_true, on_false = self.scopes.inner[if_]
        return If(cond, self._block(on_true, if_.true_branch), self._block(on_false, if_.false_branch), span=if_.span)

    def visit_match(self, match: Match) -> Expr:
        data = self.visit(match.data)
        blocks = zip(match.clauses, self.scopes.inner[match], strict=True)
        clauses = tuple(Clause(c.lhs, self._block(scope, c.rhs), span=c.span) for c, scope in blocks)
        return Match(data, clauses, match.complete, span=match.span)
