"""Batch norm, written in primitive ops: its formulas are in `moments.py`.

What it does with the statistics once they are known is the same whether they are of one process's rows or of all ranks'
(`sync_batch_norm.py`): :func:`normalized`, :func:`moved` and :func:`adjoints_in_training`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.expr import Tuple
from pullback.relax.op.family import composite, known_shape, normalize_axis, wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.moments import (
    LARGE_PART,
    Moments,
    as_dtype,
    check_parameters,
    narrowed,
    narrowed_adjoints,
    split_axes,
    spread,
    spread_array,
    widened,
)
from pullback.relax.op.reduction.reduce import count, scalar_count
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, TupleStructInfo


def check_arguments(
    name: str, data: TensorStructInfo, gamma: TensorStructInfo, beta: TensorStructInfo, moving_mean: TensorStructInfo,
    moving_var: TensorStructInfo, *, axis: int, epsilon: float, momentum: float,
) -> TupleStructInfo:  # fmt: skip
    """The types of the results."""
    at = normalize_axis(name, axis, len(known_shape(name, data)))
    for label, number in (("epsilon", epsilon), ("momentum", momentum)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise UserError(f"{name}: {label} must be a number, got {number!r}")
    parameters = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    check_parameters(name, data, at, *parameters.items())
    return TupleStructInfo((data, moving_mean, moving_var))


def _batch_norm_infer(
    *infos: TensorStructInfo, axis: int, epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
    unbiased: bool,
) -> TupleStructInfo:  # fmt: skip
    return check_arguments("nn.batch_norm", *infos, axis=axis, epsilon=epsilon, momentum=momentum)


def check_values(n: Dim, name: str = "nn.batch_norm") -> None:
    """The unbiased variance needs two values."""
    if isinstance(n, int) and n < 2:
        raise ShapeError(
            f"{name} in training needs more than one value for each channel, got {n}",
            hint="give it a larger batch; in inference (training=False) one value will do",
        )


@dataclass(frozen=True)
class _Given(Moments):
    """Moving statistics in place of those of x."""

    given: tuple[Any, Any]

    @property
    def mean(self) -> Any:
        return self.given[0]

    @property
    def variance(self) -> Any:
        return self.given[1]


@dataclass(frozen=True)
class _OfParts(Moments):
    """Moments by way of those of the parts, each a place of the first axis: an image. A large batch is read in the
    order of memory, and what the sums of an image are taken beside is near its own mean.

    With mean m_k and variance v_k of part k, all of one size:  mean = E m_k,  variance = E v_k + E (m_k - mean)².
    """

    @cached_property
    def parts(self) -> Moments:
        return Moments(self.x, self.axes[1:], self.epsilon)

    @cached_property
    def mean(self) -> Any:
        return ops.mean(self.parts.mean, self.axes[:1], True)

    @cached_property
    def variance(self) -> Any:
        within, between = self.parts.variance, ops.square(self.parts.mean - self.mean)
        return ops.mean(within, self.axes[:1], True) + ops.mean(between, self.axes[:1], True)


def statistics(data: Any, axis: int, epsilon: float, moving: tuple[Any, Any] | None = None) -> Moments:
    """The statistics to normalise by: of the batch, unless ``moving`` ones are given."""
    others, x = split_axes(data, axis)[1], widened(data)
    if moving is not None:
        return _Given(x, others, epsilon, tuple(spread(m, data, axis) for m in moving))
    part = count(x.shape, others[1:])
    return (_OfParts if isinstance(part, int) and part >= LARGE_PART else Moments)(x, others, epsilon)


def per_channel(value: Any, axes: Sequence[int]) -> Any:
    """A value for each channel, whose other axes have the size 1, as one axis."""
    return ops.squeeze(value, axes) if axes else value


def _correction(x: Any, axes: Sequence[int], unbiased: bool) -> Any:
    """n / (n - 1): from the biased variance of n values to the unbiased one, if that is asked for."""
    if not unbiased:
        return 1.0
    n = count(x.shape, axes)
    check_values(n)
    if isinstance(n, int):
        return n / (n - 1)
    size = scalar_count(x, axes)
    return size / (size - 1.0)


def _slope(m: Moments, data: Any, gamma: Any, axis: int, scale: bool) -> Any:
    """What a deviation from the mean is multiplied by."""
    return spread(gamma, data, axis) * m.inverse if scale else m.inverse


def normalized(m: Moments, data: Any, gamma: Any, beta: Any, *, axis: int, center: bool, scale: bool) -> Any:
    """The output."""
    # x·a + b with a and b for each channel: one multiplication and one addition of the one large operand. Where the
    # mean is much larger than the deviation, x·a - mean·a rounds by as much as x itself was rounded.
    a = _slope(m, data, gamma, axis, scale)
    b = spread(beta, data, axis) - m.mean * a if center else -(m.mean * a)
    return as_dtype(ops.ewise_fma(m.x, a, b), data.dtype)


def moved(m: Moments, moving_mean: Any, moving_var: Any, momentum: float, correction: Any) -> tuple[Any, ...]:
    """The new moving statistics."""
    news = ((moving_mean, m.mean), (moving_var, m.variance * correction))
    values = [widened(old) * (1.0 - momentum) + per_channel(new * momentum, m.axes) for old, new in news]
    return narrowed(values, moving_mean.dtype)


def _batch_norm_decomposed(
    data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, axis: int, epsilon: float, center: bool,
    scale: bool, momentum: float, training: bool, unbiased: bool,
) -> Any:  # fmt: skip
    m = statistics(data, axis, epsilon, None if training else (moving_mean, moving_var))
    out = normalized(m, data, gamma, beta, axis=axis, center=center, scale=scale)
    if not training:
        return Tuple((out, moving_mean, moving_var))
    return Tuple((out, *moved(m, moving_mean, moving_var, momentum, _correction(m.x, m.axes, unbiased))))


def _batch_norm(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, moving_mean: np.ndarray, moving_var: np.ndarray, *,
    axis: int, epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
    unbiased: bool,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    x = data.astype(np.float32) if wide(data.dtype.name) != data.dtype.name else data
    others, kept = tuple(split_axes(x, axis)[1]), moving_mean.dtype
    mean, variance = moving_mean.astype(x.dtype), moving_var.astype(x.dtype)
    if training:
        n = math.prod(x.shape[a] for a in others)
        if unbiased:
            check_values(n)
        news = np.mean(x, others), np.var(x, others, ddof=1 if unbiased else 0)
        keep, take = x.dtype.type(1.0 - momentum), x.dtype.type(momentum)
        moving_mean, moving_var = (keep * old + take * new for old, new in zip((mean, variance), news, strict=True))
        mean, variance = np.mean(x, others), np.var(x, others)
    y = x - spread_array(mean, x, axis)
    y = y / np.sqrt(spread_array(variance, x, axis) + x.dtype.type(epsilon))
    y = y * spread_array(gamma, x, axis) if scale else y
    y = y + spread_array(beta, x, axis) if center else y
    return y.astype(data.dtype), moving_mean.astype(kept), moving_var.astype(kept)


def adjoints_in_inference(
    adjoints: Sequence[Any], data: Any, gamma: Any, moving: tuple[Any, Any], *, axis: int, epsilon: float, center: bool,
    scale: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The adjoints of all arguments, of what is normalized by the moving statistics."""
    m = statistics(data, axis, epsilon, moving)
    dy, dmean, dvar = map(widened, adjoints)
    total, product = ops.sum(dy, m.axes, True), ops.vecdot(dy, m.centered, m.axes, True)
    a = _slope(m, data, gamma, axis, scale)
    dgamma = per_channel(product * m.inverse, m.axes) if scale else None
    dbeta = per_channel(total, m.axes) if center else None
    dmean = dmean - per_channel(total * a, m.axes)
    dvar = dvar - per_channel(product * a * ops.square(m.inverse) * 0.5, m.axes)
    return narrowed_adjoints((dy * a, dgamma, dbeta, dmean, dvar), data, gamma)


def adjoints_in_training(
    m: Moments, adjoints: Sequence[Any], data: Any, gamma: Any, *, axis: int, center: bool, scale: bool,
    momentum: float, n: Any, correction: Callable[[], Any], summed: Callable[..., Sequence[Any]] = lambda *sums: sums,
) -> tuple[Any, ...]:  # fmt: skip
    """The adjoints of all arguments. ``n`` values have the statistics ``m``; ``summed`` adds up sums of values, of one
    element for each channel, over all that have them."""
    dy, dmean, dvar = map(widened, adjoints)
    total, product = ops.sum(dy, m.axes, True), ops.vecdot(dy, m.centered, m.axes, True)
    a = _slope(m, data, gamma, axis, scale)
    dgamma = per_channel(product * m.inverse, m.axes) if scale else None
    dbeta = per_channel(total, m.axes) if center else None
    moves = [(k, d) for k, d in enumerate((dmean, dvar), 1) if not is_zeros(adjoints[k])]
    total, product, *sums = summed(total, product, *(d for _, d in moves))
    all_moves = dict(zip((k for k, _ in moves), sums, strict=True))
    # (dy - Σdy/n - (x - mean)·k)·a, the terms for each channel in one: what is large is read once.
    k = product * ops.square(m.inverse) / n
    dx = ops.ewise_fma(dy, a, ops.ewise_fma(m.x, -(k * a), (m.mean * k - total / n) * a))
    if 1 in all_moves:
        dx = dx + spread(all_moves[1], data, axis) * momentum / n
    if 2 in all_moves:
        dx = dx + m.centered * (spread(all_moves[2], data, axis) * (2.0 * momentum) * correction() / n)
    return narrowed_adjoints((dx, dgamma, dbeta, dmean * (1.0 - momentum), dvar * (1.0 - momentum)), data, gamma)


def _batch_norm_gradient(
    adjoints: Sequence[Any], y: Any, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, axis: int,
    epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
    unbiased: bool,
) -> tuple[Any, ...]:  # fmt: skip
    form: dict[str, Any] = {"axis": axis, "center": center, "scale": scale}
    if not training:
        return adjoints_in_inference(adjoints, data, gamma, (moving_mean, moving_var), epsilon=epsilon, **form)
    m = statistics(data, axis, epsilon)
    return adjoints_in_training(
        m, adjoints, data, gamma, momentum=momentum, n=scalar_count(m.x, m.axes),
        correction=lambda: _correction(m.x, m.axes, unbiased), **form,
    )  # fmt: skip


def is_zeros(adjoint: Any) -> bool:
    """Whether nothing depends on the value: Gradient then gives zeros."""
    return getattr(getattr(adjoint, "op", None), "name", "") == "relax.zeros"


composite(
    "nn.batch_norm",
    "data, gamma, beta, moving_mean, moving_var | axis=1, epsilon=1e-05, center=True, scale=True, momentum=0.1,"
    " training=True, unbiased=True",
    infer=_batch_norm_infer,
    decompose=_batch_norm_decomposed,
    numpy=_batch_norm,
    gradient=_batch_norm_gradient,
    initial={"gamma": 1.0, "moving_var": 1.0},
    precision="data",
    zeros="mixes",
    family="normalisation",
    doc="(out, new moving_mean, new moving_var), with out = (x - mean) / √(variance + epsilon) · gamma + beta, and a\n"
    "value of each statistic and parameter for each channel of the axis; without scale (center) gamma (beta) is not\n"
    "used. In training, mean and (biased) variance are the batch's, over all other axes, and the moving statistics\n"
    "become (1 - momentum)·moving + momentum·batch, with the unbiased variance n / (n - 1)·variance: PyTorch's\n"
    "batch_norm. A channel of fewer than two values is an error then. With unbiased=False it is the variance itself,\n"
    "as in TVM and Keras. Otherwise mean and variance are the moving ones, which are returned as they are.\n"
    "Ioffe & Szegedy, Batch Normalization, 2015.",
    samples=[
        sample((5, 3), (3,), (3,), (3,), Floats((3,), 0.5, 2.0)),
        sample((3, 17), (17,), (17,), (17,), Floats((17,), 0.5, 2.0), axis=-1, momentum=0.3),
        sample((2, 3, 4, 5), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), epsilon=1e-3),
        sample((2, 3, 4), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), center=False, scale=False),
        sample((3, 2, 4), (4,), (4,), (4,), Floats((4,), 0.5, 2.0), axis=-1, unbiased=False),
        sample((2, 3, 4), (4,), (4,), (4,), Floats((4,), 0.5, 2.0), axis=2, training=False),
        sample((1, 3, 1), (3,), (3,), (3,), Floats((3,), 0.5, 2.0), training=False, center=False),
    ],
)
