"""FlattenAtrousConv: a convolution between a rearrangement into blocks and the one back is a dilated one.

%0 = nn.space_to_batch_nd(%x, block_shape=[2, 2], paddings=[[2, 3], [2, 3]]);
%1 = nn.conv2d(%0, %w);                                                          →   nn.conv2d(%x, %w, dilation=[2, 2],
nn.batch_to_space_nd(%1, block_shape=[2, 2], crops=[[0, 1], [0, 1]])                           padding=[2, 2, 2, 2])
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import is_call, same_call


@dataclass(frozen=True)
class FlattenAtrousConv(FunctionPass):
    """Write dilated convolutions of importers, in three ops, as one.

    Checks: the convolution is NHWC, of stride 1, without padding or dilation, between two rearrangements of the same
    blocks, which pad with 0 and cut off no more than they padded.
    """

    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Flatten().visit(function)


class _Flatten(CallRewriter):
    def rewrite(self, old: Call, new: Call) -> Expr | None:
        conv = new.args[0] if is_call(new, "nn.batch_to_space_nd") else None
        if not isinstance(conv, Call) or not is_call(conv, "nn.conv2d"):
            return None
        blocks = conv.args[0]
        if not isinstance(blocks, Call) or not is_call(blocks, "nn.space_to_batch_nd") or not _is_plain(conv):
            return None
        dilation = tuple(blocks.attrs.block_shape)
        if dilation != tuple(new.attrs.block_shape) or len(dilation) != 2 or blocks.attrs.pad_value:
            return None
        pairs = zip(blocks.attrs.paddings, new.attrs.crops, strict=True)
        before, after = zip(*((p[0] - c[0], p[1] - c[1]) for p, c in pairs), strict=True)
        if min(*before, *after) < 0:  # more is cut off than was added
            return None
        return same_call(conv, [blocks.args[0], conv.args[1]], dilation=dilation, padding=(*before, *after))


def _is_plain(conv: Call) -> bool:
    """Whether it steps by one, has no padding nor dilation of its own, and its space is axes 1 and 2, as blocks'."""
    a = conv.attrs
    steps = tuple(a.strides) == (1, 1) and tuple(a.dilation) == (1, 1) and not any(a.padding)
    return steps and a.data_layout == "NHWC" and a.out_layout in ("", "NHWC")
