"""Elementwise ops of one tensor: y[i] = f(x[i])."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback import tir
from pullback.ir.errors import DTypeError, UserError
from pullback.ir.op import define
from pullback.relax.op.family import elementwise_infer, elementwise_te, known_shape, masked, unary
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo
from pullback.te.interpreter import cast_array
from pullback.te.interpreter import erf as erf_array
from pullback.tir import call, select
from pullback.tir.expr import DTYPES, INTEGERS, is_float


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def _sigmoid_scalar(x: tir.PrimExpr) -> tir.PrimExpr:
    e = call("exp", call("abs", x) * -1)
    return select(x >= 0, tir.as_expr(1.0, x.dtype), e) / (e + 1.0)


def _sign_scalar(x: tir.PrimExpr) -> tir.PrimExpr:
    return select(x > 0, 1, select(x < 0, tir.const(-1, x.dtype), x))  # keeps NaN and zeros


abs = unary(
    "abs",
    numpy=np.abs,
    scalar=lambda x: call("abs", x),
    dtypes="number",
    gradient=lambda y, x, dy: dy * ops.sign(x),
    doc="|x|.",
)
negative = unary(
    "negative", numpy=np.negative, scalar=lambda x: -x, dtypes="number", gradient=lambda y, x, dy: -dy, doc="-x."
)
sign = unary("sign", numpy=np.sign, scalar=_sign_scalar, dtypes="number", doc="-1, 0 or 1, by the sign of x.")
square = unary(
    "square",
    numpy=np.square,
    scalar=lambda x: x * x,
    dtypes="number",
    gradient=lambda y, x, dy: dy * x * 2.0,
    doc="x·x.",
)
sqrt = unary(
    "sqrt",
    numpy=np.sqrt,
    scalar=lambda x: call("sqrt", x),
    gradient=lambda y, x, dy: dy * 0.5 / y,
    domain=(0.1, 4),
    doc="√x; NaN for negative x.",
)
rsqrt = unary(
    "rsqrt",
    numpy=lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    scalar=lambda x: call("rsqrt", x),
    gradient=lambda y, x, dy: dy * -0.5 * y * y * y,
    domain=(0.1, 4),
    doc="1/√x.",
)
exp = unary("exp", numpy=np.exp, scalar=lambda x: call("exp", x), gradient=lambda y, x, dy: dy * y, doc="eˣ.")
expm1 = unary(
    "expm1",
    numpy=np.expm1,
    scalar=lambda x: call("expm1", x),
    gradient=lambda y, x, dy: dy * (y + 1.0),
    doc="eˣ - 1, exact near 0.",
)
log = unary(
    "log",
    numpy=np.log,
    scalar=lambda x: call("log", x),
    gradient=lambda y, x, dy: dy / x,
    domain=(0.1, 4),
    doc="The natural logarithm.",
)
log2 = unary(
    "log2",
    numpy=np.log2,
    scalar=lambda x: call("log2", x),
    gradient=lambda y, x, dy: dy / (x * math.log(2)),
    domain=(0.1, 4),
    doc="The logarithm to base 2.",
)
log10 = unary(
    "log10",
    numpy=np.log10,
    scalar=lambda x: call("log10", x),
    gradient=lambda y, x, dy: dy / (x * math.log(10)),
    domain=(0.1, 4),
    doc="The logarithm to base 10.",
)
log1p = unary(
    "log1p",
    numpy=np.log1p,
    scalar=lambda x: call("log1p", x),
    gradient=lambda y, x, dy: dy / (x + 1.0),
    domain=(-0.9, 4),
    doc="log(1 + x), exact near 0.",
)
sin = unary(
    "sin",
    numpy=np.sin,
    scalar=lambda x: call("sin", x),
    gradient=lambda y, x, dy: dy * ops.cos(x),
    doc="Sine of x in radians.",
)
cos = unary(
    "cos",
    numpy=np.cos,
    scalar=lambda x: call("cos", x),
    gradient=lambda y, x, dy: -(dy * ops.sin(x)),
    doc="Cosine of x in radians.",
)
tan = unary(
    "tan",
    numpy=np.tan,
    scalar=lambda x: call("tan", x),
    gradient=lambda y, x, dy: dy * (y * y + 1.0),
    domain=(-1.4, 1.4),
    doc="Tangent of x in radians.",
)
asin = unary(
    "asin",
    numpy=np.arcsin,
    scalar=lambda x: call("asin", x),
    gradient=lambda y, x, dy: dy * ops.rsqrt(1.0 - x * x),
    domain=(-0.9, 0.9),
    doc="Inverse sine.",
)
acos = unary(
    "acos",
    numpy=np.arccos,
    scalar=lambda x: call("acos", x),
    gradient=lambda y, x, dy: -(dy * ops.rsqrt(1.0 - x * x)),
    domain=(-0.9, 0.9),
    doc="Inverse cosine.",
)
atan = unary(
    "atan",
    numpy=np.arctan,
    scalar=lambda x: call("atan", x),
    gradient=lambda y, x, dy: dy / (x * x + 1.0),
    doc="Inverse tangent.",
)
sinh = unary(
    "sinh",
    numpy=np.sinh,
    scalar=lambda x: call("sinh", x),
    gradient=lambda y, x, dy: dy * ops.cosh(x),
    doc="Hyperbolic sine.",
)
cosh = unary(
    "cosh",
    numpy=np.cosh,
    scalar=lambda x: call("cosh", x),
    gradient=lambda y, x, dy: dy * ops.sinh(x),
    doc="Hyperbolic cosine.",
)
tanh = unary(
    "tanh",
    numpy=np.tanh,
    scalar=lambda x: call("tanh", x),
    gradient=lambda y, x, dy: dy * (1.0 - y * y),
    doc="Hyperbolic tangent.",
)
asinh = unary(
    "asinh",
    numpy=np.arcsinh,
    scalar=lambda x: call("asinh", x),
    gradient=lambda y, x, dy: dy * ops.rsqrt(x * x + 1.0),
    doc="Inverse hyperbolic sine.",
)
acosh = unary(
    "acosh",
    numpy=np.arccosh,
    scalar=lambda x: call("acosh", x),
    gradient=lambda y, x, dy: dy * ops.rsqrt(x * x - 1.0),
    domain=(1.1, 4),
    doc="Inverse hyperbolic cosine.",
)
atanh = unary(
    "atanh",
    numpy=np.arctanh,
    scalar=lambda x: call("atanh", x),
    gradient=lambda y, x, dy: dy / (1.0 - x * x),
    domain=(-0.9, 0.9),
    doc="Inverse hyperbolic tangent.",
)
erf = unary(
    "erf",
    numpy=erf_array,
    scalar=lambda x: call("erf", x),
    gradient=lambda y, x, dy: dy * (ops.exp(-(x * x)) * (2 / math.sqrt(math.pi))),
    doc="The error function.",
)
sigmoid = unary(
    "sigmoid",
    numpy=_sigmoid,
    scalar=_sigmoid_scalar,
    gradient=lambda y, x, dy: dy * y * (1.0 - y),
    doc="1 / (1 + e⁻ˣ), without overflow.",
)
floor = unary("floor", numpy=np.floor, scalar=lambda x: call("floor", x), doc="The largest integer ≤ x.")
ceil = unary("ceil", numpy=np.ceil, scalar=lambda x: call("ceil", x), doc="The smallest integer ≥ x.")
round = unary("round", numpy=np.round, scalar=lambda x: call("round", x), doc="The nearest integer, ties to even.")
trunc = unary("trunc", numpy=np.trunc, scalar=lambda x: call("trunc", x), doc="x without its fraction.")
isnan = unary("isnan", numpy=np.isnan, scalar=lambda x: call("isnan", x), result="bool", doc="Whether x is NaN.")
isinf = unary(
    "isinf", numpy=np.isinf, scalar=lambda x: call("isinf", x), result="bool", doc="Whether x is an infinity."
)
isfinite = unary(
    "isfinite",
    numpy=np.isfinite,
    scalar=lambda x: call("isfinite", x),
    result="bool",
    doc="Whether x is neither NaN nor infinite.",
)
logical_not = unary("logical_not", numpy=np.logical_not, scalar=lambda x: ~x, dtypes="bool", doc="Not x.")
bitwise_not = unary(
    "bitwise_not", numpy=np.bitwise_not, scalar=lambda x: ~x, dtypes="integer or bool", doc="All bits of x inverted."
)


# -- with attributes


def _clip_infer(x: TensorStructInfo, *, min: Any, max: Any) -> TensorStructInfo:
    for name, bound in (("min", min), ("max", max)):
        if isinstance(bound, bool) or not isinstance(bound, (int, float)):
            raise UserError(f"clip: {name} must be a number, got {bound!r}")
        if isinstance(bound, float) and x.dtype in INTEGERS:
            raise DTypeError(f"clip: {name}={bound!r} does not fit the {x.dtype} tensor")
    return elementwise_infer("clip", "number", None)(x)


clip = unary(
    "clip",
    attrs="min, max",
    infer=_clip_infer,
    numpy=lambda x, min, max: np.minimum(np.maximum(x, x.dtype.type(min)), x.dtype.type(max)),
    scalar=lambda x, min, max: tir.minimum(tir.maximum(x, min), max),
    dtypes="number",
    gradient=lambda y, x, dy, min, max: masked(ops.logical_and(x >= min, x <= max), dy),
    doc="min(max(x, min), max): x kept between two numbers; its derivative at the bounds is 1, as in PyTorch.",
    samples=[
        sample((3, 17), min=-1.0, max=0.5),
        sample((0,), min=0.0, max=1.0),
        sample(Ints((7,), -5, 5), min=-2, max=3),
    ],
)


def _astype_infer(x: TensorStructInfo, *, dtype: str) -> TensorStructInfo:
    if dtype not in DTYPES:
        raise DTypeError(f"astype: unknown dtype {dtype!r}", hint=f"the dtypes are {', '.join(DTYPES)}")
    return TensorStructInfo(known_shape("astype", x), dtype)


define(
    "astype",
    "x | dtype",
    infer=_astype_infer,
    te=lambda x, *, dtype: elementwise_te(lambda e: tir.cast(dtype, e), "astype")(x),
    numpy=lambda x, *, dtype: cast_array(x, dtype),
    gradient=lambda dy, y, x, *, dtype: (dy.astype(x.dtype) if is_float(x.dtype) and is_float(dtype) else None,),
    family="astype",
    doc="x with another element type. Float to integer truncates and saturates, and NaN becomes 0; to bool is x ≠ 0.\n"
    "The adjoint is cast back; through integers and bools there is none.",
    samples=[
        sample((3, 17), dtype="float64"),
        sample((3, 5), dtype="float32", smooth=False),
        sample((0,), dtype="float16", smooth=False),
        sample((9,), dtype="int32"),
        sample([1e30, -1e30, float("nan"), -1.7, 0.0, 300.0], dtype="int8"),
        sample([0.0, -0.0, 0.5, float("nan")], dtype="bool"),
        sample(Ints((4, 3), -3, 3), dtype="float64"),
    ],
)

# -- activations

relu = unary(
    "nn.relu",
    numpy=lambda x: np.where(x < 0, x.dtype.type(0), x),
    scalar=lambda x: select(x < 0, 0, x),  # one instruction, and NaN stays NaN
    dtypes="number",
    gradient=lambda y, x, dy: masked(y > 0.0, dy),
    doc="max(x, 0); its derivative at 0 is 0, as in PyTorch.",
)
leakyrelu = unary(
    "nn.leakyrelu",
    attrs="alpha=0.01",
    numpy=lambda x, alpha: np.where(x > 0, x, x * x.dtype.type(alpha)),
    scalar=lambda x, alpha: select(x > 0, x, x * alpha),
    gradient=lambda y, x, dy, alpha: ops.where(x > 0.0, dy, dy * alpha),
    doc="x where x > 0, else alpha·x.",
)
silu = unary(
    "nn.silu",
    numpy=lambda x: x * _sigmoid(x),
    scalar=lambda x: x * _sigmoid_scalar(x),
    gradient=lambda y, x, dy: dy * (ops.sigmoid(x) * (1.0 + x * (1.0 - ops.sigmoid(x)))),
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
    doc="x · Φ(x) with the normal distribution Φ(x) = (1 + erf(x/√2)) / 2.",
)

_GELU_TANH = 2 * math.sqrt(2 / math.pi)  # (1 + tanh z) / 2 is sigmoid(2z), which loses nothing for negative z


def _gelu_tanh_gradient(y: Any, x: Any, dy: Any) -> Any:
    s = ops.sigmoid((x + x * x * x * 0.044715) * _GELU_TANH)
    inner = (1.0 + x * x * (3 * 0.044715)) * _GELU_TANH
    return dy * (s + x * (s * (1.0 - s)) * inner)


gelu_tanh = unary(
    "nn.gelu_tanh",
    numpy=lambda x: x * _sigmoid((x + x * x * x * 0.044715) * _GELU_TANH),
    scalar=lambda x: x * _sigmoid_scalar((x + x * x * x * 0.044715) * _GELU_TANH),
    gradient=_gelu_tanh_gradient,
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
