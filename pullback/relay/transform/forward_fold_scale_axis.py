"""ForwardFoldScaleAxis: a scale of channels goes into the weight of the convolution or dense behind it.

    %0 = multiply(%x, %s);                           %0 = add(nn.relu(%x), divide(%b, expand_dims(%s, …)));
    %1 = nn.relu(%0);                                nn.conv2d(%0, multiply(%w, expand_dims(%s, …)))
    %2 = add(%1, %b);                       →
    nn.conv2d(%2, %w)

A scale that passes a relu must be a positive constant; all users of what is scaled must take it over. What this finds
no such pattern in, such as lets, branches and closures, stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, call_op
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import is_call, same_call, spread_to_axes, tensor_type
from pullback.relay.transform.scale_axis import RELUS, SUMS, Request, joined, scale_of, side_of_sum, weight_of
from pullback.relay.visitor import ExprMutator, children, post_order


@dataclass(frozen=True)
class ForwardFoldScaleAxis(FunctionPass):
    """Fold scales of channels into the weights of the convolutions and denses that read them.

    Checks: all users of what is scaled take the scale over; one that passes a relu is a positive constant. A scale that
    fits no weight stays.
    """

    typed = True
    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Rewrite(_requests(function)).visit(function)


def _requests(function: Function) -> dict[Any, Request | None]:
    """For each value, the scale that all of its users take over, found from the result backwards."""
    found: dict[Any, Request | None] = {}

    def ask(expr: Any, request: Request | None) -> None:
        found[expr] = joined(found[expr], request) if expr in found else request

    ask(function, None)
    for expr in reversed(list(post_order(function))):
        wanted = _of_operands(expr, found.get(expr)) if isinstance(expr, Call) else {}
        inside = children(expr)
        for place, child in enumerate(inside):
            ask(child, wanted.get(place - 1) if isinstance(expr, Call) else None)
    return found


def _of_operands(call: Call, request: Request | None) -> dict[int, Request | None]:
    """What a call asks of its arguments, given what its users ask of it."""
    if is_call(call, *RELUS):
        return {0: None if request is None else Request(request.axes, positive=True)}
    if is_call(call, *SUMS):
        side = side_of_sum(call, [request, request])
        return {} if side is None else {side: request}
    weight = weight_of(call)
    return {} if weight is None else {0: Request(weight.data)}


@dataclass(frozen=True, eq=False)
class _Scaled(Expr):
    """A value that is still to be multiplied by ``scale`` along the axes ``axes``: whoever reads it does so."""

    value: Expr
    scale: Expr
    axes: tuple[int, ...]


class _Rewrite(ExprMutator):
    def __init__(self, requests: dict[Any, Request | None]) -> None:
        super().__init__()
        self.requests = requests

    def visit_call(self, call: Call) -> Expr:
        args = [self.visit(arg) for arg in call.args]
        if is_call(call, "multiply"):
            found = self.product(call, args)
        elif any(isinstance(arg, _Scaled) for arg in args):
            found = _taken_over(call, args)
        else:
            found = None
        if found is not None:
            return found
        op = self.visit(call.op)
        if op is call.op and all(new is old for new, old in zip(args, call.args, strict=True)):
            return call
        return Call(op, tuple(args), call.attrs, call.type_args, span=call.span)

    def product(self, call: Call, args: list[Expr]) -> Expr | None:
        request = self.requests.get(call)
        for side in (0, 1):
            scale = scale_of(call, side, request, args[1 - side])
            if scale is not None and request is not None:
                return _Scaled(args[side], scale, request.axes)
        return None


def _taken_over(call: Call, args: list[Expr]) -> Expr:
    """A call one of whose arguments is scaled: the scale goes on, or into the weight."""
    side = next(i for i, arg in enumerate(args) if isinstance(arg, _Scaled))
    data = args[side]
    assert isinstance(data, _Scaled)
    if is_call(call, *RELUS):
        return _Scaled(same_call(call, [data.value]), data.scale, data.axes)
    if is_call(call, *SUMS):
        own = tensor_type(call.args[side])
        if own is None:
            raise InternalError("a scale passes a sum of unknown type")
        inverse = call_op("divide", args[1 - side], spread_to_axes(data.scale, own.shape, data.axes))
        operands = [data.value, inverse] if side == 0 else [inverse, data.value]
        return _Scaled(same_call(call, operands), data.scale, data.axes)
    weight, of = weight_of(call), tensor_type(call.args[1])
    if weight is None or of is None:
        raise InternalError("a scale reaches an op that does not take it over")
    return same_call(call, [data.value, weight.scaled(args[1], data.scale, weight.inputs, of.shape)])
