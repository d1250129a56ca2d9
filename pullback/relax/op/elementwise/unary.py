"""Elementwise ops of one tensor: y[i] = f(x[i])."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError, UserError
from pullback.ir.op import define
from pullback.relax.op.family import elementwise_infer, elementwise_te, expect_holds, known_shape, masked, unary
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo
from pullback.runtime.dtype import numpy_dtype
from pullback.te.interpreter import cast_array
from pullback.te.interpreter import erf as erf_array
from pullback.tir import call, select
from pullback.tir.arithmetic import maximum as array_maximum
from pullback.tir.arithmetic import minimum as array_minimum
from pullback.tir.expr import DTYPES, INTEGERS, is_float, is_signed


def sigmoid_array(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype)


def sigmoid_scalar(x: tir.PrimExpr) -> tir.PrimExpr:
    """p / (1 + e) with e = exp(-|x|) and p = 1 or e, corrected by what the addition lost (2.2 ulp without, 1.97 with):
    p / (s + t) = r - r·t / s + O(t²), where 1 / s may be as rough as a line."""
    e = call("exp", call("abs", x) * -1)
    s = e + 1.0
    t = e - (s - 1.0)  # exactly, as e ≤ 1
    r = select(x >= 0, tir.as_expr(1.0, x.dtype), e) / s
    return r - r * t * (1.5 - s * 0.5)


def _sign_scalar(x: tir.PrimExpr) -> tir.PrimExpr:
    below = select(x < 0, tir.const(-1, x.dtype), x + 0) if is_signed(x.dtype) or is_float(x.dtype) else x
    return select(x > 0, 1, below)  # keeps NaN, and makes 0 of -0


abs = unary(
    "abs",
    numpy=np.abs,
    scalar=lambda x: call("abs", x),
    dtypes="number",
    gradient=lambda y, x, dy: dy * ops.sign(x),
    precision="same",
    doc="|x|.",
)
negative = unary(
    "negative",
    numpy=np.negative,
    scalar=lambda x: -x,
    dtypes="number",
    gradient=lambda y, x, dy: -dy,
    precision="same",
    doc="-x.",
)
sign = unary(
    "sign", numpy=np.sign, scalar=_sign_scalar, dtypes="number", precision="same", doc="-1, 0 or 1, by the sign of x."
)
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
    singular=True,
    domain=(0.1, 4),
    doc="√x; NaN for negative x.",
)
rsqrt = unary(
    "rsqrt",
    numpy=lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    scalar=lambda x: call("rsqrt", x),
    gradient=lambda y, x, dy: dy * -0.5 * y * y * y,
    singular=True,
    domain=(0.1, 4),
    doc="1/√x.",
)
reciprocal = unary(
    "reciprocal",
    numpy=lambda x: x.dtype.type(1) / x,
    scalar=lambda x: 1.0 / x,
    gradient=lambda y, x, dy: -(dy * y * y),
    singular=True,
    domain=(0.2, 3.0),
    doc="1/x.",
)
exp = unary(
    "exp",
    numpy=np.exp,
    scalar=lambda x: call("exp", x),
    gradient=lambda y, x, dy: dy * y,
    singular=True,
    doc="eˣ.",
)
exp2 = unary(
    "exp2",
    numpy=np.exp2,
    scalar=lambda x: call("exp2", x),
    gradient=lambda y, x, dy: dy * y * math.log(2),
    singular=True,
    doc="2ˣ.",
)
expm1 = unary(
    "expm1",
    numpy=np.expm1,
    scalar=lambda x: call("expm1", x),
    gradient=lambda y, x, dy: dy * (y + 1.0),
    singular=True,
    doc="eˣ - 1, exact near 0.",
)
log = unary(
    "log",
    numpy=np.log,
    scalar=lambda x: call("log", x),
    gradient=lambda y, x, dy: dy / x,
    singular=True,
    domain=(0.1, 4),
    doc="The natural logarithm.",
)
log2 = unary(
    "log2",
    numpy=np.log2,
    scalar=lambda x: call("log2", x),
    gradient=lambda y, x, dy: dy / (x * math.log(2)),
    singular=True,
    domain=(0.1, 4),
    doc="The logarithm to base 2.",
)
log10 = unary(
    "log10",
    numpy=np.log10,
    scalar=lambda x: call("log10", x),
    gradient=lambda y, x, dy: dy / (x * math.log(10)),
    singular=True,
    domain=(0.1, 4),
    doc="The logarithm to base 10.",
)
log1p = unary(
    "log1p",
    numpy=np.log1p,
    scalar=lambda x: call("log1p", x),
    gradient=lambda y, x, dy: dy / (x + 1.0),
    singular=True,
    domain=(-0.9, 4),
    doc="log(1 + x), exact near 0.",
)
sin = unary(
    "sin",
    numpy=np.sin,
    scalar=lambda x: call("sin", x),
    gradient=lambda y, x, dy: dy * ops.cos(x),
    precision="same",
    doc="Sine of x in radians.",
)
cos = unary(
    "cos",
    numpy=np.cos,
    scalar=lambda x: call("cos", x),
    gradient=lambda y, x, dy: -(dy * ops.sin(x)),
    precision="same",
    doc="Cosine of x in radians.",
)
tan = unary(
    "tan",
    numpy=np.tan,
    scalar=lambda x: call("tan", x),
    gradient=lambda y, x, dy: dy * (y * y + 1.0),
    singular=True,
    domain=(-1.4, 1.4),
    doc="Tangent of x in radians.",
)


def _sinc(x: np.ndarray) -> np.ndarray:
    angle = np.where(x == 0, x.dtype.type(1), x * x.dtype.type(math.pi))
    return np.where(x == 0, x.dtype.type(1), np.sin(angle) / angle)


def _sinc_gradient(y: Any, x: Any, dy: Any) -> Any:
    """(cos(πx) - y) / x, and 0 at 0; what is masked is kept finite for the second derivative."""
    zero = ops.equal(x, 0.0)
    safe = ops.where(zero, ops.ones_like(x), x)
    angle = safe * math.pi
    slope = (ops.cos(angle) - ops.sin(angle) / angle) / safe
    return masked(ops.logical_not(zero), dy * slope)


sinc = unary(
    "sinc",
    numpy=_sinc,
    scalar=lambda x: select(x.equal(0.0), 1.0, call("sin", x * math.pi) / (x * math.pi)),
    gradient=_sinc_gradient,
    doc="sin(πx) / (πx), and 1 at 0.",
    kinks=(0.0,),
)
asin = unary(
    "asin",
    numpy=np.arcsin,
    scalar=lambda x: call("asin", x),
    gradient=lambda y, x, dy: dy * ops.rsqrt(1.0 - x * x),
    singular=True,
    domain=(-0.9, 0.9),
    doc="Inverse sine.",
)
acos = unary(
    "acos",
    numpy=np.arccos,
    scalar=lambda x: call("acos", x),
    gradient=lambda y, x, dy: -(dy * ops.rsqrt(1.0 - x * x)),
    singular=True,
    domain=(-0.9, 0.9),
    doc="Inverse cosine.",
)
atan = unary(
    "atan",
    numpy=np.arctan,
    scalar=lambda x: call("atan", x),
    gradient=lambda y, x, dy: dy / (x * x + 1.0),
    precision="same",
    doc="Inverse tangent.",
)
sinh = unary(
    "sinh",
    numpy=np.sinh,
    scalar=lambda x: call("sinh", x),
    gradient=lambda y, x, dy: dy * ops.cosh(x),
    singular=True,
    doc="Hyperbolic sine.",
)
cosh = unary(
    "cosh",
    numpy=np.cosh,
    scalar=lambda x: call("cosh", x),
    gradient=lambda y, x, dy: dy * ops.sinh(x),
    singular=True,
    doc="Hyperbolic cosine.",
)
tanh = unary(
    "tanh",
    numpy=np.tanh,
    scalar=lambda x: call("tanh", x),
    gradient=lambda y, x, dy: dy * (1.0 - y * y),
    precision="same",
    doc="Hyperbolic tangent.",
)
asinh = unary(
    "asinh",
    numpy=np.arcsinh,
    scalar=lambda x: call("asinh", x),
    gradient=lambda y, x, dy: dy * ops.rsqrt(x * x + 1.0),
    precision="same",
    doc="Inverse hyperbolic sine.",
)
acosh = unary(
    "acosh",
    numpy=np.arccosh,
    scalar=lambda x: call("acosh", x),
    gradient=lambda y, x, dy: dy * ops.rsqrt(x * x - 1.0),
    singular=True,
    domain=(1.1, 4),
    doc="Inverse hyperbolic cosine.",
)
atanh = unary(
    "atanh",
    numpy=np.arctanh,
    scalar=lambda x: call("atanh", x),
    gradient=lambda y, x, dy: dy / (1.0 - x * x),
    singular=True,
    domain=(-0.9, 0.9),
    doc="Inverse hyperbolic tangent.",
)
erf = unary(
    "erf",
    numpy=erf_array,
    scalar=lambda x: call("erf", x),
    gradient=lambda y, x, dy: dy * (ops.exp(-(x * x)) * (2 / math.sqrt(math.pi))),
    precision="same",
    doc="The error function.",
)
sigmoid = unary(
    "sigmoid",
    numpy=sigmoid_array,
    scalar=sigmoid_scalar,
    gradient=lambda y, x, dy: dy * y * (1.0 - y),
    precision="same",
    doc="1 / (1 + e⁻ˣ), without overflow.",
)
floor = unary(
    "floor", numpy=np.floor, scalar=lambda x: call("floor", x), precision="same", doc="The largest integer ≤ x."
)
ceil = unary("ceil", numpy=np.ceil, scalar=lambda x: call("ceil", x), precision="same", doc="The smallest integer ≥ x.")
round = unary(
    "round",
    numpy=np.round,
    scalar=lambda x: call("round", x),
    precision="same",
    doc="The nearest integer, ties to even.",
)
trunc = unary(
    "trunc", numpy=np.trunc, scalar=lambda x: call("trunc", x), precision="same", doc="x without its fraction."
)
isnan = unary(
    "isnan", numpy=np.isnan, scalar=lambda x: call("isnan", x), result="bool", precision="same", doc="Whether x is NaN."
)
isinf = unary(
    "isinf",
    numpy=np.isinf,
    scalar=lambda x: call("isinf", x),
    result="bool",
    precision="same",
    doc="Whether x is an infinity.",
)
isfinite = unary(
    "isfinite",
    numpy=np.isfinite,
    scalar=lambda x: call("isfinite", x),
    result="bool",
    precision="same",
    doc="Whether x is neither NaN nor infinite.",
)
logical_not = unary("logical_not", numpy=np.logical_not, scalar=lambda x: ~x, dtypes="bool", doc="Not x.")
bitwise_not = unary(
    "bitwise_not", numpy=np.bitwise_not, scalar=lambda x: ~x, dtypes="integer or bool", doc="All bits of x inverted."
)


# -- with attributes


def _nan_to_num_infer(x: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
    for name, value in attrs.items():
        optional = value is None and name != "nan"
        if not optional and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UserError(
                f"nan_to_num: {name} must be a number, got {value!r}",
                hint="what stands in the place of NaN or infinities",
            )
        if value is not None:
            expect_holds("nan_to_num", name, value, x.dtype)
    return elementwise_infer("nan_to_num", "float", None)(x)


def _replacements(dtype: str, nan: float, posinf: float | None, neginf: float | None) -> tuple[Any, Any, Any]:
    """What stands for NaN, ∞ and -∞."""
    largest = float(ml_dtypes.finfo(numpy_dtype(dtype)).max)
    return nan, largest if posinf is None else posinf, -largest if neginf is None else neginf


def _nan_to_num(x: np.ndarray, **attrs: Any) -> np.ndarray:
    nan, high, low = map(x.dtype.type, _replacements(x.dtype.name, **attrs))
    return np.where(np.isnan(x), nan, np.where(x == np.inf, high, np.where(x == -np.inf, low, x)))


def _nan_to_num_te(x: te.Tensor, **attrs: Any) -> te.Tensor:
    nan, high, low = (tir.const(v, x.dtype) for v in _replacements(x.dtype, **attrs))

    def scalar(e: tir.PrimExpr) -> tir.PrimExpr:
        finite = select(e.equal(math.inf), high, select(e.equal(-math.inf), low, e))
        return select(call("isnan", e), nan, finite)

    return elementwise_te(scalar, "nan_to_num")(x)


define(
    "nan_to_num",
    "x | nan=0.0, posinf=None, neginf=None",
    infer=_nan_to_num_infer,
    te=_nan_to_num_te,
    numpy=_nan_to_num,
    gradient=lambda dy, y, x, **_: (masked(ops.isfinite(x), dy),),
    precision="same",
    family="unary",
    doc="x with numbers in place of NaN and the infinities: of these, by default the largest and smallest of the\n"
    "dtype. Where a number was put, the derivative is 0.",
    samples=[
        sample((3, 17)),
        sample((129,), nan=1.0),
        sample((2, 1, 5), posinf=9.0, neginf=-9.0),
        sample((0,)),
        sample([float("nan"), float("inf"), float("-inf"), -1.5, 0.0], smooth=False),
        sample([float("nan"), float("inf"), float("-inf"), 2.0], nan=1.0, posinf=2.0, neginf=-3.0, smooth=False),
    ],
)


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
    numpy=lambda x, min, max: array_minimum(array_maximum(x, x.dtype.type(min)), x.dtype.type(max)),
    scalar=lambda x, min, max: tir.minimum(tir.maximum(x, min), max),
    dtypes="number",
    gradient=lambda y, x, dy, min, max: masked(ops.logical_and(x >= min, x <= max), dy),
    precision="same",
    doc="min(max(x, min), max): x kept between two numbers; its derivative at the bounds is 1, as in PyTorch.",
    samples=[
        sample((3, 17), min=-1.0, max=0.5),
        sample((129,), min=0.0, max=6.0),
        sample((2, 3, 5), min=-2.5, max=2.5),
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
    precision="same",
    family="astype",
    doc="x with another element type. Float to integer truncates and saturates, and NaN becomes 0; to bool is x ≠ 0.\n"
    "The adjoint is cast back; through integers and bools there is none.",
    samples=[
        sample((3, 17), dtype="float64"),
        sample((129,), dtype="float64"),
        sample((), dtype="float64"),
        sample((3, 5), dtype="float32", smooth=False),
        sample((0,), dtype="float16", smooth=False),
        sample((9,), dtype="int32"),
        sample([1e30, -1e30, float("nan"), -1.7, 0.0, 300.0], dtype="int8"),
        sample([0.0, -0.0, 0.5, float("nan")], dtype="bool"),
        sample(Ints((4, 3), -3, 3), dtype="float64"),
    ],
)
