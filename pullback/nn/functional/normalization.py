"""Norms: values moved and scaled to mean 0 and variance 1, or to length 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.arguments import number, whole
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.functional.form import in_train_phase
from pullback.nn.trace import current_trace
from pullback.relax import op
from pullback.relax.op.reduction.reduce import scalar_count
from pullback.relax.struct_info import same_shape

__all__ = [
    "batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "normalize", "rms_norm",
]  # fmt: skip


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: Any = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias, with a number of each for each channel: (N, C, …) → (N, C, …).

    With ``training``, steps take mean and (biased) variance of the batch, and move the running statistics, which must
    be buffers of the module, as PyTorch does in place: (1 - momentum)·running + momentum·batch, with the unbiased
    variance. ``predict`` takes the running ones. Without them (None) both take those of the batch. Without ``training``
    both take the running ones.

    Args:
        input: a tensor, or an array.
        running_mean: a buffer of the module, or None.
        running_var: a buffer of the module, or None.
        weight: a factor for each channel, or None.
        bias: a summand for each channel, or None.
        training: whether steps take the statistics of the batch, and move the running ones.
        momentum: how much of the batch's statistics the running ones take in a step.
        eps: what is added to the variance.

    Returns:
        a tensor of the input's shape.
    """
    _channels("batch_norm", input)
    if running_mean is None or running_var is None:
        if not training:
            raise ArgumentError("batch_norm without training=True needs running_mean and running_var")
        others = [a for a in range(len(input.shape)) if a != 1]
        return _instance_norm(input, weight, bias, others, eps)
    gamma, beta, used = _affine(weight, bias, (input.shape[1],), running_mean.dtype)
    is_number = isinstance(momentum, (int, float)) and not isinstance(momentum, bool)
    result = op.nn.batch_norm(
        input, gamma, beta, running_mean, running_var, axis=1, epsilon=eps, **used, training=training,
        momentum=float(momentum) if is_number else 1.0,
    )  # fmt: skip
    if not training:
        return result[0]
    for name, old, new in (("running_mean", running_mean, result[1]), ("running_var", running_var, result[2])):
        _update(old, new if is_number else in_train_phase(old + (new - old) * momentum, old), name)
    return result[0]


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel of each row: (N, C, …) →
    (N, C, …).

    With ``use_input_stats`` steps take the statistics of the input, and move the running ones (buffers of the module)
    by their mean over the rows; ``predict`` takes the running ones, if there are any. Without, both take the running
    ones. Ulyanov et al., Instance Normalization, 2016.

    Args:
        input: a tensor, or an array.
        running_mean: a buffer of the module, or None.
        running_var: a buffer of the module, or None.
        weight: a factor for each channel, or None.
        bias: a summand for each channel, or None.
        use_input_stats: whether steps take the statistics of the input, and move the running ones.
        momentum: how much of the rows' statistics the running ones take in a step.
        eps: what is added to the variance.

    Returns:
        a tensor of the input's shape.
    """
    rank = len(_channels("instance_norm", input))
    if rank < 3:
        raise ShapeError(f"instance_norm takes (N, C, …) with axes to normalise, got {rank} axes")
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    axes = list(range(2, rank))
    sizes = input.shape[2:]
    if all(isinstance(size, int) for size in sizes) and math.prod(sizes) < 2:
        raise ShapeError("instance_norm needs more than one value for each channel of a row, got 1")
    result = _instance_norm(input, weight, bias, axes, eps)
    if running_mean is None or running_var is None:
        return result
    by_running = batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    values = op.astype(input, running_mean.dtype) if input.dtype != running_mean.dtype else input
    n = scalar_count(values, axes)
    news = op.mean(values, [0, *axes]), op.mean(op.variance(values, axes), 0) * (n / (n - 1.0))
    for name, old, new in zip(("running_mean", "running_var"), (running_mean, running_var), news, strict=True):
        _update(old, in_train_phase(old * (1.0 - momentum) + new * momentum, old), name)
    return in_train_phase(result, by_running)


def layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance over the last axes, which have the sizes
    ``normalized_shape``. Ba et al., Layer Normalization, 2016.

    Args:
        input: a tensor, or an array.
        normalized_shape: the sizes of the last axes, over which statistics are taken: an int or several.
        weight: of ``normalized_shape``, or None.
        bias: of ``normalized_shape``, or None.
        eps: what is added to the variance.

    Returns:
        a tensor of the input's shape.
    """
    sizes, axes = _last_axes("layer_norm", input, normalized_shape)
    gamma, beta, used = _affine(weight, bias, sizes, input.dtype)
    return op.nn.layer_norm(input, gamma, beta, axes=axes, epsilon=eps, **used)


def rms_norm(input: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """x / √(mean x² + eps) · weight, with the mean over the last axes, which have the sizes ``normalized_shape``; eps
    is by default that of the input's dtype. Zhang & Sennrich, Root Mean Square Layer Normalization, 2019.

    Args:
        input: a tensor, or an array.
        normalized_shape: the sizes of the last axes, over which statistics are taken: an int or several.
        weight: of ``normalized_shape``, or None.
        eps: what is added to the mean of squares; by default that of the input's dtype.

    Returns:
        a tensor of the input's shape.
    """
    sizes, axes = _last_axes("rms_norm", input, normalized_shape)
    weight = op.ones(sizes, input.dtype) if weight is None else weight
    if eps is None:
        eps = 2.0**-7 if input.dtype == "bfloat16" else float(np.finfo(input.dtype).eps)
    return op.nn.rms_norm(input, weight, axes=axes, epsilon=eps)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each of ``num_groups`` groups of
    channels of each row: (N, C, …) → (N, C, …). Wu & He, Group Normalization, 2018.

    Args:
        input: a tensor, or an array.
        num_groups: groups of channels, which they divide.
        weight: a factor for each channel, or None.
        bias: a summand for each channel, or None.
        eps: what is added to the variance.

    Returns:
        a tensor of the input's shape.
    """
    shape = _channels("group_norm", input)
    gamma, beta, used = _affine(weight, bias, (shape[1],), input.dtype)
    axes = list(range(2, len(shape)))
    return op.nn.group_norm(input, gamma, beta, num_groups=num_groups, channel_axis=1, axes=axes, epsilon=eps, **used)


def local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """x / (k + alpha·m)^beta, with the mean m of x² over ``size`` neighbouring channels, zeros beyond the first and the
    last one: (N, C, …) → (N, C, …). Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks,
    2012.

    Args:
        input: a tensor, or an array.
        size: neighbouring channels.
        alpha: of the formula.
        beta: of the formula.
        k: of the formula.

    Returns:
        a tensor of the input's shape.
    """
    shape = _channels("local_response_norm", input)
    if len(shape) < 3:
        raise ShapeError(f"local_response_norm takes (N, C, …) of 3 or more axes, got {len(shape)}")
    if whole("size", size) < 1:
        raise ArgumentError(f"size must be an int ≥ 1, got {size!r}", hint="the number of channels, such as 5")
    around = [(0, 0), (size // 2, (size - 1) // 2), *[(0, 0)] * (len(shape) - 2)]
    padded = op.nn.pad(op.square(input), [n for pair in around for n in pair])
    parts = [op.strided_slice(padded, [1], [first], [first + shape[1]]) for first in range(size)]
    return input / op.power(
        sum(parts[1:], parts[0]) * (number("alpha", alpha) / size) + number("k", k), number("beta", beta)
    )


def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Any:
    """x / max(‖x‖ₚ, eps), with the p-norm along the axis ``dim`` (or several).

    Args:
        input: a tensor, or an array.
        p: of the p-norm.
        dim: the axis, or several.
        eps: below which no norm falls.

    Returns:
        a tensor of the input's shape.
    """
    length = op.norm(input, ord=number("p", p, finite=False), axis=dim, keepdims=True)
    return input / op.maximum(length, eps)


def _instance_norm(input: Any, weight: Any, bias: Any, axes: Sequence[int], eps: float) -> Any:
    gamma, beta, used = _affine(weight, bias, (input.shape[1],), input.dtype)
    return op.nn.instance_norm(input, gamma, beta, channel_axis=1, axes=axes, epsilon=eps, **used)


def _affine(weight: Any, bias: Any, shape: tuple[Any, ...], dtype: str) -> tuple[Any, Any, dict[str, bool]]:
    """Scale and shift as the ops take them: tensors, and whether each is used."""
    given = weight if weight is not None else bias
    kind = dtype if given is None else given.dtype
    gamma = op.ones(shape, kind) if weight is None else weight
    beta = op.zeros(shape, kind) if bias is None else bias
    return gamma, beta, {"scale": weight is not None, "center": bias is not None}


def _channels(name: str, input: Any) -> tuple[Any, ...]:
    """The shape of an input with channels."""
    if len(input.shape) < 2:
        raise ShapeError(f"{name} takes (N, C, …), got {len(input.shape)} axes")
    return tuple(input.shape)


def _last_axes(name: str, input: Any, sizes: Any) -> tuple[tuple[int, ...], list[int]]:
    """The sizes of the axes that are normalised, and their numbers."""
    wanted = tuple(sizes) if isinstance(sizes, Sequence) else (sizes,)
    found = tuple(input.shape)[max(0, len(input.shape) - len(wanted)) :]
    if not wanted or not same_shape(found, wanted):
        raise ShapeError(f"{name}: the last axes must have the sizes {wanted}, got {input.struct_info}")
    return wanted, list(range(-len(wanted), 0))


def _update(old: Any, new: Any, name: str) -> None:
    trace = current_trace()
    if trace is None:
        raise ArgumentError(f"{name} cannot change outside of a module's forward", hint="give None, or training=False")
    trace.update(old, new, name)
