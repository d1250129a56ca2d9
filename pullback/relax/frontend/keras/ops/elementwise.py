"""Functions of each element: arithmetic, comparisons, mathematical functions, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pullback.relax import op
from pullback.relax.frontend.keras.table import KERAS, Call, as_float, cast, same
from pullback.tir.expr import FLOATS

_ONE = {
    "Arccos": op.acos, "Arccosh": op.acosh, "Arcsin": op.asin, "Arcsinh": op.asinh, "Arctan": op.atan,
    "Arctanh": op.atanh, "Cos": op.cos, "Cosh": op.cosh, "Erf": op.erf, "Erfc": op.erfc, "Erfinv": op.erfinv,
    "Exp": op.exp, "Exp2": op.exp2, "Expm1": op.expm1, "Log": op.log, "Log10": op.log10, "Log1p": op.log1p,
    "Log2": op.log2, "Reciprocal": op.reciprocal, "Rsqrt": op.rsqrt, "Sin": op.sin, "Sinc": op.sinc, "Sinh": op.sinh,
    "Sqrt": op.sqrt, "Tan": op.tan, "Tanh": op.tanh, "Ceil": op.ceil, "Floor": op.floor, "Fabs": op.abs,
}  # fmt: skip
same({f"ops.{name}": function for name, function in _ONE.items()})


def _also_of_integers(names: tuple[str, ...], function: Callable[[Any], Any]) -> None:
    @KERAS.register(*names)
    def convert(c: Call, x: Any) -> Any:
        return c.cast(function(x if x.dtype != "bool" else c.cast(x)))


for _names, _function in (
    (("ops.Abs", "ops.Absolute"), op.abs), (("ops.Negative",), op.negative), (("ops.Sign",), op.sign),
    (("ops.Square",), op.square), (("ops.Copy", "ops.Conj", "ops.Conjugate", "ops.Real"), lambda x: x),
    (("ops.Deg2rad",), lambda x: x * (math.pi / 180)), (("ops.Rad2deg",), lambda x: x * (180 / math.pi)),
):  # fmt: skip
    _also_of_integers(_names, _function)


@KERAS.register("ops.Trunc")
def trunc(c: Call, x: Any) -> Any:
    return op.trunc(x) if x.dtype in FLOATS else c.cast(x)


@KERAS.register("ops.Round")
def rounded(c: Call, x: Any) -> Any:
    if x.dtype not in FLOATS:
        return c.cast(x)
    factor = 10.0**c.decimals
    return op.round(x) if c.decimals == 0 else op.round(x * factor) / factor


@KERAS.register("ops.Cbrt")
def cbrt(c: Call, x: Any) -> Any:
    x = as_float(c, x)
    return op.sign(x) * op.power(op.abs(x), 1 / 3)


# -- two operands


def _arithmetic(names: tuple[str, ...], function: Callable[[Any, Any], Any]) -> None:
    """Both operands in the dtype of the result."""

    @KERAS.register(*names)
    def convert(c: Call, x1: Any, x2: Any) -> Any:
        return function(c.cast(x1), c.cast(x2))


for _names, _two in (
    (("ops.Add",), op.add), (("ops.Subtract",), op.subtract), (("ops.Multiply",), op.multiply),
    (("ops.Divide", "ops.TrueDivide"), op.divide), (("ops.Maximum",), op.maximum), (("ops.Minimum",), op.minimum),
    (("ops.FloorDivide",), op.floor_divide), (("ops.Mod",), op.mod), (("ops.Fmod",), op.fmod),
    (("ops.Arctan2",), op.atan2), (("ops.Hypot",), op.hypot), (("ops.Logaddexp",), op.logaddexp),
):  # fmt: skip
    _arithmetic(_names, _two)


@KERAS.register("ops.DivideNoNan")
def divide_no_nan(c: Call, x1: Any, x2: Any) -> Any:
    x, y = c.cast(x1), c.cast(x2)
    is_zero = op.equal(y, cast(0, y.dtype))
    return op.where(is_zero, cast(0, x.dtype), x / op.where(is_zero, cast(1, y.dtype), y))


@KERAS.register("ops.Logaddexp2")
def logaddexp2(c: Call, x1: Any, x2: Any) -> Any:
    ln2 = math.log(2)
    return op.logaddexp(c.cast(x1) * ln2, c.cast(x2) * ln2) / ln2


@KERAS.register("ops.Power")
def power(c: Call, x1: Any, x2: Any) -> Any:
    x = c.cast(x1)
    if isinstance(x2, int) and not isinstance(x2, bool) and 0 < x2 <= 4:
        square = op.square(x)
        return {1: x, 2: square, 3: square * x, 4: op.square(square)}[x2]
    if x.dtype in FLOATS:
        return op.power(x, c.cast(x2))
    return op.astype(op.round(op.power(op.astype(x, "float64"), cast(x2, "float64"))), x.dtype)


def _comparison(name: str, function: Callable[[Any, Any], Any]) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, x1: Any, x2: Any) -> Any:
        return function(*c.common(x1, x2))


for _name, _two in (
    ("Equal", op.equal), ("NotEqual", op.not_equal), ("Less", op.less), ("LessEqual", op.less_equal),
    ("Greater", op.greater), ("GreaterEqual", op.greater_equal),
):  # fmt: skip
    _comparison(_name, _two)


def _logical(name: str, function: Callable[..., Any]) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, *values: Any) -> Any:
        return function(*(cast(v, "bool") for v in values))


for _name, _any in (
    ("LogicalAnd", op.logical_and), ("LogicalOr", op.logical_or), ("LogicalXor", op.logical_xor),
    ("LogicalNot", op.logical_not),
):  # fmt: skip
    _logical(_name, _any)


for _name, _two in (
    ("BitwiseAnd", op.bitwise_and), ("BitwiseOr", op.bitwise_or), ("BitwiseXor", op.bitwise_xor),
    ("BitwiseLeftShift", op.left_shift), ("LeftShift", op.left_shift), ("BitwiseRightShift", op.right_shift),
    ("RightShift", op.right_shift),
):  # fmt: skip
    _arithmetic((f"ops.{_name}",), _two)


@KERAS.register("ops.BitwiseInvert", "ops.BitwiseNot")
def bitwise_not(c: Call, x: Any) -> Any:
    return op.bitwise_not(x)


def _number_test(name: str, function: Callable[[Any], Any], of_integers: bool) -> None:
    @KERAS.register(f"ops.{name}")
    def convert(c: Call, x: Any) -> Any:
        if x.dtype in FLOATS:
            return function(x)
        return op.full_like(x, 1 if of_integers else 0, "bool")


for _name, _test, _of_integers in (
    ("Isfinite", op.isfinite, True), ("Isinf", op.isinf, False), ("Isnan", op.isnan, False),
    ("Isposinf", lambda x: op.equal(x, math.inf), False), ("Isneginf", lambda x: op.equal(x, -math.inf), False),
):  # fmt: skip
    _number_test(_name, _test, _of_integers)


# -- casts and choices


@KERAS.register("ops.Cast")
def convert_dtype(c: Call, x: Any) -> Any:
    return cast(x, str(c.source.dtype))


@KERAS.register("ops.ConvertToTensor")
def convert_to_tensor(c: Call, x: Any) -> Any:
    return c.cast(x)


@KERAS.register("ops.StopGradient")
def stop_gradient(c: Call, variable: Any) -> Any:
    return op.stop_gradient(variable)


@KERAS.register("ops.Where")
def where(c: Call, condition: Any, x1: Any = None, x2: Any = None) -> Any:
    return op.where(cast(condition, "bool"), c.cast(x1), c.cast(x2))


@KERAS.register("ops.Clip")
def clip(c: Call, x: Any) -> Any:
    low, high = (c.trace.unwrapped(v) for v in (c.x_min, c.x_max))
    return op.minimum(op.maximum(c.cast(x), c.cast(low)), c.cast(high))


@KERAS.register("ops.NanToNum")
def nan_to_num(c: Call, x: Any) -> Any:
    return op.nan_to_num(x, float(c.nan), c.posinf, c.neginf) if x.dtype in FLOATS else x


@KERAS.register("ops.Isclose")
def isclose(c: Call, x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8) -> Any:
    x, y = c.common(x1, x2)
    return op.logical_or(op.equal(x, y), op.less_equal(op.abs(x - y), atol + rtol * op.abs(y)))


@KERAS.register("ops.Select")
def select(c: Call, condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    result = c.cast(default)
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = op.where(cast(condition, "bool"), c.cast(choice), result)
    return result


@KERAS.register("ops.Heaviside")
def heaviside(c: Call, x1: Any, x2: Any) -> Any:
    x = c.cast(x1)
    zero, one = cast(0, x.dtype), cast(1, x.dtype)
    return op.where(op.equal(x, zero), c.cast(x2), op.where(op.greater(x, zero), one, zero))


@KERAS.register("ops.Cond")
def cond(c: Call, pred: Any, true_fn: Any, false_fn: Any) -> Any:
    """Both branches are computed: functions of Keras have no effects."""
    chosen = cast(pred, "bool")
    return _either(chosen, c.run(true_fn), c.run(false_fn))


def _either(chosen: Any, then: Any, otherwise: Any) -> Any:
    if isinstance(then, (list, tuple)):
        return type(then)(_either(chosen, a, b) for a, b in zip(then, otherwise, strict=True))
    if not hasattr(then, "dtype"):
        then, otherwise = cast(then, otherwise.dtype), otherwise
    return op.where(chosen, then, cast(otherwise, then.dtype))
