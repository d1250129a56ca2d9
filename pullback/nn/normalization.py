"""Norms as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from pullback.ir.arguments import number, whole
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import functional as F
from pullback.nn.module import Module
from pullback.nn.parameter import ONES, ZEROS, Buffer, Parameter, shape_of
from pullback.relax.struct_info import same_shape

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


class _Norm(Module):
    """A number of each parameter and statistic for each channel."""

    shapes: ClassVar[dict[int, str]]  # of inputs, by their number of axes; without batch the channels are the first

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
        dtype: str | None,
    ) -> None:  # fmt: skip
        self.num_features, self.eps = num_features, number("eps", eps)
        self.momentum = None if momentum is None else number("momentum", momentum)
        self.affine, self.track_running_stats = affine, track_running_stats
        shape = shape_of(num_features)
        self.weight = Parameter(shape, init=ONES, dtype=dtype) if affine else None
        self.bias = Parameter(shape, init=ZEROS, dtype=dtype) if affine else None
        self.running_mean = Buffer(shape, init=ZEROS, dtype=dtype) if track_running_stats else None
        self.running_var = Buffer(shape, init=ONES, dtype=dtype) if track_running_stats else None
        self.num_batches_tracked = Buffer(np.zeros((), "int64")) if track_running_stats else None

    def _check(self, input: Any) -> None:
        kind, rank = type(self).__name__, len(input.shape)
        if rank not in self.shapes:
            raise ShapeError(f"{kind} takes {' or '.join(self.shapes.values())}, got {rank} axes: {input.struct_info}")
        channels = input.shape[0 if self.shapes[rank].startswith("(C") else 1]
        if not same_shape((channels,), (self.num_features,)):
            raise ShapeError(
                f"{kind} of {self.num_features} channels is given {channels}: {input.struct_info}",
                hint=f"the axes are {self.shapes[rank]}",
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine},"
            f" track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Norm):
    """Statistics of the batch in steps, running ones in predictions."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, input: Any) -> Any:
        """The shape of the input."""
        self._check(input)
        if not self.track_running_stats:
            return F.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
        batches: Any = self.num_batches_tracked  # a variable of the program, as all buffers in a forward
        self.num_batches_tracked = batches = F.in_train_phase(batches + 1, batches)
        mean: Any = self.running_mean
        var, momentum = self.running_var, self.momentum
        if momentum is None:
            momentum = 1.0 / batches.astype(mean.dtype)
        return F.batch_norm(input, mean, var, self.weight, self.bias, True, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel (axis 1) of
    (N, C) or (N, C, L): in steps those of the batch, in ``predict`` and ``evaluate`` the running ones.

    Parameters (with ``affine``): ``weight``, ones at first, and ``bias``, zeros. Buffers: ``running_mean``, zeros,
    ``running_var``, ones, of the unbiased variance, and ``num_batches_tracked`` (int64), the number of steps.
    Ioffe & Szegedy, Batch Normalization, 2015.

    Args:
        num_features: channels of the input, C.
        eps: what is added to the variance.
        momentum: how much of the batch's statistics the running ones take in a step; None: they are the mean of all
            batches so far.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether running statistics are kept; else those of the batch are always taken.
        dtype: of the parameters, float32 by default.
    """

    shapes: ClassVar[dict[int, str]] = {2: "(N, C)", 3: "(N, C, L)"}


class BatchNorm2d(_BatchNorm):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel (axis 1) of
    (N, C, H, W): in steps those of the batch, in ``predict`` and ``evaluate`` the running ones.

    Parameters (with ``affine``): ``weight``, ones at first, and ``bias``, zeros. Buffers: ``running_mean``, zeros,
    ``running_var``, ones, of the unbiased variance, and ``num_batches_tracked`` (int64), the number of steps.
    Ioffe & Szegedy, Batch Normalization, 2015.

    Args:
        num_features: channels of the input, C.
        eps: what is added to the variance.
        momentum: how much of the batch's statistics the running ones take in a step; None: they are the mean of all
            batches so far.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether running statistics are kept; else those of the batch are always taken.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        >>> sorted(name for name, _ in net.named_buffers())
        ['1.num_batches_tracked', '1.running_mean', '1.running_var']
    """

    shapes: ClassVar[dict[int, str]] = {4: "(N, C, H, W)"}


class BatchNorm3d(_BatchNorm):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel (axis 1) of
    (N, C, D, H, W): in steps those of the batch, in ``predict`` and ``evaluate`` the running ones.

    Parameters (with ``affine``): ``weight``, ones at first, and ``bias``, zeros. Buffers: ``running_mean``, zeros,
    ``running_var``, ones, of the unbiased variance, and ``num_batches_tracked`` (int64), the number of steps.
    Ioffe & Szegedy, Batch Normalization, 2015.

    Args:
        num_features: channels of the input, C.
        eps: what is added to the variance.
        momentum: how much of the batch's statistics the running ones take in a step; None: they are the mean of all
            batches so far.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether running statistics are kept; else those of the batch are always taken.
        dtype: of the parameters, float32 by default.
    """

    shapes: ClassVar[dict[int, str]] = {5: "(N, C, D, H, W)"}


class _InstanceNorm(_Norm):
    """Statistics of each row."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, dtype)

    def forward(self, input: Any) -> Any:
        """The shape of the input, which may lack the batch."""
        self._check(input)
        lacks_batch = len(input.shape) < max(self.shapes)
        x = input.unsqueeze(0) if lacks_batch else input
        momentum = 0.0 if self.momentum is None else self.momentum
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True, momentum, self.eps)
        return y.squeeze(0) if lacks_batch else y


class InstanceNorm1d(_InstanceNorm):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel of each row of
    (N, C, L) or (C, L).

    Parameters (with ``affine``): ``weight``, ones at first, and ``bias``, zeros. Buffers: those of BatchNorm;
    ``num_batches_tracked`` stays 0, as in PyTorch. Ulyanov et al., Instance Normalization, 2016.

    Args:
        num_features: channels of the input, C.
        eps: what is added to the variance.
        momentum: how much of the rows' statistics the running ones take in a step.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether ``predict`` and ``evaluate`` take running statistics, which steps move by the mean
            of the rows'.
        dtype: of the parameters, float32 by default.
    """

    shapes: ClassVar[dict[int, str]] = {3: "(N, C, L)", 2: "(C, L)"}


class InstanceNorm2d(_InstanceNorm):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel of each row of
    (N, C, H, W) or (C, H, W).

    Parameters (with ``affine``): ``weight``, ones at first, and ``bias``, zeros. Buffers: those of BatchNorm;
    ``num_batches_tracked`` stays 0, as in PyTorch. Ulyanov et al., Instance Normalization, 2016.

    Args:
        num_features: channels of the input, C.
        eps: what is added to the variance.
        momentum: how much of the rows' statistics the running ones take in a step.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether ``predict`` and ``evaluate`` take running statistics, which steps move by the mean
            of the rows'.
        dtype: of the parameters, float32 by default.
    """

    shapes: ClassVar[dict[int, str]] = {4: "(N, C, H, W)", 3: "(C, H, W)"}


class InstanceNorm3d(_InstanceNorm):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each channel of each row of
    (N, C, D, H, W) or (C, D, H, W).

    Parameters (with ``affine``): ``weight``, ones at first, and ``bias``, zeros. Buffers: those of BatchNorm;
    ``num_batches_tracked`` stays 0, as in PyTorch. Ulyanov et al., Instance Normalization, 2016.

    Args:
        num_features: channels of the input, C.
        eps: what is added to the variance.
        momentum: how much of the rows' statistics the running ones take in a step.
        affine: whether there are a weight and a bias for each channel.
        track_running_stats: whether ``predict`` and ``evaluate`` take running statistics, which steps move by the mean
            of the rows'.
        dtype: of the parameters, float32 by default.
    """

    shapes: ClassVar[dict[int, str]] = {5: "(N, C, D, H, W)", 4: "(C, D, H, W)"}


class LayerNorm(Module):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance over the last axes, whose sizes are
    ``normalized_shape`` (an int or several).

    Parameters (with ``elementwise_affine``), of these sizes: ``weight``, ones at first, and ``bias``, zeros. Ba et al.,
    Layer Normalization, 2016.

    Args:
        normalized_shape: the sizes of the last axes, over which statistics are taken: an int or several.
        eps: what is added to the variance.
        elementwise_affine: whether there is a weight for each element of ``normalized_shape``.
        bias: whether there is a bias, with ``elementwise_affine``.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> y = nn.LayerNorm(16)(x).numpy()
        >>> bool(abs(y.mean(axis=1)).max() < 1e-5)
        True
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, *, dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = shape_of(normalized_shape), number("eps", eps)
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter(self.normalized_shape, init=ONES, dtype=dtype) if elementwise_affine else None
        self.bias = Parameter(self.normalized_shape, init=ZEROS, dtype=dtype) if elementwise_affine and bias else None

    def forward(self, input: Any) -> Any:
        """(…, *normalized_shape), and the same."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """x / √(mean x² + eps) · weight, with the mean over the last axes, whose sizes are ``normalized_shape``; ``eps`` is
    by default that of the input's dtype.

    Parameter (with ``elementwise_affine``): ``weight``, ones at first. Zhang & Sennrich, Root Mean Square Layer
    Normalization, 2019.

    Args:
        normalized_shape: the sizes of the last axes, over which statistics are taken: an int or several.
        eps: what is added to the mean of squares; by default that of the input's dtype.
        elementwise_affine: whether there is a weight for each element of ``normalized_shape``.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> nn.RMSNorm(16)(x).shape
        (64, 16)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True, *,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = shape_of(normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter(self.normalized_shape, init=ONES, dtype=dtype) if elementwise_affine else None

    def forward(self, input: Any) -> Any:
        """(…, *normalized_shape), and the same."""
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """(x - mean) / √(variance + eps) · weight + bias, with mean and variance of each of ``num_groups`` groups of
    channels of each row.

    Parameters (with ``affine``), a number for each channel: ``weight``, ones at first, and ``bias``, zeros. Wu & He,
    Group Normalization, 2018.

    Args:
        num_groups: groups of channels.
        num_channels: channels, which the groups divide.
        eps: what is added to the variance.
        affine: whether there are a weight and a bias for each channel.
        dtype: of the parameters, float32 by default.

    Raises:
        ArgumentError: where num_groups does not divide num_channels.

    Examples:
        >>> nn.GroupNorm(4, 16)(np.ones((2, 16, 8, 8), "float32")).shape
        (2, 16, 8, 8)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *, dtype: str | None = None
    ) -> None:
        self.num_groups, self.num_channels, self.affine = num_groups, num_channels, affine
        self.eps, shape = number("eps", eps), shape_of(num_channels)
        if whole("num_groups", num_groups) < 1 or num_channels % num_groups:
            raise ArgumentError(
                f"num_groups must divide num_channels, got {num_groups} and {num_channels}",
                hint="the arguments are (num_groups, num_channels)",
            )
        self.weight = Parameter(shape, init=ONES, dtype=dtype) if affine else None
        self.bias = Parameter(shape, init=ZEROS, dtype=dtype) if affine else None

    def forward(self, input: Any) -> Any:
        """(N, num_channels, …), and the same."""
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LocalResponseNorm(Module):
    """x / (k + alpha·m)^beta, with the mean m of x² over ``size`` neighbouring channels, zeros beyond the ends.
    Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012.

    Args:
        size: neighbouring channels.
        alpha: of the formula.
        beta: of the formula.
        k: of the formula.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Any) -> Any:
        """(N, C, …), and the same."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
