"""What passes write into programs, and what they ask about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from pullback.relay.attrs import Attrs
from pullback.relay.expr import Call, Constant, Expr, Function, call_op, const
from pullback.relay.op.registry import Op
from pullback.relay.ty import TensorType

_MOVING = ("expand_dims", "repeat", "reshape", "squeeze", "transpose")  # what does not change values

_DRAWN = ("nn.dropout",)  # what a program for training draws: two calls are two values


def is_value(op: Any) -> bool:
    """Whether an operator's result follows from its arguments, in training too."""
    return isinstance(op, Op) and not op.stateful and op.name not in _DRAWN


def is_call(expr: Any, *names: str) -> TypeGuard[Call]:
    """Whether it is a call of one of the operators."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in names


def tensor_type(expr: Expr) -> TensorType | None:
    """The inferred type, if it is a tensor's."""
    found = getattr(expr, "checked_type_", None)
    return found if isinstance(found, TensorType) else None


def same_call(call: Call, args: Sequence[Any], **attrs: Any) -> Call:
    """The call with other arguments, and with some attributes replaced."""
    kept = Attrs({**call.attrs, **attrs}) if attrs else call.attrs
    return Call(call.op, tuple(args), kept, call.type_args, span=call.span)


def scalar(value: float, dtype: str) -> Constant:
    """A constant of no axes."""
    return const(np.asarray(value), dtype)


def expand_to_axis(bias: Expr, ndim: int, axes: Sequence[int]) -> Expr:
    """``bias``, whose axes are those of a tensor of ``ndim`` axes at ``axes``, with new axes behind and between, so
    that it broadcasts against that."""
    for i in range(len(axes), 0, -1):
        added = ndim - axes[i - 1] - 1 if i == len(axes) else axes[i] - axes[i - 1] - 1
        if added > 0:
            bias = call_op("expand_dims", bias, axis=i, num_newaxis=added)
    return bias


def spread_to_axes(scale: Expr, shape: Sequence[Any], axes: Sequence[int]) -> Expr:
    """``scale`` along several axes as a tensor of the rank of ``shape``: reshaped, as one axis is expanded."""
    if len(axes) == 1:
        return expand_to_axis(scale, len(shape), axes)
    return call_op("reshape", scale, newshape=tuple(size if i in axes else 1 for i, size in enumerate(shape)))


def along_axes(large: TensorType, small: TensorType, axes: Sequence[int]) -> bool:
    """Whether ``small`` broadcasts against ``large`` and has its sizes along ``axes``, and size 1 along all others."""
    base = large.ndim - small.ndim
    if base < 0:
        return False
    for i, size in enumerate(large.shape):
        if i in axes:
            if i < base or not isinstance(size, int) or small.shape[i - base] != size:
                return False
        elif i >= base and small.shape[i - base] != 1:
            return False
    return True


def squeezed_along(value: Expr, large: TensorType, small: TensorType, axes: Sequence[int]) -> Expr | None:
    """``value``, of type ``small``, with the axes ``axes`` of ``large`` only, which it broadcasts against; None if it
    varies along others, or is one number for several."""
    if small.ndim == 0 and axes:
        if not all(isinstance(large.shape[axis], int) for axis in axes):
            return None
        value = call_op("expand_dims", value, axis=0, num_newaxis=len(axes))
        for i, axis in enumerate(axes):
            value = call_op("repeat", value, repeats=large.shape[axis], axis=i)
        return value
    if not along_axes(large, small, axes):
        return None
    base = large.ndim - small.ndim
    ones = tuple(i - base for i in range(base, large.ndim) if i not in axes)
    return call_op("squeeze", value, axis=ones) if ones else value


def all_positive(expr: Expr) -> bool:
    """Whether it is a constant whose elements are all above 0, moved about at the most."""
    while is_call(expr, *_MOVING):
        expr = expr.args[0]
    return isinstance(expr, Constant) and bool((np.asarray(expr.data.numpy()) > 0).all())


def is_primitive(function: Any) -> bool:
    """Whether it is a function that fusion made: one kernel."""
    return isinstance(function, Function) and bool(function.attrs.get("Primitive"))
