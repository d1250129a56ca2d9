"""Elementwise operators, and softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, dtype_name, promoted, translate

SAME = """
abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor isfinite
isinf isnan lgamma log log10 log1p log2 reciprocal rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc
"""
UNARY = {
    **{name: name for name in SAME.split()},
    "negative": "neg", "nn.hardsigmoid": "nn.functional.hardsigmoid", "nn.hardswish": "nn.functional.hardswish",
    "nn.logsigmoid": "nn.functional.logsigmoid", "nn.mish": "nn.functional.mish", "nn.relu": "nn.functional.relu",
    "nn.relu6": "nn.functional.relu6", "nn.selu": "nn.functional.selu", "nn.silu": "nn.functional.silu",
    "nn.softsign": "nn.functional.softsign", "nn.tanhshrink": "nn.functional.tanhshrink",
}  # fmt: skip
BINARY = {
    "atan2": "atan2", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "equal": "eq", "fmod": "fmod", "greater": "gt", "greater_equal": "ge", "hypot": "hypot",
    "left_shift": "bitwise_left_shift", "less": "lt", "less_equal": "le", "logaddexp": "logaddexp",
    "minimum": "minimum", "maximum": "maximum", "mod": "remainder", "multiply": "mul", "not_equal": "ne",
    "power": "pow", "right_shift": "bitwise_right_shift", "xlogy": "xlogy", "floor_divide": "floor_divide",
}  # fmt: skip
REVERSED = {
    "add": "__radd__", "divide": "__rdiv__", "multiply": "__rmul__", "bitwise_and": "__rand__",
    "bitwise_or": "__ror__", "bitwise_xor": "__rxor__", "mod": "__rmod__", "power": "__rpow__",
    "subtract": "__rsub__", "matmul": "__rmatmul__",
}  # fmt: skip
LOGICAL = ("logical_and", "logical_or", "logical_xor")


def named(name: str) -> Any:
    """The op of a dotted name."""
    found: Any = ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


for _ours, _theirs in UNARY.items():
    translate(_ours, _theirs)(lambda x, _op=_ours, **inplace: named(_op)(x))
for _ours, _theirs in BINARY.items():
    translate(_ours, _theirs)(lambda x, y, _op=_ours: named(_op)(*promoted(x, y)))
for _ours, _theirs in REVERSED.items():
    translate(_ours, _theirs)(lambda x, y, _op=_ours: named(_op)(*promoted(y, x)))
translate("maximum", "max.binary")(lambda x, y: ops.maximum(*promoted(x, y)))
translate("minimum", "min.binary")(lambda x, y: ops.minimum(*promoted(x, y)))
translate("divide", "true_divide", "div.no_rounding_mode")(lambda x, y: ops.divide(*promoted(x, y)))
for _name in LOGICAL:
    translate(_name, _name)(lambda x, y, _op=_name: named(_op)(ops.astype(x, "bool"), ops.astype(y, "bool")))


@translate("logical_not", "logical_not")
def logical_not(x: Any) -> Any:
    return ops.logical_not(ops.astype(x, "bool"))


@translate("add", "add")
def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return ops.add(x, y if alpha == 1 else ops.multiply(y, alpha))


@translate("subtract", "sub")
def sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return ops.subtract(x, y if alpha == 1 else ops.multiply(y, alpha))


@translate("subtract", "rsub")
def rsub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return sub(y, x, alpha=alpha)


@translate("floor_divide", "div.floor_rounding")
def floor_divide(x: Any, y: Any, *, rounding_mode: str) -> Any:
    return ops.floor_divide(*promoted(x, y))


@translate("trunc, divide", "div.trunc_rounding")
def trunc_divide(x: Any, y: Any, *, rounding_mode: str) -> Any:
    return ops.trunc(ops.divide(*promoted(x, y)))


@translate("power", "float_power")
def float_power(x: Any, y: Any) -> Any:
    return ops.power(*(ops.astype(v, "float64") if hasattr(v, "struct_info") else v for v in (x, y)))


@translate("round", "round", "round.decimals_0")
def round_(x: Any, *, decimals: int = 0) -> Any:
    assert decimals == 0
    return ops.round(x)


@translate("sign", "sgn")
def sgn(x: Any) -> Any:
    return ops.sign(x)


@translate("logit, clip", "logit")
def logit(x: Any, eps: float | None = None) -> Any:
    return ops.logit(x if eps is None else ops.clip(x, eps, 1 - eps))


@translate("nan_to_num", "nan_to_num")
def nan_to_num(x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    return ops.nan_to_num(x, 0.0 if nan is None else nan, posinf, neginf)


@translate("minimum, maximum", "clamp")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    return _clamp(x, min, max)


@translate("maximum", "clamp_min")
def clamp_min(x: Any, min: Any) -> Any:
    return _clamp(x, min, None)


@translate("minimum", "clamp_max")
def clamp_max(x: Any, max: Any) -> Any:
    return _clamp(x, None, max)


def _clamp(x: Any, low: Any, high: Any) -> Any:
    tensors = [v for v in (low, high) if hasattr(v, "struct_info")]
    if tensors:
        x = x if low is None else ops.maximum(*promoted(x, low))
        return x if high is None else ops.minimum(*promoted(x, high))
    return ops.clip(x, -math.inf if low is None else low, math.inf if high is None else high)


@translate("polygamma", *(f"polygamma.polygamma_n_{n}" for n in range(5)), "special.polygamma.special_polygamma_n_0")
def polygamma(x: Any, n: int) -> Any:
    return ops.polygamma(x, n)


@translate("nn.celu", "nn.functional.celu")
def celu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return ops.nn.celu(x, alpha)


@translate("nn.elu", "nn.functional.elu")
def elu(x: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    return ops.nn.elu(x, alpha)


@translate("nn.gelu, nn.gelu_tanh", "nn.functional.gelu")
def gelu(x: Any, approximate: str = "none") -> Any:
    return ops.nn.gelu_tanh(x) if approximate == "tanh" else ops.nn.gelu(x)


@translate("nn.hardshrink", "nn.functional.hardshrink")
def hardshrink(x: Any, lambd: float = 0.5) -> Any:
    if lambd < 0:
        raise Skip("a negative lambd")
    return ops.nn.hardshrink(x, lambd)


@translate("nn.softshrink", "nn.functional.softshrink")
def softshrink(x: Any, lambd: float = 0.5) -> Any:
    return ops.nn.softshrink(x, lambd)


@translate("nn.hardtanh", "nn.functional.hardtanh")
def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    if min_val >= max_val:
        raise Skip("bounds that are equal")
    return ops.nn.hardtanh(x, min_val, max_val)


@translate("nn.leakyrelu", "nn.functional.leaky_relu")
def leaky_relu(x: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return ops.nn.leakyrelu(x, negative_slope)


@translate("nn.softplus", "nn.functional.softplus")
def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    return ops.nn.softplus(x, beta, threshold)


@translate("nn.threshold", "nn.functional.threshold")
def threshold(x: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    return ops.nn.threshold(x, threshold, value)


@translate("nn.glu", "nn.functional.glu")
def glu(x: Any, dim: int = -1) -> Any:
    return ops.nn.glu(x, dim)


@translate("nn.prelu", "nn.functional.prelu")
def prelu(x: Any, weight: Any) -> Any:
    if len(x.shape) < 2:
        if weight.shape not in ((), (1,)):
            raise Skip("prelu of one channel with several weights")
        return ops.where(ops.greater(x, 0.0), x, ops.multiply(x, ops.reshape(weight, ())))
    return ops.nn.prelu(x, ops.reshape(weight, (-1,)), 1)


def _as(x: Any, dtype: torch.dtype | None) -> Any:
    return x if dtype is None else ops.astype(x, dtype_name(dtype))


@translate("nn.softmax", "softmax", "softmax.with_dtype")
def softmax(x: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    return ops.nn.softmax(_as(x, dtype), dim)


@translate("nn.log_softmax", "log_softmax", "log_softmax.with_dtype")
def log_softmax(x: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    return ops.nn.log_softmax(_as(x, dtype), dim)


@translate("nn.softmin", "nn.functional.softmin", "nn.functional.softmin.with_dtype")
def softmin(x: Any, dim: int, dtype: torch.dtype | None = None) -> Any:
    return ops.nn.softmin(_as(x, dtype), dim)


# ---- formulas of several ops -----------------------------------------------------------------------------------------


@translate("ewise_fma", "addcmul")
def addcmul(x: Any, a: Any, b: Any, *, value: float = 1.0) -> Any:
    return ops.ewise_fma(ops.multiply(a, value), b, x)


@translate("add, divide", "addcdiv")
def addcdiv(x: Any, a: Any, b: Any, *, value: float = 1.0) -> Any:
    return ops.add(x, ops.divide(ops.multiply(a, value), b))


@translate("add, multiply", "lerp")
def lerp(x: Any, y: Any, weight: Any) -> Any:
    return ops.add(x, ops.multiply(ops.subtract(y, x), weight))


@translate("multiply", "deg2rad")
def deg2rad(x: Any) -> Any:
    return ops.multiply(x, math.pi / 180)


@translate("multiply", "rad2deg")
def rad2deg(x: Any) -> Any:
    return ops.multiply(x, 180 / math.pi)


@translate("trunc, subtract", "frac")
def frac(x: Any) -> Any:
    return ops.subtract(x, ops.trunc(x))


@translate("isinf, greater, logical_and", "isposinf")
def isposinf(x: Any) -> Any:
    return ops.logical_and(ops.isinf(x), ops.greater(x, 0.0))


@translate("isinf, less, logical_and", "isneginf")
def isneginf(x: Any) -> Any:
    return ops.logical_and(ops.isinf(x), ops.less(x, 0.0))


@translate("where, equal, greater", "heaviside")
def heaviside(x: Any, y: Any) -> Any:
    return ops.where(ops.equal(x, 0.0), y, ops.astype(ops.greater(x, 0.0), x.dtype))


@translate("erfc, multiply", "special.ndtr")
def ndtr(x: Any) -> Any:
    return ops.multiply(ops.erfc(ops.multiply(x, -math.sqrt(0.5))), 0.5)


@translate("xlogy, negative", "special.entr")
def entr(x: Any) -> Any:
    return ops.where(ops.less(x, 0.0), -math.inf, ops.negative(ops.xlogy(x, x)))


@translate("log1p, multiply", "special.xlog1py")
def xlog1py(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    return ops.multiply(x, ops.log1p(y))


@translate("multiply, exp2", "ldexp")
def ldexp(x: Any, y: Any) -> Any:
    return ops.multiply(x, ops.exp2(y))


@translate("logaddexp", "logaddexp2")
def logaddexp2(x: Any, y: Any) -> Any:
    return ops.divide(ops.logaddexp(ops.multiply(x, math.log(2)), ops.multiply(y, math.log(2))), math.log(2))


@translate("where", "where")
def where(x: Any, condition: Any, y: Any) -> Any:
    return ops.where(condition, *promoted(x, y))


@translate("where", "masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, value, x)
