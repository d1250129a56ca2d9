"""Products with weights."""

from __future__ import annotations

from typing import Any

from pullback.relax import op

__all__ = ["bilinear", "linear"]


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """input · weightᵀ + bias: (…, in) with a weight (out, in) → (…, out).

    Args:
        input: (…, in).
        weight: (out, in).
        bias: (out,), or None.

    Returns:
        (…, out).

    Examples:
        >>> F.linear(x, np.ones((4, 16), "float32")).shape
        (64, 4)
    """
    return op.linear(input, weight) if bias is None else op.linear(input, weight, bias)


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Σ input1ᵢ · weightₒᵢⱼ · input2ⱼ + biasₒ: (…, in1), (…, in2) with a weight (out, in1, in2) → (…, out).

    Args:
        input1: (…, in1).
        input2: (…, in2).
        weight: (out, in1, in2).
        bias: (out,), or None.

    Returns:
        (…, out).
    """
    result = op.einsum((input1, weight, input2), "...i,oij,...j->...o")
    return result if bias is None else result + bias
