"""Elementwise ops of two tensors that broadcast: z[i] = f(x[i], y[i])."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError
from pullback.relax.op.family import binary, elementwise_infer, in_wide, masked, scalar_in_wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import all_of
from pullback.relax.struct_info import TensorStructInfo
from pullback.tir import call, select
from pullback.tir.arithmetic import maximum as array_maximum
from pullback.tir.arithmetic import minimum as array_minimum
from pullback.tir.arithmetic import power as array_power
from pullback.tir.expr import binary as tir_binary
from pullback.tir.expr import is_float

# -- arithmetic

add = binary(
    "add",
    numpy=np.add,
    scalar=operator.add,
    gradient=lambda z, x, y, dz: (dz, dz),
    precision="same",
    doc="x + y.",
)
subtract = binary(
    "subtract",
    numpy=np.subtract,
    scalar=operator.sub,
    gradient=lambda z, x, y, dz: (dz, -dz),
    precision="same",
    doc="x - y.",
)
multiply = binary(
    "multiply",
    numpy=np.multiply,
    scalar=operator.mul,
    gradient=lambda z, x, y, dz: (dz * y, dz * x),
    precision="same",
    doc="x · y.",
)


def _divide_infer(x: TensorStructInfo, y: TensorStructInfo) -> TensorStructInfo:
    if not is_float(x.dtype) and x.dtype == y.dtype:
        hint = "R.floor_divide divides integers; R.astype makes floats of them"
        raise DTypeError(f"divide: the operands must have a floating-point dtype, got {x.dtype}", hint=hint)
    return elementwise_infer("divide", "float", None)(x, y)


divide = binary(
    "divide",
    numpy=np.divide,
    scalar=operator.truediv,
    infer=_divide_infer,
    dtypes="float",
    gradient=lambda z, x, y, dz: (dz / y, -(dz * z / y)),
    singular=True,
    domain=(0.2, 3.0),
    precision="same",
    doc="x / y of floats, by the rules of IEEE 754: x/0 is an infinity, 0/0 is NaN.",
)

multiply_no_nan = binary(
    "multiply_no_nan",
    numpy=lambda x, y: np.where((x == 0) | (y == 0), x.dtype.type(0), x * y),
    scalar=lambda x, y: call("multiply_no_nan", x, y),
    dtypes="float",
    gradient=lambda z, x, y, dz: (ops.multiply_no_nan(y, dz), ops.multiply_no_nan(x, dz)),
    precision="same",
    zeros="makes",
    doc="x · y, and 0 where either is 0, whatever the other one is, infinite or NaN: what a gradient multiplies by\n"
    "where an adjoint may be 0 because a value was not taken. TensorFlow's, where y alone has this right.",
)
xdivy = binary(
    "xdivy",
    numpy=lambda x, y: np.where(x == 0, x.dtype.type(0), x / y),
    scalar=lambda x, y: call("xdivy", x, y),
    dtypes="float",
    gradient=lambda z, x, y, dz: (ops.xdivy(dz, y), -ops.xdivy(ops.multiply_no_nan(z, dz), y)),
    domain=(0.2, 3.0),
    precision="same",
    zeros="makes",
    doc="x / y, and 0 where x is 0, whatever y is, 0 or NaN. TensorFlow's xdivy.",
)


def _fmod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iu":
        return np.fmod(x, y)
    return np.fmod(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)  # exact in any format


def _no_zeros(x: te.Tensor, y: te.Tensor) -> te.Tensor | None:
    """No integer is divided by 0."""
    if is_float(y.dtype):
        return None
    return all_of(te.compute(y.shape, lambda *i: y[i].not_equal(0), "valid"))


def _by_zero(name: str) -> dict[str, Any]:
    return {"constant_check": _no_zeros, "check_message": f"{name}: an integer is divided by 0"}


floor_divide = binary(
    "floor_divide",
    numpy=np.floor_divide,
    scalar=operator.floordiv,
    domain=(0.7, 9.0),
    **_by_zero("floor_divide"),
    doc="⌊x / y⌋, as Python has it; of integers, x // 0 is 0.",
)
mod = binary(
    "mod",
    numpy=np.mod,
    scalar=operator.mod,
    gradient=lambda z, x, y, dz: (dz, -(dz * ops.floor_divide(x, y))),
    singular=True,
    domain=(0.7, 9.0),
    **_by_zero("mod"),
    doc="x - ⌊x / y⌋·y, exactly: it has the sign of y; of integers, x mod 0 is 0.",
)

fmod = binary(
    "fmod",
    numpy=_fmod,
    scalar=lambda x, y: tir_binary("truncmod", x, y),
    gradient=lambda z, x, y, dz: (dz, -(dz * ops.trunc(x / y))),
    singular=True,
    domain=(0.7, 9.0),
    **_by_zero("fmod"),
    doc="x - trunc(x / y)·y, exactly: it has the sign of x; of integers, fmod(x, 0) is 0.",
)


def _power_gradient(z: Any, x: Any, y: Any, dz: Any) -> tuple[Any, Any]:
    """dx = y·xʸ⁻¹ (0 of x⁰ at x = 0, and at NaN), dy = z·ln x (0 at x = 0, y ≥ 0); what is masked is kept finite, so
    that the second derivative is too."""
    zero = ops.equal(x, 0.0)
    corner = ops.logical_and(ops.logical_or(zero, ops.isnan(x)), ops.equal(y, 0.0))
    at_zero = ops.logical_and(zero, y >= 0.0)
    one = ops.ones_like(x)
    dx = dz * y * ops.power(ops.where(corner, one, x), y - 1.0)
    dy = dz * z * ops.log(ops.where(at_zero, one, x))
    return masked(ops.logical_not(corner), dx), masked(ops.logical_not(at_zero), dy)


power = binary(
    "power",
    numpy=in_wide(array_power),
    scalar=lambda x, y: call("pow", x, y),
    dtypes="float",
    gradient=_power_gradient,
    singular=True,
    domain=(0.2, 3.0),
    doc="xʸ of floats; NaN for a negative x and a y that is no integer; x⁰ is 1.",
)


def _extremum_gradient(wins: Callable[[Any, Any], Any]) -> Callable[..., tuple[Any, Any]]:
    def gradient(z: Any, x: Any, y: Any, dz: Any) -> tuple[Any, Any]:
        shared = ops.where(ops.equal(x, y), dz * 0.5, dz)
        return masked(ops.logical_not(wins(y, x)), shared), masked(ops.logical_not(wins(x, y)), shared)

    return gradient


maximum = binary(
    "maximum",
    numpy=array_maximum,
    scalar=tir.maximum,
    gradient=_extremum_gradient(operator.gt),
    precision="same",
    doc="The larger of x and y (of zeros the first), NaN if either is; where they are equal each gets half of the\n"
    "adjoint, as in PyTorch.",
)
minimum = binary(
    "minimum",
    numpy=array_minimum,
    scalar=tir.minimum,
    gradient=_extremum_gradient(operator.lt),
    precision="same",
    doc="The smaller of x and y (of zeros the first), NaN if either is; where they are equal each gets half of the\n"
    "adjoint, as in PyTorch.",
)


def _atan2_gradient(z: Any, x: Any, y: Any, dz: Any) -> tuple[Any, Any]:
    """(y / r², -x / r²) with r = hypot(x, y), whose square may be out of range, and 0 at r = 0. What is masked is kept
    finite, so that the second derivative is too."""
    r = ops.hypot(x, y)
    apart = ops.not_equal(r, 0.0)  # so is NaN
    safe = ops.where(apart, r, ops.ones_like(r))
    scaled = dz / safe
    return masked(apart, scaled * (y / safe)), masked(apart, -(scaled * (x / safe)))


atan2 = binary(
    "atan2",
    numpy=np.arctan2,
    scalar=lambda x, y: call("atan2", x, y),
    dtypes="float",
    gradient=_atan2_gradient,
    singular=True,
    domain=(0.2, 3.0),
    doc="The angle of the point (y, x) in radians: atan(x / y) in the right quadrant; its derivative at (0, 0) is\n"
    "taken as 0, as in PyTorch.",
)


def _logaddexp_scalar(x: tir.PrimExpr, y: tir.PrimExpr) -> tir.PrimExpr:
    """Equal ones apart: the difference of two infinities is NaN."""
    soft = tir.maximum(x, y) + call("log1p", call("exp", -call("abs", x - y)))
    return select(x.equal(y), x + math.log(2), soft)


logaddexp = binary(
    "logaddexp",
    numpy=in_wide(np.logaddexp),
    scalar=scalar_in_wide(_logaddexp_scalar),
    dtypes="float",
    gradient=lambda z, x, y, dz: (dz * ops.sigmoid(x - y), dz * ops.sigmoid(y - x)),
    doc="log(eˣ + eʸ), without overflow.",
)


def _xlogy_gradient(z: Any, x: Any, y: Any, dz: Any) -> tuple[Any, Any]:
    """dx = ln y, 0 at x = 0 where y ≤ 0; dy = x / y, 0 at x = y = 0. What is masked is kept finite, so that the second
    derivative is too."""
    zero, one = ops.equal(x, 0.0), ops.ones_like(y)
    no_log, corner = ops.logical_and(zero, y <= 0.0), ops.logical_and(zero, ops.equal(y, 0.0))
    dx, dy = dz * ops.log(ops.where(no_log, one, y)), dz * x / ops.where(corner, one, y)
    return masked(ops.logical_not(no_log), dx), masked(ops.logical_not(corner), dy)


xlogy = binary(
    "xlogy",
    numpy=in_wide(lambda x, y: np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * np.log(y))),
    scalar=scalar_in_wide(lambda x, y: select(x.equal(0.0) & ~call("isnan", y), 0.0, x * call("log", y))),
    dtypes="float",
    gradient=_xlogy_gradient,
    singular=True,
    domain=(0.2, 3.0),
    doc="x · log y, and 0 where x is 0, unless y is NaN. Its derivatives at x = 0 are taken as 0 where log y is none.",
)


def _hypot_scalar(x: tir.PrimExpr, y: tir.PrimExpr) -> tir.PrimExpr:
    """The larger times √(1 + ratio²), which does not overflow before the result does."""
    a, b = call("abs", x), call("abs", y)
    large = tir.maximum(a, b)
    ratio = tir.minimum(a, b) / large
    length = select(large.equal(0.0), large, large * call("sqrt", ratio * ratio + 1.0))
    return select(a.equal(math.inf) | b.equal(math.inf), math.inf, length)  # also where the other one is NaN


def _hypot_gradient(z: Any, x: Any, y: Any, dz: Any) -> tuple[Any, Any]:
    apart = ops.not_equal(z, 0.0)  # so is NaN
    safe = ops.where(apart, z, ops.ones_like(z))
    return masked(apart, dz * (x / safe)), masked(apart, dz * (y / safe))


hypot = binary(
    "hypot",
    numpy=in_wide(np.hypot),
    scalar=scalar_in_wide(_hypot_scalar),
    dtypes="float",
    gradient=_hypot_gradient,
    singular=True,
    doc="√(x² + y²), without overflow; its derivative at (0, 0) is taken as 0.",
)

# -- comparisons: the result is bool; NaN is unequal to everything and unordered

equal = binary(
    "equal",
    numpy=np.equal,
    scalar=lambda x, y: x.equal(y),
    dtypes="any",
    result="bool",
    precision="same",
    doc="Whether x = y.",
)
not_equal = binary(
    "not_equal",
    numpy=np.not_equal,
    scalar=lambda x, y: x.not_equal(y),
    dtypes="any",
    result="bool",
    precision="same",
    doc="Whether x ≠ y.",
)
less = binary("less", numpy=np.less, scalar=operator.lt, result="bool", precision="same", doc="Whether x < y.")
less_equal = binary(
    "less_equal", numpy=np.less_equal, scalar=operator.le, result="bool", precision="same", doc="Whether x ≤ y."
)
greater = binary("greater", numpy=np.greater, scalar=operator.gt, result="bool", precision="same", doc="Whether x > y.")
greater_equal = binary(
    "greater_equal",
    numpy=np.greater_equal,
    scalar=operator.ge,
    result="bool",
    precision="same",
    doc="Whether x ≥ y.",
)

# -- logic and bits

logical_and = binary("logical_and", numpy=np.logical_and, scalar=operator.and_, dtypes="bool", doc="x and y.")
logical_or = binary("logical_or", numpy=np.logical_or, scalar=operator.or_, dtypes="bool", doc="x or y.")
logical_xor = binary("logical_xor", numpy=np.logical_xor, scalar=operator.xor, dtypes="bool", doc="Either x or y.")
bitwise_and = binary(
    "bitwise_and",
    numpy=np.bitwise_and,
    scalar=operator.and_,
    dtypes="integer or bool",
    doc="The bits set in both x and y.",
)
bitwise_or = binary(
    "bitwise_or",
    numpy=np.bitwise_or,
    scalar=operator.or_,
    dtypes="integer or bool",
    doc="The bits set in x or y.",
)
bitwise_xor = binary(
    "bitwise_xor",
    numpy=np.bitwise_xor,
    scalar=operator.xor,
    dtypes="integer or bool",
    doc="The bits set in either x or y.",
)


left_shift = binary(
    "left_shift",
    numpy=np.left_shift,
    scalar=operator.lshift,
    dtypes="integer",
    domain=(0, 7),
    doc="x · 2ʸ, what does not fit being lost; 0 for y outside 0 … width - 1.",
)
right_shift = binary(
    "right_shift",
    numpy=np.right_shift,
    scalar=operator.rshift,
    dtypes="integer",
    domain=(0, 7),
    doc="⌊x / 2ʸ⌋; 0 or -1, by the sign of x, for y outside 0 … width - 1.",
)
