"""Activations, and softmax in its several forms."""

from __future__ import annotations

from typing import Any

from pullback.nn import functional as F
from pullback.relax import op
from pullback.relax.frontend.torch.aten.promotion import as_dtype, floating, tensor
from pullback.relax.frontend.torch.table import ATEN
from pullback.tir.expr import is_float

ATEN.same(
    {
        "aten.relu6": op.nn.relu6,
        "aten.silu": op.nn.silu,
        "aten.mish": op.nn.mish,
        "aten.hardsigmoid": op.nn.hardsigmoid,
        "aten.hardswish": op.nn.hardswish,
        "aten.log_sigmoid": op.nn.logsigmoid,
        "aten.selu": op.nn.selu,
        "aten.celu": lambda x, alpha=1.0: op.nn.celu(x, float(alpha)),
        "aten.leaky_relu": lambda x, negative_slope=0.01: op.nn.leakyrelu(x, float(negative_slope)),
        "aten.hardshrink": lambda x, lambd=0.5: op.nn.hardshrink(x, float(lambd)),
        "aten.softshrink": lambda x, lambd=0.5: op.nn.softshrink(x, float(lambd)),
        "aten.softplus": lambda x, beta=1, threshold=20: op.nn.softplus(x, float(beta), float(threshold)),
        "aten.glu": lambda x, dim=-1: op.nn.glu(x, dim),
    }
)


@ATEN.register("aten.gelu")
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x)


@ATEN.register("aten.hardtanh")
def hardtanh(x: Any, min_val: Any = -1, max_val: Any = 1) -> Any:
    if not is_float(x.dtype):
        return op.minimum(op.maximum(x, tensor(min_val, x.dtype)), tensor(max_val, x.dtype))
    return op.nn.hardtanh(x, float(min_val), float(max_val))


@ATEN.register("aten.elu")
def elu(x: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if input_scale != 1:
        below = op.expm1(x * float(input_scale)) * (float(alpha) * float(scale))
        return op.where(op.greater(x, tensor(0, x.dtype)), x * float(scale), below)
    result = op.nn.elu(x, float(alpha))
    return result if scale == 1 else result * float(scale)


@ATEN.register("aten.threshold")
def threshold(x: Any, threshold: Any, value: Any) -> Any:
    if not is_float(x.dtype):
        return op.where(op.greater(x, tensor(threshold, x.dtype)), x, tensor(value, x.dtype))
    return op.nn.threshold(x, float(threshold), float(value))


ATEN.same({"aten.prelu": F.prelu, "aten._prelu_kernel": lambda x, weight: _prelu_kernel(x, weight)})


def _prelu_kernel(x: Any, weight: Any) -> Any:
    """The weight broadcasts."""
    return op.where(op.greater(x, tensor(0, x.dtype)), x, x * weight)


@ATEN.register("aten.rrelu")
def rrelu(x: Any, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False) -> Any:
    return F.rrelu(x, float(lower), float(upper), training)


@ATEN.register("aten.log_sigmoid_forward")
def log_sigmoid_forward(x: Any) -> Any:
    return op.nn.logsigmoid(x), op.exp(op.negative(op.abs(x)))


# -- softmax


@ATEN.register("aten.softmax", "aten.special_softmax")
def softmax(x: Any, dim: int, dtype: str | None = None) -> Any:
    x = floating(as_dtype(x, dtype))
    return op.nn.softmax(x, dim) if len(x.shape) else op.ones_like(x)


@ATEN.register("aten.log_softmax", "aten.special_log_softmax")
def log_softmax(x: Any, dim: int, dtype: str | None = None) -> Any:
    x = floating(as_dtype(x, dtype))
    return op.nn.log_softmax(x, dim) if len(x.shape) else op.zeros_like(x)


ATEN.same(
    {
        "aten._softmax": lambda x, dim, half_to_float=False: softmax(x, dim, "float32" if half_to_float else None),
        "aten._log_softmax": lambda x, dim, half_to_float=False: log_softmax(
            x, dim, "float32" if half_to_float else None
        ),
        "aten.softmin": lambda x, dim, dtype=None: softmax(op.negative(as_dtype(x, dtype)), dim),
    }
)


@ATEN.register("aten._safe_softmax")
def safe_softmax(x: Any, dim: int, dtype: str | None = None) -> Any:
    """softmax, and 0 along lines that are all -inf."""
    x = floating(as_dtype(x, dtype))
    masked = op.all(op.equal(x, tensor(float("-inf"), x.dtype)), dim, True)
    return op.where(masked, tensor(0.0, x.dtype), op.nn.softmax(op.where(masked, tensor(0.0, x.dtype), x), dim))
