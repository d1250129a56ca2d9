"""Batch norm, written in primitive ops: its formulas are in `moments.py`.

What it does with the statistics once they are known is the same whether they are of one process's rows or of all ranks'
(`sync_batch_norm.py`): :func:`define_batch_norm` makes both ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op
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


@dataclass(frozen=True)
class Form:
    """The attributes of a batch norm."""

    axis: int
    epsilon: float
    center: bool
    scale: bool
    momentum: float
    training: bool
    unbiased: bool
    num_workers: int = 1  # the ranks whose rows it normalizes


def _infer(
    name: str,
    form: Form,
    data: TensorStructInfo,
    gamma: TensorStructInfo,
    beta: TensorStructInfo,
    moving_mean: TensorStructInfo,
    moving_var: TensorStructInfo,
) -> TupleStructInfo:
    """The types of the results."""
    workers = form.num_workers
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise UserError(f"{name}: num_workers must be an int of at least 1, got {workers!r}")
    at = normalize_axis(name, form.axis, len(known_shape(name, data)))
    for label, number in (("epsilon", form.epsilon), ("momentum", form.momentum)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise UserError(f"{name}: {label} must be a number, got {number!r}")
    parameters = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    check_parameters(name, data, at, *parameters.items())
    return TupleStructInfo((data, moving_mean, moving_var))


def check_values(name: str, n: Dim) -> None:
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
class OfBatch(Moments):
    """Moments of a batch, and what else training needs to know of it."""

    @property
    def count(self) -> Any:
        """The number of values of a channel."""
        return scalar_count(self.x, self.axes)

    def correction(self, name: str) -> Any:
        """n / (n - 1): from the biased variance of n values to the unbiased one."""
        check_values(name, count(self.x.shape, self.axes))
        return self.count / (self.count - 1.0)

    def summed(self, *sums: Any) -> Sequence[Any]:
        """Sums of one element for each channel, added up over all that have values of the batch."""
        return sums


@dataclass(frozen=True)
class _OfParts(OfBatch):
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


def of_rows(data: Any, form: Form) -> OfBatch:
    """The statistics of the rows of one process."""
    others, x = split_axes(data, form.axis)[1], widened(data)
    part = count(x.shape, others[1:])
    return (_OfParts if isinstance(part, int) and part >= LARGE_PART else OfBatch)(x, others, form.epsilon)


def _given(data: Any, moving_mean: Any, moving_var: Any, form: Form) -> Moments:
    others, x = split_axes(data, form.axis)[1], widened(data)
    moving = (spread(moving_mean, data, form.axis), spread(moving_var, data, form.axis))
    return _Given(x, others, form.epsilon, moving)


def per_channel(value: Any, axes: Sequence[int]) -> Any:
    """A value for each channel, whose other axes have the size 1, as one axis."""
    return ops.squeeze(value, axes) if axes else value


def _slope(m: Moments, data: Any, gamma: Any, form: Form) -> Any:
    """What a deviation from the mean is multiplied by."""
    return spread(gamma, data, form.axis) * m.inverse if form.scale else m.inverse


def _normalized(m: Moments, data: Any, gamma: Any, beta: Any, form: Form) -> Any:
    # x·a + b with a and b for each channel: one multiplication and one addition of the one large operand. Where the
    # mean is much larger than the deviation, x·a - mean·a rounds by as much as x itself was rounded.
    a = _slope(m, data, gamma, form)
    b = spread(beta, data, form.axis) - m.mean * a if form.center else -(m.mean * a)
    return as_dtype(ops.ewise_fma(m.x, a, b), data.dtype)


def _moved(m: Moments, moving_mean: Any, moving_var: Any, momentum: float, correction: Any) -> tuple[Any, ...]:
    """The new moving statistics."""
    news = ((moving_mean, m.mean), (moving_var, m.variance * correction))
    values = [widened(old) * (1.0 - momentum) + per_channel(new * momentum, m.axes) for old, new in news]
    return narrowed(values, moving_mean.dtype)


def _adjoints_in_inference(adjoints: Sequence[Any], m: Moments, data: Any, gamma: Any, form: Form) -> tuple[Any, ...]:
    """The adjoints of all arguments, of what is normalized by the moving statistics."""
    dy, dmean, dvar = map(widened, adjoints)
    total, product = ops.sum(dy, m.axes, True), ops.vecdot(dy, m.centered, m.axes, True)
    a = _slope(m, data, gamma, form)
    dgamma = per_channel(product * m.inverse, m.axes) if form.scale else None
    dbeta = per_channel(total, m.axes) if form.center else None
    dmean = dmean - per_channel(total * a, m.axes)
    dvar = dvar - per_channel(product * a * ops.square(m.inverse) * 0.5, m.axes)
    return narrowed_adjoints((dy * a, dgamma, dbeta, dmean, dvar), data, gamma)


def _adjoints_in_training(
    name: str, adjoints: Sequence[Any], m: OfBatch, data: Any, gamma: Any, form: Form
) -> tuple[Any, ...]:
    """The adjoints of all arguments, of what is normalized by the statistics of the batch."""
    n, momentum = m.count, form.momentum
    dy, dmean, dvar = map(widened, adjoints)
    total, product = ops.sum(dy, m.axes, True), ops.vecdot(dy, m.centered, m.axes, True)
    a = _slope(m, data, gamma, form)
    dgamma = per_channel(product * m.inverse, m.axes) if form.scale else None
    dbeta = per_channel(total, m.axes) if form.center else None
    moves = [(k, d) for k, d in enumerate((dmean, dvar), 1) if not is_zeros(adjoints[k])]
    total, product, *sums = m.summed(total, product, *(d for _, d in moves))
    all_moves = dict(zip((k for k, _ in moves), sums, strict=True))
    # (dy - Σdy/n - (x - mean)·k)·a, the terms for each channel in one: what is large is read once.
    k = product * ops.square(m.inverse) / n
    dx = ops.ewise_fma(dy, a, ops.ewise_fma(m.x, -(k * a), (m.mean * k - total / n) * a))
    if 1 in all_moves:
        dx = dx + spread(all_moves[1], data, form.axis) * momentum / n
    if 2 in all_moves:
        correction = m.correction(name) if form.unbiased else 1.0
        dx = dx + m.centered * (spread(all_moves[2], data, form.axis) * (2.0 * momentum) * correction / n)
    return narrowed_adjoints((dx, dgamma, dbeta, dmean * (1.0 - momentum), dvar * (1.0 - momentum)), data, gamma)


def is_zeros(adjoint: Any) -> bool:
    """Whether nothing depends on the value: Gradient then gives zeros."""
    return getattr(getattr(adjoint, "op", None), "name", "") == "relax.zeros"


def of_array(name: str, x: np.ndarray, axes: tuple[int, ...], form: Form) -> tuple[np.ndarray, ...]:
    """Over NumPy, the mean, the biased variance and that which moves the moving one, of the rows of one process."""
    if form.unbiased:
        check_values(name, math.prod(x.shape[a] for a in axes))
    return np.mean(x, axes), np.var(x, axes), np.var(x, axes, ddof=1 if form.unbiased else 0)


def define_batch_norm(
    name: str,
    attrs: str,
    *,
    of_batch: Callable[[Any, Form], OfBatch],
    of_array: Callable[[str, np.ndarray, tuple[int, ...], Form], tuple[np.ndarray, ...]],
    **rules: Any,
) -> Op:
    """Define a batch norm with the attributes of :class:`Form`, and ``attrs`` before those. ``of_batch`` gives the
    statistics that it normalizes by in training, :func:`of_array` and its like the same over NumPy."""

    def infer(*infos: TensorStructInfo, **given: Any) -> TupleStructInfo:
        return _infer(name, Form(**given), *infos)

    def decompose(
        data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any, *, training: bool, **given: Any
    ) -> Any:
        form = Form(training=training, **given)
        if not training:
            m = _given(data, moving_mean, moving_var, form)
            return Tuple((_normalized(m, data, gamma, beta, form), moving_mean, moving_var))
        batch = of_batch(data, form)
        out = _normalized(batch, data, gamma, beta, form)
        correction = batch.correction(name) if form.unbiased else 1.0
        return Tuple((out, *_moved(batch, moving_mean, moving_var, form.momentum, correction)))

    def gradient(
        adjoints: Sequence[Any], y: Any, data: Any, gamma: Any, beta: Any, moving_mean: Any, moving_var: Any,
        **given: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        form = Form(**given)
        if not form.training:
            return _adjoints_in_inference(adjoints, _given(data, moving_mean, moving_var, form), data, gamma, form)
        return _adjoints_in_training(name, adjoints, of_batch(data, form), data, gamma, form)

    def array(
        data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, moving_mean: np.ndarray, moving_var: np.ndarray,
        **given: Any,
    ) -> tuple[np.ndarray, ...]:  # fmt: skip
        form, kept = Form(**given), moving_mean.dtype
        x = data.astype(np.float32) if wide(data.dtype.name) != data.dtype.name else data
        kind, mean, variance = x.dtype.type, moving_mean.astype(x.dtype), moving_var.astype(x.dtype)
        if form.training:
            batch, spread, new = of_array(name, x, tuple(split_axes(x, form.axis)[1]), form)
            keep, take = kind(1.0 - form.momentum), kind(form.momentum)
            moving_mean, moving_var = keep * mean + take * batch, keep * variance + take * new
            mean, variance = batch, spread
        y = x - spread_array(mean, x, form.axis)
        y = y / np.sqrt(spread_array(variance, x, form.axis) + kind(form.epsilon))
        y = y * spread_array(gamma, x, form.axis) if form.scale else y
        y = y + spread_array(beta, x, form.axis) if form.center else y
        return y.astype(data.dtype), moving_mean.astype(kept), moving_var.astype(kept)

    shared: dict[str, Any] = {
        "infer": infer, "decompose": decompose, "gradient": gradient, "numpy": array, "precision": "data",
        "initial": {"gamma": 1.0, "moving_var": 1.0}, "zeros": "mixes", "family": "normalisation",
    }  # fmt: skip
    return composite(
        name,
        f"data, gamma, beta, moving_mean, moving_var | {attrs}axis=1, epsilon=1e-05, center=True, scale=True,"
        " momentum=0.1, training=True, unbiased=True",
        **shared | rules,
    )


define_batch_norm(
    "nn.batch_norm",
    "",
    of_batch=of_rows,
    of_array=of_array,
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
