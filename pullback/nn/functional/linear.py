"""Products with weights."""

from __future__ import annotations

from typing import Any

from pullback.relax import op

__all__ = ["bilinear", "linear"]


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input · weightᵀ + bias: (…, in) with a weight (out, in) → (…, out)."""
    return op.linear(input, weight) if bias is None else op.linear(input, weight, bias)


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Σ input1ᵢ · weightₒᵢⱼ · input2ⱼ + biasₒ: (…, in1), (…, in2) with a weight (out, in1, in2) → (…, out)."""
    result = op.einsum((input1, weight, input2), "...i,oij,...j->...o")
    return result if bias is None else result + bias
