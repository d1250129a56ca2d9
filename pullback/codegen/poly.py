"""Index arithmetic as polynomials with integer coefficients over atoms.

An atom is a value of the generated code: a loop variable, a size, something loaded, or the lane number of the
vectorized loop. Two indices are equal when their polynomials are; the stride along the lanes is a coefficient; a
division is exact, or vanishes, when the coefficients and the ranges say so. All identities hold modulo 2**64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pullback.tir.expr import limits

Interval = tuple[int, int] | None
_INT64 = limits("int64")


@dataclass(frozen=True, eq=False, slots=True)
class Atom:
    """A value in an index. ``order`` grows inwards: atoms of outer loops have smaller ones.

    ``ref`` is None for the lane number. ``width`` is 0 for what is the same in all lanes, else the bits of a lane.
    ``values``: those of all lanes, where they are known numbers. ``quotient``: the atom is the one of these two,
    rounded down.
    """

    ref: str | None
    order: int
    range: Interval = None
    width: int = 0
    values: tuple[int, ...] | None = None
    quotient: tuple[Poly, int] | None = None

    @property
    def is_lane(self) -> bool:
        return self.ref is None


@functools.cache
def lane_number(lanes: int) -> Atom:
    """The number of a lane, of so many."""
    return Atom(None, 1 << 60, (0, lanes - 1))


Monomial = tuple[Atom, ...]


class Poly:
    """A polynomial: a mapping from monomials (sorted tuples of atoms) to non-zero coefficients."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Monomial, int] | None = None) -> None:
        self.terms = terms or {}

    @classmethod
    def of(cls, value: int | Atom) -> Poly:
        if isinstance(value, Atom):
            return cls({(value,): 1})
        return cls({(): value} if value else {})

    @property
    def const(self) -> int | None:
        """The value, if it is a known number."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total = terms.get(monomial, 0) + coefficient
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Poly(terms)

    def scaled(self, factor: int) -> Poly:
        return Poly({m: c * factor for m, c in self.terms.items()} if factor else {})

    def __sub__(self, other: Poly) -> Poly:
        return self + other.scaled(-1)

    def __mul__(self, other: Poly) -> Poly:
        for factor, rest in ((other.const, self), (self.const, other)):
            if factor is not None:
                return rest.scaled(factor) if factor != 1 else rest
        result = Poly()
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                monomial = tuple(sorted(m1 + m2, key=lambda a: a.order))
                result = result + Poly({monomial: c1 * c2})
        return result

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    @property
    def varies(self) -> bool:
        """Whether lanes differ."""
        for monomial in self.terms:
            for atom in monomial:
                if atom.width or atom.ref is None:
                    return True
        return False

    @property
    def irregular(self) -> bool:
        """Whether lanes differ by more than a constant stride."""
        for monomial in self.terms:
            lanes = 0
            for atom in monomial:
                lanes += atom.ref is None
                if lanes > 1 or atom.width:
                    return True
        return False

    def split_lane(self) -> tuple[Poly, Poly]:
        """(coefficient of the lane number, the rest); for regular polynomials."""
        stride: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            others = tuple([a for a in monomial if a.ref is not None])
            if len(others) < len(monomial):
                stride[others] = coefficient
            else:
                rest[monomial] = coefficient
        return Poly(stride), Poly(rest)

    def split_values(self, lanes: int) -> tuple[Poly, list[int]] | None:
        """(what is the same in all lanes, the known number that each lane adds), or None where that is not known."""
        values, rest = [0] * lanes, {}
        for monomial, coefficient in self.terms.items():
            varying = [a for a in monomial if a.is_lane or a.width]
            if not varying:
                rest[monomial] = coefficient
                continue
            atom = varying[0]
            if len(monomial) > 1 or (not atom.is_lane and atom.values is None):
                return None
            own = range(lanes) if atom.values is None else atom.values
            values = [v + coefficient * k for v, k in zip(values, own, strict=True)]
        return Poly(rest), values

    def split_const(self) -> tuple[Poly, int]:
        """(the polynomial without its constant term, the constant)."""
        return Poly({m: c for m, c in self.terms.items() if m}), self.terms.get((), 0)

    def ordered(self) -> Iterator[tuple[Monomial, int]]:
        """The terms, those of outer loops first, so that their sums are invariant in the inner ones."""
        terms = self.terms.items()
        return iter(terms if len(terms) < 2 else sorted(terms, key=lambda item: [a.order for a in reversed(item[0])]))

    @property
    def range(self) -> Interval:
        """Bounds of the value, or None."""
        low = high = 0
        for monomial, coefficient in self.terms.items():
            a, b = coefficient, coefficient
            for atom in monomial:
                if atom.range is None:
                    return None
                low_end, high_end = atom.range
                if a == b:
                    a, b = (a * low_end, a * high_end) if a > 0 else (a * high_end, a * low_end)
                else:
                    corners = a * low_end, a * high_end, b * low_end, b * high_end
                    a, b = min(corners), max(corners)
            low, high = low + a, high + b
        return low, high

    @property
    def is_natural(self) -> bool:
        """Whether the value surely is not negative. A remainder, ``n - d * (n // d)``, is not, whatever the range of n
        and of the quotient would allow."""
        bounds = self.range
        if bounds is not None and bounds[0] >= 0:
            return True
        for monomial, coefficient in self.terms.items():
            quotient = monomial[0].quotient if len(monomial) == 1 and coefficient < 0 else None
            if quotient is not None and coefficient % quotient[1] == 0:
                numerator, divisor = quotient
                remainder = numerator - Poly({monomial: divisor})
                return (self - remainder.scaled(-coefficient // divisor)).is_natural
        return False

    @property
    def is_exact(self) -> bool:
        """Whether the value surely fits in 64 bits. Sums and products are right modulo 2**64 in any case; quotients,
        comparisons and extremes of the polynomial are those of the value only if it fits."""
        return self.within(*_INT64)

    @property
    def bounds(self) -> tuple[int, int]:
        """Bounds of the value as an int64."""
        known = self.range
        return known if known is not None and self.is_exact else _INT64

    def within(self, low: int, high: int) -> bool:
        """Whether the value surely lies in [low, high]."""
        bounds = self.range
        return bounds is not None and low <= bounds[0] and bounds[1] <= high

    def divide(self, divisor: int) -> tuple[Poly, Poly, int]:
        """``(q, r, g)`` with ``self = g*q + r`` and ``0 <= r < g`` for sure, g a divisor of ``divisor``, if only 1.

        Then ``self // divisor = q // (divisor / g)`` and ``self % divisor = g * (q % (divisor / g)) + r``.
        """
        for factor in _factors(divisor, [abs(c) for m, c in self.terms.items() if m]):
            high: dict[Monomial, int] = {}
            low: dict[Monomial, int] = {}
            for monomial, coefficient in self.terms.items():
                quotient, remainder = divmod(coefficient, factor)
                if monomial and remainder:
                    low[monomial] = coefficient
                    continue
                if quotient:
                    high[monomial] = quotient
                if remainder:
                    low[monomial] = remainder
            rest = Poly(low)
            if rest.within(0, factor - 1):
                return Poly(high), rest, factor
        return self, Poly(), 1


def _factors(divisor: int, coefficients: list[int]) -> list[int]:
    """The divisor itself and its common divisors with coefficients, largest first."""
    found = {divisor} | {math.gcd(divisor, c) for c in coefficients}
    return sorted((f for f in found if f > 1), reverse=True)
