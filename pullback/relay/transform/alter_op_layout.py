"""AlterOpLayout: calls get the layouts, or become the other ops, that a function registered for their operator says.

    @relay.op.register_alter_op_layout("nn.conv2d")
    def alter(attrs, inputs, tinfos, out_type):
        return relay.nn.conv2d(*inputs, **{**attrs, "data_layout": "NHWC", "kernel_layout": "HWIO"})

    nn.relu(nn.conv2d(%x, %w))      →      %0 = layout_transform(%x, "NCHW", "NHWC"); …
                                           layout_transform(nn.relu(nn.conv2d(%0, %1, …)), "NHWC", "NCHW")

What follows is done in the new layout as far as it can be (``layout_rules.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.rewrite_layouts import LayoutRewriter


@dataclass(frozen=True)
class AlterOpLayout(FunctionPass):
    """Apply the functions that operators have under the name ``FTVMAlterOpLayout``.

    Checks: a function that returns None leaves its call. What is around a call gets the layout where it has a rule for
    that, else a ``layout_transform`` stands between; parameters and results keep theirs.
    """

    typed = True
    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Alter().visit(function)


class _Alter(LayoutRewriter):
    def altered(self, call: Call, args: list[Expr]) -> Any:
        rule = call.op.get_attr("FTVMAlterOpLayout")
        if rule is None:
            return None
        return rule(call.attrs, args, [arg.checked_type for arg in call.args], call.checked_type)
