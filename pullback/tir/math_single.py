"""Functions of float32 that are evaluated in float64 and rounded once: what they lose on the way is far below an ulp.

Like the expansions of ``math.py``, of which they are made. ``rare`` marks what the C library is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pullback.tir.expr import PrimExpr, Var, call, cast, select
from pullback.tir.math import Expansion, Format, Template, float_format, split_mantissa

# The minimax polynomial of atan(√z) / √z up to tan² π/8, with an error of 1e-13.
_ATAN = (0.9999999999992442, -0.3333333327688608, 0.19999993049762435, -0.1428538640718612, 0.11103454236491274,
         -0.08992528079362637, 0.06974084047595203, -0.03765307369056794)  # fmt: skip
# (exp(r) - 1) / r for |r| up to ln 2 / 2, and log(1 + m) / m from √½ - 1 to √2 - 1: 5e-12 and 2e-11.
_EXP = (0.9999999999954959, 0.49999999999954975, 0.16666666786570844, 0.04166666678652787, 0.008333283465948619,
        0.0013888839037847843, 0.0001990761775668928, 2.4867918601290165e-05)  # fmt: skip
_LOG = (0.9999999999874651, -0.5000000003595171, 0.3333333424920659, -0.24999992728449305, 0.19999888139973632,
        -0.16667024572009081, 0.1429081173942899, -0.12495435324992145, 0.11006038270379548, -0.09945996186719662,
        0.1004720511888933, -0.09804420067786203, 0.05235888516923783)  # fmt: skip
_BENT = math.sqrt(2) - 1  # tan(π / 8)


# ---- circular functions


def _positive_atan(f: Format, y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The angle of the point (x, y), neither of which is negative: reduced to the half-quadrants' halves."""
    low, high = select(y > x, x, y), select(y > x, y, x)
    bent = low > high * _BENT  # atan(t) = π/4 + atan((t - 1) / (t + 1))
    t = select(bent, low - high, low) / select(bent, low + high, high)
    angle = f.poly(t * t, _ATAN) * t
    angle = select(bent, angle + math.pi / 4, angle)
    return select(y > x, math.pi / 2 - angle, angle)


def atan2(f: Format, y: PrimExpr, x: PrimExpr) -> PrimExpr:
    angle = _positive_atan(f, call("abs", y), call("abs", x))
    return f.with_sign(select(x < 0.0, math.pi - angle, angle), y)


def _no_ratio(y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """Both are 0, or one is no number."""
    bad = ~call("isfinite", x) | ~call("isfinite", y)
    return bad | (x.equal(0.0) & y.equal(0.0))


# ---- exponentials and logarithms


def _grown(f: Format, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """2ⁿ and exp(r) - 1, with x = n·ln 2 + r for |x| ≤ 700: beyond, float32 is 0 or infinite."""
    n, word = f.nearest(f.clamped(x, -700.0, 700.0), 1 / math.log(2), f.bias)
    r = f.mad(n, -math.log(2), f.clamped(x, -700.0, 700.0))
    return f.power(word), f.poly(r, _EXP) * r


def exp(f: Format, x: PrimExpr) -> PrimExpr:
    power, q = _grown(f, x)
    return f.mad(power, q, power)


def expm1(f: Format, x: PrimExpr) -> PrimExpr:
    power, q = _grown(f, x)
    return f.mad(power, q, power - 1.0)


def _log(f: Format, m: PrimExpr, e: PrimExpr) -> PrimExpr:
    return f.mad(e, math.log(2), f.poly(m, _LOG) * m)


def log(f: Format, x: PrimExpr) -> PrimExpr:
    """Of finite numbers above 0, which are normal in float64."""
    m, e = split_mantissa(f, x)
    return _log(f, m - 1.0, cast(f.dtype, e))


def log1p(f: Format, x: PrimExpr) -> PrimExpr:
    """Of numbers from 0 on; a small one is not added to 1 first."""
    small = x < math.sqrt(2) - 1
    m, e = split_mantissa(f, x + 1.0)
    result = _log(f, select(small, x, m - 1.0), select(small, f.const(0.0), cast(f.dtype, e)))
    return select(x < math.inf, result, x)


# ---- hyperbolic functions


def _small(f: Format, x: PrimExpr) -> PrimExpr:
    """|x|, but no more than where float32 ends: infinity over infinity is NaN."""
    return f.clamped(call("abs", x), 0.0, 100.0)


def sinh(f: Format, x: PrimExpr) -> PrimExpr:
    grown = expm1(f, _small(f, x))
    return f.with_sign((grown + grown / (grown + 1.0)) * 0.5, x)


def cosh(f: Format, x: PrimExpr) -> PrimExpr:
    grown = exp(f, _small(f, x))
    return (grown + 1.0 / grown) * 0.5


def asinh(f: Format, x: PrimExpr) -> PrimExpr:
    size = call("abs", x)
    square = size * size
    more = select(size < math.inf, size + square / (call("sqrt", square + 1.0) + 1.0), size)
    return f.with_sign(log1p(f, more), x)


def acosh(f: Format, x: PrimExpr) -> PrimExpr:
    t = x - 1.0
    return select(t < 0.0, f.const(math.nan), log1p(f, t + call("sqrt", t * (t + 2.0))))


def atanh(f: Format, x: PrimExpr) -> PrimExpr:
    size = call("abs", x)
    result = log1p(f, size * 2.0 / (1.0 - size)) * 0.5
    return f.with_sign(select(size > 1.0, f.const(math.nan), result), x)


# ---- the rest


def power(f: Format, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """exp(y·log |x|), whose relative error is at most 90 times that of the logarithm; the sign is that of an odd y."""
    size = exp(f, y * log(f, call("abs", x)))
    whole, half = call("trunc", y), y * 0.5
    odd = call("trunc", half).not_equal(half)
    signed = select(whole.equal(y), select(odd, -size, size), f.const(math.nan))
    return select(x < 0.0, signed, size)


def _no_log(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """x is 0, or one is no number."""
    return ~call("isfinite", x) | ~call("isfinite", y) | x.equal(0.0)


def fmod(f: Format, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """x - trunc(x / y)·y. The quotient, if it is no integer, is off from one by 2⁻²⁵ at least: far more than its error
    below _QUOTIENT. Then the product has no more than 53 bits and the difference is exact."""
    return f.with_sign(call("abs", x - call("trunc", x / y) * y), x)


_QUOTIENT = 2.0**26


def _large_quotient(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    return ~(call("abs", x) < call("abs", y) * _QUOTIENT) | call("isinf", y)


_UNARY: dict[str, Callable[[Format, PrimExpr], PrimExpr]] = {
    "sinh": sinh, "cosh": cosh, "asinh": asinh, "acosh": acosh, "atanh": atanh,
}  # fmt: skip
_BINARY: dict[str, tuple[Callable[..., PrimExpr], Callable[[PrimExpr, PrimExpr], PrimExpr]]] = {
    "atan2": (atan2, _no_ratio), "pow": (power, _no_log), "fmod": (fmod, _large_quotient),
}  # fmt: skip


def expand(name: str, fma: bool) -> Expansion | None:
    """The expansion of a function of float32, None if it has none here."""
    form = float_format("float64", fma)
    if name in _UNARY:
        x = Var("x", "float32")
        return Expansion(Template((x,), cast("float32", _UNARY[name](form, cast("float64", x)))))
    if name in _BINARY:
        function, rare = _BINARY[name]
        x, y = Var("x", "float32"), Var("y", "float32")
        wide = cast("float64", x), cast("float64", y)
        return Expansion(Template((x, y), cast("float32", function(form, *wide))), Template((x, y), rare(*wide)))
    return None
