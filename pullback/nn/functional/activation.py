"""Activations, with the formulas and the derivatives at kinks of PyTorch.

``inplace`` is taken for the sake of programs that say it, and makes no difference: values never change.
"""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn.functional.form import in_train_phase
from pullback.relax import op

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu",
    "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip


def number(name: str, value: Any) -> float:
    """A finite number as a float; an ArgumentError that names the argument for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ArgumentError(f"{name} must be a finite number, got {value!r}", hint="such as 0.1")
    return float(value)


def relu(input: Any, inplace: bool = False) -> Any:
    """max(x, 0)."""
    return op.nn.relu(input)


def relu6(input: Any, inplace: bool = False) -> Any:
    """min(max(x, 0), 6)."""
    return op.nn.relu6(input)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where x > 0, else alpha·(eˣ - 1)."""
    return op.nn.elu(input, number("alpha", alpha))


def selu(input: Any, inplace: bool = False) -> Any:
    """1.0507·elu(x, 1.67326): Klambauer et al., Self-Normalizing Neural Networks, 2017."""
    return op.nn.selu(input)


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where x > 0, else alpha·(e^(x/alpha) - 1)."""
    return op.nn.celu(input, number("alpha", alpha))


def gelu(input: Any, approximate: str = "none") -> Any:
    """x·Φ(x), Φ being the normal distribution; with ``approximate="tanh"`` its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return op.nn.gelu(input) if approximate == "none" else op.nn.gelu_tanh(input)


def glu(input: Any, dim: int = -1) -> Any:
    """a·sigmoid(b) for the halves a and b along an axis of even size."""
    return op.nn.glu(input, dim)


def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """x where |x| > lambd, else 0."""
    return op.nn.hardshrink(input, number("lambd", lambd))


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """relu6(x + 3) / 6."""
    return op.nn.hardsigmoid(input)


def hardswish(input: Any, inplace: bool = False) -> Any:
    """x·relu6(x + 3) / 6."""
    return op.nn.hardswish(input)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """min(max(x, min_val), max_val)."""
    return op.nn.hardtanh(input, number("min_val", min_val), number("max_val", max_val))


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x where x > 0, else negative_slope·x."""
    return op.nn.leakyrelu(input, number("negative_slope", negative_slope))


def logsigmoid(input: Any) -> Any:
    """log(sigmoid(x)), without overflow."""
    return op.nn.logsigmoid(input)


def mish(input: Any, inplace: bool = False) -> Any:
    """x·tanh(log(1 + eˣ))."""
    return op.nn.mish(input)


def prelu(input: Any, weight: Any) -> Any:
    """x where x > 0, else weight·x: a weight (1,), or one for each channel, (C,), of axis 1."""
    return op.nn.prelu(input, weight)


def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Any:
    """x where x > 0, else slope·x: with ``training``, steps draw a slope from [lower, upper) for each element, and
    ``predict`` takes their mean; else all take the mean. Xu et al., Empirical Evaluation of Rectified Activations,
    2015."""
    low, high = number("lower", lower), number("upper", upper)
    if low > high:
        raise ArgumentError(f"lower must be at most upper, got {lower!r} and {upper!r}")
    expected = leaky_relu(input, (low + high) / 2)
    if not training:
        return expected
    slope = op.random.uniform(shape=input.shape, low=low, high=high, dtype=input.dtype)
    return in_train_phase(op.where(input > 0.0, input, input * slope), expected)


def silu(input: Any, inplace: bool = False) -> Any:
    """x·sigmoid(x), also called swish."""
    return op.nn.silu(input)


def sigmoid(input: Any) -> Any:
    """1 / (1 + e⁻ˣ)."""
    return op.sigmoid(input)


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + e^(beta·x)) / beta, and x where beta·x > threshold."""
    return op.nn.softplus(input, number("beta", beta), number("threshold", threshold))


def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """x moved by lambd towards 0, and 0 where |x| ≤ lambd."""
    return op.nn.softshrink(input, number("lambd", lambd))


def softsign(input: Any) -> Any:
    """x / (1 + |x|)."""
    return op.nn.softsign(input)


def tanh(input: Any) -> Any:
    """The hyperbolic tangent."""
    return op.tanh(input)


def tanhshrink(input: Any) -> Any:
    """x - tanh(x)."""
    return op.nn.tanhshrink(input)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    """x where x > threshold, else value."""
    return op.nn.threshold(input, number("threshold", threshold), number("value", value))


def softmax(input: Any, dim: int | None = None, *, dtype: str | None = None) -> Any:
    """exp(x) / Σ exp(x) along the axis ``dim``, without overflow; of ``input`` as ``dtype``, where one is given."""
    return op.nn.softmax(_as(input, dtype), _axis("softmax", input, dim))


def log_softmax(input: Any, dim: int | None = None, *, dtype: str | None = None) -> Any:
    """log softmax along the axis ``dim``; of ``input`` as ``dtype``, where one is given."""
    return op.nn.log_softmax(_as(input, dtype), _axis("log_softmax", input, dim))


def softmin(input: Any, dim: int | None = None, *, dtype: str | None = None) -> Any:
    """softmax(-x) along the axis ``dim``; of ``input`` as ``dtype``, where one is given."""
    return op.nn.softmin(_as(input, dtype), _axis("softmin", input, dim))


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """softmax((logits + g) / tau) along an axis, with g drawn from the Gumbel distribution in steps of training;
    ``predict`` draws nothing, and takes g = 0. ``hard``: one-hot vectors of the maxima, whose gradient is that of the
    softmax. ``eps`` makes no difference, as in PyTorch. Jang et al., Categorical Reparameterization with
    Gumbel-Softmax, 2017.
    """
    if number("tau", tau) <= 0:
        raise ArgumentError(f"tau must be positive, got {tau!r}")
    # From [2⁻²⁵, 1): no logarithm is infinite.
    uniform = op.random.uniform(shape=logits.shape, low=2.0**-25, high=1.0)
    noise = op.astype(op.negative(op.log(op.negative(op.log(uniform)))), logits.dtype)
    soft = op.nn.softmax(in_train_phase(logits + noise, logits) / float(tau), dim)
    if not hard:
        return soft
    axis = dim + len(logits.shape) if dim < 0 else dim
    best = op.argmax(soft, axis)
    one_hot = op.one_hot(best, 1.0, 0.0, logits.shape[axis], axis, dtype=logits.dtype)
    return one_hot - op.stop_gradient(soft) + soft


def _as(input: Any, dtype: str | None) -> Any:
    return input if dtype is None else op.astype(input, dtype)


def _axis(name: str, input: Any, dim: int | None) -> int:
    """The axis, of one or two axes by default the last one, as in PyTorch."""
    if dim is not None:
        return dim
    rank = len(input.shape)
    if rank > 2:
        raise ArgumentError(
            f"{name} of a tensor with {rank} axes needs dim=", hint="dim=-1 is the last axis; PyTorch takes axis"
            f" {0 if rank == 3 else 1} here",
        )  # fmt: skip
    return -1
