"""Activations, with the formulas and the derivatives at kinks of PyTorch.

``inplace`` is taken for the sake of programs that say it, and makes no difference: values never change.
"""

from __future__ import annotations

from typing import Any

from pullback.ir.arguments import number
from pullback.ir.errors import ArgumentError
from pullback.nn.functional.form import in_train_phase
from pullback.relax import op

__all__ = [
    "celu", "elu", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "leaky_relu", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "rrelu", "selu", "sigmoid", "silu",
    "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink", "threshold",
]  # fmt: skip


def relu(input: Any, inplace: bool = False) -> Any:
    """max(x, 0).

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.

    Examples:
        >>> F.relu(np.array([-2.0, 3.0], "float32")).numpy().tolist()
        [0.0, 3.0]
    """
    return op.nn.relu(input)


def relu6(input: Any, inplace: bool = False) -> Any:
    """min(max(x, 0), 6).

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.relu6(input)


def elu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where x > 0, else alpha·(eˣ - 1).

    Args:
        input: a tensor, or an array.
        alpha: the result tends to -alpha.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.elu(input, number("alpha", alpha))


def selu(input: Any, inplace: bool = False) -> Any:
    """1.0507·elu(x, 1.67326): Klambauer et al., Self-Normalizing Neural Networks, 2017.

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.selu(input)


def celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    """x where x > 0, else alpha·(e^(x/alpha) - 1).

    Args:
        input: a tensor, or an array.
        alpha: the result tends to -alpha.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.celu(input, number("alpha", alpha))


def gelu(input: Any, approximate: str = "none") -> Any:
    """x·Φ(x), Φ being the normal distribution; with ``approximate="tanh"`` its approximation by tanh.

    Args:
        input: a tensor, or an array.
        approximate: "none", or "tanh" for the approximation by tanh.

    Returns:
        a tensor of the input's shape.
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return op.nn.gelu(input) if approximate == "none" else op.nn.gelu_tanh(input)


def glu(input: Any, dim: int = -1) -> Any:
    """a·sigmoid(b) for the halves a and b along an axis of even size.

    Args:
        input: a tensor, or an array.
        dim: the axis; negative ones count from the end.

    Returns:
        a tensor with half as many elements along the axis.
    """
    return op.nn.glu(input, dim)


def hardshrink(input: Any, lambd: float = 0.5) -> Any:
    """x where |x| > lambd, else 0.

    Args:
        input: a tensor, or an array.
        lambd: the threshold, at least 0.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.hardshrink(input, number("lambd", lambd))


def hardsigmoid(input: Any, inplace: bool = False) -> Any:
    """relu6(x + 3) / 6.

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.hardsigmoid(input)


def hardswish(input: Any, inplace: bool = False) -> Any:
    """x·relu6(x + 3) / 6.

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.hardswish(input)


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    """min(max(x, min_val), max_val).

    Args:
        input: a tensor, or an array.
        min_val: the least result.
        max_val: the greatest result.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.hardtanh(input, number("min_val", min_val), number("max_val", max_val))


def leaky_relu(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    """x where x > 0, else negative_slope·x.

    Args:
        input: a tensor, or an array.
        negative_slope: the slope below 0.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.leakyrelu(input, number("negative_slope", negative_slope))


def logsigmoid(input: Any) -> Any:
    """log(sigmoid(x)), without overflow.

    Args:
        input: a tensor, or an array.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.logsigmoid(input)


def mish(input: Any, inplace: bool = False) -> Any:
    """x·tanh(log(1 + eˣ)).

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.mish(input)


def prelu(input: Any, weight: Any) -> Any:
    """x where x > 0, else weight·x: a weight (1,), or one for each channel, (C,), of axis 1.

    Args:
        input: a tensor, or an array.
        weight: the slope below 0: (1,), or (C,).

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.prelu(input, weight)


def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False) -> Any:
    """x where x > 0, else slope·x: with ``training``, steps draw a slope from [lower, upper) for each element, and
    ``predict`` takes their mean; else all take the mean. Xu et al., Empirical Evaluation of Rectified Activations,
    2015.

    Args:
        input: a tensor, or an array.
        lower: the least slope.
        upper: the slope below which all are drawn.
        training: whether steps of training draw slopes.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    low, high = number("lower", lower), number("upper", upper)
    if low > high:
        raise ArgumentError(f"lower must be at most upper, got {lower!r} and {upper!r}")
    expected = leaky_relu(input, (low + high) / 2)
    if not training:
        return expected
    slope = op.random.uniform(shape=input.shape, low=low, high=high, dtype=input.dtype)
    return in_train_phase(op.where(input > 0.0, input, input * slope), expected)


def silu(input: Any, inplace: bool = False) -> Any:
    """x·sigmoid(x), also called swish.

    Args:
        input: a tensor, or an array.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.silu(input)


def sigmoid(input: Any) -> Any:
    """1 / (1 + e⁻ˣ).

    Args:
        input: a tensor, or an array.

    Returns:
        a tensor of the input's shape.
    """
    return op.sigmoid(input)


def softplus(input: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """log(1 + e^(beta·x)) / beta, and x where beta·x > threshold.

    Args:
        input: a tensor, or an array.
        beta: the larger, the closer to relu.
        threshold: of beta·x, above which the result is x.

    Returns:
        a tensor of the input's shape.
    """
    if number("beta", beta) == 0:
        raise ArgumentError("beta cannot be 0", hint="such as 1.0")
    return op.nn.softplus(input, float(beta), number("threshold", threshold))


def softshrink(input: Any, lambd: float = 0.5) -> Any:
    """x moved by lambd towards 0, and 0 where |x| ≤ lambd.

    Args:
        input: a tensor, or an array.
        lambd: the threshold, at least 0.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.softshrink(input, number("lambd", lambd))


def softsign(input: Any) -> Any:
    """x / (1 + |x|).

    Args:
        input: a tensor, or an array.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.softsign(input)


def tanh(input: Any) -> Any:
    """The hyperbolic tangent.

    Args:
        input: a tensor, or an array.

    Returns:
        a tensor of the input's shape.
    """
    return op.tanh(input)


def tanhshrink(input: Any) -> Any:
    """x - tanh(x).

    Args:
        input: a tensor, or an array.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.tanhshrink(input)


def threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    """x where x > threshold, else value.

    Args:
        input: a tensor, or an array.
        threshold: above which x stays.
        value: the result elsewhere.
        inplace: accepted as in PyTorch, without effect: memory is planned by the compiler.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.threshold(input, number("threshold", threshold), number("value", value))


def softmax(input: Any, dim: int | None = None, *, dtype: str | None = None) -> Any:
    """exp(x) / Σ exp(x) along the axis ``dim``, without overflow; of ``input`` as ``dtype``, where one is given.

    Args:
        input: a tensor, or an array.
        dim: the axis; negative ones count from the end.
        dtype: to which the input is cast first.

    Returns:
        a tensor of the input's shape.

    Examples:
        >>> F.softmax(np.zeros((1, 4), "float32"), dim=1).numpy().tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """
    return op.nn.softmax(_as(input, dtype), _axis("softmax", input, dim))


def log_softmax(input: Any, dim: int | None = None, *, dtype: str | None = None) -> Any:
    """log softmax along the axis ``dim``; of ``input`` as ``dtype``, where one is given.

    Args:
        input: a tensor, or an array.
        dim: the axis; negative ones count from the end.
        dtype: to which the input is cast first.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.log_softmax(_as(input, dtype), _axis("log_softmax", input, dim))


def softmin(input: Any, dim: int | None = None, *, dtype: str | None = None) -> Any:
    """softmax(-x) along the axis ``dim``; of ``input`` as ``dtype``, where one is given.

    Args:
        input: a tensor, or an array.
        dim: the axis; negative ones count from the end.
        dtype: to which the input is cast first.

    Returns:
        a tensor of the input's shape.
    """
    return op.nn.softmin(_as(input, dtype), _axis("softmin", input, dim))


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """softmax((logits + g) / tau) along an axis, with g drawn from the Gumbel distribution in steps of training;
    ``predict`` draws nothing, and takes g = 0.

    Args:
        logits: of the classes.
        tau: the temperature.
        hard: whether results are one-hot, with the gradient of the soft ones.
        eps: what is added to a denominator, or below which it does not fall.
        dim: the axis; negative ones count from the end.

    Returns:
        a tensor of the input's shape.
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
