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
from pullback.relay.duplicate import bound_once
from pullback.relay.expr import Expr, Function, Let
from pullback.relay.transform.lets import AT_NO_COST, LetMutator
from pullback.relay.transform.purity import Effect, EffectPass, Purity
from pullback.relay.transform.scopes import Scopes
from pullback.relay.transform.to_anf import is_primitive


@dataclass(frozen=True)
class ToGraphNormalForm(EffectPass):
    """The functions of a module in graph normal form.

    Checks: effects stay, in their order, and so do functions that call themselves.
    """

    opt_level = 1

    def change(self, function: Function, purity: Purity) -> Function:
        return to_graph_normal_form(function, purity)


@deep
def to_graph_normal_form(expr: Any, purity: Purity | None = None) -> Any:
    """The expression in graph normal form. ``purity`` knows the functions of the module: those that it does not know
    may do anything."""
    expr = bound_once(expr)
    return _Inliner(expr, purity or Purity()).visit(expr)


class _Inliner(LetMutator):
    def __init__(self, root: Any, purity: Purity) -> None:
        super().__init__()
        self.purity = purity
        self.scopes = Scopes(root)
        purity.of(root)

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else super().visit_function(function)

    def binding(self, let: Let) -> Expr | None:
        value = self.visit(let.value)
        if not self._may_move(let):
            return value
        self.memo_map[let.variable] = value
        return None

    def _may_move(self, let: Let) -> bool:
        if self.purity.of(let.value) is not Effect.NONE or _calls_itself(let):
            return False
        if isinstance(let.value, AT_NO_COST):
            return True
        return not self.scopes.in_function_inside(let.variable, self.scopes.of[let])


def _calls_itself(let: Let) -> bool:
    from pullback.relay.analysis import free_vars

    return isinstance(let.value, Function) and let.variable in free_vars(let.value)
