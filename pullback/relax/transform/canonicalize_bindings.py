"""CanonicalizeBindings: aliases and the packing and unpacking of tuples disappear.

    t = (a, b)
    c = t[0]                 →
    d = c
    return R.exp(d)                   return R.exp(a)

The result is one dataflow block in which every binding is a call (or an item of a tuple that a call returned).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Binding, Call, Expr, Function, MatchCast, Tuple, TupleGetItem, Var, tuple_get_item
from pullback.relax.mutator import ExprMutator


@dataclass(frozen=True)
class CanonicalizeBindings(FunctionPass):
    """Resolve aliases and tuples; merge the blocks.

    Checks: a function with a MatchCast stays as it is: ResolveMatchCast comes before it. Calls stay as they are, in
    their order.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        if any(isinstance(b, MatchCast) for b in function.bindings):
            return function
        resolved = _Resolve()
        for binding in function.bindings:
            resolved.rewrite_binding(binding)
        returned = set(used_vars(resolved.expr(function.body.body)))
        emit = _Resolve(returned)
        emit.builder.begin([p.name for p in function.params])
        with emit.builder.dataflow():
            for binding in function.bindings:
                emit.rewrite_binding(binding)
        body = emit.builder.finish(emit.expr(function.body.body))
        return Function(function.params, body, None, function.attrs, span=function.span)


class _Resolve(ExprMutator):
    """Without ``returned`` only finds out what variables stand for; with it, emits the calls that remain."""

    def __init__(self, returned: set[Var] | None = None) -> None:
        super().__init__()
        self.returned = returned
        self.builder = BlockBuilder()

    def rewrite_binding(self, binding: Binding) -> None:
        value = self.expr(binding.value)
        if not isinstance(value, (Call, TupleGetItem)):
            self.env[binding.var] = value
        elif self.returned is not None:
            emit = self.builder.emit_output if binding.var in self.returned else self.builder.emit
            self.env[binding.var] = emit(value, binding.var.name)

    def expr(self, expr: Any) -> Any:
        if isinstance(expr, TupleGetItem):
            return tuple_get_item(self.expr(expr.tuple_value), expr.index)
        if isinstance(expr, Tuple):
            fields: tuple[Expr, ...] = tuple(self.expr(f) for f in expr.fields)
            return Tuple(fields, span=expr.span)
        return super().expr(expr)
