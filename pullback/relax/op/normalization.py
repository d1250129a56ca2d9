"""Normalisation: layer, group, instance, RMS and batch norm, each written in primitive ops.

All share one form. With x̂ = (x - mean)·r and r = 1/√(variance + epsilon), mean and variance over some axes:

    y  = x̂·gamma + beta                                           dgamma = Σ dy·x̂        dbeta = Σ dy
    dx = r·(d - mean d - x̂·mean(d·x̂))   with d = dy·gamma    (Ioffe & Szegedy, Batch Normalization, 2015, section 3)

The adjoint writes mean and r as the decomposition does, so EliminateCommonSubexpr makes them one: the backward pass
reads what the forward pass computed. Half-precision types are computed in float32 and rounded once at the end; scale,
bias and statistics may be float32 then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.expr import Tuple
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    normalize_axes,
    normalize_axis,
    wide,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduce import count, scalar_count
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, TupleStructInfo, format_shape, same_shape

_LARGE_PART = 256  # elements of an image that make its own mean and variance worth their while

# -- what all share


def _widened(x: Any) -> Any:
    """A value in the type in which it is computed."""
    return _as(x, wide(x.dtype))


def _as(x: Any, dtype: str) -> Any:
    return x if x.dtype == dtype else ops.astype(x, dtype)


def _others(x: Any, axes: Any) -> tuple[list[int], list[int]]:
    """The axes counted from the front, and the other axes."""
    own = list(normalize_axes("normalisation", axes, len(x.shape)))
    return own, [a for a in range(len(x.shape)) if a not in own]


def _spread(parameter: Any, x: Any, axes: Any) -> Any:
    """A parameter whose axes are those axes of x, in x's computing type, made to broadcast against x."""
    own, others = _others(x, axes)
    leads = own == list(range(len(others), len(x.shape)))
    return _widened(parameter if leads else ops.expand_dims(parameter, others))


@dataclass(frozen=True)
class _Moments:
    """Mean and r = 1/√(variance + epsilon) of x over the axes, which are kept with size 1.

    What has the size of x is built anew for each use: computing it again is free where x is read, and each use is fused
    with its own reader.
    """

    x: Any
    axes: Sequence[int]
    epsilon: float

    @cached_property
    def mean(self) -> Any:
        return ops.mean(self.x, self.axes, True)

    @property
    def centered(self) -> Any:
        return self.x - self.mean

    @cached_property
    def variance(self) -> Any:
        return ops.mean(ops.square(self.centered), self.axes, True)

    @cached_property
    def inverse(self) -> Any:
        return ops.rsqrt(self.variance + self.epsilon)

    @property
    def normal(self) -> Any:
        return self.centered * self.inverse


def _scaled(normal: Any, gamma: Any, beta: Any) -> Any:
    """x̂·gamma + beta; either may be None."""
    y = normal if gamma is None else normal * gamma
    return y if beta is None else y + beta


def _gradient(
    dy: Any, moments: _Moments, gamma: Any, rest: Sequence[int], scale: bool, center: bool
) -> tuple[Any, Any, Any]:
    """dx, dgamma and dbeta in the computing type; the parameters broadcast, ``rest`` are the axes that they lack."""
    axes, m = moments.axes, moments

    def d() -> Any:
        return dy * gamma if scale else dy

    dx = m.inverse * (d() - ops.mean(d(), axes, True) - m.normal * ops.mean(d() * m.normal, axes, True))
    return dx, ops.sum(dy * m.normal, rest) if scale else None, ops.sum(dy, rest) if center else None


def _narrowed(values: Sequence[Any], dtype: str) -> tuple[Any, ...]:
    return tuple(None if v is None else _as(v, dtype) for v in values)


def _narrowed_adjoints(values: Sequence[Any], x: Any, parameter: Any) -> tuple[Any, ...]:
    """The adjoint of x, and those of its parameters, in their types."""
    return _narrowed(values[:1], x.dtype) + _narrowed(values[1:], parameter.dtype)


def _check_parameters(
    name: str, x: TensorStructInfo, axes: Any, *parameters: tuple[str, TensorStructInfo]
) -> TensorStructInfo:
    """The type of x, when the parameters have the sizes of its axes, and its dtype or that in which it is computed."""
    shape = known_shape(name, x)
    expect_dtype(name, x, "float")
    expected = [shape[a] for a in normalize_axes(name, axes, len(shape))]
    for label, info in parameters:
        if not same_shape(known_shape(name, info, label), expected):
            got = format_shape(info.shape)
            raise ShapeError(f"{name}: {label} must have the shape {format_shape(expected)} of the axes, got {got}")
    if any(info.dtype != wide(x.dtype) for _, info in parameters):
        expect_same_dtype(name, x, *(i for _, i in parameters))
    return x


def _spread_array(parameter: np.ndarray, x: np.ndarray, axes: Any) -> np.ndarray:
    return np.expand_dims(parameter, tuple(_others(x, axes)[1])).astype(x.dtype)


def _standardized_array(x: np.ndarray, axes: Sequence[int], epsilon: float) -> np.ndarray:
    own = tuple(axes)
    return (x - np.mean(x, own, keepdims=True)) / np.sqrt(np.var(x, own, keepdims=True) + x.dtype.type(epsilon))


# -- one mean and variance for all axes that are normalised, and parameters of some axes: layer and instance norm


def _norm_decomposed(
    x: Any, gamma: Any, beta: Any, axes: Any, parameter_axes: Any, *, epsilon: float, center: bool, scale: bool
) -> Any:
    moments = _Moments(_widened(x), _others(x, axes)[0], epsilon)
    g, b = (_spread(p, x, parameter_axes) if used else None for p, used in ((gamma, scale), (beta, center)))
    return _as(_scaled(moments.normal, g, b), x.dtype)


def _norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axes: Any, parameter_axes: Any, *, epsilon: float,
    center: bool, scale: bool,
) -> np.ndarray:  # fmt: skip
    y = _standardized_array(x, _others(x, axes)[0], epsilon)
    y = y * _spread_array(gamma, x, parameter_axes) if scale else y
    return y + _spread_array(beta, x, parameter_axes) if center else y


def _norm_gradient(
    dy: Any, x: Any, gamma: Any, axes: Any, parameter_axes: Any, *, epsilon: float, center: bool, scale: bool
) -> tuple[Any, ...]:
    moments = _Moments(_widened(x), _others(x, axes)[0], epsilon)
    spread, rest = _spread(gamma, x, parameter_axes), _others(x, parameter_axes)[1]
    return _narrowed_adjoints(_gradient(_widened(dy), moments, spread, rest, scale, center), x, gamma)


composite(
    "nn.layer_norm",
    "x, gamma, beta | axes=-1, epsilon=1e-05, center=True, scale=True",
    infer=lambda x, gamma, beta, *, axes, epsilon, center, scale: _check_parameters(
        "nn.layer_norm", x, axes, ("gamma", gamma), ("beta", beta)
    ),
    decompose=lambda x, gamma, beta, *, training, axes, **rest: _norm_decomposed(x, gamma, beta, axes, axes, **rest),
    numpy=in_wide(lambda x, gamma, beta, *, axes, **rest: _norm(x, gamma, beta, axes, axes, **rest)),
    gradient=lambda dy, y, x, gamma, beta, *, axes, **rest: _norm_gradient(dy, x, gamma, axes, axes, **rest),
    initial={"gamma": 1.0},
    precision="data",
    family="normalisation",
    doc="(x - mean) / √(variance + epsilon) · gamma + beta, with mean and variance over the axes, whose sizes gamma\n"
    "and beta have; without scale (center) gamma (beta) is not used.",
    samples=[
        sample((3, 17), (17,), (17,)),
        sample((2, 3, 4), (3, 4), (3, 4), axes=(1, 2), epsilon=1e-3),
        sample((2, 3, 4), (3,), (3,), axes=1),
        sample((3, 4), (4,), (4,), center=False, scale=False),
        sample((0, 4), (4,), (4,)),
    ],
)

# -- rms norm


def _rms(x: Any, axes: Sequence[int], epsilon: float) -> Any:
    """1/√(mean x² + epsilon) over the axes."""
    return ops.rsqrt(ops.mean(ops.square(x), axes, True) + epsilon)


def _rms_norm_decomposed(x: Any, weight: Any, *, training: bool, axes: Any, epsilon: float) -> Any:
    v = _widened(x)
    return _as(v * _rms(v, _others(x, axes)[0], epsilon) * _spread(weight, x, axes), x.dtype)


def _rms_norm(x: np.ndarray, weight: np.ndarray, *, axes: Any, epsilon: float) -> np.ndarray:
    own = tuple(_others(x, axes)[0])
    mean = np.mean(x * x, own, keepdims=True)
    return x / np.sqrt(mean + x.dtype.type(epsilon)) * _spread_array(weight, x, axes)


def _rms_norm_gradient(dy: Any, y: Any, x: Any, weight: Any, *, axes: Any, epsilon: float) -> tuple[Any, Any]:
    own, others = _others(x, axes)
    v, dy = _widened(x), _widened(dy)
    inverse, w = _rms(v, own, epsilon), _spread(weight, x, axes)
    product = ops.mean(dy * w * (v * inverse), own, True)
    dx = inverse * (dy * w - v * inverse * product)
    return _as(dx, x.dtype), _as(ops.sum(dy * (v * inverse), others), weight.dtype)


composite(
    "nn.rms_norm",
    "x, weight | axes=-1, epsilon=1e-05",
    infer=lambda x, weight, *, axes, epsilon: _check_parameters("nn.rms_norm", x, axes, ("weight", weight)),
    decompose=_rms_norm_decomposed,
    numpy=in_wide(_rms_norm),
    gradient=_rms_norm_gradient,
    initial={"weight": 1.0},
    precision="data",
    family="normalisation",
    doc="x / √(mean x² + epsilon) · weight, with the mean over the axes, whose sizes weight has.",
    samples=[
        sample((3, 17), (17,)),
        sample((2, 3, 4), (3, 4), axes=(1, 2)),
        sample((2, 3, 4), (3,), axes=1, epsilon=1e-3),
        sample((0, 4), (4,)),
    ],
)

# -- group and instance norm: the channel axis as two, (groups, channels of a group), and a parameter for each channel


def _open(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape with its leading size left open."""
    return (-1, *shape[1:]) if shape else ()


def _grouped(x: Any, groups: int, channel_axis: int, axes: Any) -> tuple[tuple[Dim, ...], tuple[Dim, ...], list[int]]:
    """With the channels as two axes: the shape of x, that of a parameter, and the axes to normalise.

    A leading size that is not the channels' is left open (-1): a model may be given another batch size.
    """
    at = normalize_axis("normalisation", channel_axis, len(x.shape))
    split = (groups, x.shape[at] // groups)
    shape = (*_open(x.shape[:at]), *split, *x.shape[at + 1 :])
    parameter = (*(1,) * at, *split, *(1,) * (len(x.shape) - at - 1))
    spatial = normalize_axes("normalisation", axes, len(x.shape))
    return shape, parameter, sorted([at + 1, *(a if a < at else a + 1 for a in spatial)])


@dataclass(frozen=True)
class _OfChannels(_Moments):
    """Moments of groups by way of those of their channels; mean and r for each channel. Values of the size of x keep
    its axes, and so the order in which they lie in memory. With mean m_c and variance v_c of channel c, all of one
    size, and E over the channels of a group:  mean = E m_c,  variance = E (v_c + (m_c - mean)²).
    """

    groups: int
    at: int  # the axis of channels

    @cached_property
    def channels(self) -> _Moments:
        return _Moments(self.x, self.axes, self.epsilon)

    def over_group(self, value: Any) -> Any:
        """The mean of a value for each channel over the channels of a group."""
        at, size = self.at, self.x.shape[self.at] // self.groups
        split = ops.reshape(value, (*_open(value.shape[:at]), self.groups, size, *value.shape[at + 1 :]))
        return ops.mean(split, [at + 1])

    def each(self, value: Any) -> Any:
        """A value for each group as one for each channel."""
        return ops.repeat(value, self.x.shape[self.at] // self.groups, axis=self.at)

    @cached_property
    def mean(self) -> Any:
        return self.each(self.over_group(self.channels.mean))

    @cached_property
    def variance(self) -> Any:
        return self.over_group(self.channels.variance + ops.square(self.channels.mean - self.mean))

    @cached_property
    def inverse(self) -> Any:
        return self.each(super().inverse)


def _of_channels(x: Any, groups: int, channel_axis: int, axes: Any, epsilon: float) -> _OfChannels | None:
    """If each channel has enough values."""
    own = normalize_axes("normalisation", axes, len(x.shape))
    part, at = count(x.shape, own), normalize_axis("normalisation", channel_axis, len(x.shape))
    is_large = isinstance(part, int) and part >= _LARGE_PART
    return _OfChannels(_widened(x), own, epsilon, groups, at) if is_large else None


def _group_norm_decomposed(
    x: Any, gamma: Any, beta: Any, *, training: bool, num_groups: int, channel_axis: int, axes: Any, epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    moments = _of_channels(x, num_groups, channel_axis, axes, epsilon)
    if moments is not None:
        g, b = (_spread(p, x, channel_axis) if used else None for p, used in ((gamma, scale), (beta, center)))
        return _as(_scaled(moments.normal, g, b), x.dtype)
    shape, parameter, own = _grouped(x, num_groups, channel_axis, axes)
    split = _Moments(ops.reshape(_widened(x), shape), own, epsilon)
    g, b = (ops.reshape(_widened(p), parameter) if used else None for p, used in ((gamma, scale), (beta, center)))
    return _as(ops.reshape(_scaled(split.normal, g, b), _open(x.shape)), x.dtype)


def _group_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, num_groups: int, channel_axis: int, axes: Any,
    epsilon: float, center: bool, scale: bool,
) -> np.ndarray:  # fmt: skip
    shape, parameter, own = _grouped(x, num_groups, channel_axis, axes)
    y = _standardized_array(x.reshape(shape), own, epsilon)
    y = y * gamma.reshape(parameter) if scale else y
    return (y + beta.reshape(parameter) if center else y).reshape(x.shape)


def _group_norm_gradient(
    dy: Any, y: Any, x: Any, gamma: Any, beta: Any, *, num_groups: int, channel_axis: int, axes: Any, epsilon: float,
    center: bool, scale: bool,
) -> tuple[Any, ...]:  # fmt: skip
    whole = _of_channels(x, num_groups, channel_axis, axes, epsilon)
    if whole is not None:
        return _narrowed_adjoints(_gradient_of_channels(_widened(dy), whole, gamma, scale, center), x, gamma)
    shape, parameter, own = _grouped(x, num_groups, channel_axis, axes)
    moments = _Moments(ops.reshape(_widened(x), shape), own, epsilon)
    at = normalize_axis("normalisation", channel_axis, len(x.shape))
    rest = [a for a in range(len(shape)) if a not in (at, at + 1)]
    scales = ops.reshape(_widened(gamma), parameter)
    dx, *channels = _gradient(ops.reshape(_widened(dy), shape), moments, scales, rest, scale, center)
    flat = [None if v is None else ops.reshape(v, gamma.shape) for v in channels]
    return _narrowed_adjoints((ops.reshape(dx, x.shape), *flat), x, gamma)


def _gradient_of_channels(dy: Any, m: _OfChannels, gamma: Any, scale: bool, center: bool) -> tuple[Any, Any, Any]:
    """dx, dgamma and dbeta: what is summed is summed for each channel first, and once for all three."""
    weight, size = _spread(gamma, m.x, m.at), scalar_count(m.x, m.axes)
    sums = ops.sum(dy, m.axes, True), ops.sum(dy * m.normal, m.axes, True)
    means = [m.each(m.over_group(s * weight if scale else s) / size) for s in sums]
    dx = m.inverse * ((dy * weight if scale else dy) - means[0] - m.normal * means[1])
    dbeta, dgamma = (ops.sum(s, _others(m.x, m.at)[1]) for s in sums)
    return dx, dgamma if scale else None, dbeta if center else None


def _check_channels(
    name: str, x: TensorStructInfo, gamma: TensorStructInfo, beta: TensorStructInfo, channel_axis: int, axes: Any
) -> TensorStructInfo:
    at = normalize_axis(name, channel_axis, len(known_shape(name, x)))
    if at in normalize_axes(name, axes, len(x.sizes)):
        raise ShapeError(f"{name}: axes {axes!r} must not name the channel axis {channel_axis}")
    return _check_parameters(name, x, at, ("gamma", gamma), ("beta", beta))


def _group_norm_infer(
    x: TensorStructInfo, gamma: TensorStructInfo, beta: TensorStructInfo, *, num_groups: int, channel_axis: int,
    axes: Any, epsilon: float, center: bool, scale: bool,
) -> TensorStructInfo:  # fmt: skip
    name = "nn.group_norm"
    info = _check_channels(name, x, gamma, beta, channel_axis, axes)
    channels = x.sizes[channel_axis]
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 1:
        raise UserError(f"{name}: num_groups must be an int ≥ 1, got {num_groups!r}")
    if not isinstance(channels, int):
        raise ShapeError(f"{name}: the number of channels must be known, axis {channel_axis} has the size {channels}")
    if channels % num_groups:
        raise ShapeError(
            f"{name}: {channels} channels cannot be divided into {num_groups} groups of one size",
            hint=f"num_groups must divide the size of axis {channel_axis}",
        )
    return info


composite(
    "nn.group_norm",
    "data, gamma, beta | num_groups, channel_axis, axes, epsilon=1e-05, center=True, scale=True",
    infer=_group_norm_infer,
    decompose=_group_norm_decomposed,
    numpy=in_wide(_group_norm),
    gradient=_group_norm_gradient,
    initial={"gamma": 1.0},
    precision="data",
    family="normalisation",
    doc="(x - mean) / √(variance + epsilon) · gamma + beta, with mean and variance over ``axes`` and over the\n"
    "channels of a group, of which there are num_groups along channel_axis, and a gamma and beta for each channel.\n"
    "Wu & He, Group Normalization, 2018; PyTorch's group_norm, whose axes are all but the batch's and the channels'.",
    samples=[
        sample((2, 6, 5), (6,), (6,), num_groups=3, channel_axis=1, axes=2),
        sample((2, 4, 3, 2), (4,), (4,), num_groups=2, channel_axis=1, axes=(2, 3), epsilon=1e-3),
        sample((2, 3, 4), (4,), (4,), num_groups=1, channel_axis=-1, axes=[1], center=False, scale=False),
        sample((2, 6), (6,), (6,), num_groups=2, channel_axis=1, axes=()),
        sample((2, 6, 16, 17), (6,), (6,), num_groups=2, channel_axis=1, axes=(2, 3)),
        sample((3, 300, 4), (4,), (4,), num_groups=4, channel_axis=-1, axes=1, center=False, scale=False),
    ],
)


composite(
    "nn.instance_norm",
    "data, gamma, beta | channel_axis, axes, epsilon=1e-05, center=True, scale=True",
    infer=lambda x, gamma, beta, *, channel_axis, axes, epsilon, center, scale: _check_channels(
        "nn.instance_norm", x, gamma, beta, channel_axis, axes
    ),
    decompose=lambda x, gamma, beta, *, training, channel_axis, axes, **rest: _norm_decomposed(
        x, gamma, beta, axes, channel_axis, **rest
    ),
    numpy=in_wide(
        lambda x, gamma, beta, *, channel_axis, axes, **rest: _norm(x, gamma, beta, axes, channel_axis, **rest)
    ),
    gradient=lambda dy, y, x, gamma, beta, *, channel_axis, axes, **rest: _norm_gradient(
        dy, x, gamma, axes, channel_axis, **rest
    ),
    initial={"gamma": 1.0},
    precision="data",
    family="normalisation",
    doc="(x - mean) / √(variance + epsilon) · gamma + beta, with mean and variance over ``axes``, and a gamma and\n"
    "beta for each channel of channel_axis. Ulyanov et al., Instance Normalization, 2016; PyTorch's instance_norm.",
    samples=[
        sample((2, 3, 5), (3,), (3,), channel_axis=1, axes=2),
        sample((2, 3, 4, 2), (3,), (3,), channel_axis=1, axes=(2, 3), epsilon=1e-3),
        sample((2, 4, 3), (3,), (3,), channel_axis=-1, axes=[1], center=False),
    ],
)

# -- batch norm


def _batch_norm_infer(
    data: TensorStructInfo, gamma: TensorStructInfo, beta: TensorStructInfo, moving_mean: TensorStructInfo,
    moving_var: TensorStructInfo, *, axis: int, epsilon: float, center: bool, scale: bool, momentum: float,
    training: bool,
) -> TupleStructInfo:  # fmt: skip
    name = "nn.batch_norm"
    at = normalize_axis(name, axis, len(known_shape(name, data)))
    for label, number in (("epsilon", epsilon), ("momentum", momentum)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise UserError(f"{name}: {label} must be a number, got {number!r}")
    parameters = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    _check_parameters(name, data, at, *parameters.items())
    return TupleStructInfo((data, moving_mean, moving_var))


def _check_values(n: Dim) -> None:
    """The unbiased variance needs two values."""
    if isinstance(n, int) and n < 2:
        raise ShapeError(
            f"nn.batch_norm in training needs more than one value for each channel, got {n}",
            hint="give it a larger batch, or training=False",
        )


@dataclass(frozen=True)
class _Given(_Moments):
    """Moving statistics in place of those of x."""

    given: tuple[Any, Any]

    @property
    def mean(self) -> Any:
        return self.given[0]

    @property
    def variance(self) -> Any:
        return self.given[1]


@dataclass(frozen=True)
class _OfParts(_Moments):
    """Moments by way of those of the parts, each a place of the first axis: an image. It is in the cache still when its
    variance is taken, so a large batch is read from memory once.

    With mean m_k and variance v_k of part k, all of one size:  mean = E m_k,  variance = E v_k + E (m_k - mean)².
    """

    @cached_property
    def parts(self) -> _Moments:
        return _Moments(self.x, self.axes[1:], self.epsilon)

    @cached_property
    def mean(self) -> Any:
        return ops.mean(self.parts.mean, self.axes[:1], True)

    @cached_property
    def variance(self) -> Any:
        within, between = self.parts.variance, ops.square(self.parts.mean - self.mean)
        return ops.mean(within, self.axes[:1], True) + ops.mean(between, self.axes[:1], True)


def _statistics(data: Any, axis: int, epsilon: float, moving: tuple[Any, Any] | None) -> _Moments:
    """The statistics to normalise by: of the batch, unless ``moving`` ones are given."""
    others, x = _others(data, axis)[1], _widened(data)
    if moving is not None:
        return _Given(x, others, epsilon, tuple(_spread(m, data, axis) for m in moving))
    part = count(x.shape, others[1:])
    return (_OfParts if isinstance(part, int) and part >= _LARGE_PART else _Moments)(x, others, epsilon)


def _per_channel(value: Any, axes: Sequence[int]) -> Any:
    """A value for each channel, whose other axes have the size 1, as one axis."""
    return ops.squeeze(value, axes) if axes else value


def _correction(x: Any, axes: Sequence[int]) -> Any:
    """n / (n - 1): from the biased variance of n values to the unbiased one."""
    n = count(x.shape, axes)
    _check_values(n)
    if isinstance(n, int):
        return n / (n - 1)
    size = scalar_count(x, axes)
    return size / (size - 1.0)


def _batch_norm_decomposed(
    data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, axis: int, epsilon: float, center: bool,
    scale: bool, momentum: float, training: bool,
) -> Any:  # fmt: skip
    m = _statistics(data, axis, epsilon, None if training else (moving_mean, moving_var))
    # x·a + b with a and b for each channel: one multiplication and one addition of the one large operand. Where the
    # mean is much larger than the deviation, x·a - mean·a rounds by as much as x itself was rounded.
    a = _spread(gamma, data, axis) * m.inverse if scale else m.inverse
    b = _spread(beta, data, axis) - m.mean * a if center else -(m.mean * a)
    out = _as(m.x * a + b, data.dtype)
    if not training:
        return Tuple((out, moving_mean, moving_var))
    news = ((moving_mean, m.mean), (moving_var, m.variance * _correction(m.x, m.axes)))
    moved = [_widened(old) * (1.0 - momentum) + _per_channel(new * momentum, m.axes) for old, new in news]
    return Tuple((out, *_narrowed(moved, moving_mean.dtype)))


def _batch_norm(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, moving_mean: np.ndarray, moving_var: np.ndarray, *,
    axis: int, epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    x = data.astype(np.float32) if wide(data.dtype.name) != data.dtype.name else data
    others, kept = tuple(_others(x, axis)[1]), moving_mean.dtype
    mean, variance = moving_mean.astype(x.dtype), moving_var.astype(x.dtype)
    if training:
        n = math.prod(x.shape[a] for a in others)
        _check_values(n)
        news = np.mean(x, others), np.var(x, others, ddof=1)
        keep, take = x.dtype.type(1.0 - momentum), x.dtype.type(momentum)
        moving_mean, moving_var = (keep * old + take * new for old, new in zip((mean, variance), news, strict=True))
        mean, variance = np.mean(x, others), np.var(x, others)
    y = x - _spread_array(mean, x, axis)
    y = y / np.sqrt(_spread_array(variance, x, axis) + x.dtype.type(epsilon))
    y = y * _spread_array(gamma, x, axis) if scale else y
    y = y + _spread_array(beta, x, axis) if center else y
    return y.astype(data.dtype), moving_mean.astype(kept), moving_var.astype(kept)


def _batch_norm_gradient(
    adjoints: Sequence[Any], y: Any, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, axis: int,
    epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
) -> tuple[Any, ...]:  # fmt: skip
    m = _statistics(data, axis, epsilon, None if training else (moving_mean, moving_var))
    dy, dmean, dvar = map(_widened, adjoints)
    total, product = ops.sum(dy, m.axes, True), ops.sum(dy * m.centered, m.axes, True)
    a = _spread(gamma, data, axis) * m.inverse if scale else m.inverse
    dgamma = _per_channel(product * m.inverse, m.axes) if scale else None
    dbeta = _per_channel(total, m.axes) if center else None
    if not training:
        dmean = dmean - _per_channel(total * a, m.axes)
        dvar = dvar - _per_channel(product * a * ops.square(m.inverse) * 0.5, m.axes)
        return _narrowed_adjoints((dy * a, dgamma, dbeta, dmean, dvar), data, gamma)
    n = scalar_count(m.x, m.axes)
    # (dy - Σdy/n - (x - mean)·k)·a, the terms for each channel in one: what is large is read once.
    k = product * ops.square(m.inverse) / n
    dx = (dy - (m.x * k + (total / n - m.mean * k))) * a
    if not _is_zeros(adjoints[1]):
        dx = dx + _spread(dmean, data, axis) * momentum / n
    if not _is_zeros(adjoints[2]):
        dx = dx + m.centered * (_spread(dvar, data, axis) * (2.0 * momentum) * _correction(m.x, m.axes) / n)
    return _narrowed_adjoints((dx, dgamma, dbeta, dmean * (1.0 - momentum), dvar * (1.0 - momentum)), data, gamma)


def _is_zeros(adjoint: Any) -> bool:
    """Whether nothing depends on the value: Gradient then gives zeros."""
    return getattr(getattr(adjoint, "op", None), "name", "") == "relax.zeros"


composite(
    "nn.batch_norm",
    "data, gamma, beta, moving_mean, moving_var | axis=1, epsilon=1e-05, center=True, scale=True, momentum=0.1,"
    " training=True",
    infer=_batch_norm_infer,
    decompose=_batch_norm_decomposed,
    numpy=_batch_norm,
    gradient=_batch_norm_gradient,
    initial={"gamma": 1.0, "moving_var": 1.0},
    precision="data",
    family="normalisation",
    doc="(out, new moving_mean, new moving_var), with out = (x - mean) / √(variance + epsilon) · gamma + beta, and a\n"
    "value of each statistic and parameter for each channel of the axis; without scale (center) gamma (beta) is not\n"
    "used. In training, mean and (biased) variance are the batch's, over all other axes, and the moving statistics\n"
    "become (1 - momentum)·moving + momentum·batch, with the unbiased variance n / (n - 1)·variance: PyTorch's\n"
    "batch_norm (TVM moves the biased variance). A channel of fewer than two values is an error then. Otherwise mean\n"
    "and variance are the moving ones, which are returned as they are. Ioffe & Szegedy, Batch Normalization, 2015.",
    samples=[
        sample((5, 3), (3,), (3,), (3,), Floats((3,), 0.5, 2.0)),
        sample((3, 17), (17,), (17,), (17,), Floats((17,), 0.5, 2.0), axis=-1, momentum=0.3),
        sample((2, 3, 4, 5), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), epsilon=1e-3),
        sample((2, 3, 4), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), center=False, scale=False),
        sample((2, 3, 4), (4,), (4,), (4,), Floats((4,), 0.5, 2.0), axis=2, training=False),
        sample((1, 3, 1), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), training=False, center=False),
    ],
)
