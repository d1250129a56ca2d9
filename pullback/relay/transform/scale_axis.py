"""What folding scales knows of ops: where a scale of channels may come from, pass through and end.

A *request* says along which axes of a tensor a scale can be taken over, and whether it has to be positive, as one that
passes a relu has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.relay.expr import Call, Expr, call_op
from pullback.relay.transform.parts import (
    all_positive,
    along_axes,
    expand_to_axis,
    is_call,
    squeezed_along,
    tensor_type,
)

RELUS = ("nn.relu", "nn.leaky_relu")
SUMS = ("add", "subtract")
CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")


@dataclass(frozen=True)
class Request:
    """A scale along ``axes`` can be taken over."""

    axes: tuple[int, ...]
    positive: bool = False


def joined(first: Request | None, second: Request | None) -> Request | None:
    """What two users of a value both take over."""
    if first is None or second is None or first.axes != second.axes:
        return None
    return Request(first.axes, first.positive or second.positive)


@dataclass(frozen=True)
class Weight:
    """Where channels are in the layouts of a convolution or a dense: ``data`` those of the input, ``result`` those of
    the output, ``inputs`` and ``outputs`` the axes of the weight that belong to them."""

    data: tuple[int, ...]
    result: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    rank: int

    def scaled(self, weight: Expr, scale: Expr, axes: tuple[int, ...], shape: Sequence[int]) -> Expr:
        """The weight times ``scale`` along its axes ``axes``."""
        if len(axes) == 1:
            return call_op("multiply", weight, expand_to_axis(scale, self.rank, axes))
        spread = tuple(size if i in axes else 1 for i, size in enumerate(shape))
        return call_op("multiply", weight, call_op("reshape", scale, newshape=spread))


def weight_of(call: Call) -> Weight | None:
    """The channels of a convolution or a dense whose weight can take over a scale; None for other calls, and for
    convolutions in groups that are not depthwise."""
    if is_call(call, "nn.dense"):
        return Weight((1,), (1,), (1,), (0,), 2)
    if not is_call(call, *CONVOLUTIONS):
        return None
    attrs = call.attrs
    data, kernel = axes_of(attrs.data_layout), axes_of(attrs.kernel_layout)
    result = axes_of(attrs.get("out_layout") or attrs.data_layout)
    blocked = ["c" in data, "i" in kernel, "o" in kernel]
    if any(blocked) and not all(blocked):
        return None
    inputs, outputs = _both(kernel, "I"), _both(kernel, "O")
    depthwise = _is_depthwise(call, inputs, outputs)
    if attrs.groups != 1 and not depthwise:
        return None
    return Weight(_both(data, "C"), _both(result, "C"), outputs if depthwise else inputs, outputs, len(kernel))


def axes_of(layout: str) -> str:
    """The axes of a layout without the sizes of blocks: ``NCHWc`` of ``NCHW8c``."""
    return "".join(c for c in layout if not c.isdigit())


def _both(axes: str, letter: str) -> tuple[int, ...]:
    """Where the axis is, and where its blocks are if it is cut into some."""
    return tuple(axes.index(c) for c in (letter, letter.lower()) if c in axes)


def _is_depthwise(call: Call, inputs: Sequence[int], outputs: Sequence[int]) -> bool:
    weight = tensor_type(call.args[1])
    if call.attrs.groups == 1 or weight is None or not weight.is_concrete:
        return False
    count = dict.fromkeys(("in", "out"), 1)
    for name, axes in (("in", inputs), ("out", outputs)):
        for axis in axes:
            count[name] *= weight.shape[axis]
    return count["out"] == call.attrs.groups and count["in"] == 1


def side_of_sum(call: Call, requests: Sequence[Request | None]) -> int | None:
    """Which operand of a sum has a request that the other one does not stand in the way of: it is broadcast along all
    other axes. None if there is none."""
    types = [tensor_type(a) for a in call.args]
    for side in (0, 1):
        request, own, other = requests[side], types[side], types[1 - side]
        if request is not None and own is not None and other is not None and along_axes(own, other, request.axes):
            return side
    return None


def sides_of_sum(call: Call, offers: Sequence[Request | None]) -> tuple[int, ...]:
    """Which operands of a sum take over a scale of the result."""
    side = side_of_sum(call, offers)
    first, second = offers
    if first is not None and second is not None and first.axes == second.axes:
        types = [tensor_type(arg) for arg in call.args]
        alike = types[0] is not None and types[1] is not None and types[0].shape == types[1].shape
        if side is not None or alike:
            return (0, 1)
    return () if side is None else (side,)


def scale_of(call: Call, side: int, request: Request | None, factor: Expr) -> Expr | None:
    """``factor``, which a product multiplies its operand ``side`` by, with the axes of the request only, if it fits.
    The other operand of ``call`` has the factor's type."""
    own, other = tensor_type(call.args[side]), tensor_type(call.args[1 - side])
    if request is None or own is None or other is None:
        return None
    scale = squeezed_along(factor, own, other, request.axes)
    return None if scale is None or (request.positive and not all_positive(scale)) else scale
