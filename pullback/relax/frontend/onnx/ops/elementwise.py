"""Elementwise operators: arithmetic, comparisons, logic, functions of one number, activations, casts."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np

from pullback.ir.errors import DTypeError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import array, is_given, known, number
from pullback.relax.frontend.onnx.ops.agreed import broadcast
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.types import dtype_of
from pullback.tir.expr import FLOATS

ONNX.same(
    {
        "Abs": op.abs, "Acos": op.acos, "Acosh": op.acosh, "Asin": op.asin, "Asinh": op.asinh, "Atan": op.atan,
        "Atanh": op.atanh, "Cos": op.cos, "Cosh": op.cosh, "Erf": op.erf, "Exp": op.exp, "Floor": op.floor,
        "Ceil": op.ceil, "Identity": lambda x: x, "IsNaN": op.isnan, "Log": op.log, "Neg": op.negative,
        "Not": op.logical_not, "BitwiseNot": op.bitwise_not, "Reciprocal": op.reciprocal, "Relu": op.nn.relu,
        "Round": op.round, "Sigmoid": op.sigmoid, "Sign": op.sign, "Sin": op.sin, "Sinh": op.sinh, "Sqrt": op.sqrt,
        "Tan": op.tan, "Tanh": op.tanh, "Softsign": op.nn.softsign, "Mish": op.nn.mish, "HardSwish": op.nn.hardswish,
        "BitwiseAnd": op.bitwise_and, "BitwiseOr": op.bitwise_or, "BitwiseXor": op.bitwise_xor,
    }
)  # fmt: skip


def numbers_like(value: Any, x: Any) -> Any:
    """A Python number as a constant of x's dtype."""
    return const(value, x.struct_info.dtype)


# -- two operands


def _aligned(x: Any, y: Any, broadcast: int, axis: int | None) -> Any:
    """y for versions before 7: with ``broadcast`` its axes are those of x from ``axis`` on, by default the last."""
    if not broadcast or axis is None:
        return y
    rank, inner = len(x.struct_info.shape), len(y.struct_info.shape)
    return op.reshape(y, (*y.struct_info.shape, *(1,) * (rank - axis % rank - inner)))


def _binary(name: str, function: Any) -> None:
    @ONNX.register(f"{name}-7")
    def convert(x: Any, y: Any) -> Any:
        return function(*broadcast(x, y))

    @ONNX.register(name)
    def convert_old(x: Any, y: Any, *, broadcast: int = 0, axis: int | None = None, **_: Any) -> Any:
        return function(x, _aligned(x, y, broadcast, axis))


def _divide(x: Any, y: Any) -> Any:
    """Division, which of integers is rounded towards 0; of narrow unsigned integers too."""
    dtype = x.struct_info.dtype
    if dtype in FLOATS:
        return op.divide(x, y)
    quotient = op.floor_divide(x, y)
    if dtype.startswith("uint"):
        return quotient
    inexact = op.not_equal(op.multiply(quotient, y), x)
    opposite = op.not_equal(op.less(x, numbers_like(0, x)), op.less(y, numbers_like(0, y)))
    return op.add(quotient, op.astype(op.logical_and(inexact, opposite), dtype))


def _power(x: Any, y: Any) -> Any:
    """xʸ in x's dtype. Whole exponents that are known are products, so that negative bases and gradients are exact."""
    dtype, exponent = x.struct_info.dtype, y.struct_info.dtype
    if dtype in FLOATS:
        return op.power(x, y if exponent == dtype else op.astype(y, dtype))
    if exponent in FLOATS:
        wide = "float64" if exponent == "float64" or "64" in dtype or "32" in dtype else "float32"
        return op.astype(op.power(op.astype(x, wide), op.astype(y, wide)), dtype)
    return _whole_power(x, op.astype(y, dtype) if exponent != dtype else y)


def _whole_power(x: Any, y: Any) -> Any:
    """xʸ of integers, by squaring; modulo 2 to the width, as machines have it. Negative exponents give 0, 1 or -1."""
    dtype = x.struct_info.dtype
    one, zero, two = (numbers_like(k, x) for k in (1, 0, 2))
    shape = op.add(op.multiply(x, zero), op.multiply(y, zero))
    result, base, left = op.add(shape, one), op.add(shape, x), op.add(shape, y)
    exponents = known(y)
    bits = int(dtype.lstrip("uint")) - (not dtype.startswith("u"))
    if exponents is not None and exponents.dtype != object:
        bits = int(max(exponents.max(initial=0), 0)).bit_length()
    for _ in range(bits):
        result = op.where(op.equal(op.mod(left, two), one), op.multiply(result, base), result)
        base, left = op.multiply(base, base), op.floor_divide(left, two)
    if dtype.startswith("uint"):
        return result
    is_odd = op.equal(op.mod(y, two), one)
    sign = op.where(is_odd, op.add(shape, x), op.add(shape, one))
    small = op.where(op.equal(op.abs(x), one), sign, op.add(shape, zero))
    return op.where(op.less(op.add(shape, y), zero), small, result)


_binary("Add", op.add)
_binary("Sub", op.subtract)
_binary("Mul", op.multiply)
_binary("Div", _divide)
_binary("Pow", _power)
_binary("And", op.logical_and)
_binary("Or", op.logical_or)
_binary("Xor", op.logical_xor)
_binary("Equal", op.equal)
_binary("Greater", op.greater)
_binary("Less", op.less)
_binary("GreaterOrEqual", op.greater_equal)
_binary("LessOrEqual", op.less_equal)


@ONNX.register("Where")
def where(condition: Any, x: Any, y: Any) -> Any:
    return op.where(*broadcast(condition, x, y))


@ONNX.register("Mod")
def mod(x: Any, y: Any, *, fmod: int) -> Any:
    return op.fmod(x, y) if fmod else op.mod(x, y)


@ONNX.register("BitShift")
def bit_shift(x: Any, y: Any, *, direction: str) -> Any:
    return op.left_shift(x, y) if direction == "LEFT" else op.right_shift(x, y)


def _variadic(name: str, function: Any) -> None:
    @ONNX.register(name)
    def convert(*values: Any, **_: Any) -> Any:
        return reduce(function, broadcast(*values))


_variadic("Sum", op.add)
_variadic("Max", op.maximum)
_variadic("Min", op.minimum)


@ONNX.register("Mean")
def mean(*values: Any, **_: Any) -> Any:
    return op.divide(reduce(op.add, values), numbers_like(len(values), values[0]))


# -- one operand


@ONNX.register("IsInf")
def is_inf(x: Any, *, detect_negative: int, detect_positive: int) -> Any:
    zero = numbers_like(0, x)
    found = op.isinf(x)
    if not detect_negative:
        found = op.logical_and(found, op.greater(x, zero))
    return found if detect_positive else op.logical_and(found, op.less(x, zero))


@ONNX.register("Elu")
def elu(x: Any, *, alpha: float, **_: Any) -> Any:
    return op.nn.elu(x, alpha)


@ONNX.register("Celu")
def celu(x: Any, *, alpha: float) -> Any:
    return op.nn.celu(x, alpha)


@ONNX.register("Selu")
def selu(x: Any, *, alpha: float, gamma: float, **_: Any) -> Any:
    return op.multiply(op.nn.elu(x, alpha), numbers_like(gamma, x))


@ONNX.register("LeakyRelu")
def leaky_relu(x: Any, *, alpha: float, **_: Any) -> Any:
    return op.nn.leakyrelu(x, alpha)


@ONNX.register("ThresholdedRelu")
def thresholded_relu(x: Any, *, alpha: float) -> Any:
    return op.nn.threshold(x, alpha, 0.0)


@ONNX.register("PRelu")
def prelu(x: Any, slope: Any) -> Any:
    if len(slope.struct_info.shape) == 1 and len(x.struct_info.shape) > 2 and slope.struct_info.shape[0] != 1:
        slope = op.reshape(slope, (-1, *(1,) * (len(x.struct_info.shape) - 2)))
    return op.where(op.less(x, numbers_like(0, x)), op.multiply(x, slope), x)


@ONNX.register("PRelu-7")
def prelu_broadcast(x: Any, slope: Any) -> Any:
    return op.where(op.less(x, numbers_like(0, x)), op.multiply(x, slope), x)


@ONNX.register("HardSigmoid")
def hard_sigmoid(x: Any, *, alpha: float, beta: float, **_: Any) -> Any:
    line = op.add(op.multiply(x, numbers_like(alpha, x)), numbers_like(beta, x))
    return op.minimum(op.maximum(line, numbers_like(0, x)), numbers_like(1, x))


@ONNX.register("Softplus")
def softplus(x: Any) -> Any:
    return op.logaddexp(x, numbers_like(0, x)) if x.struct_info.dtype == "float64" else op.nn.softplus(x)


@ONNX.register("Gelu")
def gelu(x: Any, *, approximate: str) -> Any:
    return op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x)


@ONNX.register("Swish")
def swish(x: Any, *, alpha: float = 1.0) -> Any:
    return op.nn.silu(x) if alpha == 1 else op.multiply(x, op.sigmoid(op.multiply(x, numbers_like(alpha, x))))


@ONNX.register("Shrink")
def shrink(x: Any, *, bias: float, lambd: float) -> Any:
    dtype = x.struct_info.dtype
    wide = x if dtype in FLOATS else op.astype(x, "float32")
    step = numbers_like(bias, wide)
    inner = op.where(op.greater(wide, numbers_like(lambd, wide)), op.subtract(wide, step), op.zeros_like(wide))
    found = op.where(op.less(wide, numbers_like(-lambd, wide)), op.add(wide, step), inner)
    return found if dtype in FLOATS else op.astype(found, dtype)


@ONNX.register("Clip")
def clip_old(x: Any, *, min: float = -math.inf, max: float = math.inf, **_: Any) -> Any:
    least, most = np.finfo(np.float32).min, np.finfo(np.float32).max
    found = x if min <= least else op.maximum(x, numbers_like(min, x))
    return found if max >= most else op.minimum(found, numbers_like(max, x))


@ONNX.register("Clip-11")
def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    if min is not None and max is not None and x.struct_info.dtype in FLOATS and _are_known(min, max):
        low, high = number(min), number(max)
        if low <= high:
            return op.clip(x, low, high)
    found = x if min is None else op.maximum(x, min)
    return found if max is None else op.minimum(found, max)


def _are_known(*values: Any) -> bool:
    return all(known(v) is not None for v in values)


# -- casts


@ONNX.register("Cast")
def cast(x: Any, *, to: Any, **_: Any) -> Any:
    return _cast(x, dtype_of(to, "the type that Cast gives") if isinstance(to, int) else str(to).lower())


@ONNX.register("CastLike")
def cast_like(x: Any, target: Any, **_: Any) -> Any:
    return _cast(x, target.struct_info.dtype)


def _cast(x: Any, dtype: str) -> Any:
    return x if x.struct_info.dtype == dtype else op.astype(x, dtype)


@ONNX.register("BitCast")
def bit_cast(x: Any, *, to: int) -> Any:
    dtype = dtype_of(to, "the type that BitCast gives")
    from pullback.runtime.dtype import numpy_dtype

    values = array(x)
    wanted = numpy_dtype(dtype)
    if values.dtype.itemsize != wanted.itemsize:
        raise DTypeError(f"{values.dtype} and {dtype} differ in size")
    return np.ascontiguousarray(values).view(wanted).reshape(values.shape)


@ONNX.register("Dropout")
def dropout_old(x: Any, *, ratio: float, node: Any, **_: Any) -> Any:
    return _dropout(x, ratio, node)


@ONNX.register("Dropout-12")
def dropout(x: Any, ratio: Any = None, training_mode: Any = None, *, node: Any, **_: Any) -> Any:
    return _dropout(x, number(ratio) if is_given(ratio) else 0.5, node)


def _dropout(x: Any, ratio: float, node: Any) -> Any:
    """Dropped in steps of training, whatever mode the file was exported in."""
    if not node.wants(1):
        return (op.dropout(x, p=float(ratio)) if ratio else x), None
    mask_type = "bool" if node.version >= 10 else x.struct_info.dtype
    if not ratio:
        return x, op.ones_like(x, mask_type)
    output, mask = op.nn.dropout(x, rate=float(ratio))
    return output, op.astype(mask, mask_type) if mask_type != x.struct_info.dtype else mask
