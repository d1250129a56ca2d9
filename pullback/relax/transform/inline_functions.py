"""InlineFunctions: calls of graph functions become the functions' bodies.

y = cls.f(x)        →        lv = R.exp(x)
                             y = R.add(lv, x)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Binding, Call, Expr, Function, Var
from pullback.relax.mutator import ExprMutator, emit_body


@dataclass(frozen=True)
class InlineFunctions(FunctionPass):
    """Inline every call of a graph function; recursion is an error (it cannot be unrolled)."""

    def function(self, function: Function, module: IRModule) -> Function:
        return inline_calls(function, module)


def inline_calls(function: Function, module: IRModule) -> Function:
    """``function`` without calls of other graph functions of the module."""
    if not any(_is_graph_call(b.value, module) for b in function.bindings):
        return function
    return _Inline(module, ()).function(function)


def _is_graph_call(value: Any, module: IRModule) -> bool:
    return isinstance(value, Call) and isinstance(value.op, GlobalVar) and isinstance(module[value.op], Function)


class _Inline(ExprMutator):
    def __init__(self, module: IRModule, stack: tuple[str, ...]) -> None:
        super().__init__()
        self.module, self.stack = module, stack

    def rewrite_binding(self, binding: Binding) -> None:
        value = binding.value
        if not _is_graph_call(value, self.module):
            return super().rewrite_binding(binding)
        name = value.op.name
        if name in self.stack:
            cycle = " → ".join((*self.stack, name))
            raise UserError(
                f"recursive functions are not supported yet: {cycle}",
                span=value.span,
                hint="write the steps out: calls are inlined when they are compiled",
            )
        callee = self.module[name]
        nested = _Inline(self.module, (*self.stack, name))
        callee = (
            nested.function(callee) if any(_is_graph_call(b.value, self.module) for b in callee.bindings) else callee
        )
        arguments: dict[Var, Expr] = dict(zip(callee.params, (self.expr(a) for a in value.args), strict=True))
        result = emit_body(callee, arguments, self.builder)
        self.bind(binding.var, result)
