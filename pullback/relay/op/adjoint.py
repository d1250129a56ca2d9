"""Adjoints of convolutions and pools as operators, which gradients of older programs call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.convolution import adapt_windows
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import cast, shape_of
from pullback.relay.ty import TensorType, Type


def _weight(grad: Any, data: Any, **attrs: Any) -> Any:
    if attrs["kernel_size"] is None:
        hint = "the result is the weight's adjoint, and has its window"
        raise ShapeError("nn.conv2d_backward_weight: kernel_size is missing", hint=hint)
    names = ("kernel_size", "strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
    found = {name: attrs[name] for name in names}
    weight = ops.grad.conv2d_weight(data, grad, out_layout=attrs["grad_layout"], **found)
    return cast(weight, attrs["out_dtype"])


def _weight_type(types: list[Type], attrs: Attrs) -> Type | None:
    grad, data = types
    if not isinstance(grad, TensorType) or not isinstance(data, TensorType) or attrs["kernel_size"] is None:
        return None
    if grad.is_concrete and data.is_concrete:
        return None
    outputs = dict(zip(attrs["grad_layout"], grad.shape, strict=True))["C"]
    inputs = dict(zip(attrs["data_layout"], data.shape, strict=True))["C"]
    sizes = {"O": outputs, "I": inputs // attrs["groups"] if isinstance(inputs, int) else inputs}
    sizes |= dict(zip("HW", attrs["kernel_size"], strict=True))
    return TensorType(tuple(sizes[c] for c in attrs["kernel_layout"]), attrs["out_dtype"] or grad.dtype)


define(
    "nn.conv2d_backward_weight",
    "grad, data | strides=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, channels=None, kernel_size=None, "
    "grad_layout='NCHW', data_layout='NCHW', kernel_layout='OIHW', out_dtype=''",
    _weight,
    adapt=lambda args, attrs: adapt_windows(2, ("strides", "dilation"), args, attrs),
    relation=_weight_type,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    doc="The adjoint of the weight of nn.conv2d, from that of its result and the data.",
)


def _spread(kind: str) -> Callable[..., Any]:
    """The adjoint of data, from that of the pool's result and, for the largest element, the data."""

    def lower(grad: Any, data: Any, **attrs: Any) -> Any:
        given = attrs | {"out_layout": attrs["out_layout"] or None, "dilation": 1}
        size = [shape_of(data)[attrs["layout"].index(c)] for c in "HW"]
        if kind == "avg":
            return ops.grad.avg_pool2d(grad, tuple(size), **given)
        chosen = ops.grad.max_pool2d_choice(data, **given)
        return ops.grad.max_pool2d(grad, chosen, tuple(size), **given)

    return lower


for _kind in ("max", "avg"):
    _more = ", count_include_pad=False" if _kind == "avg" else ""
    define(
        f"nn.{_kind}_pool2d_grad",
        "out_grad, data | pool_size=(1, 1), strides=(1, 1), padding=(0, 0), layout='NCHW', out_layout='', "
        f"ceil_mode=False{_more}",
        _spread(_kind),
        adapt=lambda args, attrs: adapt_windows(2, ("pool_size", "strides"), args, attrs),
        relation=lambda types, attrs: None if all(t.is_concrete for t in types) else types[1],
        shown=("pool_size",),
        doc=f"The adjoint of the data of nn.{_kind}_pool2d, from that of its result.",
    )
