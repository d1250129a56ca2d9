"""SimplifyInference: norms and dropout as they are when nothing is trained.

    %0 = nn.batch_norm(%x, %gamma, %beta, %mean, %var);        %0 = sqrt(add(%var, 1e-05f));
    %0.0                                                       %1 = multiply(divide(1f, %0), %gamma);
                                                       →       %2 = add(multiply(negative(%mean), %1), %beta);
                                                               add(multiply(%x, expand_dims(%1, …)), expand_dims(%2, …))

    %0 = nn.dropout(%x, rate=0.5f);  %0.0              →       %x

``nn.layer_norm``, ``nn.group_norm``, ``nn.instance_norm`` and ``nn.l2_normalize`` become means, variances and
elementwise ops. A batch norm whose moving statistics are used stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Call, Expr, Function, TupleGetItem, call_op
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import expand_to_axis, is_call, scalar
from pullback.relay.ty import TensorType


@dataclass(frozen=True)
class SimplifyInference(FunctionPass):
    """Write batch norms, other norms and dropout in simpler ops, for inference.

    Checks: a norm in training stays: a ``batch_norm`` whose second or third result is used.
    """

    typed = True
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Simplify().visit(function)


class _Simplify(CallRewriter):
    def rewrite(self, old: Call, new: Call) -> Expr | None:
        rule = _RULES.get(new.op.name) if is_call(new, *_RULES) else None
        return None if rule is None else rule(new.attrs, list(new.args), old.args[0].checked_as(TensorType))

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        new = super().visit_tuple_getitem(item)
        if item.index or not isinstance(new, TupleGetItem):
            return new
        if is_call(new.tuple_value, "nn.batch_norm"):
            call, before = new.tuple_value, item.tuple_value
            assert isinstance(before, Call)
            return batch_norm(call.attrs, list(call.args), before.args[0].checked_as(TensorType))
        return new.tuple_value.args[0] if is_call(new.tuple_value, "nn.dropout") else new


def batch_norm(attrs: Attrs, args: Sequence[Expr], data_type: TensorType) -> Expr:
    """``data * scale + shift`` by the moving statistics."""
    data, gamma, beta, mean, variance = args
    dtype, ndim, axes = data_type.dtype, data_type.ndim, [attrs.axis % data_type.ndim]
    root = call_op("sqrt", call_op("add", variance, scalar(attrs.epsilon, dtype)))
    scale = call_op("divide", scalar(1.0, dtype), root)
    if attrs.scale:
        scale = call_op("multiply", scale, gamma)
    shift = call_op("multiply", call_op("negative", mean), scale)
    if attrs.center:
        shift = call_op("add", shift, beta)
    scaled = call_op("multiply", data, expand_to_axis(scale, ndim, axes))
    return call_op("add", scaled, expand_to_axis(shift, ndim, axes))


def _standardized(data: Expr, axes: Sequence[int], epsilon: float, dtype: str) -> Expr:
    """``data`` with mean 0 and variance 1 along the axes."""
    mean = call_op("mean", data, axis=tuple(axes), keepdims=True)
    variance = call_op("variance", data, with_mean=mean, axis=tuple(axes), keepdims=True)
    root = call_op("sqrt", call_op("add", variance, scalar(epsilon, dtype)))
    return call_op("divide", call_op("subtract", data, mean), root)


def _scaled(result: Expr, attrs: Attrs, args: Sequence[Expr], ndim: int, axis: int) -> Expr:
    _, gamma, beta = args
    if attrs.scale:
        result = call_op("multiply", result, expand_to_axis(gamma, ndim, [axis]))
    return call_op("add", result, expand_to_axis(beta, ndim, [axis])) if attrs.center else result


def layer_norm(attrs: Attrs, args: Sequence[Expr], data_type: TensorType) -> Expr:
    axis = attrs.axis % data_type.ndim
    result = _standardized(args[0], [attrs.axis], attrs.epsilon, data_type.dtype)
    return _scaled(result, attrs, args, data_type.ndim, axis)


def instance_norm(attrs: Attrs, args: Sequence[Expr], data_type: TensorType) -> Expr:
    axis = attrs.axis % data_type.ndim
    axes = [i for i in range(1, data_type.ndim) if i != axis]
    return _scaled(_standardized(args[0], axes, attrs.epsilon, data_type.dtype), attrs, args, data_type.ndim, axis)


def group_norm(attrs: Attrs, args: Sequence[Expr], data_type: TensorType) -> Expr:
    """The channels are divided into groups: an axis more while the statistics are taken."""
    ndim, shape = data_type.ndim, data_type.concrete_shape
    axis, groups = attrs.axis % ndim, attrs.num_groups
    parted = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    data = call_op("reshape", args[0], newshape=parted)
    result = _standardized(data, list(range(axis + 1, ndim + 1)), attrs.epsilon, data_type.dtype)
    return _scaled(call_op("reshape", result, newshape=shape), attrs, args, ndim, axis)


def l2_normalize(attrs: Attrs, args: Sequence[Expr], data_type: TensorType) -> Expr:
    data = args[0]
    total = call_op("sum", call_op("multiply", data, data), axis=attrs.axis, keepdims=True)
    root = call_op("sqrt", call_op("maximum", total, scalar(attrs.eps, data_type.dtype)))
    return call_op("divide", data, root)


_RULES: dict[str, Callable[[Attrs, Sequence[Expr], TensorType], Expr]] = {
    "nn.layer_norm": layer_norm,
    "nn.instance_norm": instance_norm,
    "nn.group_norm": group_norm,
    "nn.l2_normalize": l2_normalize,
}
