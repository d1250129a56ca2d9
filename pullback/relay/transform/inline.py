"""Inline: calls of functions that are marked ``Inline=1`` are replaced by their bodies, and the functions go.

    def @f(%y) { exp(%y) }   // Inline=1     →
    def @main(%x) { add(@f(%x), %x) }             def @main(%x) { add(exp(%x), %x) }

A function that may come to call itself stays, and so does one that nobody called before. Where a marked function is
handed on and not called, it is written there as a function; one for an outside compiler is called as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.analysis.call_graph import CallGraph
from pullback.relay.duplicate import duplicate
from pullback.relay.expr import Call, Expr, Function, GlobalVar, Let, Var
from pullback.relay.transform.lets import ATOMS
from pullback.relay.transform.purity import Effect, Purity
from pullback.relay.transform.scopes import Scopes
from pullback.relay.ty import IncompleteType
from pullback.relay.visitor import ExprMutator


@dataclass(frozen=True)
class Inline(Pass):
    """Inlines the marked functions of a module. Types are inferred in the result.

    Checks: functions that may come to call themselves stay, and so do those that nobody calls. Arguments with effects
    are bound before the body, so each is computed once.
    """

    opt_level = 1

    def run(self, module: IRModule) -> IRModule:
        from pullback.relay.infer import infer_module

        graph, purity = CallGraph(module), Purity(module)
        marked = {name for name, f in module.items() if _is_marked(f) and not graph.is_recursive(name)}
        result = module.copy()
        for name in graph.callees_first():  # bodies have been inlined into before they are copied
            function = result[name]
            if isinstance(function, Function) and marked & graph.calls[name].keys():
                result[name] = _Inliner(result, marked, purity.of_globals()).visit(function)
        for name in marked:
            if graph.ref_count(name):
                del result[name]
        return infer_module(result)


def _is_marked(function: Any) -> bool:
    return isinstance(function, Function) and bool(function.attrs.get("Inline")) and not function.attrs.get("Extern")


class _Inliner(ExprMutator):
    def __init__(self, module: IRModule, marked: set[str], purity: Purity) -> None:
        super().__init__()
        self.module, self.marked, self.purity = module, marked, purity

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return duplicate(self.module[var.name]) if var.name in self.marked else var

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, GlobalVar) or call.op.name not in self.marked:
            return super().visit_call(call)
        function, args = self.module[call.op.name], self._all(call.args)
        if function.attrs.get("Compiler") or len(args) != len(function.params):
            return Call(duplicate(function), args, call.attrs, call.type_args, span=call.span)
        scopes, lets = Scopes(function.body), []
        values: dict[Var, Expr] = {}
        for param, arg in zip(function.params, args, strict=True):
            values[param] = arg
            if not isinstance(arg, ATOMS) and not self._may_move(arg, param, scopes):
                values[param] = Var(param.name, span=param.span)
                lets.append((values[param], arg))
        types = [*call.type_args, *(IncompleteType() for _ in function.type_params[len(call.type_args) :])]
        result = duplicate(function.body, values, dict(zip(function.type_params, types, strict=True)))
        for variable, arg in reversed(lets):
            result = Let(variable, arg, result, span=call.span)
        return result

    def _may_move(self, arg: Expr, param: Var, scopes: Scopes) -> bool:
        """Whether the argument may be computed where the body uses it: it has no effects, and no function inside would
        compute it at each call."""
        return self.purity.of(arg) is Effect.NONE and not scopes.in_function_inside(param)
