"""The meaning of the loop IR's operators, conversions and intrinsics, over NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.errors import InternalError
from pullback.tir.expr import (
    is_float,
    is_half,
    is_signed,
)


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a dtype's name."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def maximum(a: Any, b: Any) -> Any:
    """The larger; of floats NaN if either is, and the first of two zeros."""
    return _extremum(a, b, np.maximum, np.greater_equal)


def minimum(a: Any, b: Any) -> Any:
    """The smaller; of floats NaN if either is, and the first of two zeros."""
    return _extremum(a, b, np.minimum, np.less_equal)


def _extremum(a: Any, b: Any, plain: Callable[..., Any], first: Callable[..., Any]) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "iub":
        return plain(a, b)
    return np.where(first(a, b) | (a != a), a, b)[()]


def power(x: Any, y: Any) -> Any:
    """xʸ. NumPy takes a square root where y is one 1/2: of -∞ that is NaN, of -0 -0."""
    root = (y == 0.5) & ((x == 0) | np.isinf(x))
    return np.where(root, np.abs(x), np.power(x, y))[()]


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "min": minimum, "max": maximum,
    "and": np.logical_and, "or": np.logical_or, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift, "floordiv": np.floor_divide,
    "floormod": np.remainder, "truncmod": np.fmod, "div": np.divide,
}  # fmt: skip


def binary(kind: str, dtype: str, a: Any, b: Any) -> Any:
    """A Binary on NumPy values of one dtype."""
    if dtype == "bool":
        function = {"sub": np.logical_xor}.get(kind, _BINARY[kind])
        return function(a, b)
    if is_half(dtype) and kind in ("floordiv", "floormod", "truncmod"):
        return binary(kind, "float32", np.float32(a), np.float32(b)).astype(numpy_dtype(dtype))
    if kind == "div" and not is_float(dtype):
        quotient = np.floor_divide(a, b)
        if is_signed(dtype):
            quotient = quotient + ((quotient * b != a) & ((a < 0) != (b < 0)) & (b != 0)).astype(quotient.dtype)
        return quotient
    return _BINARY[kind](a, b)


def convert(value: Any, source: str, target: str) -> Any:
    """A Cast: floats saturate to integers and NaN gives 0; half types are rounded once."""
    value, dtype = np.asarray(value), numpy_dtype(target)
    if target == "bool":
        return (value != 0)[()]
    if is_float(source) and not is_float(target):
        limits, wide = np.iinfo(dtype), value.astype(np.float64)
        inside = (wide > float(limits.min) - 1.0) & (wide < float(limits.max) + 1.0)
        result = np.where(inside, wide, 0.0).astype(dtype)
        result = np.where(wide >= float(limits.max), limits.max, result)
        result = np.where(wide <= float(limits.min), limits.min, result)
        return np.where(np.isnan(wide), 0, result).astype(dtype)[()]
    if is_half(target):
        value = _round_to_odd(value) if source == "float64" else value.astype(np.float32)
    return value.astype(dtype)[()]


def _round_to_odd(value: np.ndarray) -> np.ndarray:
    """float32 from float64, truncated, the last bit set when inexact; rounding that again is rounding once."""
    near = value.astype(np.float32)
    word = near.view(np.uint32) - (np.abs(near.astype(np.float64)) > np.abs(value))
    return np.where(near != value, word | 1, word).astype(np.uint32).view(np.float32)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of floats evaluated in float64 and rounded to the arguments' dtype."""

    def evaluate(*args: Any) -> Any:
        dtype = np.asarray(args[0]).dtype
        result = function(*(np.asarray(a).astype(np.float64) for a in args))
        return convert(result, "float64", str(dtype)) if dtype != np.float64 else result

    return evaluate


_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_INTRINSICS: dict[str, Callable[..., Any]] = {
    **{name: _wide(getattr(np, name)) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: _wide(getattr(np, "arc" + name[1:])) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "atan2": _wide(np.arctan2), "pow": _wide(power), "erf": _wide(_erf), "erfc": _wide(_erfc),
    "sqrt": np.sqrt, "abs": np.abs,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite,
    "multiply_no_nan": lambda a, b: np.where((a == 0) | (b == 0), np.asarray(a).dtype.type(0), a * b)[()],
    "xdivy": lambda a, b: np.where(a == 0, np.asarray(a).dtype.type(0), a / b)[()],
}  # fmt: skip


def intrinsic(name: str, dtype: str, *args: Any) -> Any:
    """A Call on NumPy values; ``dtype`` is that of the first argument."""
    if name == "not":
        return np.logical_not(args[0]) if dtype == "bool" else np.invert(args[0])
    if not is_float(dtype):
        return _integer_intrinsic(name, dtype, *args)
    if name == "fma":
        return fma(*args)
    if name == "rsqrt":
        if is_half(dtype):
            return intrinsic(name, "float32", np.float32(args[0])).astype(numpy_dtype(dtype))
        return np.asarray(args[0]).dtype.type(1) / np.sqrt(args[0])
    return _INTRINSICS[name](*args)


def _integer_intrinsic(name: str, dtype: str, *args: Any) -> Any:
    if name in ("isnan", "isinf", "isfinite"):
        return np.full(np.shape(args[0]), name == "isfinite")[()]
    if name == "fma":
        return args[0] * args[1] + args[2]
    if name in ("floor", "ceil", "round", "trunc"):
        return args[0]
    if name == "abs":
        return np.abs(args[0])
    raise InternalError(f"{name} is not defined on {dtype}: cast to a float first")


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once, by error-free transformations in float64."""
    dtype = np.asarray(a).dtype
    x, y, z = (np.asarray(v).astype(np.float64) for v in (a, b, c))
    if dtype != np.float64:  # the product is exact
        total = _odd_sum(x * y, z)
        return convert(total, "float64", "float32") if dtype == np.float32 else convert(total, "float64", str(dtype))
    plain = x * y + z
    product, low = _two_product(x, y)
    high, mid = _two_sum(product, _two_sum(z, low)[0])
    exact = high + _odd_sum(mid, _two_sum(z, low)[1])
    large = np.maximum(np.abs(product), np.abs(z))
    trusted = np.isfinite(plain) & (large < 1e300) & (np.abs(product) > 1e-290)
    return np.where(trusted, exact, plain)[()]


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(s, e)``: the rounded sum and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``(p, e)``: the rounded product and its error (Dekker)."""
    product = a * b
    (ah, al), (bh, bl) = (_halves(v) for v in (a, b))
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b rounded to odd: truncated, the last bit set when inexact."""
    total, error = _two_sum(a, b)
    word = np.asarray(total).view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (word & 1 == 0)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(inexact, word + toward, word).view(np.float64)
