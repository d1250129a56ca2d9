"""Activations: elementwise ops of neural networks, with the formulas and the derivatives at kinks of PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback import tir
from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.elementwise.unary import sigmoid_array, sigmoid_scalar
from pullback.relax.op.family import (
    composite,
    elementwise_infer,
    expect_dtype,
    expect_holds,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    normalize_axis,
    unary,
    widened,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import sample
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape
from pullback.te.interpreter import erf as erf_array
from pullback.tir import call, select
from pullback.tir.arithmetic import maximum as array_maximum
from pullback.tir.arithmetic import minimum as array_minimum

relu = unary(
    "nn.relu",
    numpy=lambda x: np.where(x < 0, x.dtype.type(0), x),
    scalar=lambda x: select(x < 0, 0, x),  # one instruction, and NaN stays NaN
    dtypes="number",
    gradient=lambda y, x, dy: masked(y > 0.0, dy),
    precision="same",
    doc="max(x, 0); its derivative at 0 is 0, as in PyTorch.",
)
leakyrelu = unary(
    "nn.leakyrelu",
    attrs="alpha=0.01",
    numpy=lambda x, alpha: np.where(x > 0, x, x * x.dtype.type(alpha)),
    scalar=lambda x, alpha: select(x > 0, x, x * alpha),
    gradient=lambda y, x, dy, alpha: ops.where(x > 0.0, dy, dy * alpha),
    precision="same",
    doc="x where x > 0, else alpha·x.",
)
silu = unary(
    "nn.silu",
    numpy=lambda x: x * sigmoid_array(x),
    scalar=lambda x: x * sigmoid_scalar(x),
    gradient=lambda y, x, dy: dy * (ops.sigmoid(x) * (1.0 + x * (1.0 - ops.sigmoid(x)))),
    precision="same",
    doc="x · sigmoid(x), also called swish.",
)


def _gelu_gradient(y: Any, x: Any, dy: Any) -> Any:
    density = ops.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return dy * (0.5 * (1.0 + ops.erf(x * math.sqrt(0.5))) + x * density)


gelu = unary(
    "nn.gelu",
    numpy=lambda x: x * (0.5 * (1 + erf_array(x * x.dtype.type(math.sqrt(0.5))))),
    scalar=lambda x: x * (0.5 * (1.0 + call("erf", x * math.sqrt(0.5)))),
    gradient=_gelu_gradient,
    precision="same",
    doc="x · Φ(x) with the normal distribution Φ(x) = (1 + erf(x/√2)) / 2.",
)

_GELU_TANH = 2 * math.sqrt(2 / math.pi)  # (1 + tanh z) / 2 is sigmoid(2z), which loses nothing for negative z


def _gelu_tanh_gradient(y: Any, x: Any, dy: Any) -> Any:
    s = ops.sigmoid((x + x * x * x * 0.044715) * _GELU_TANH)
    inner = (1.0 + x * x * (3 * 0.044715)) * _GELU_TANH
    return dy * (s + x * (s * (1.0 - s)) * inner)


gelu_tanh = unary(
    "nn.gelu_tanh",
    numpy=lambda x: x * sigmoid_array((x + x * x * x * 0.044715) * _GELU_TANH),
    scalar=lambda x: x * sigmoid_scalar((x + x * x * x * 0.044715) * _GELU_TANH),
    gradient=_gelu_tanh_gradient,
    precision="same",
    doc="x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))): the approximation of gelu by tanh.",
)


def _softplus(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    z = x * x.dtype.type(beta)
    soft = (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / x.dtype.type(beta)
    return np.where(z > threshold, x, soft).astype(x.dtype)


def _softplus_scalar(x: tir.PrimExpr, beta: float, threshold: float) -> tir.PrimExpr:
    z = x * beta
    soft = (tir.maximum(z, 0.0) + call("log1p", call("exp", -call("abs", z)))) / beta
    return select(z > threshold, x, soft)


softplus = unary(
    "nn.softplus",
    attrs="beta=1.0, threshold=20.0",
    numpy=_softplus,
    scalar=_softplus_scalar,
    gradient=lambda y, x, dy, beta, threshold: (
        dy * ops.where(x * beta > threshold, ops.ones_like(x), ops.sigmoid(x * beta))
    ),
    doc="log(1 + e^(beta·x)) / beta, and x itself where beta·x > threshold, as in PyTorch.",
)

# -- with exponentials

logsigmoid = unary(
    "nn.logsigmoid",
    numpy=lambda x: np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))),
    scalar=lambda x: tir.minimum(x, 0.0) - call("log1p", call("exp", -call("abs", x))),
    gradient=lambda y, x, dy: dy * ops.sigmoid(-x),
    precision="same",
    doc="log(sigmoid(x)), without overflow.",
)


def _elu(x: np.ndarray, alpha: float, scale: float = 1.0, rate: float = 1.0) -> np.ndarray:
    """scale·(x where x > 0, else alpha·(e^(rate·x) - 1))."""
    kind = x.dtype.type
    return np.where(x > 0, x * kind(scale), np.expm1(np.where(x > 0, kind(0), x) * kind(rate)) * kind(alpha * scale))


def _elu_scalar(x: tir.PrimExpr, alpha: float, scale: float = 1.0, rate: float = 1.0) -> tir.PrimExpr:
    return select(x > 0, x * scale, call("expm1", x * rate) * (alpha * scale))


def _elu_gradient(x: Any, dy: Any, alpha: float, scale: float = 1.0, rate: float = 1.0) -> Any:
    """At 0 the derivative is that of the left side. What is masked is kept finite for the second derivative."""
    below = ops.exp(ops.minimum(x, 0.0) * rate) * (alpha * scale * rate)
    return dy * ops.where(x > 0.0, ops.full_like(x, scale), below)


elu = unary(
    "nn.elu",
    attrs="alpha=1.0",
    numpy=_elu,
    scalar=_elu_scalar,
    gradient=lambda y, x, dy, alpha: _elu_gradient(x, dy, alpha),
    precision="same",
    doc="x where x > 0, else alpha·(eˣ - 1); its derivative at 0 is alpha, as in PyTorch.",
    kinks=(0.0,),
)

_SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}

selu = unary(
    "nn.selu",
    numpy=lambda x: _elu(x, **_SELU),
    scalar=lambda x: _elu_scalar(x, **_SELU),
    gradient=lambda y, x, dy: _elu_gradient(x, dy, **_SELU),
    precision="same",
    doc="1.0507·elu(x, 1.67326): the constants of Klambauer et al., Self-Normalizing Neural Networks, 2017.",
    kinks=(0.0,),
)


def _celu_infer(x: TensorStructInfo, *, alpha: float) -> TensorStructInfo:
    if alpha == 0:
        raise UserError("nn.celu: alpha cannot be 0")
    return elementwise_infer("nn.celu", "float", None)(x)


celu = unary(
    "nn.celu",
    attrs="alpha=1.0",
    infer=_celu_infer,
    numpy=lambda x, alpha: _elu(x, alpha, rate=1 / alpha),
    scalar=lambda x, alpha: _elu_scalar(x, alpha, rate=1 / alpha),
    gradient=lambda y, x, dy, alpha: _elu_gradient(x, dy, alpha, rate=1 / alpha),
    precision="same",
    doc="x where x > 0, else alpha·(e^(x/alpha) - 1), whose derivative has no jump.",
    kinks=(0.0,),
)


def _mish_scalar(x: tir.PrimExpr) -> tir.PrimExpr:
    """With n = eˣ, tanh(log(1 + n)) is m / (m + 2) for m = n·(n + 2); it rounds to 1 from x = 20 on."""
    n = call("exp", tir.minimum(x, 20.0))
    m = n * (n + 2.0)
    return x * (m / (m + 2.0))


def _mish_gradient(y: Any, x: Any, dy: Any) -> Any:
    t = ops.tanh(ops.nn.softplus(x))
    return dy * (t + x * ops.sigmoid(x) * (1.0 - t * t))


mish = unary(
    "nn.mish",
    numpy=lambda x: x * np.tanh(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    scalar=_mish_scalar,
    gradient=_mish_gradient,
    precision="same",
    doc="x · tanh(log(1 + eˣ)).",
)
tanhshrink = unary(
    "nn.tanhshrink",
    numpy=lambda x: x - np.tanh(x),
    scalar=lambda x: x - call("tanh", x),
    gradient=lambda y, x, dy: dy * ops.square(ops.tanh(x)),
    precision="same",
    doc="x - tanh(x).",
)

# -- piecewise of degree one and two

softsign = unary(
    "nn.softsign",
    numpy=lambda x: x / (1 + np.abs(x)),
    scalar=lambda x: x / (call("abs", x) + 1.0),
    gradient=lambda y, x, dy: dy / ops.square(1.0 + ops.abs(x)),
    precision="same",
    doc="x / (1 + |x|).",
    kinks=(0.0,),
)


def _between(x: Any, low: float, high: float) -> Any:
    return ops.logical_and(x > low, x < high)


def _hardtanh_infer(x: TensorStructInfo, *, min_val: float, max_val: float) -> TensorStructInfo:
    if not min_val < max_val:
        raise UserError(f"nn.hardtanh: min_val must be below max_val, got {min_val!r} and {max_val!r}")
    return elementwise_infer("nn.hardtanh", "float", None)(x)


hardtanh = unary(
    "nn.hardtanh",
    attrs="min_val=-1.0, max_val=1.0",
    infer=_hardtanh_infer,
    numpy=lambda x, min_val, max_val: array_minimum(array_maximum(x, x.dtype.type(min_val)), x.dtype.type(max_val)),
    scalar=lambda x, min_val, max_val: tir.minimum(tir.maximum(x, min_val), max_val),
    gradient=lambda y, x, dy, min_val, max_val: masked(_between(x, min_val, max_val), dy),
    precision="same",
    doc="min(max(x, min_val), max_val); its derivative at the bounds is 0, as in PyTorch.",
    kinks=(-1.0, 1.0),
)
relu6 = unary(
    "nn.relu6",
    numpy=lambda x: array_minimum(array_maximum(x, x.dtype.type(0)), x.dtype.type(6)),
    scalar=lambda x: tir.minimum(tir.maximum(x, 0), 6),
    dtypes="number",
    gradient=lambda y, x, dy: masked(_between(x, 0.0, 6.0), dy),
    precision="same",
    doc="min(max(x, 0), 6); its derivative at 0 and 6 is 0, as in PyTorch.",
    domain=(-2.0, 9.0),
    kinks=(0.0, 6.0),
)
hardsigmoid = unary(
    "nn.hardsigmoid",
    numpy=lambda x: np.minimum(np.maximum(x + x.dtype.type(3), 0), 6) / x.dtype.type(6),
    scalar=lambda x: tir.minimum(tir.maximum(x + 3.0, 0.0), 6.0) / 6.0,
    gradient=lambda y, x, dy: masked(_between(x, -3.0, 3.0), dy / 6.0),
    precision="same",
    doc="relu6(x + 3) / 6; its derivative at ±3 is 0, as in PyTorch.",
    domain=(-5.0, 5.0),
    kinks=(-3.0, 3.0),
)
hardswish = unary(
    "nn.hardswish",
    numpy=lambda x: x * np.minimum(np.maximum(x + x.dtype.type(3), 0), 6) / x.dtype.type(6),
    scalar=lambda x: x * tir.minimum(tir.maximum(x + 3.0, 0.0), 6.0) / 6.0,
    gradient=lambda y, x, dy: ops.where(x >= 3.0, dy, masked(x > -3.0, dy * (x / 3.0 + 0.5))),
    precision="same",
    doc="x · relu6(x + 3) / 6; its derivative is 0 at -3 and 1 at 3, as in PyTorch.",
    domain=(-5.0, 5.0),
    kinks=(-3.0, 0.0, 3.0),
)


def _shrink_infer(name: str) -> Any:
    def infer(x: TensorStructInfo, *, lambd: float) -> TensorStructInfo:
        if lambd < 0:
            raise UserError(f"{name}: lambd cannot be negative, got {lambd!r}")
        return elementwise_infer(name, "float", None)(x)

    return infer


def _outside(y: Any, x: Any, dy: Any, lambd: float) -> Any:
    return masked(ops.abs(x) > lambd, dy)


softshrink = unary(
    "nn.softshrink",
    attrs="lambd=0.5",
    infer=_shrink_infer("nn.softshrink"),
    numpy=lambda x, lambd: x - np.minimum(np.maximum(x, x.dtype.type(-lambd)), x.dtype.type(lambd)),
    scalar=lambda x, lambd: x - tir.minimum(tir.maximum(x, -lambd), lambd),
    gradient=_outside,
    precision="same",
    doc="x moved by lambd towards 0, and 0 where |x| ≤ lambd; the derivative at ±lambd is 0, as in PyTorch.",
    kinks=(-0.5, 0.0, 0.5),
)
hardshrink = unary(
    "nn.hardshrink",
    attrs="lambd=0.5",
    infer=_shrink_infer("nn.hardshrink"),
    numpy=lambda x, lambd: np.where(np.abs(x) <= x.dtype.type(lambd), x.dtype.type(0), x),
    scalar=lambda x, lambd: select(call("abs", x) <= lambd, 0.0, x),
    gradient=_outside,
    precision="same",
    doc="x where |x| > lambd, else 0.",
    kinks=(-0.5, 0.0, 0.5),
)


def _threshold_infer(x: TensorStructInfo, *, threshold: Any, value: Any) -> TensorStructInfo:
    for name, number in (("threshold", threshold), ("value", value)):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise UserError(f"nn.threshold: {name} must be a number, got {number!r}")
    expect_holds("nn.threshold", "value", value, x.dtype)
    return elementwise_infer("nn.threshold", "float", None)(x)


threshold = unary(
    "nn.threshold",
    attrs="threshold, value",
    infer=_threshold_infer,
    numpy=lambda x, threshold, value: np.where(x <= x.dtype.type(threshold), x.dtype.type(value), x),
    scalar=lambda x, threshold, value: select(x <= threshold, value, x),
    gradient=lambda y, x, dy, threshold, value: masked(x > threshold, dy),
    precision="same",
    doc="x where x > threshold, else value.",
    samples=[
        sample((3, 17), threshold=0.5, value=-1.0),
        sample((0,), threshold=0.0, value=0.0),
        sample((129,), threshold=-1, value=2),
        sample((2, 1, 5), threshold=0.0, value=0.0),
        sample([0.5, 0.25, 1.0], threshold=0.5, value=3.0, smooth=False),
    ],
)


# -- with a weight, or along an axis


def _prelu_check(x: TensorStructInfo, weight: TensorStructInfo, *, axis: int, **_: Any) -> None:
    shape, own = known_shape("nn.prelu", x, "x"), known_shape("nn.prelu", weight, "weight")
    for label, info in (("x", x), ("weight", weight)):
        expect_dtype("nn.prelu", info, "float", label)
    expect_same_dtype("nn.prelu", x, weight)
    if same_shape(own, (1,)):
        return
    at = normalize_axis("nn.prelu", axis, len(shape))
    if not same_shape(own, (shape[at],)):
        wanted = format_shape((shape[at],))
        raise ShapeError(f"nn.prelu: weight must have the shape {wanted} or (1,), got {format_shape(own)}")


def _prelu(x: Any, weight: Any, *, axis: int, **_: Any) -> Any:
    if not same_shape(weight.shape, (1,)):
        at = normalize_axis("nn.prelu", axis, len(x.shape))
        weight = ops.reshape(weight, tuple(s if a == at else 1 for a, s in enumerate(x.shape)))
    else:
        weight = ops.squeeze(weight, 0)
    return ops.where(x > 0.0, x, x * weight)


def _prelu_array(x: np.ndarray, weight: np.ndarray, *, axis: int) -> np.ndarray:
    lone = weight.shape == (1,)
    w = weight[0] if lone else weight.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
    return np.where(x > 0, x, x * w)


composite(
    "nn.prelu",
    "x, weight | axis=1",
    expect=_prelu_check,
    decompose=_prelu,
    numpy=in_wide(_prelu_array),
    precision="same",
    family="activation",
    doc="x where x > 0, else weight·x, with one weight, (1,), or one for each position along the axis, by default\n"
    "the channels. PyTorch's prelu.",
    samples=[
        sample((3, 4), (4,)),
        sample((2, 3, 5), (3,)),
        sample((2, 3, 5), (1,), axis=-1),
        sample((2, 5), (2,), axis=0),
        sample((7,), (7,), axis=-1),
        sample((), (1,)),
        sample((0, 3), (3,)),
        sample([[0.0, -1.0]], [0.5, 0.25], smooth=False),
    ],
)


def _glu_check(x: TensorStructInfo, *, axis: int) -> None:
    shape = known_shape("nn.glu", x)
    expect_dtype("nn.glu", x, "float")
    size = shape[normalize_axis("nn.glu", axis, len(shape))]
    if not isinstance(size, int) or size % 2:
        raise ShapeError(f"nn.glu: axis {axis} must have an even size that is known, got {size}")


def _half(x: Any, axis: int, part: int) -> Any:
    """The first or second half of x along an axis of even size."""
    half = x.shape[normalize_axis("nn.glu", axis, len(x.shape))] // 2
    return ops.strided_slice(x, [axis], [part * half], [(part + 1) * half])


def _glu(x: Any, *, axis: int, **_: Any) -> Any:
    first, second = (widened(_half(x, axis, k)) for k in range(2))
    return narrowed(first * ops.sigmoid(second), x.dtype)


composite(
    "nn.glu",
    "x | axis=-1",
    expect=_glu_check,
    decompose=_glu,
    numpy=in_wide(lambda x, axis: np.split(x, 2, axis)[0] * sigmoid_array(np.split(x, 2, axis)[1])),
    precision="same",
    family="activation",
    doc="a · sigmoid(b) for the halves a and b of x along an axis of even size: the gated linear unit.",
    samples=[sample((3, 8)), sample((4, 3), axis=0), sample((2, 6, 5), axis=-2), sample((0, 2)), sample((2,))],
)


def _softmin_check(x: TensorStructInfo, *, axis: int) -> None:
    normalize_axis("nn.softmin", axis, len(known_shape("nn.softmin", x)))
    expect_dtype("nn.softmin", x, "float")


def _softmin_array(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(np.min(x, axis, keepdims=True, initial=np.inf) - x)
    return e / np.sum(e, axis, keepdims=True)


composite(
    "nn.softmin",
    "x | axis=-1",
    expect=_softmin_check,
    decompose=lambda x, *, axis, **_: ops.nn.softmax(-x, axis),
    numpy=in_wide(_softmin_array),
    family="softmax",
    doc="softmax(-x) along an axis.",
    samples=[sample((3, 17)), sample((2, 3, 4), axis=1), sample((5,), axis=0), sample((0, 3))],
)
