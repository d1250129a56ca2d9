"""BackwardFoldScaleAxis: a scale of channels goes into the weight of the convolution or dense in front of it.

    %0 = nn.conv2d(%x, %w);                          %0 = nn.conv2d(%x, multiply(%w, expand_dims(%s, …)));
    %1 = add(%0, %b);                       →        %1 = add(%0, multiply(%b, expand_dims(%s, …)));
    %2 = nn.relu(%1);                                nn.relu(%1)
    multiply(%2, %s)

A scale that passes a relu must be a positive constant, and what it passes must have no other user. What this finds no
such pattern in, such as lets, branches and closures, stays as it is.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, call_op
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import is_call, same_call, spread_to_axes, tensor_type
from pullback.relay.transform.scale_axis import RELUS, SUMS, Request, scale_of, sides_of_sum, weight_of
from pullback.relay.ty import TensorType
from pullback.relay.visitor import ExprMutator, children, post_order


@dataclass(frozen=True)
class BackwardFoldScaleAxis(FunctionPass):
    """Fold scales of channels into the weights of the convolutions and denses whose results they scale.

    Checks: what the scale passes has one user, and a scale that passes a relu is a positive constant. A scale that fits
    no weight stays.
    """

    typed = True
    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Rewrite(_offers(function)).visit(function)


def _offers(function: Function) -> dict[Any, Request]:
    """For each call, the scale that it can take over from its one user."""
    nodes = list(post_order(function))
    uses = Counter(child for node in nodes for child in children(node))
    found: dict[Any, Request] = {}
    for call in nodes:
        if isinstance(call, Call) and uses[call] == 1:
            offer = _of_call(call, [found.get(arg) for arg in call.args])
            if offer is not None:
                found[call] = offer
    return found


def _of_call(call: Call, offers: list[Request | None]) -> Request | None:
    if is_call(call, *RELUS):
        return None if offers[0] is None else Request(offers[0].axes, positive=True)
    if is_call(call, *SUMS):
        taking = [offers[side] for side in sides_of_sum(call, offers)]
        first = taking[0] if taking else None
        return None if first is None else Request(first.axes, any(t is not None and t.positive for t in taking))
    if is_call(call, "nn.bias_add"):
        own = tensor_type(call.args[0])
        fits = offers[0] is not None and own is not None and offers[0].axes == (call.attrs.axis % own.ndim,)
        return offers[0] if fits else None
    weight = weight_of(call)
    return None if weight is None else Request(weight.result)


class _Rewrite(ExprMutator):
    def __init__(self, offers: dict[Any, Request]) -> None:
        super().__init__()
        self.offers = offers

    def visit_call(self, call: Call) -> Expr:
        if is_call(call, "multiply"):
            side = 0 if call.args[0] in self.offers else 1
            offer = self.offers.get(call.args[side])
            scale = scale_of(call, side, offer, call.args[1 - side])
            if scale is not None and offer is not None:
                return self.scaled(call.args[side], scale, offer.axes)
        return super().visit_call(call)

    def scaled(self, call: Any, scale: Expr, axes: tuple[int, ...]) -> Expr:
        """The value of a call that takes over the scale, with it."""
        own = tensor_type(call.args[0])
        if own is None:
            raise InternalError("a scale reaches a call of unknown type")
        if is_call(call, *RELUS):
            return same_call(call, [self.scaled(call.args[0], scale, axes)])
        if is_call(call, *SUMS):
            spread = spread_to_axes(scale, call.checked_as(TensorType).shape, axes)
            sides = sides_of_sum(call, [self.offers.get(arg) for arg in call.args])
            operands = [
                self.scaled(arg, scale, axes) if i in sides else call_op("multiply", self.visit(arg), spread)
                for i, arg in enumerate(call.args)
            ]
            return same_call(call, operands)
        if is_call(call, "nn.bias_add"):
            bias = call_op("multiply", self.visit(call.args[1]), scale)
            return same_call(call, [self.scaled(call.args[0], scale, axes), bias])
        weight, of = weight_of(call), tensor_type(call.args[1])
        if weight is None or of is None:
            raise InternalError("a scale reaches an op that does not take it over")
        data, kernel = self.visit(call.args[0]), self.visit(call.args[1])
        return same_call(call, [data, weight.scaled(kernel, scale, weight.outputs, of.shape)])
