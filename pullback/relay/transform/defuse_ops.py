"""DefuseOps: what :class:`FuseOps` put into functions stands in the open again.

fn (%p0: …, Primitive=1) { exp(add(%p0, 1f)) }(%x)      →      exp(add(%x, 1f))
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import is_primitive
from pullback.relay.visitor import ExprMutator, bind


@dataclass(frozen=True)
class DefuseOps(FunctionPass):
    """Put the bodies of functions marked ``Primitive`` in place of their calls: the inverse of FuseOps.

    Checks: the function is called where it stands, as FuseOps leaves it.
    """

    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Defuse().visit(function)


class _Defuse(ExprMutator):
    def visit_call(self, call: Call) -> Expr:
        new = super().visit_call(call)
        if isinstance(new, Call) and isinstance(new.op, Function) and is_primitive(new.op):
            return bind(new.op.body, dict(zip(new.op.params, new.args, strict=True)))
        return new
