"""Layers under TVM's names: those of ``pullback.nn`` with TVM's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback import nn
from pullback.ir.errors import UserError
from pullback.relax.frontend.nn import op
from pullback.relax.frontend.nn.core import Module, Parameter

__all__ = [
    "GELU",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "Embedding",
    "GroupNorm",
    "IOEffect",
    "Identity",
    "KVCache",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "ReLU",
    "SiLU",
]  # fmt: skip


class Identity(Module, nn.Identity):
    """Returns its input."""


class ReLU(Module, nn.ReLU):
    """max(x, 0)."""


class SiLU(Module, nn.SiLU):
    """x · sigmoid(x)."""


class GELU(Module, nn.GELU):
    """x · Φ(x), Φ being the normal distribution."""


class Linear(Module, nn.Linear):
    """x · weightᵀ + bias, with ``weight`` (out_features, in_features). ``out_dtype``: that of the product and bias."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:  # fmt: skip
        nn.Linear.__init__(self, in_features, out_features, bias, dtype=dtype)
        self.out_dtype = out_dtype
        if self.bias is not None and out_dtype is not None:
            self.bias.convert(out_dtype)

    def forward(self, x: Any) -> Any:
        """(…, in_features) → (…, out_features)."""
        if self.out_dtype is None:
            return nn.Linear.forward(self, x)
        product = op.matmul(x, op.permute_dims(self.weight), self.out_dtype)
        return product if self.bias is None else product + self.bias


class _Conv(Module):
    _rank: int

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: str | None = None,
    ) -> None:  # fmt: skip
        kind: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[self._rank - 1]
        kind.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype=dtype
        )


class Conv1D(_Conv, nn.Conv1d):
    """A convolution of (N, in_channels, L)."""

    _rank = 1


class Conv2D(_Conv, nn.Conv2d):
    """A convolution of (N, in_channels, H, W)."""

    _rank = 2


class Conv3D(_Conv, nn.Conv3d):
    """A convolution of (N, in_channels, D, H, W)."""

    _rank = 3


class ConvTranspose1D(Module, nn.ConvTranspose1d):
    """The transpose of :class:`Conv1D`."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, dilation: Any = 1, groups: int = 1, bias: bool = True, dtype: str | None = None,
    ) -> None:  # fmt: skip
        nn.ConvTranspose1d.__init__(
            self, in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation,
            dtype=dtype,
        )  # fmt: skip


class LayerNorm(Module, nn.LayerNorm):
    """(x - mean) / √(variance + eps) · weight + bias over the last axis."""

    def __init__(
        self, normalized_shape: int, eps: float | None = 1e-5, elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        nn.LayerNorm.__init__(self, normalized_shape, 1e-5 if eps is None else eps, elementwise_affine, dtype=dtype)


class RMSNorm(Module):
    """x / √(mean x² + epsilon) · weight + bias, with the mean over ``axes``, of ``hidden_size`` elements."""

    def __init__(
        self, hidden_size: int, axes: int | Sequence[int], epsilon: float = 1e-5, bias: bool = True,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self.epsilon, self.axes = epsilon, axes
        self.weight = Parameter((hidden_size,), dtype)
        self.weight.init = nn.init.Constant(1.0)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Any) -> Any:
        """In the shape of ``x``."""
        result = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return result if self.bias is None else result + self.bias


class GroupNorm(Module, nn.GroupNorm):
    """(x - mean) / √(variance + eps) · weight + bias for each of ``num_groups`` groups of channels."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, dtype: str | None = None
    ) -> None:
        nn.GroupNorm.__init__(self, num_groups, num_channels, eps, affine, dtype=dtype)

    def forward(self, x: Any, channel_axis: int = 1, axes: Sequence[int] | None = None) -> Any:
        """In the shape of ``x``; ``axes`` are those of the mean besides the channels', by default all after these."""
        return op.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes)


class Embedding(Module, nn.Embedding):
    """Rows of a table ``weight`` (num, dim) for indices of any shape."""

    def __init__(self, num: int, dim: int, dtype: str | None = None) -> None:
        nn.Embedding.__init__(self, num, dim, dtype=dtype)


class _NoEffect:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UserError(
            f"{type(self).__name__} is an effect, and there are none: a function's results depend on its arguments",
            hint="take the state as an argument and return it, or make it a Buffer that forward assigns (pullback.nn)",
        )


class IOEffect(_NoEffect):
    """Printing in a graph: an error."""


class KVCache(_NoEffect):
    """A cache of keys and values in a graph: an error. Take them as arguments and return them."""
