"""Layers of products with weights."""

from __future__ import annotations

import math
from typing import Any

from pullback.nn import functional as F
from pullback.nn.init import KaimingUniform, Uniform
from pullback.nn.module import Module
from pullback.nn.parameter import Parameter, shape_of

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input; takes any arguments, as PyTorch's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def forward(self, input: Any) -> Any:
        """``input`` itself."""
        return input


class Linear(Module):
    """x · weightᵀ + bias along the last axis: (…, in_features) → (…, out_features).

    Parameters: ``weight`` (out_features, in_features) and ``bias`` (out_features,), both uniform in ±1/√in_features at
    first, as in ``torch.nn.Linear``.
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
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """Σ x1ᵢ · weightₒᵢⱼ · x2ⱼ + biasₒ: (…, in1_features), (…, in2_features) → (…, out_features).

    Parameters: ``weight`` (out_features, in1_features, in2_features) and ``bias`` (out_features,), uniform in
    ±1/√in1_features at first, as in ``torch.nn.Bilinear``.
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
