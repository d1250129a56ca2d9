"""ConvertLayout: convolutions and pools in the layouts that are asked for, and what is around them too.

    ConvertLayout({"nn.conv2d": ["NHWC", "default"]})

    nn.relu(nn.conv2d(%x, %w))    →    %0 = layout_transform(%x, "NCHW", "NHWC");
                                       %1 = layout_transform(%w, "OIHW", "HWIO");
                                       %2 = nn.relu(nn.conv2d(%0, %1, data_layout="NHWC", kernel_layout="HWIO"));
                                       layout_transform(%2, "NHWC", "NCHW")

Another op is converted by what is registered for it: ``relay.op.register_convert_op_layout``, of attributes, inputs,
their types and the layouts wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.arguments import mapping, sequence
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import same_call
from pullback.relay.transform.rewrite_layouts import LayoutRewriter
from pullback.relay.ty import TensorType

# The layout of a weight that belongs to that of the data, of each kind of convolution.
_KERNELS: dict[str, dict[str, str]] = {
    "nn.conv1d": {"NCW": "OIW", "NWC": "WIO"},
    "nn.conv2d": {"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"},
    "nn.conv3d": {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
    "nn.conv1d_transpose": {"NCW": "IOW", "NWC": "WIO"},
    "nn.conv2d_transpose": {"NCHW": "IOHW", "NHWC": "HWIO"},
    "nn.conv3d_transpose": {"NCDHW": "IODHW", "NDHWC": "DHWIO"},
}
_POOLS = tuple(f"nn.{kind}_pool{d}d" for kind in ("max", "avg", "global_max", "global_avg") for d in (1, 2, 3))


@dataclass(frozen=True)
class ConvertLayout(FunctionPass):
    """Convert calls of the operators named to the layouts given for their inputs; "default" is the one of a weight
    that belongs to the layout of the data.

    Checks: raises ArgumentError for layouts that the operator does not have. It also raises UserError for an operator
    that has no rule. Parameters and results keep their layouts.
    """

    desired_layouts: Mapping[str, Sequence[str]]

    typed = True
    opt_level = 3
    required = ("InferType", "CanonicalizeOps")

    def __post_init__(self) -> None:
        wanted = mapping("desired_layouts", self.desired_layouts)
        vars(self)["desired_layouts"] = {
            str(name): tuple(str(one) for one in sequence(f"layouts of {name}", layouts))
            for name, layouts in wanted.items()
        }

    def function(self, function: Function, module: IRModule) -> Function:
        return _Convert(self.desired_layouts).visit(function)


class _Convert(LayoutRewriter):
    def __init__(self, desired: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self.desired = desired

    def altered(self, call: Call, args: list[Expr]) -> Any:
        wanted = self.desired.get(call.op.name)
        if wanted is None:
            return None
        types = [arg.checked_type for arg in call.args]
        rule = call.op.get_attr("FTVMConvertOpLayout")
        if rule is not None:
            return rule(call.attrs, args, types, list(wanted))
        if call.op.name in _KERNELS:
            return same_call(call, args, **_of_convolution(call, wanted))
        if call.op.name in _POOLS:
            return same_call(call, args, layout=wanted[0], out_layout=wanted[0])
        hint = "relay.op.register_convert_op_layout says how an operator is converted"
        raise UserError(f"{call.op.name} cannot be converted to other layouts", span=call.span, hint=hint)


def _of_convolution(call: Call, wanted: Sequence[str]) -> dict[str, str]:
    name = call.op.name
    if len(wanted) != 2:
        raise ArgumentError(f"two layouts are wanted of {name}: of data and weight", hint='such as ["NHWC", "default"]')
    data, kernel = wanted
    if kernel == "default":
        if data not in _KERNELS[name]:
            known = ", ".join(_KERNELS[name])
            raise ArgumentError(f"Layout {data} is not yet supported by {name}", hint=f"there are {known}")
        kernel = _KERNELS[name][data]
        if data == "NHWC" and name == "nn.conv2d" and _is_depthwise(call):
            kernel = "HWOI"
    return {"data_layout": data, "kernel_layout": kernel}


def _is_depthwise(call: Call) -> bool:
    """Whether each channel has a group of its own."""
    channels = call.args[0].checked_as(TensorType).shape[call.attrs.data_layout.index("C")]
    return call.attrs.groups > 1 and call.attrs.groups == channels
