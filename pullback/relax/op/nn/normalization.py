"""Layer, RMS, group and instance norm, written in primitive ops: their formulas are in `moments.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.family import composite, in_wide, known_shape, normalize_axes, normalize_axis
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.moments import (
    LARGE_PART,
    Moments,
    adjoints,
    as_dtype,
    check_parameters,
    mean_product,
    narrowed_adjoints,
    scaled,
    split_axes,
    spread,
    spread_array,
    standardized_array,
    widened,
)
from pullback.relax.op.reduction.reduce import count, scalar_count
from pullback.relax.op.sample import sample
from pullback.relax.struct_info import Dim, TensorStructInfo

# -- one mean and variance for all axes that are normalised, and parameters of some axes: layer and instance norm


def _norm_decomposed(
    x: Any, gamma: Any, beta: Any, axes: Any, parameter_axes: Any, *, epsilon: float, center: bool, scale: bool
) -> Any:
    moments = Moments(widened(x), split_axes(x, axes)[0], epsilon)
    g, b = (spread(p, x, parameter_axes) if used else None for p, used in ((gamma, scale), (beta, center)))
    return as_dtype(scaled(moments.normal, g, b), x.dtype)


def _norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, axes: Any, parameter_axes: Any, *, epsilon: float,
    center: bool, scale: bool,
) -> np.ndarray:  # fmt: skip
    y = standardized_array(x, split_axes(x, axes)[0], epsilon)
    y = y * spread_array(gamma, x, parameter_axes) if scale else y
    return y + spread_array(beta, x, parameter_axes) if center else y


def _norm_gradient(
    dy: Any, x: Any, gamma: Any, axes: Any, parameter_axes: Any, *, epsilon: float, center: bool, scale: bool
) -> tuple[Any, ...]:
    moments = Moments(widened(x), split_axes(x, axes)[0], epsilon)
    gammas, rest = spread(gamma, x, parameter_axes), split_axes(x, parameter_axes)[1]
    return narrowed_adjoints(adjoints(widened(dy), moments, gammas, rest, scale, center), x, gamma)


composite(
    "nn.layer_norm",
    "x, gamma, beta | axes=-1, epsilon=1e-05, center=True, scale=True",
    infer=lambda x, gamma, beta, *, axes, epsilon, center, scale: check_parameters(
        "nn.layer_norm", x, axes, ("gamma", gamma), ("beta", beta)
    ),
    decompose=lambda x, gamma, beta, *, training, axes, **rest: _norm_decomposed(x, gamma, beta, axes, axes, **rest),
    numpy=in_wide(lambda x, gamma, beta, *, axes, **rest: _norm(x, gamma, beta, axes, axes, **rest)),
    gradient=lambda dy, y, x, gamma, beta, *, axes, **rest: _norm_gradient(dy, x, gamma, axes, axes, **rest),
    initial={"gamma": 1.0},
    precision="data",
    zeros="mixes",
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
    return ops.rsqrt(mean_product(x, x, axes) + epsilon)


def _rms_norm_decomposed(x: Any, weight: Any, *, training: bool, axes: Any, epsilon: float) -> Any:
    v = widened(x)
    return as_dtype(v * _rms(v, split_axes(x, axes)[0], epsilon) * spread(weight, x, axes), x.dtype)


def _rms_norm(x: np.ndarray, weight: np.ndarray, *, axes: Any, epsilon: float) -> np.ndarray:
    own = tuple(split_axes(x, axes)[0])
    mean = np.mean(x * x, own, keepdims=True)
    return x / np.sqrt(mean + x.dtype.type(epsilon)) * spread_array(weight, x, axes)


def _rms_norm_gradient(dy: Any, y: Any, x: Any, weight: Any, *, axes: Any, epsilon: float) -> tuple[Any, Any]:
    own, others = split_axes(x, axes)
    v, dy = widened(x), widened(dy)
    inverse, w = _rms(v, own, epsilon), spread(weight, x, axes)
    product = mean_product(dy * w, v * inverse, own)
    dx = inverse * (dy * w - v * inverse * product)
    return as_dtype(dx, x.dtype), as_dtype(ops.vecdot(dy, v * inverse, others), weight.dtype)


composite(
    "nn.rms_norm",
    "x, weight | axes=-1, epsilon=1e-05",
    infer=lambda x, weight, *, axes, epsilon: check_parameters("nn.rms_norm", x, axes, ("weight", weight)),
    decompose=_rms_norm_decomposed,
    numpy=in_wide(_rms_norm),
    gradient=_rms_norm_gradient,
    initial={"weight": 1.0},
    precision="data",
    zeros="mixes",
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
class _OfChannels(Moments):
    """Moments of groups by way of those of their channels; mean and r for each channel. Values of the size of x keep
    its axes, and so the order in which they lie in memory. With mean m_c and variance v_c of channel c, all of one
    size, and E over the channels of a group:  mean = E m_c,  variance = E (v_c + (m_c - mean)²).
    """

    groups: int
    at: int  # the axis of channels

    @cached_property
    def channels(self) -> Moments:
        return Moments(self.x, self.axes, self.epsilon)

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
    is_large = isinstance(part, int) and part >= LARGE_PART
    return _OfChannels(widened(x), own, epsilon, groups, at) if is_large else None


def _group_norm_decomposed(
    x: Any, gamma: Any, beta: Any, *, training: bool, num_groups: int, channel_axis: int, axes: Any, epsilon: float,
    center: bool, scale: bool,
) -> Any:  # fmt: skip
    moments = _of_channels(x, num_groups, channel_axis, axes, epsilon)
    if moments is not None:
        g, b = (spread(p, x, channel_axis) if used else None for p, used in ((gamma, scale), (beta, center)))
        return as_dtype(scaled(moments.normal, g, b), x.dtype)
    shape, parameter, own = _grouped(x, num_groups, channel_axis, axes)
    split = Moments(ops.reshape(widened(x), shape), own, epsilon)
    g, b = (ops.reshape(widened(p), parameter) if used else None for p, used in ((gamma, scale), (beta, center)))
    return as_dtype(ops.reshape(scaled(split.normal, g, b), _open(x.shape)), x.dtype)


def _group_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, num_groups: int, channel_axis: int, axes: Any,
    epsilon: float, center: bool, scale: bool,
) -> np.ndarray:  # fmt: skip
    shape, parameter, own = _grouped(x, num_groups, channel_axis, axes)
    y = standardized_array(x.reshape(shape), own, epsilon)
    y = y * gamma.reshape(parameter) if scale else y
    return (y + beta.reshape(parameter) if center else y).reshape(x.shape)


def _group_norm_gradient(
    dy: Any, y: Any, x: Any, gamma: Any, beta: Any, *, num_groups: int, channel_axis: int, axes: Any, epsilon: float,
    center: bool, scale: bool,
) -> tuple[Any, ...]:  # fmt: skip
    whole = _of_channels(x, num_groups, channel_axis, axes, epsilon)
    if whole is not None:
        return narrowed_adjoints(_gradient_of_channels(widened(dy), whole, gamma, scale, center), x, gamma)
    shape, parameter, own = _grouped(x, num_groups, channel_axis, axes)
    moments = Moments(ops.reshape(widened(x), shape), own, epsilon)
    at = normalize_axis("normalisation", channel_axis, len(x.shape))
    rest = [a for a in range(len(shape)) if a not in (at, at + 1)]
    scales = ops.reshape(widened(gamma), parameter)
    dx, *channels = adjoints(ops.reshape(widened(dy), shape), moments, scales, rest, scale, center)
    flat = [None if v is None else ops.reshape(v, gamma.shape) for v in channels]
    return narrowed_adjoints((ops.reshape(dx, x.shape), *flat), x, gamma)


def _gradient_of_channels(dy: Any, m: _OfChannels, gamma: Any, scale: bool, center: bool) -> tuple[Any, Any, Any]:
    """dx, dgamma and dbeta: what is summed is summed for each channel first, and once for all three."""
    weight, size = spread(gamma, m.x, m.at), scalar_count(m.x, m.axes)
    sums = ops.sum(dy, m.axes, True), ops.vecdot(dy, m.normal, m.axes, True)
    mean, product = (m.each(m.over_group(s * weight if scale else s) / size) for s in sums)
    d = dy * weight if scale else dy
    dx = m.inverse * ops.ewise_fma(m.centered, -(m.inverse * product), d - mean)
    dbeta, dgamma = (ops.sum(s, split_axes(m.x, m.at)[1]) for s in sums)
    return dx, dgamma if scale else None, dbeta if center else None


def _check_channels(
    name: str, x: TensorStructInfo, gamma: TensorStructInfo, beta: TensorStructInfo, channel_axis: int, axes: Any
) -> TensorStructInfo:
    at = normalize_axis(name, channel_axis, len(known_shape(name, x)))
    if at in normalize_axes(name, axes, len(x.sizes)):
        raise ShapeError(f"{name}: axes {axes!r} must not name the channel axis {channel_axis}")
    return check_parameters(name, x, at, ("gamma", gamma), ("beta", beta))


def _group_norm_infer(
    x: TensorStructInfo, gamma: TensorStructInfo, beta: TensorStructInfo, *, num_groups: int, channel_axis: int,
    axes: Any, epsilon: float, center: bool, scale: bool,
) -> TensorStructInfo:  # fmt: skip
    name = "nn.group_norm"
    info = _check_channels(name, x, gamma, beta, channel_axis, axes)
    channels = x.sizes[channel_axis]
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 1:
        raise UserError(
            f"{name}: num_groups must be an int ≥ 1, got {num_groups!r}", hint="give a whole number, 1 or more"
        )
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
    zeros="mixes",
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
    zeros="mixes",
    family="normalisation",
    doc="(x - mean) / √(variance + epsilon) · gamma + beta, with mean and variance over ``axes``, and a gamma and\n"
    "beta for each channel of channel_axis. Ulyanov et al., Instance Normalization, 2016; PyTorch's instance_norm.",
    samples=[
        sample((2, 3, 5), (3,), (3,), channel_axis=1, axes=2),
        sample((2, 3, 4, 2), (3,), (3,), channel_axis=1, axes=(2, 3), epsilon=1e-3),
        sample((2, 4, 3), (3,), (3,), channel_axis=-1, axes=[1], center=False),
    ],
)
