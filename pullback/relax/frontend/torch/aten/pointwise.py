"""Elementwise operators: arithmetic, comparisons, logic, elementary functions, choices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.errors import UserError
from pullback.relax import op
from pullback.relax.frontend.torch.aten.promotion import (
    as_dtype,
    floating,
    promoted,
    result_dtype,
    tensor,
    truth,
)
from pullback.relax.frontend.torch.table import ATEN
from pullback.tir.expr import is_float

# -- functions of one tensor


def _of_float(function: Callable[..., Any]) -> Callable[..., Any]:
    """Integers and bools become floats first."""
    return lambda x: function(floating(x))


ATEN.same(
    {
        f"aten.{name}": _of_float(getattr(op, name))
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "digamma", "erf", "erfc", "erfinv", "exp",
            "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin",
            "sinc", "sinh", "sqrt", "tan", "tanh",
        )
    }
)  # fmt: skip
ATEN.same(
    {
        f"aten.special_{name}": _of_float(getattr(op, ours))
        for name, ours in {
            "digamma": "digamma", "psi": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2",
            "expm1": "expm1", "expit": "sigmoid", "gammaln": "lgamma", "log1p": "log1p", "sinc": "sinc",
        }.items()
    }
)  # fmt: skip
ATEN.same(
    {
        "aten.arccos": _of_float(op.acos), "aten.arccosh": _of_float(op.acosh), "aten.arcsin": _of_float(op.asin),
        "aten.arcsinh": _of_float(op.asinh), "aten.arctan": _of_float(op.atan), "aten.arctanh": _of_float(op.atanh),
        "aten.deg2rad": lambda x: floating(x) * (math.pi / 180),
        "aten.rad2deg": lambda x: floating(x) * (180 / math.pi),
    }
)  # fmt: skip


def _to_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Integers are whole already."""
    return lambda x: function(x) if is_float(x.dtype) else x


ATEN.same({f"aten.{name}": _to_whole(getattr(op, name)) for name in ("ceil", "floor", "trunc")})
ATEN.same({"aten.fix": _to_whole(op.trunc)})


@ATEN.register("aten.round", "aten.special_round")
def round_(x: Any, decimals: int = 0, **keywords: int) -> Any:
    decimals = keywords.get("decimals", decimals)
    if not is_float(x.dtype):
        return x
    if decimals == 0:
        return op.round(x)
    scale = 10.0 ** abs(decimals)
    return op.round(x * scale) / scale if decimals > 0 else op.round(x / scale) * scale


@ATEN.register("aten.frac")
def frac(x: Any) -> Any:
    return x - op.trunc(x)


@ATEN.register("aten.abs", "aten.absolute")
def abs_(x: Any) -> Any:
    return x if x.dtype == "bool" else op.abs(x)


ATEN.same({"aten.neg": op.negative, "aten.negative": op.negative, "aten.positive": lambda x: x})


@ATEN.register("aten.sign", "aten.sgn")
def sign(x: Any) -> Any:
    return x if x.dtype == "bool" else op.sign(x)


@ATEN.register("aten.signbit")
def signbit(x: Any) -> Any:
    if not is_float(x.dtype):
        return op.less(x, tensor(0, x.dtype)) if x.dtype != "bool" else op.zeros_like(x)
    below = op.less(x, tensor(0.0, x.dtype))
    return op.logical_or(below, op.equal(op.atan2(x, op.ones_like(x) * -1.0), tensor(-math.pi, x.dtype)))


@ATEN.register("aten.square")
def square(x: Any) -> Any:
    x = as_dtype(x, "int64") if x.dtype == "bool" else x
    return x * x


@ATEN.register("aten.logit", "aten.special_logit")
def logit(x: Any, eps: float | None = None) -> Any:
    x = floating(x)
    return op.logit(x if eps is None else op.clip(x, eps, 1.0 - eps))


@ATEN.register("aten.polygamma", "aten.special_polygamma")
def polygamma(n: int, x: Any) -> Any:
    return op.polygamma(floating(x), n)


@ATEN.register("aten.nan_to_num")
def nan_to_num(x: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Any:
    return op.nan_to_num(x, 0.0 if nan is None else nan, posinf, neginf) if is_float(x.dtype) else x


def _never(x: Any, value: bool = False) -> Any:
    return op.full(x.shape, value, "bool")


ATEN.same(
    {
        "aten.isnan": lambda x: op.isnan(x) if is_float(x.dtype) else _never(x),
        "aten.isinf": lambda x: op.isinf(x) if is_float(x.dtype) else _never(x),
        "aten.isfinite": lambda x: op.isfinite(x) if is_float(x.dtype) else _never(x, True),
        "aten.isreal": lambda x: _never(x, True),
        "aten.isposinf": lambda x: op.equal(x, tensor(math.inf, x.dtype)) if is_float(x.dtype) else _never(x),
        "aten.isneginf": lambda x: op.equal(x, tensor(-math.inf, x.dtype)) if is_float(x.dtype) else _never(x),
        "aten.logical_not": lambda x: op.logical_not(truth(x)),
        "aten.bitwise_not": lambda x: op.bitwise_not(x),
    }
)

# -- arithmetic


def _times(x: Any, factor: Any) -> Any:
    """A tensor times one of Python's numbers, in its dtype."""
    return x if factor == 1 and not isinstance(factor, bool) else x * tensor(factor, x.dtype)


@ATEN.register("aten.add", "aten._unsafe_add")
def add(x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return op.logical_or(x, y) if x.dtype == "bool" else x + _times(y, alpha)


@ATEN.register("aten.sub", "aten.subtract")
def sub(x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return x - _times(y, alpha)


@ATEN.register("aten.rsub")
def rsub(x: Any, y: Any, alpha: Any = 1) -> Any:
    x, y = promoted(x, y)
    return y - _times(x, alpha)


@ATEN.register("aten.mul", "aten.multiply")
def mul(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    return op.logical_and(x, y) if x.dtype == "bool" else x * y


@ATEN.register("aten.div", "aten.divide", "aten.true_divide")
def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode is None:
        x, y = floating(x, y)
        return op.divide(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    x, y = promoted(x, y)
    if is_float(x.dtype):
        return op.trunc(op.divide(x, y))
    return op.floor_divide(x - op.fmod(x, y), y)


@ATEN.register("aten.floor_divide")
def floor_divide(x: Any, y: Any) -> Any:
    return op.floor_divide(*promoted(x, y))


@ATEN.register("aten.remainder")
def remainder(x: Any, y: Any) -> Any:
    return op.mod(*promoted(x, y))


@ATEN.register("aten.fmod")
def fmod(x: Any, y: Any) -> Any:
    return op.fmod(*promoted(x, y))


_POWERS = {  # of a tensor to a number, what is simpler
    2: lambda x: x * x,
    3: lambda x: x * x * x,
    0.5: op.sqrt,
    -0.5: op.rsqrt,
    -1: op.reciprocal,
    -2: lambda x: op.reciprocal(x * x),
}


@ATEN.register("aten.pow")
def power(x: Any, y: Any) -> Any:
    dtype = result_dtype(x, y)
    if dtype == "bool":
        raise UserError("a power of bools cannot be converted", hint="make integers of them: x.int()")
    base, exponent = tensor(x, dtype), tensor(y, dtype)
    if not is_float(dtype):
        if isinstance(x, int) and x == 2:  # 2 to a negative power is 0, and so is what does not fit
            return op.left_shift(tensor(1, dtype), exponent)
        return _whole_power(base, exponent, y)
    if isinstance(y, (int, float)) and y == 1:
        return base
    if isinstance(y, (int, float)) and y in _POWERS:
        return _POWERS[y](base)
    return op.power(base, exponent)


def _whole_power(x: Any, y: Any, exponent: Any) -> Any:
    """Powers of integers by squaring, which wrap around; to a negative exponent, 1 / xⁿ without its fraction."""
    one, zero = tensor(1, x.dtype), tensor(0, x.dtype)
    most = exponent.bit_length() if isinstance(exponent, int) else int(np.iinfo(y.dtype).bits) - 1
    result, square = op.ones_like(x), x
    for bit in range(most):
        taken = op.not_equal(op.bitwise_and(y, tensor(1 << bit, y.dtype)), zero)
        result = op.where(taken, result * square, result)
        square = square * square
    if x.dtype.startswith("u") or (isinstance(exponent, int) and exponent >= 0):
        return result
    odd = op.not_equal(op.bitwise_and(y, one), zero)
    of_minus_one = op.where(odd, tensor(-1, x.dtype), one)
    inverse = op.where(op.equal(x, one), one, op.where(op.equal(x, tensor(-1, x.dtype)), of_minus_one, zero))
    return op.where(op.less(y, zero), inverse, result)


@ATEN.register("aten.float_power")
def float_power(x: Any, y: Any) -> Any:
    return power(tensor(x, "float64"), tensor(y, "float64") if not isinstance(y, (int, float)) else float(y))


ATEN.same(
    {
        "aten.maximum": lambda x, y: _extremum(op.maximum, op.logical_or, x, y),
        "aten.minimum": lambda x, y: _extremum(op.minimum, op.logical_and, x, y),
        "aten.max.other": lambda x, y: _extremum(op.maximum, op.logical_or, x, y),
        "aten.min.other": lambda x, y: _extremum(op.minimum, op.logical_and, x, y),
    }
)


def _extremum(function: Callable[..., Any], of_bools: Callable[..., Any], x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    return of_bools(x, y) if x.dtype == "bool" else function(x, y)


@ATEN.register("aten.fmax")
def fmax(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    return op.where(op.logical_or(op.isnan(y), op.greater_equal(x, y)), x, y) if is_float(x.dtype) else op.maximum(x, y)


@ATEN.register("aten.fmin")
def fmin(x: Any, y: Any) -> Any:
    x, y = promoted(x, y)
    return op.where(op.logical_or(op.isnan(y), op.less_equal(x, y)), x, y) if is_float(x.dtype) else op.minimum(x, y)


def _two_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(*floating(x, y))


ATEN.same(
    {
        "aten.atan2": _two_floats(op.atan2),
        "aten.arctan2": _two_floats(op.atan2),
        "aten.hypot": _two_floats(op.hypot),
        "aten.logaddexp": _two_floats(op.logaddexp),
        "aten.xlogy": _two_floats(op.xlogy),
        "aten.special_xlogy": _two_floats(op.xlogy),
    }
)


@ATEN.register("aten.special_xlog1py")
def xlog1py(x: Any, y: Any) -> Any:
    x, y = floating(x, y)
    none = op.logical_and(op.equal(x, tensor(0.0, x.dtype)), op.logical_not(op.isnan(y)))
    return op.where(none, tensor(0.0, x.dtype), x * op.log1p(op.where(none, tensor(0.0, x.dtype), y)))


@ATEN.register("aten.logaddexp2")
def logaddexp2(x: Any, y: Any) -> Any:
    x, y = floating(x, y)
    return op.logaddexp(x * math.log(2), y * math.log(2)) * (1 / math.log(2))


@ATEN.register("aten.copysign")
def copysign(x: Any, y: Any) -> Any:
    x, y = floating(x, y)
    size = op.abs(x)
    return op.where(signbit(y), op.negative(size), size)


@ATEN.register("aten.heaviside")
def heaviside(x: Any, values: Any) -> Any:
    x, values = promoted(x, values)
    zero = tensor(0, x.dtype)
    return op.where(op.equal(x, zero), values, as_dtype(op.greater(x, zero), x.dtype))


@ATEN.register("aten.ldexp")
def ldexp(x: Any, y: Any) -> Any:
    x, y = floating(x, y)
    return x * op.exp2(y)


@ATEN.register("aten.addcmul")
def addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    x, a, b = promoted(x, a, b)
    return x + _times(a * b, value)


@ATEN.register("aten.addcdiv")
def addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    x, a, b = floating(x, a, b)
    return x + _times(a / b, value)


@ATEN.register("aten.lerp")
def lerp(start: Any, end: Any, weight: Any) -> Any:
    start, end, weight = promoted(start, end, weight)
    return start + weight * (end - start)


# -- comparisons, logic and bits


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def compare(x: Any, y: Any) -> Any:
        x, y = promoted(x, y)
        if x.dtype == "bool" and function not in (op.equal, op.not_equal):
            x, y = as_dtype(x, "uint8"), as_dtype(y, "uint8")
        return function(x, y)

    return compare


for _names, _function in {
    ("eq",): op.equal, ("ne", "not_equal"): op.not_equal, ("lt", "less"): op.less, ("le", "less_equal"): op.less_equal,
    ("gt", "greater"): op.greater, ("ge", "greater_equal"): op.greater_equal,
}.items():  # fmt: skip
    ATEN.same({f"aten.{name}": _compared(_function) for name in _names})


@ATEN.register("aten.isclose")
def isclose(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    x, y = promoted(x, y)
    same = op.equal(x, y)
    if not is_float(x.dtype):
        if rtol == 0 and atol == 0:
            return same
        x, y = as_dtype(x, "float64"), as_dtype(y, "float64")
    elif equal_nan:
        same = op.logical_or(same, op.logical_and(op.isnan(x), op.isnan(y)))
    near = op.less_equal(op.abs(x - y), atol + op.abs(y * rtol))
    return op.logical_or(same, op.logical_and(op.isfinite(y), near))


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(truth(x), truth(y))


def _bitwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(*promoted(x, y))


for _name in ("and", "or", "xor"):
    ATEN.same({f"aten.logical_{_name}": _logical(getattr(op, f"logical_{_name}"))})
    ATEN.same({n: _bitwise(getattr(op, f"bitwise_{_name}")) for n in (f"aten.bitwise_{_name}", f"aten.__{_name}__")})
for _name in ("left_shift", "right_shift"):
    _short = {"left_shift": "__lshift__", "right_shift": "__rshift__"}[_name]
    ATEN.same({n: _bitwise(getattr(op, _name)) for n in (f"aten.bitwise_{_name}", f"aten.{_short}")})

# -- choices and bounds


@ATEN.register("aten.where")
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None:
        raise UserError(
            "where with a condition alone gives a tensor whose size depends on the data, and cannot be converted",
            hint="torch.where(condition, x, y)",
        )
    x, y = promoted(x, y)
    return op.where(truth(condition), x, y)


@ATEN.register("aten.masked_fill")
def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    filled = op.where(truth(mask), tensor(value, x.dtype), x)
    return filled


@ATEN.register("aten.clamp", "aten.clip")
def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    x, *bounds = promoted(*(v for v in (x, min, max) if v is not None))
    ends = iter(bounds)
    low, high = (None if v is None else next(ends) for v in (min, max))
    if isinstance(min, (int, float)) and isinstance(max, (int, float)) and min <= max and is_float(x.dtype):
        return op.clip(x, float(min), float(max))
    if low is not None:  # the value itself at a bound, so that it gets the adjoint there
        x = op.where(op.less(x, low), low, x)
    return x if high is None else op.where(op.greater(x, high), high, x)


ATEN.same({"aten.clamp_min": lambda x, min: clamp(x, min, None), "aten.clamp_max": lambda x, max: clamp(x, None, max)})
