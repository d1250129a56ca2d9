"""Norms. Running statistics that PyTorch writes in place are results here: see ``TorchModel.forward``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.nn import functional as F
from pullback.nn.functional.normalization import _affine
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.torch.table import ATEN


def _moments(x: Any, axes: Sequence[int], eps: float, keepdims: bool) -> tuple[Any, Any]:
    no_grad = op.grad.no_grad
    return (
        lambda: no_grad(op.mean(x, axes, keepdims)),
        lambda: no_grad(op.rsqrt(op.variance(x, axes, keepdims) + eps)),
    )


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """(output, new running mean, new running variance)."""
    gamma, beta, used = _affine(weight, bias, (x.shape[1],), mean.dtype)
    found = op.nn.batch_norm(
        x, gamma, beta, mean, var, axis=1, epsilon=eps, **used, training=training, momentum=momentum
    )  # fmt: skip
    no_grad = op.grad.no_grad
    return (found[0], no_grad(found[1]), no_grad(found[2])) if training else (found[0], mean, var)


def _statistics(x: Any, eps: float) -> tuple[Any, Any]:
    """Mean and 1/√(variance + eps) of each channel, as functions: hardly anything reads them. In PyTorch they have no
    derivative."""
    return _moments(x, [axis for axis in range(len(x.shape)) if axis != 1], eps, False)


def _nothing(x: Any) -> Any:
    return lambda: op.zeros((0,), x.dtype)


@ATEN.register("aten.batch_norm")
def batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    return F.batch_norm(input, mean, var, weight, bias, training, momentum, eps)


@ATEN.register("aten._native_batch_norm_legit_functional")
def native_batch_norm_functional(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    out, new_mean, new_var = _batch_norm(input, weight, bias, mean, var, training, momentum, eps)
    saved = _statistics(input, eps) if training else (_nothing(input), _nothing(input))
    return out, *saved, new_mean, new_var


@ATEN.register("aten._batch_norm_with_update_functional")
def batch_norm_with_update_functional(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    out, new_mean, new_var = _batch_norm(input, weight, bias, mean, var, True, momentum, eps)
    return out, *_statistics(input, eps), lambda: op.zeros((0,), "uint8"), new_mean, new_var


@ATEN.register("aten._native_batch_norm_legit_no_training")
def native_batch_norm_no_training(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return F.batch_norm(input, mean, var, weight, bias, False, momentum, eps), _nothing(input), _nothing(input)


@ATEN.register("aten._batch_norm_no_update")
def batch_norm_no_update(input: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float) -> Any:
    out = F.batch_norm(input, mean, var, weight, bias, False, momentum, eps)
    return out, _nothing(input), _nothing(input), lambda: op.zeros((0,), "uint8")


@ATEN.register("aten.native_batch_norm")
def native_batch_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    saved = _statistics(input, eps) if training else (_nothing(input), _nothing(input))
    return F.batch_norm(input, mean, var, weight, bias, training, momentum, eps), *saved


@ATEN.register("aten._native_batch_norm_legit.no_stats")
def native_batch_norm_without_statistics(
    input: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    return F.batch_norm(input, None, None, weight, bias, training, momentum, eps), *_statistics(input, eps)


ATEN.register("aten._native_batch_norm_legit")(native_batch_norm)


@ATEN.register("aten.instance_norm")
def instance_norm(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, momentum: float, eps: float,
    cudnn: bool,
) -> Any:  # fmt: skip
    return F.instance_norm(input, mean, var, weight, bias, use_input_stats, momentum, eps)


@ATEN.register("aten.layer_norm")
def layer_norm(input: Any, normalized_shape: Sequence[Any], weight: Any, bias: Any, eps: float, cudnn: bool) -> Any:
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


@ATEN.register("aten.native_layer_norm")
def native_layer_norm(input: Any, normalized_shape: Sequence[Any], weight: Any, bias: Any, eps: float) -> Any:
    rank = len(input.shape)
    axes = list(range(rank - len(normalized_shape), rank))
    return F.layer_norm(input, normalized_shape, weight, bias, eps), *_moments(input, axes, eps, True)


@ATEN.register("aten.group_norm")
def group_norm(input: Any, num_groups: int, weight: Any, bias: Any, eps: float, cudnn: bool) -> Any:
    return F.group_norm(input, num_groups, weight, bias, eps)


@ATEN.register("aten.native_group_norm")
def native_group_norm(
    input: Any, weight: Any, bias: Any, rows: Any, channels: Any, size: Any, group: int, eps: float
) -> Any:
    def parted() -> Any:
        return op.reshape(input, (rows, group, -1))

    return (  # these statistics do have derivatives
        F.group_norm(input, group, weight, bias, eps),
        lambda: op.mean(parted(), 2),
        lambda: op.rsqrt(op.variance(parted(), 2) + eps),
    )


@ATEN.register("aten.rms_norm")
def rms_norm(input: Any, normalized_shape: Sequence[Any], weight: Any, eps: float | None) -> Any:
    return F.rms_norm(input, normalized_shape, weight, eps)


@ATEN.register("aten._fused_rms_norm")
def fused_rms_norm(input: Any, normalized_shape: Sequence[Any], weight: Any, eps: float | None) -> Any:
    rank = len(input.shape)
    axes = list(range(rank - len(normalized_shape), rank))
    least = eps if eps is not None else 1.1920928955078125e-07  # that of float32

    def saved() -> Any:
        return op.grad.no_grad(op.rsqrt(op.mean(op.square(input), axes, True) + const(least, input.dtype)))

    return F.rms_norm(input, normalized_shape, weight, eps), saved
