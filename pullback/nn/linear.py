"""Layers of products with weights."""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.nn import functional as F
from pullback.nn.init import KaimingUniform, Uniform
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter, shape_of
from pullback.relax.struct_info import format_shape

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input; takes any arguments, as PyTorch's.

    Examples:
        >>> nn.Identity()(x).shape
        (64, 16)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, input: Any) -> Any:
        """``input`` itself."""
        return input


class Linear(Module):
    """x · weightᵀ + bias along the last axis: (…, in_features) → (…, out_features).

    Parameters: ``weight`` (out_features, in_features) and ``bias`` (out_features,), both uniform in ±1/√in_features at
    first, as in ``torch.nn.Linear``.

    Args:
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the result.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.

    Examples:
        >>> layer = nn.Linear(16, 4)
        >>> layer(x).shape, layer.weight.shape
        ((64, 4), (4, 16))
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: str | None = None) -> None:
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(shape_of(out_features, in_features), init=KaimingUniform(math.sqrt(5)), dtype=dtype)
        self.bias = None
        if bias:
            bound = 1 / math.sqrt(max(1, in_features))
            self.bias = Parameter((out_features,), init=Uniform(-bound, bound), dtype=dtype)

    def forward(self, input: Any) -> Any:
        """(…, in_features) → (…, out_features)."""
        _expect_features(input, self)
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


def _expect_features(x: Any, layer: Linear) -> None:
    """Raise a ShapeError for an input whose last axis is not the layer's ``in_features``."""
    shape = x.shape
    if not shape or shape[-1] == layer.in_features:
        return
    message = f"in_features is {layer.in_features}, got an input of shape {format_shape(shape)}"
    if len(shape) == 1 and not isinstance(shape[0], int):
        raise ShapeError(message, hint="the first axis of an example is the batch: example=x[:1] or x[None], not x[0]")
    if math.prod(s for s in shape[1:] if isinstance(s, int)) == layer.in_features:
        raise ShapeError(message, hint="nn.Flatten() before it makes one axis of all but the batch")
    if isinstance(shape[-1], int):
        raise ShapeError(message, hint=f"nn.Linear({shape[-1]}, {layer.out_features}) takes such an input")


class Bilinear(Module):
    """Σ x1ᵢ · weightₒᵢⱼ · x2ⱼ + biasₒ: (…, in1_features), (…, in2_features) → (…, out_features).

    Parameters: ``weight`` (out_features, in1_features, in2_features) and ``bias`` (out_features,), uniform in
    ±1/√in1_features at first, as in ``torch.nn.Bilinear``.

    Args:
        in1_features: size of the last axis of the first input.
        in2_features: size of the last axis of the second input.
        out_features: size of the last axis of the result.
        bias: whether there is a bias.
        dtype: of the parameters, float32 by default.
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, *, dtype: str | None = None
    ) -> None:
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        bound = 1 / math.sqrt(max(1, in1_features))
        shape = shape_of(out_features, in1_features, in2_features)
        self.weight = Parameter(shape, init=Uniform(-bound, bound), dtype=dtype)
        self.bias = Parameter((out_features,), init=Uniform(-bound, bound), dtype=dtype) if bias else None

    def forward(self, input1: Any, input2: Any) -> Any:
        """(…, in1_features), (…, in2_features) → (…, out_features)."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features},"
            f" bias={self.bias is not None}"
        )
