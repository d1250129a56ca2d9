"""Special functions: the error function's complement and inverse, and the gamma function's logarithm with its
derivatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import zip_longest
from typing import Any

import numpy as np

from pullback import tir
from pullback.ir.errors import UserError
from pullback.relax.op.family import elementwise_infer, expect_int, unary, wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import TensorStructInfo
from pullback.te.interpreter import erf as erf_array
from pullback.te.interpreter import erfc as erfc_array
from pullback.tir import call, select

_SLOPE = 2 / math.sqrt(math.pi)  # erf'(x) is _SLOPE·exp(-x²)

erfc = unary(
    "erfc",
    numpy=erfc_array,
    scalar=lambda x: call("erfc", x),
    gradient=lambda y, x, dy: -(dy * (ops.exp(-(x * x)) * _SLOPE)),
    precision="same",
    doc="1 - erf(x), exact for large x.",
)

# erfinv(y) / y as a polynomial of w - 2.5 with w = -log(1 - y²) below 5 (with an error of 6e-9), and of √w - _CENTRE
# above: in float32 and less, where √w is no more than 4.1, that is the result (1e-8), in float64 one step of Halley's
# method does the rest (5e-7).
_NEAR = (1.50140936, 0.246640286, -0.00417738678, -0.00125274188, 0.000218344439, -4.96334786e-06, -3.4627047600e-06,
         4.66170664e-07, 2.32326443e-08, -8.7910565e-09)  # fmt: skip
_FAR = {
    "float32": (3.0210788249969482, 1.0045411586761475, 0.006138687487691641, -0.00444703409448266,
                0.003061054740101099, -0.0020648527424782515, 0.001169906696304679, -0.00037469490780495107,
                -0.00011432433529989794, 0.0001157021542894654),
    "float64": (3.83978430, 1.00950213, 0.00125344669, -0.000917091573, 0.0003384303, -4.64556084e-05, 3.27312673e-05,
                -7.37238928e-05, 3.40437505e-05, -4.90680335e-07, -1.56292491e-06),
}  # fmt: skip
_CENTRE = {"float32": 3.1875, "float64": 4.0}


def _polynomial(x: tir.PrimExpr, coefficients: Sequence[Any]) -> tir.PrimExpr:
    result: Any = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        result = x * result + c
    return result


def _erfinv_ratio(size: tir.PrimExpr, kind: str) -> tir.PrimExpr:
    """erfinv(y) / y for |y|: one polynomial, whose coefficients depend on where y is."""
    w = -call("log", (1.0 - size) * (size + 1.0))
    is_near = w < 5.0
    x = select(is_near, w - 2.5, call("sqrt", w) - _CENTRE[kind])
    pairs = zip_longest(_NEAR, _FAR[kind], fillvalue=0.0)
    return _polynomial(x, [select(is_near, tir.const(a, kind), tir.const(b, kind)) for a, b in pairs])


def _erfinv_scalar(y: tir.PrimExpr) -> tir.PrimExpr:
    """In float64 with a step of Halley's method. Near ±1, erf(x) - y is taken as the difference of the complements,
    which are exact."""
    kind = wide(y.dtype)
    given, y = y.dtype, tir.cast(kind, y)
    size = call("abs", y)
    rest = 1.0 - size
    x = y * _erfinv_ratio(size, kind)
    if kind == "float64":
        x = call("abs", x)
        miss = select(size < 0.5, call("erf", x) - size, rest - call("erfc", x))
        step = miss / (call("exp", -(x * x)) * _SLOPE)
        x = x - step / (x * step + 1.0)
        x = select(y > 0.0, x, select(y < 0.0, -x, y))
    infinity = select(
        y > 0.0, tir.const(math.inf, kind), tir.const(-math.inf, kind)
    )  # constants: y·∞ has no derivative
    return tir.cast(given, select(rest.equal(0.0), infinity, x))


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
    singular=True,
    domain=(-0.99, 0.99),
    doc="The x whose erf is y, infinite at ±1, NaN beyond.",
)

# -- the gamma function, in float64: half and single precision are rounded once

# Lanczos's approximation with g = 7 (Godfrey's coefficients): Γ(x + 1) = √(2π)·(x + 7.5)^(x + 0.5)·e^-(x + 7.5)·A(x)
_LANCZOS = (0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
            12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7)  # fmt: skip
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)  # B₂, B₄, …


def _in_double(scalar: Any) -> Any:
    """A scalar function evaluated in float64."""
    return lambda x, **attrs: tir.cast(x.dtype, scalar(tir.cast("float64", x), **attrs))


def _array_in_double(numpy: Any) -> Any:
    """A function of arrays evaluated in float64."""

    def run(x: np.ndarray, **attrs: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(numpy(x.astype(np.float64), **attrs)).astype(x.dtype)

    return run


# sin(πr) / r as a polynomial of r² for |r| ≤ 1/2 (minimax, 7e-19)
_SINE = (3.141592653589793, -5.167712780049969, 2.5501640398773007, -0.5992645293189447, 0.0821458865731029,
         -0.007370430505916944, 0.0004662998161898394, -2.1903497074626018e-05, 7.697826768224191e-07)  # fmt: skip


def _sine(r: tir.PrimExpr) -> tir.PrimExpr:
    """sin πr for |r| ≤ 1/2."""
    return r * _polynomial(r * r, _SINE)


def _fraction(x: tir.PrimExpr) -> tir.PrimExpr:
    """What x is above the next integer: πx's sine and cosine are those of π times it but for the sign."""
    return x - call("round", x)


@functools.cache
def _lanczos_ratio() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A(x) over one denominator, (x + 1)…(x + 8): the coefficients of both, of which none is negative."""

    def product(left_out: int) -> list[Fraction]:
        result = [Fraction(1)]
        for k in range(1, len(_LANCZOS)):
            if k != left_out:
                result = [k * a + b for a, b in zip([*result, Fraction(0)], [Fraction(0), *result], strict=True)]
        return result

    terms = [[Fraction(c) * a for a in product(k)] for k, c in enumerate(_LANCZOS)]
    numerator = [sum(column) for column in zip_longest(*terms, fillvalue=Fraction(0))]
    return tuple(map(float, numerator)), tuple(map(float, product(0)))


@_in_double
def _lgamma_scalar(x: tir.PrimExpr) -> tir.PrimExpr:
    """Below 1/2 by the reflection log |Γ(x)| = log(π / |sin πx|) - log Γ(1 - x)."""
    low = x < 0.5
    y = select(low, -x, x - 1.0)
    near = select(y < 1e18, y, 1e18)  # beyond, A(y) does not change any more
    above, below = (_polynomial(near, c) for c in _lanczos_ratio())
    log = (y + 0.5) * (call("log", y + 7.5) - 1.0) + (0.5 * math.log(2 * math.pi) - 7.0)
    sine = call("abs", _sine(_fraction(x)))
    # log A of x, or log(π / |sin πx|) - log A of 1 - x; next to 0, -log |x|, whose quotient would overflow
    tiny = call("abs", x) < 1e-290
    quotient = select(low, below * math.pi, above) / select(low, above * sine, below)
    result = call("log", select(tiny, call("abs", x), quotient))
    result = select(tiny, -result, result + select(low, -log, log))
    result = select(low & sine.equal(0.0), tir.const(math.inf, "float64"), result)
    result = select(x.equal(1.0) | x.equal(2.0), tir.const(0.0, "float64"), result)
    return select(call("isinf", x), tir.const(math.inf, "float64"), result)


@_array_in_double
@functools.partial(np.vectorize, otypes=[np.float64])
def _lgamma(x: float) -> float:
    pole = math.isinf(x) or (x <= 0 and x == math.floor(x))
    try:
        return math.inf if pole else math.lgamma(x)
    except OverflowError:  # from about 2.5e305 on
        return math.inf


lgamma = unary(
    "lgamma",
    numpy=_lgamma,
    scalar=_lgamma_scalar,
    gradient=lambda y, x, dy: dy * ops.digamma(x),
    singular=True,
    domain=(-2.9, 9.0),
    doc="log |Γ(x)|: ∞ at 0 and the negative integers.",
)


def _shifted(n: int) -> int:
    """By how much the argument of the n-th polygamma function is raised before its asymptotic series."""
    return 7 + n


def _polygamma_series(z: Any, n: int) -> Any:
    """The n-th polygamma function of a large z without its logarithm (of n = 0) and without its sign: Abramowitz and
    Stegun, 6.4.11."""
    inverse = 1.0 / z
    square = inverse * inverse
    tail: Any = 0.0
    for k, b in reversed(list(enumerate(_BERNOULLI, 1))):
        tail = (tail + b * math.factorial(2 * k + n - 1) / math.factorial(2 * k)) * square
    first = math.factorial(n - 1) if n else 0.0
    return math.prod([inverse] * n) * (tail + inverse * (math.factorial(n) / 2) + first)


def _polygamma_positive(x: Any, n: int, log: Any) -> Any:
    """By the recurrence: Σ n! / (x + k)^(n + 1) and the series of x + 7 + n."""
    total: Any = _polygamma_series(x + float(_shifted(n)), n)
    for k in reversed(range(_shifted(n))):
        inverse = 1.0 / (x + float(k))
        total = total + math.prod([inverse] * (n + 1)) * math.factorial(n)
    if n == 0:
        return log(x + float(_shifted(n))) - total
    return total if n % 2 else -total


@functools.cache
def _cotangent_derivative(n: int) -> tuple[int, ...]:
    """The n-th derivative of cot x as a polynomial in c = cot x, c' being -(1 + c²): its coefficients from 1 to the
    highest power."""
    if n == 0:
        return (0, 1)
    slope = [k * a for k, a in enumerate(_cotangent_derivative(n - 1))][1:]
    return tuple(-a - b for a, b in zip((*slope, 0, 0), (0, 0, *slope), strict=True))


def _reflected(y: Any, cotangent: Any, n: int) -> Any:
    """The n-th polygamma function of x from y, that of 1 - x: the n-th derivative of ψ(x) = ψ(1 - x) - π cot πx."""
    *lower, highest = map(float, _cotangent_derivative(n))
    derivative: Any = highest  # of an infinite cotangent it is infinite
    for a in reversed(lower):
        derivative = derivative * cotangent + a
    return (-y if n % 2 else y) - derivative * math.pi ** (n + 1)


@_in_double
def _polygamma_scalar(x: tir.PrimExpr, n: int) -> tir.PrimExpr:
    """Below 1/2 by reflection."""
    low, r = x < 0.5, _fraction(x)
    y = _polygamma_positive(select(low, 1.0 - x, x), n, lambda z: call("log", z))
    sine = _sine(r)
    reflected = _reflected(y, _sine(0.5 - call("abs", r)) / sine, n)
    if n:
        return select(low, reflected, y)
    reflected = select(sine.equal(0.0), tir.const(math.nan, "float64"), reflected)
    return select(x.equal(0.0), -1.0 / x, select(low, reflected, y))


@_array_in_double
def _polygamma(x: np.ndarray, n: int) -> np.ndarray:
    low = x < 0.5
    y = _polygamma_positive(np.where(low, 1 - x, x), n, np.log)
    angle = np.pi * (x - np.round(x))
    reflected = _reflected(y, np.cos(angle) / np.sin(angle), n)
    if n:
        return np.where(low, reflected, y)
    reflected = np.where(np.sin(angle) == 0, np.nan, reflected)
    return np.where(x == 0, -1 / x, np.where(low, reflected, y))


digamma = unary(
    "digamma",
    numpy=lambda x: _polygamma(x, n=0),
    scalar=lambda x: _polygamma_scalar(x, n=0),
    gradient=lambda y, x, dy: dy * ops.polygamma(x, 1),
    singular=True,
    domain=(0.1, 9.0),
    doc="The derivative of log Γ(x): NaN at the negative integers, ∓∞ at ±0.",
)


def _polygamma_infer(x: TensorStructInfo, *, n: int) -> TensorStructInfo:
    expect_int("polygamma", "n", n)
    if not 0 <= n <= 20:
        raise UserError(f"polygamma: n must be from 0 to 20, got {n}")
    return elementwise_infer("polygamma", "float", None)(x)


polygamma = unary(
    "polygamma",
    attrs="n",
    infer=_polygamma_infer,
    numpy=_polygamma,
    scalar=_polygamma_scalar,
    gradient=lambda y, x, dy, n: dy * ops.polygamma(x, n + 1),
    singular=True,
    doc="The (n + 1)-th derivative of log Γ(x), for n from 0 to 20: digamma for n = 0. From n = 1 on it is\n"
    "infinite at 0 and the negative integers: ∞ for an odd n, -∞ for an even one.",
    samples=[
        sample(Floats((3, 17), 0.2, 9.0), n=0),
        sample(Floats((17,), 0.3, 9.0), n=1),
        sample([-0.7, -1.4, -2.6], n=1, smooth=False),
        sample([-0.7, -1.4, -2.6, 0.2], n=2, smooth=False),
        sample([-0.7, -1.4, -2.6, 0.2], n=3, smooth=False),
        sample(Floats((17,), 0.5, 4.0), n=2),
        sample(Floats((17,), 1.0, 4.0), n=5),
        sample((0,), n=3),
    ],
)
logit = unary(
    "logit",
    numpy=lambda x: np.log(x / (x.dtype.type(1) - x)),
    scalar=lambda x: call("log", x / (1.0 - x)),
    gradient=lambda y, x, dy: ops.where(ops.isnan(y), y, dy / (x * (1.0 - x))),
    singular=True,
    domain=(0.05, 0.45),
    doc="log(x / (1 - x)), the inverse of sigmoid: NaN outside 0 … 1.",
)
