"""EtaExpand: constructors and global functions that are handed on, not called, become functions that call them.

@map(Cons, %x)     →     @map(fn (%eta_expand_param: %a, …) { Cons(%eta_expand_param, …) }, %x)
@map(@f, %x)       →     @map(fn (%eta_expand_param) { @f(%eta_expand_param) }, %x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.relay.adt import Constructor, Pattern
from pullback.relay.expr import Call, Expr, Function, GlobalVar, Var
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.ty import TypeCall, TypeVar
from pullback.relay.type_visitor import substitute
from pullback.relay.visitor import ExprMutator


@dataclass(frozen=True)
class EtaExpand(FunctionPass):
    """Expands constructors, global functions, or both.

    Checks: without either option nothing changes. Operators and what is called directly stay.
    """

    opt_level = 1

    expand_constructor: bool = False
    expand_global_var: bool = False

    def function(self, function: Function, module: IRModule) -> Function:
        return _Expander(self, module).visit(function)


class _Expander(ExprMutator):
    def __init__(self, options: EtaExpand, module: IRModule) -> None:
        super().__init__()
        self.options, self.module = options, module

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, (GlobalVar, Constructor)):
            return super().visit_call(call)
        args = self._all(call.args)
        return call if args is call.args else Call(call.op, args, call.attrs, call.type_args, span=call.span)

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        return pattern  # its constructors are not handed on

    def visit_constructor(self, constructor: Constructor) -> Expr:
        if not self.options.expand_constructor:
            return constructor
        definition = self.module[constructor.belong_to]
        fresh = {v: TypeVar(v.name, v.kind) for v in definition.type_vars}
        params = [Var("eta_expand_param", substitute(t, fresh)) for t in constructor.inputs]
        type_params = tuple(fresh.values())
        ret_type = TypeCall(constructor.belong_to, type_params) if type_params else constructor.belong_to()
        return Function(tuple(params), Call(constructor, tuple(params)), ret_type, type_params)

    def visit_global_var(self, var: GlobalVar) -> Expr:
        function: Any = self.module[var.name] if self.options.expand_global_var else None
        if not isinstance(function, Function):
            return var
        fresh = {v: TypeVar(v.name, v.kind) for v in function.type_params}

        def own(type_: Any) -> Any:
            return None if type_ is None else substitute(type_, fresh)

        params = tuple(Var("eta_expand_param", own(p.type_annotation)) for p in function.params)
        return Function(params, Call(var, params), own(function.ret_type), tuple(fresh.values()))
