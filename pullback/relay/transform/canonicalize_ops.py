"""CanonicalizeOps: ``nn.bias_add`` in simpler ops.

nn.bias_add(%x, %b)      →      add(%x, expand_dims(%b, axis=1, num_newaxis=2))
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, call_op
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import expand_to_axis, is_call, tensor_type


@dataclass(frozen=True)
class CanonicalizeOps(FunctionPass):
    """Write ``nn.bias_add`` as ``add`` of the bias with axes behind it.

    Checks: the type of the data has to be known; other ops stay.
    """

    typed = True
    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Canonicalize().visit(function)


class _Canonicalize(CallRewriter):
    def rewrite(self, old: Call, new: Call) -> Expr | None:
        known = tensor_type(old.args[0]) if is_call(new, "nn.bias_add") else None
        if known is None:
            return None
        data, bias = new.args
        return call_op("add", data, expand_to_axis(bias, known.ndim, [new.attrs.axis % known.ndim]))
