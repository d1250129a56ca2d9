"""Normalizations of training and of older networks."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import axis_of, is_unknown, number, rank_of, same, shape_of
from pullback.relay.ty import TensorType, TupleType, Type


def _vectors(types: list[Type], attrs: Attrs) -> list[Type]:
    """All arguments after the first are vectors along the axis."""
    x = types[0]
    if not isinstance(x, TensorType):
        return list(types)
    vector = TensorType((x.shape[axis_of("axis", attrs["axis"], x.ndim)],), x.dtype)
    return [x, *(vector if is_unknown(t) else t for t in types[1:])]


def _batch_norm(x: Any, *parameters: Any, axis: int, epsilon: float, center: bool, scale: bool) -> Any:
    found = ops.nn.batch_norm(
        x, *parameters, axis=axis, epsilon=float(epsilon), center=center, scale=scale, training=False
    )
    return found[0], found[1], found[2]


def _batch_norm_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    if all(t.is_concrete for t in types):
        return None
    return TupleType((types[0], types[3], types[4]))


_SCALED = "axis={}, epsilon=1e-05, center=True, scale=True"

define(
    "nn.batch_norm",
    f"data, gamma, beta, moving_mean, moving_var | {_SCALED.format(1)}",
    _batch_norm,
    complete=_vectors,
    relation=_batch_norm_type,
    returns=3,
    doc="(out, moving_mean, moving_var) with out = (data - moving_mean) / √(moving_var + epsilon) · gamma + beta, for\n"
    "each channel of the axis: programs of relay are run for inference.",
)


def _layer_norm(x: Any, gamma: Any, beta: Any, *, axis: int, **attrs: Any) -> Any:
    return ops.nn.layer_norm(x, gamma, beta, axes=axis, **attrs)


define(
    "nn.layer_norm",
    f"data, gamma, beta | {_SCALED.format(-1)}",
    _layer_norm,
    complete=_vectors,
    relation=same,
    doc="(data - mean) / √(variance + epsilon) · gamma + beta, with mean and variance along the axis.",
)


def _instance_norm(x: Any, gamma: Any, beta: Any, *, axis: int, **attrs: Any) -> Any:
    at = axis_of("nn.instance_norm", axis, rank_of(x))
    axes = tuple(i for i in range(1, rank_of(x)) if i != at)
    return ops.nn.instance_norm(x, gamma, beta, channel_axis=at, axes=axes, **attrs)


define(
    "nn.instance_norm",
    f"data, gamma, beta | {_SCALED.format(1)}",
    _instance_norm,
    complete=_vectors,
    relation=same,
    doc="(data - mean) / √(variance + epsilon) · gamma + beta, with mean and variance of each channel of an example.",
)


def _group_norm(x: Any, gamma: Any, beta: Any, *, num_groups: int, axis: int, **attrs: Any) -> Any:
    at = axis_of("nn.group_norm", axis, rank_of(x))
    axes = tuple(i for i in range(1, rank_of(x)) if i != at)
    return ops.nn.group_norm(x, gamma, beta, num_groups=num_groups, channel_axis=at, axes=axes, **attrs)


define(
    "nn.group_norm",
    f"data, gamma, beta | num_groups, {_SCALED.format(1)}",
    _group_norm,
    complete=_vectors,
    relation=same,
    shown=("num_groups",),
    doc="(data - mean) / √(variance + epsilon) · gamma + beta, with mean and variance of each group of channels.",
)


def _lrn(x: Any, *, size: int, axis: int, bias: float, alpha: float, beta: float) -> Any:
    if size % 2 == 0:
        raise ShapeError(f"nn.lrn: size must be odd, got {size}")
    at, half = axis_of("nn.lrn", axis, rank_of(x)), size // 2
    squares = ops.multiply(x, x)
    padded = ops.nn.pad(squares, [half if i in (2 * at, 2 * at + 1) else 0 for i in range(2 * rank_of(x))])
    count = shape_of(x)[at]
    total = None
    for i in range(size):
        part = ops.strided_slice(padded, [at], [i], [i + count])
        total = part if total is None else ops.add(total, part)
    scaled = ops.add(ops.multiply(total, number(x, alpha / size)), number(x, float(bias)))
    return ops.divide(x, ops.power(scaled, number(x, float(beta))))


define(
    "nn.lrn",
    "data | size=5, axis=1, bias=2.0, alpha=0.0001, beta=0.75",
    _lrn,
    python={"alpha": 1e-05},
    relation=same,
    pattern=OpPattern.OPAQUE,
    doc="data / (bias + alpha / size · Σ data² over the size neighbours along the axis)^beta.",
)
