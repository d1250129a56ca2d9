"""Special functions: the error function's complement and inverse, and the gamma function's logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import tir
from pullback.relax.op.family import unary
from pullback.relax.op.namespace import ops
from pullback.te.interpreter import erf as erf_array
from pullback.te.interpreter import erfc as erfc_array
from pullback.tir import call, select

_SLOPE = 2 / math.sqrt(math.pi)  # erf'(x) is _SLOPE·exp(-x²)

erfc = unary(
    "erfc",
    numpy=erfc_array,
    scalar=lambda x: call("erfc", x),
    gradient=lambda y, x, dy: -(dy * (ops.exp(-(x * x)) * _SLOPE)),
    doc="1 - erf(x), exact for large x.",
)

# erfinv(y) / y as a polynomial of w - 2.5 with w = -log(1 - y²) below 5, and of √w - 4 above (least
# squares, reweighted until the relative errors are level: 6e-9 and 5e-7). One step of Halley's method does the rest.
_NEAR = (1.50140936, 0.246640286, -0.00417738678, -0.00125274188, 0.000218344439, -4.96334786e-06, -3.4627047600e-06,
         4.66170664e-07, 2.32326443e-08, -8.7910565e-09)  # fmt: skip
_FAR = (3.83978430, 1.00950213, 0.00125344669, -0.000917091573, 0.0003384303, -4.64556084e-05, 3.27312673e-05,
        -7.37238928e-05, 3.40437505e-05, -4.90680335e-07, -1.56292491e-06)  # fmt: skip


def _polynomial(x: tir.PrimExpr, coefficients: Sequence[float]) -> tir.PrimExpr:
    result: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = x * result + c
    return result


def _erfinv_scalar(y: tir.PrimExpr) -> tir.PrimExpr:
    """In float64, rounded once. Near ±1, erf(x) - y is taken as the difference of the complements, which are exact."""
    dtype, y = y.dtype, tir.cast("float64", y)
    size = call("abs", y)
    rest = 1.0 - size
    w = -call("log", rest * (size + 1.0))
    x = size * select(w < 5.0, _polynomial(w - 2.5, _NEAR), _polynomial(call("sqrt", w) - 4.0, _FAR))
    miss = select(size < 0.5, call("erf", x) - size, rest - call("erfc", x))
    step = miss / (call("exp", -(x * x)) * _SLOPE)
    x = select(rest.equal(0.0), tir.const(math.inf, "float64"), x - step / (x * step + 1.0))
    return tir.cast(dtype, select(y < 0.0, -x, x))


def _erfinv(y: np.ndarray) -> np.ndarray:
    """Newton's method in float64 on log(erfc(x)) = log(1 - |y|), from above; on erf(x) = |y| for small y."""
    size = np.abs(y.astype(np.float64))
    with np.errstate(all="ignore"):
        rest = 1 - size
        x = np.sqrt(-np.log1p(-size))  # erfc(x) ≤ exp(-x²)
        for _ in range(12):
            density = _SLOPE * np.exp(-x * x)
            tail = erfc_array(x)
            near = erf_array(x) - size
            x = np.where(size < 0.5, x - near / density, x + tail / density * (np.log(tail) - np.log(rest)))
    x = np.where(size == 1, np.inf, np.where(size > 1, np.nan, x))
    return np.copysign(x, y).astype(y.dtype)


erfinv = unary(
    "erfinv",
    numpy=_erfinv,
    scalar=_erfinv_scalar,
    gradient=lambda y, x, dy: dy * ops.exp(y * y) * (1 / _SLOPE),
    domain=(-0.99, 0.99),
    doc="The x whose erf is y, infinite at ±1, NaN beyond.",
)
