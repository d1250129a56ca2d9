"""ToGraphNormalForm: values stand where they are used; what several use is one node.

    let %x = add(%a, %b);            %0 = add(%a, %b);
    let %y = multiply(%x, %x);  →    multiply(%0, %0)
    %y

Order counts where there are effects. So values that write, read or create cells, or call what may do so, keep their
``Let``; so do functions that call themselves, and values that only a function inside needs, which would be computed in
each of its calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relay.adt import Constructor
from pullback.relay.duplicate import bound_once
from pullback.relay.expr import Constant, Expr, Function, GlobalVar, Let, Var
from pullback.relay.transform.infra import FunctionPass, optimizable
from pullback.relay.transform.purity import Effect, Purity
from pullback.relay.transform.scopes import Scopes
from pullback.relay.transform.to_anf import is_primitive
from pullback.relay.visitor import ExprMutator

_AT_NO_COST = (Var, GlobalVar, Op, Constructor, Constant, Function)  # values that may be written anywhere


@dataclass(frozen=True)
class ToGraphNormalForm(FunctionPass):
    """The functions of a module in graph normal form."""

    def run(self, module: IRModule) -> IRModule:
        from pullback.relay.infer import infer_module

        purity = Purity(module)
        result = module.copy()
        for name, function in module.items():
            if optimizable(function):
                result[name] = to_graph_normal_form(function, purity)
        return infer_module(result)


@deep
def to_graph_normal_form(expr: Any, purity: Purity | None = None) -> Any:
    """The expression in graph normal form. ``purity`` knows the functions of the module: those that it does not know
    may do anything."""
    expr = bound_once(expr)
    return _Inliner(expr, purity or Purity()).visit(expr)


class _Inliner(ExprMutator):
    def __init__(self, root: Any, purity: Purity) -> None:
        super().__init__()
        self.purity = purity
        self.scopes = Scopes(root)
        purity.of(root)

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else super().visit_function(function)

    def visit_let(self, let: Let) -> Expr:
        chain: list[tuple[Let, Expr | None]] = []
        body: Any = let
        while isinstance(body, Let) and body not in self.memo_map:
            value = self.visit(body.value)
            moves = self._may_move(body)
            if moves:
                self.memo_map[body.variable] = value
            chain.append((body, None if moves else value))
            body = body.body
        result = self.visit(body)
        for old, kept in reversed(chain):
            if kept is not None:
                result = Let(old.variable, kept, result, span=old.span)
            self.memo_map[old] = result
        return result

    def _may_move(self, let: Let) -> bool:
        if self.purity.of(let.value) is not Effect.NONE or _calls_itself(let):
            return False
        if isinstance(let.value, _AT_NO_COST):
            return True
        return not self.scopes.in_function_inside(let.variable, self.scopes.of[let])


def _calls_itself(let: Let) -> bool:
    from pullback.relay.analysis import free_vars

    return isinstance(let.value, Function) and let.variable in free_vars(let.value)
