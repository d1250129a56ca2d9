"""FastMath: elementary functions that may be computed less exactly.

tanh(exp(%x))      →      fast_tanh(fast_exp(%x))
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.op.registry import get
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import is_call

FAST = {"exp": "fast_exp", "erf": "fast_erf", "tanh": "fast_tanh", "nn.softmax": "nn.fast_softmax"}


@dataclass(frozen=True)
class FastMath(FunctionPass):
    """Replace exp, erf, tanh and softmax by their fast forms.

    Checks: results are less exact than before: it is of level 4.
    """

    opt_level = 4
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Fast().visit(function)


class _Fast(CallRewriter):
    def rewrite(self, old: Call, new: Call) -> Expr | None:
        if not is_call(new, *FAST):
            return None
        return Call(get(FAST[new.op.name]), new.args, new.attrs, span=new.span)
