"""Elementary functions written in the loop IR's own arithmetic.

An expansion is an expression over add, mul, select, reinterpret, … that computes an intrinsic in all lanes at once. The
interpreter can evaluate it as well as generated code does, so that its accuracy is tested without LLVM. Errors stay
within 2 ulp, where nothing else is said, over the whole range, infinities, NaN, subnormals and signed zeros included;
``rare`` marks arguments for which the C library has to be asked instead. More functions of float32, computed in
float64, are in ``math_single.py``.

The coefficients are minimax polynomials (Remez's algorithm in 60 digits), rounded.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from pullback.tir.expr import PrimExpr, Var, as_expr, bits, call, cast, const, is_half, select


@dataclass(frozen=True)
class Template:
    """An expression in variables: a function without a call."""

    params: tuple[Var, ...]
    body: PrimExpr


@dataclass(frozen=True)
class Expansion:
    """How to compute an intrinsic: ``value``, but the C library's answer where ``rare`` (a bool) holds.

    ``parts``: m and the whole n of a value that is m · 2ⁿ, rounded once, for CPUs where that is an instruction.
    """

    value: Template
    rare: Template | None = None
    parts: tuple[Template, Template] | None = None


_EXP = {
    "float32": (1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514,
                0.0013814539415761828),
    "float64": (1.0, 1.0, 0.5, 0.16666666666666682, 0.04166666666666608, 0.008333333333316786, 0.0013888888889119118,
                0.00019841269897013567, 2.480158692229289e-05, 2.7557234220182927e-06, 2.7557583890952267e-07,
                2.5112264487100406e-08, 2.082642360533325e-09),
}  # fmt: skip
_EXP2 = {
    "float32": (0.6931471824645996, 0.24022650718688965, 0.055504102259874344, 0.00961803738027811,
                0.0013333936221897602, 0.0001546688290545717, 1.51960502989823e-05),
    "float64": (0.6931471805599453, 0.24022650695910072, 0.05550410866482169, 0.009618129107628328,
                0.0013333558146392404, 0.0001540353039364282, 1.5252733854619534e-05, 1.321548659372145e-06,
                1.0178051805844768e-07, 7.054974736349086e-09, 4.456592545269048e-10, 2.5625305709773524e-11),
}  # fmt: skip
_EXPM1 = {
    "float32": (0.5, 0.1666666716337204, 0.04166635125875473, 0.00833327230066061, 0.0013941206270828843,
                0.00019914450240321457),
    "float64": (0.5, 0.16666666666666666, 0.04166666666666669, 0.008333333333333338, 0.0013888888888871668,
                0.00019841269841245149, 2.4801587350609428e-05, 2.7557319278272022e-06, 2.7557251428206503e-07,
                2.505204706227308e-08, 2.0921741691055646e-09, 1.6093525580385153e-10),
}  # fmt: skip
_TANH = {
    "float32": (-0.3333333134651184, 0.1333319991827011, -0.05394599214196205, 0.021696070209145546,
                -0.008165033534169197, 0.002130902837961912),
    "float64": (-0.33333333333333315, 0.13333333333329778, -0.05396825396607234, 0.021869488468947026,
                -0.00886323431435136, 0.0035921140007819994, -0.0014557258573180333, 0.000589451035489593,
                -0.00023700861846639827, 9.155130773302312e-05, -3.0178511663825165e-05, 6.037992017591295e-06),
}  # fmt: skip
_LOG_F32 = (0.3333333432674408, -0.24999965727329254, 0.2000003606081009, -0.16669440269470215, 0.14286959171295166,
            -0.12424986809492111, 0.11011741310358047, -0.10794512182474136, 0.10745418816804886,
            -0.061528630554676056)  # fmt: skip
_LOG_F64 = (0.6666666666666666, 0.4000000000000626, 0.2857142856908171, 0.22222222647429804, 0.18181775614539042,
            0.15387092999021962, 0.13250067313976457, 0.13251793669702938)  # fmt: skip
# Of √z up to π/4 + 0.01: (sin(√z) / √z - 1) / z, (cos √z - 1) / z, (1 - tan(√z) / √z) / z.
_SIN = (-0.16666653752326965, 0.008332118391990662, -0.00019509062985889614)
_COS = (-0.5, 0.04166664555668831, -0.0013887288514524698, 2.4429213226540014e-05)
_TAN = (-0.33333122730255127, -0.13339711725711823, -0.053335126489400864, -0.02470393106341362,
        -0.002678035059943795, -0.00964830256998539)  # fmt: skip
# (log2(1 + m) - m / ln 2) / m² and (log10(1 + m) - m / ln 10) / m²; (asin(√z) / √z - 1) / z up to _BENT² and
# (atan(√z) / √z - 1) / z up to 1.
_LOG2_F32 = (-0.7213473320007324, 0.4808982312679291, -0.36069658398628235, 0.2885674834251404, -0.2396184206008911,
             0.2046004831790924, -0.1910558044910431, 0.186171755194664, -0.10995952039957047)  # fmt: skip
_LOG10_F32 = (-0.21714718639850616, 0.14476479589939117, -0.10858049243688583, 0.08686746656894684,
              -0.07213233411312103, 0.061590880155563354, -0.0575135312974453, 0.05604328215122223,
              -0.03310111165046692)  # fmt: skip
_ASIN = (0.16666631400585175, 0.0750211849808693, 0.044229526072740555, 0.03402640298008919, 0.0067000361159443855,
         0.04752755165100098)  # fmt: skip
_BENT = 0.5625  # from here on asin is taken of its other half
_ATAN = (-0.33333298563957214, 0.19998548924922943, -0.14264243841171265, 0.10952192544937134, -0.08403467386960983,
         0.05795785412192345, -0.031178081408143044, 0.010914720594882965, -0.0017936454387381673)  # fmt: skip
_HALF_PI, _HALF_PI_LOW = 1.57079637050628662109375, -4.371139000186241e-8
_PER_LN2, _PER_LN2_LOW = 1.44269502162933349609375, 1.925963033500747e-8
_PER_LN10, _PER_LN10_LOW = 0.4342944920063018798828125, -1.0103050052231683e-8
_LOG10_2, _LOG10_2_LOW = 0.301025390625, 4.605038981195214e-06  # few bits: times an exponent it is exact
_LOG_ERFC = (0.12837916612625122, 0.6366193890571594, 0.10277783870697021, -0.019153090193867683,
             -0.00016035162843763828, 0.0016669858014211059, -0.0006328152376227081, 0.00011763549264287576,
             -9.25564472709084e-06)  # fmt: skip
# exp(x²) * erfc(x) * (x + c) in (x - c) / (x + c), up to 10.2, and the c whose polynomial loses least to rounding
_ERFC = (1.0437662601470947, -0.7661567330360413, 0.39304205775260925, -0.11843957751989365, 0.0031978506594896317,
         0.01171382237225771, -0.001904080854728818, -0.0014566733734682202, 0.0002424691047053784,
         0.00018373703642282635)  # fmt: skip
_ERFC_CENTRE = 2.3125


@dataclass(frozen=True)
class Format:
    """A binary floating-point format and the integers of its width."""

    dtype: str
    integer: str
    mantissa: int  # bits without the hidden one
    bias: int
    ln2_high: float  # few bits: times an exponent it is exact
    ln2_low: float
    fma: bool

    def const(self, value: float) -> PrimExpr:
        return const(value, self.dtype)

    def int(self, value: int) -> PrimExpr:
        return const(value, self.integer)

    def bits(self, x: PrimExpr) -> PrimExpr:
        return call("reinterpret", x, dtype=self.integer)

    @property
    def top(self) -> PrimExpr:
        """The highest bit, that of the sign."""
        return self.int(-(2 ** (bits(self.dtype) - 1)))

    def number(self, word: PrimExpr) -> PrimExpr:
        return call("reinterpret", word, dtype=self.dtype)

    def mad(self, a: PrimExpr, b: PrimExpr | float, c: PrimExpr | float) -> PrimExpr:
        """``a * b + c``, in one instruction where the CPU has it."""
        b, c = as_expr(b, self.dtype), as_expr(c, self.dtype)
        return call("fma", a, b, c) if self.fma else a * b + c

    def lost(self, a: PrimExpr, b: PrimExpr, product: PrimExpr) -> PrimExpr:
        """What the rounding of a * b to ``product`` lost, exactly; without an instruction, from products of halves
        (T. J. Dekker, A floating-point technique for extending the available precision, 1971)."""
        if self.fma:
            return call("fma", a, b, -product)
        a_high, b_high = (self.number(self.bits(x) & self.int(-(2 ** (self.mantissa // 2 + 1)))) for x in (a, b))
        a_low, b_low = a - a_high, b - b_high
        return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low

    def poly(self, x: PrimExpr, coefficients: tuple[float, ...]) -> PrimExpr:
        """``c0 + c1 x + c2 x**2 + …`` by Horner's rule."""
        result = self.const(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.mad(result, x, c)
        return result

    def in_pairs(self, x: PrimExpr, coefficients: tuple[float, ...]) -> PrimExpr:
        """The same as pairs of terms, pairs of those, and so on: a shorter chain of steps that wait for one another, of
        more instructions (G. Estrin, Organization of computer systems: the fixed plus variable structure computer,
        1960). Most functions are the slower for it (znver3: log 1.2 of the time, atan 1.4, exp of float64 1.1)."""
        terms: list[PrimExpr] = [self.const(c) for c in coefficients]
        while len(terms) > 1:
            pairs = [self.mad(b, x, a) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
            x = x * x
        return terms[0]

    def nearest(self, x: PrimExpr, factor: float = 1.0, plus: builtins.int = 0) -> tuple[PrimExpr, PrimExpr]:
        """The integer n next to a small x * factor, as a float, and a word whose low bits are those of n + plus: adding
        1.5 * 2**mantissa + plus rounds, and leaves them in the last places."""
        magic = self.const(1.5 * 2.0**self.mantissa + plus)
        shifted = x + magic if factor == 1.0 else self.mad(x, factor, magic)
        return shifted - magic, self.bits(shifted)

    def power(self, word: PrimExpr) -> PrimExpr:
        """2**(n - bias), where a word's low bits are n, the exponent of a normal number."""
        return self.number(word << self.mantissa)

    def scaled(self, x: PrimExpr, word: PrimExpr) -> PrimExpr:
        """x * 2**(n - 2 * bias), rounded once, where a word's low bits are n: in two steps, so that n can be any."""
        half = word >> 1
        return x * self.power(half) * self.power(word - half)

    def with_sign(self, size: PrimExpr, sign: PrimExpr) -> PrimExpr:
        """The non-negative ``size`` with the sign of ``sign``."""
        return self.number(self.bits(size) | (self.bits(sign) & self.top))

    def flipped(self, x: PrimExpr, word: PrimExpr) -> PrimExpr:
        """x, or -x where the highest bit of ``word`` is set."""
        return self.number(self.bits(x) ^ (word & self.top))

    def clamped(self, x: PrimExpr, low: float, high: float) -> PrimExpr:
        """x in [low, high]; NaN stays."""
        x = select(x > high, self.const(high), x)
        return select(x < low, self.const(low), x)


_FORMATS = {
    "float32": ("int32", 23, 127, 0.693359375, -2.12194440e-4),
    "float64": ("int64", 52, 1023, 6.93147180369123816490e-01, 1.90821492927058770002e-10),
}


def float_format(dtype: str, fma: bool) -> Format:
    return Format(dtype, *_FORMATS[dtype], fma)


# ---- exponentials


def _reduced(f: Format, x: PrimExpr, plus: int) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """r with x = n * ln 2 + r and |r| a little over ln 2 / 2 at most, n, and a word whose low bits are n + plus."""
    n, word = f.nearest(x, 1 / math.log(2), plus)
    return f.mad(n, -f.ln2_low, f.mad(n, -f.ln2_high, x)), n, word


def _exp_parts(f: Format, x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """m and n of exp(x) = m * 2**n, and a word whose low bits are n + 2 * bias."""
    x = f.clamped(x, *((-104.0, 89.0) if f.dtype == "float32" else (-746.0, 710.0)))
    r, n, word = _reduced(f, x, 2 * f.bias)
    return f.poly(r, _EXP[f.dtype]), n, word


def _exp2_parts(f: Format, x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Likewise, of 2**x."""
    x = f.clamped(x, *((-151.0, 129.0) if f.dtype == "float32" else (-1076.0, 1025.0)))
    n, word = f.nearest(x, plus=2 * f.bias)
    r = x - n
    return f.mad(f.poly(r, _EXP2[f.dtype]), r, 1.0), n, word


def exp(f: Format, x: PrimExpr) -> PrimExpr:
    m, _, word = _exp_parts(f, x)
    return f.scaled(m, word)


def exp2(f: Format, x: PrimExpr) -> PrimExpr:
    m, _, word = _exp2_parts(f, x)
    return f.scaled(m, word)


def expm1(f: Format, x: PrimExpr) -> PrimExpr:
    """2**n * (exp(r) - 1) + (2**n - 1), doubled at the end so that 2**n can't overflow before the sum does."""
    y = f.clamped(x, *((-18.0, 89.0) if f.dtype == "float32" else (-38.0, 710.0)))
    r, _, word = _reduced(f, y, f.bias - 1)
    q = f.mad(f.poly(r, _EXPM1[f.dtype]), r * r, r)
    half = f.power(word)
    result = f.mad(half, q, half - 0.5) * 2.0
    return select(call("abs", x) < 2.0**-f.mantissa, x, result)


def tanh(f: Format, x: PrimExpr) -> PrimExpr:
    """x + x**3 * P(x**2) near 0, else 1 - 2 / (exp(2|x|) + 1), which is 1 from 20 on."""
    size = call("abs", x)
    square = x * x
    near = f.mad(f.poly(square, _TANH[f.dtype]) * square, size, size)
    r, _, word = _reduced(f, select(size > 20.0, f.const(20.0), size) * 2.0, f.bias)
    far = 1.0 - 2.0 / (f.poly(r, _EXP[f.dtype]) * f.power(word) + 1.0)
    return f.with_sign(select(size < 0.625, near, far), x)


# ---- logarithms


def _log_of(f: Format, m: PrimExpr, e: PrimExpr, low: PrimExpr | None = None) -> PrimExpr:
    """log(1 + m) + e * ln 2 + low, for m in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    square = m * m
    low = e * f.ln2_low if low is None else f.mad(e, f.ln2_low, low)
    if f.dtype == "float32":
        tail = f.mad(f.poly(m, _LOG_F32) * square, m, low)
        return f.mad(e, f.ln2_high, f.mad(square, -0.5, tail) + m)
    half = square * 0.5
    s = m / (m + 2.0)
    z = s * s
    tail = f.mad(s, half + z * f.poly(z, _LOG_F64), low)
    return f.mad(e, f.ln2_high, m - (half - tail))


def split_mantissa(f: Format, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """``(m, e)`` with the normal number x = m * 2**e and m in [sqrt(1/2), sqrt(2)); e is an integer."""
    word = f.bits(x)
    e = (word - f.bits(f.const(math.sqrt(0.5)))) >> f.mantissa
    return f.number(word - (e << f.mantissa)), e


def log_edges(f: Format, x: PrimExpr, result: PrimExpr) -> PrimExpr:
    """log's values at 0, infinity, NaN and below 0."""
    outside = select(x.equal(0.0), f.const(-math.inf), f.const(math.nan))
    return select(x > 0.0, select(x < math.inf, result, x), outside)


def log(f: Format, x: PrimExpr) -> PrimExpr:
    m, e = _normal(f, x)
    return log_edges(f, x, _log_of(f, m - 1.0, e))


def _normal(f: Format, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """m and the exponent e of x = m * 2**e, of a subnormal number too."""
    subnormal = x < 2.0 ** (1 - f.bias)
    m, e = split_mantissa(f, select(subnormal, x * 2.0 ** (f.mantissa + 1), x))
    return m, cast(f.dtype, e) - select(subnormal, f.const(f.mantissa + 1.0), f.const(0.0))


def log2(f: Format, x: PrimExpr) -> PrimExpr:
    """e + m / ln 2 + m**2 * P(m): exact at powers of two."""
    m, e = _normal(f, x)
    m = m - 1.0
    low = f.mad(f.poly(m, _LOG2_F32) * m, m, m * _PER_LN2_LOW)
    return log_edges(f, x, e + f.mad(m, _PER_LN2, low))


def log10(f: Format, x: PrimExpr) -> PrimExpr:
    """e * log10(2) + m / ln 10 + m**2 * P(m): exact at powers of ten."""
    m, e = _normal(f, x)
    m = m - 1.0
    low = f.mad(f.poly(m, _LOG10_F32) * m, m, f.mad(m, _PER_LN10_LOW, e * _LOG10_2_LOW))
    return log_edges(f, x, f.mad(e, _LOG10_2, f.mad(m, _PER_LN10, low)))


def log1p(f: Format, x: PrimExpr) -> PrimExpr:
    """log(u) for u = fl(1 + x), corrected by what the rounding of u lost; near 0 the argument itself is used."""
    u = x + 1.0
    m, e = split_mantissa(f, u)
    lost = select(u > 2.0, 1.0 - (u - x), x - (u - 1.0)) / u
    near = e.equal(0)
    m, lost = select(near, x, m - 1.0), select(near, f.const(0.0), lost)
    result = log_edges(f, u, _log_of(f, m, cast(f.dtype, e), lost))
    return select(call("abs", x) < 2.0 ** -(f.mantissa + 2), x, result)


# ---- trigonometry of float32

_TRIGONOMETRIC_LIMIT = 1.0e5  # beyond, the reduction below loses bits


def _angle(f: Format, x: PrimExpr, plus: int) -> tuple[PrimExpr, PrimExpr]:
    """x - n * pi/2 in float64, where it keeps all digits, and a word whose low bits are those of n + plus."""
    n, word = f.nearest(x, 2 / math.pi, plus)
    wide, n = float_format("float64", f.fma), cast("float64", n)
    angle = wide.mad(n, -1.57079632673412561417e00, cast("float64", x))
    return wide.mad(n, -6.07710050650619224932e-11, angle), word


def _sine(f: Format, x: PrimExpr, plus: int) -> tuple[PrimExpr, PrimExpr]:
    """The sine of x + plus * pi/2 but for its sign, which is the highest bit of a word: r + r**3 * P(r**2), or
    1 - r**2 / 2 + r**4 * P(r**2) where n + plus is odd."""
    angle, n = _angle(f, x, plus)
    r = cast(f.dtype, angle)
    z = r * r
    value = select((n & 1).equal(0), f.mad(f.poly(z, _SIN) * z, r, r), f.mad(f.poly(z, _COS), z, 1.0))
    return value, n << 30


def sin(f: Format, x: PrimExpr) -> PrimExpr:
    """Of |x|, so that -0 remains -0."""
    value, turned = _sine(f, call("abs", x), 0)
    return f.flipped(value, turned ^ f.bits(x))


def cos(f: Format, x: PrimExpr) -> PrimExpr:
    return f.flipped(*_sine(f, x, 1))


def tan(f: Format, x: PrimExpr) -> PrimExpr:
    """r - r**3 * P(r**2) - (1 + r**2) * over, of the angle r - over; where n is odd, -1 over that. -0 remains -0.

    What the sum loses counts twice in its reciprocal: errors reach 2.4 ulp."""
    angle, n = _angle(f, x, 0)
    r = cast(f.dtype, angle)
    over = cast(f.dtype, cast("float64", r) - angle)
    z = r * r
    t = r - (f.poly(z, _TAN) * z * r + f.mad(z, over, over))
    even = (n & 1).equal(0)
    return select(even, t, -1.0) / select(even, f.const(1.0), t)


def _huge(f: Format, x: PrimExpr) -> PrimExpr:
    return call("abs", x) > _TRIGONOMETRIC_LIMIT


# ---- their inverses. π/2 is the sum of two numbers: the small one joins what is small.


def _half_asin(f: Format, size: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Whether size is above _BENT, s and t with asin(s) = s + t: there π/2 - 2 asin(s) = asin(size), as 1 - 2s² is
    size. 2 asin(s) stays below 1, so that its digits go as far as those of the result."""
    far = size > _BENT
    z = select(far, (1.0 - size) * 0.5, size * size)
    s = select(far, call("sqrt", z), size)
    return far, s, f.poly(z, _ASIN) * z * s


def asin(f: Format, x: PrimExpr) -> PrimExpr:
    far, s, t = _half_asin(f, call("abs", x))
    return f.with_sign(select(far, _HALF_PI - f.mad(s, 2.0, f.mad(t, 2.0, -_HALF_PI_LOW)), s + t), x)


def acos(f: Format, x: PrimExpr) -> PrimExpr:
    """2 asin(s) near 1, where no digit is lost, π - 2 asin(s) near -1, π/2 - asin(x) between."""
    far, s, t = _half_asin(f, call("abs", x))
    below = x < 0.0
    middle = (_HALF_PI - x) - (f.with_sign(t, x) - _HALF_PI_LOW)
    left = f.mad(s, -2.0, 2 * _HALF_PI) - f.mad(t, 2.0, -2 * _HALF_PI_LOW)
    return select(far, select(below, left, (s + t) * 2.0), middle)


def atan(f: Format, x: PrimExpr) -> PrimExpr:
    """π/2 - atan(1 / x) beyond 1."""
    size = call("abs", x)
    far = size > 1.0
    t = select(far, 1.0 / size, size)
    z = t * t
    low = f.poly(z, _ATAN) * z * t
    return f.with_sign(select(far, (_HALF_PI - t) - (low - _HALF_PI_LOW), t + low), x)


# ---- erf and erfc of float32


def erf(f: Format, x: PrimExpr) -> PrimExpr:
    """1 - exp(v) for v = log(erfc(|x|)) = -(|x| + P(|x|) * |x|). With v = n * ln 2 + r that is
    1 - 2**n - 2**n * (exp(r) - 1): near 0, n is 0 and no digit is lost. Far from 0 few digits of r are needed.

    The long P is in pairs, but for its first term, for which rounding counts most: gelu, which computes more beside it,
    takes 0.86 of the time, and its gradient 0.93 (znver3; erf alone 1.09)."""
    size = call("abs", x)
    t = select(size > 4.0, f.const(4.0), size)
    p = f.mad(f.in_pairs(t, _LOG_ERFC[1:]), t, _LOG_ERFC[0])
    v = -f.mad(p, t, t)
    n, word = f.nearest(v, 1 / math.log(2), f.bias)
    r = f.mad(n, -math.log(2), v)
    q = f.mad(f.poly(r, _EXP[f.dtype][2:]), r * r, r)
    power = f.power(word)
    return f.with_sign(f.mad(power, -q, 1.0 - power), x)


def erfc(f: Format, x: PrimExpr) -> PrimExpr:
    """exp(-x²) * g(x), 2 minus that below 0.

    g(x) = u * P(1 - 2c * u) for u = 1 / (x + c). The rounded u is that of x + miss: g' = 2x * g - 2 / √π takes g back.
    What rounding loses is added to exp(r) * g - g, which is small. Without fused multiply-add errors reach 2.2 ulp."""
    size = call("abs", x)
    size = select(size > 10.5, f.const(10.5), size)  # where it is 0
    total = size + _ERFC_CENTRE
    u = 1.0 / total
    product = u * total
    miss = ((1.0 - product) - f.lost(u, total, product)) * total + ((total - _ERFC_CENTRE) - size)
    s = f.mad(u, 4.0 - 2 * _ERFC_CENTRE, f.mad(u, -4.0, 1.0))  # the larger part is exact where s is large
    rest = f.poly(s, _ERFC[1:])
    more = rest * s
    p = more + _ERFC[0]
    g = u * p
    low = f.mad(u, f.lost(rest, s, more) + (more - (p - _ERFC[0])), f.lost(u, p, g))
    low = f.mad(miss, f.mad(g, size * -2.0, 2 / math.sqrt(math.pi)), low)
    square = size * size
    n, word = f.nearest(square, -1 / math.log(2), 2 * f.bias)
    r = f.mad(n, -f.ln2_high, -square) + f.mad(n, -f.ln2_low, -f.lost(size, size, square))
    q = f.mad(f.poly(r, _EXP[f.dtype][2:]), r * r, r)
    tail = f.scaled(g + f.mad(q, g, f.mad(q, low, low)), word)
    return select(x < 0.0, 2.0 - tail, tail)


_FUNCTIONS: dict[tuple[str, str], Callable[[Format, PrimExpr], PrimExpr]] = {
    **{(name, dtype): function for dtype in ("float32", "float64") for name, function in
       (("exp", exp), ("exp2", exp2), ("expm1", expm1), ("tanh", tanh), ("log", log), ("log1p", log1p))},
    **{(name, "float32"): function for name, function in
       (("sin", sin), ("cos", cos), ("tan", tan), ("asin", asin), ("acos", acos), ("atan", atan), ("log2", log2),
        ("log10", log10), ("erf", erf), ("erfc", erfc))},
}  # fmt: skip
_RARE = {"sin": _huge, "cos": _huge, "tan": _huge}
_PARTS = {"exp": _exp_parts, "exp2": _exp2_parts}


@functools.cache
def expand(name: str, dtype: str, fma: bool = True) -> Expansion | None:
    """The expansion of an intrinsic on float32 or float64, with or without fused multiply-add; None: ask libm."""
    function = _FUNCTIONS.get((name, dtype))
    if function is None:
        from pullback.tir import math_single  # made of these functions

        return math_single.expand(name, fma) if dtype == "float32" else None
    form, x = float_format(dtype, fma), Var("x", dtype)
    value, rare = Template((x,), function(form, x)), _RARE.get(name)
    if name in _PARTS:
        m, n, _ = _PARTS[name](form, x)
        return Expansion(value, parts=(Template((x,), m), Template((x,), n)))
    return Expansion(value, Template((x,), rare(form, x)) if rare else None)


@functools.cache
def is_chain(name: str, dtype: str) -> bool:
    """Whether an intrinsic is written in some twenty instructions or more that wait for one another, always the same,
    and not one instruction, or a call."""
    expansion = expand(name, "float32" if is_half(dtype) else dtype)
    return expansion is not None and expansion.rare is None


# ---- division of floats as Python and NumPy have it


@functools.cache
def float_binary(kind: str, dtype: str) -> Template | None:
    """floordiv and floormod on floats, from C's fmod (truncmod); None for kinds that are instructions."""
    if kind not in ("floordiv", "floormod"):
        return None
    a, b = Var("a", dtype), Var("b", dtype)
    zero = const(0.0, dtype)
    rest = _truncmod(a, b)
    wrong = (b < zero).not_equal(rest < zero)
    if kind == "floormod":
        signed_zero = select(b < zero, const(-0.0, dtype), zero)
        return Template((a, b), select(rest.equal(zero), signed_zero, select(wrong, rest + b, rest)))
    quotient = (a - rest) / b
    quotient = select(rest.not_equal(zero) & wrong, quotient - 1.0, quotient)
    floor = call("floor", quotient)
    floor = select(quotient - floor > 0.5, floor + 1.0, floor)
    exact = a / b
    body = select(b.equal(zero), exact, select(quotient.equal(zero), exact * zero, floor))
    return Template((a, b), body)


def _truncmod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    from pullback.tir.expr import binary

    return binary("truncmod", a, b)


# ---- half types


@functools.cache
def half_to_float(dtype: str) -> Template:
    """float32 from the bits (uint16) of a float16 or bfloat16."""
    u = Var("u", "uint16")
    word = cast("uint32", u)
    if dtype == "bfloat16":
        return Template((u,), call("reinterpret", word << 16, dtype="float32"))
    magnitude, exponent = (word & 0x7FFF) << 13, word & 0x7C00
    # A subnormal f/2¹⁰ · 2⁻¹⁴ as (1 + f/2¹⁰) · 2⁻¹⁴ - 2⁻¹⁴: right where the CPU takes subnormal floats for zeros, too.
    small = call("reinterpret", magnitude + ((127 - 14) << 23), dtype="float32") - 2.0**-14
    shift = select(exponent.equal(0x7C00), const((255 - 31) << 23, "uint32"), (127 - 15) << 23)
    finite = select(exponent.equal(0), call("reinterpret", small, dtype="uint32"), magnitude + shift)
    body = finite | ((word & 0x8000) << 16)
    return Template((u,), call("reinterpret", body, dtype="float32"))


@functools.cache
def upper_half() -> Template:
    """The bits (uint16) of a float32 that is a number of bfloat16."""
    x = Var("x", "float32")
    return Template((x,), cast("uint16", call("reinterpret", x, dtype="uint32") >> 16))


@functools.cache
def float_to_half(dtype: str) -> Template:
    """The bits (uint16) of a float32 rounded to float16 or bfloat16, ties to even."""
    x = Var("x", "float32")
    word = call("reinterpret", x, dtype="uint32")
    if dtype == "bfloat16":
        rounded = word + 0x7FFF + ((word >> 16) & 1)
        return Template((x,), cast("uint16", select(x.not_equal(x), const(0x7FC00000, "uint32"), rounded) >> 16))
    sign, size = word & 0x80000000, word & 0x7FFFFFFF
    magic = ((127 - 15) + (23 - 10) + 1) << 23
    tiny = call("reinterpret", size, dtype="float32") + call("reinterpret", const(magic, "uint32"), dtype="float32")
    subnormal = call("reinterpret", tiny, dtype="uint32") - magic
    normal = (size + (((15 - 127) << 23) % 2**32) + 0xFFF + ((size >> 13) & 1)) >> 13
    special = select(size > 255 << 23, const(0x7E00, "uint32"), const(0x7C00, "uint32"))
    result = select(size >= (127 + 16) << 23, special, select(size < 113 << 23, subnormal, normal))
    return Template((x,), cast("uint16", result | (sign >> 16)))


@functools.cache
def round_to_odd() -> Template:
    """float32 from float64, truncated, its last bit set when inexact: rounding that again to less is rounding once."""
    x = Var("x", "float64")
    near = cast("float32", x)
    back = cast("float64", near)
    word = call("reinterpret", near, dtype="uint32")
    word = select(call("abs", back) > call("abs", x), word - 1, word)
    return Template((x,), call("reinterpret", select(back.not_equal(x), word | 1, word), dtype="float32"))
