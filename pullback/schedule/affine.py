"""Index arithmetic of schedules: Σ coefficient · variable + constant, for variables of known extents.

Divisions vanish where the extents say so: with 0 ≤ i < 4, ``(4 * g + i) // 4`` is ``g``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.tir.expr import Binary, IntImm, PrimExpr, Var, as_expr

Extents = Mapping[Var, int]


@dataclass(frozen=True)
class Affine:
    """``Σ terms[v] · v + const``."""

    terms: Mapping[Var, int]
    const: int = 0

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        terms = dict(self.terms)
        for v, c in other.terms.items():
            terms[v] = terms.get(v, 0) + factor * c
        return Affine({v: c for v, c in terms.items() if c}, self.const + factor * other.const)

    def scaled(self, factor: int) -> Affine:
        return Affine({v: c * factor for v, c in self.terms.items()} if factor else {}, self.const * factor)

    def range(self, extents: Extents) -> tuple[int, int]:
        """The least and the largest value."""
        ends = [c * (extents[v] - 1) for v, c in self.terms.items()]
        return self.const + sum(e for e in ends if e < 0), self.const + sum(e for e in ends if e > 0)

    def expr(self) -> PrimExpr:
        result: PrimExpr = as_expr(0)
        for v, c in self.terms.items():
            result = result + v * c
        return result + self.const

    def at(self, place: Mapping[Var, PrimExpr | int]) -> PrimExpr:
        """The value with expressions for the variables."""
        result: PrimExpr = as_expr(0)
        for v, c in self.terms.items():
            result = result + as_expr(place.get(v, v)) * c
        return result + self.const


def affine(expr: PrimExpr, extents: Extents) -> Affine | None:
    """The affine form of an index, or None when it has none (or a variable of unknown extent)."""
    if isinstance(expr, IntImm):
        return Affine({}, expr.value)
    if isinstance(expr, Var):
        return Affine({expr: 1}) if expr in extents else None
    if not isinstance(expr, Binary):
        return None
    a, b = affine(expr.a, extents), affine(expr.b, extents)
    if a is None or b is None:
        return None
    if expr.kind == "add":
        return a.plus(b)
    if expr.kind == "sub":
        return a.plus(b, -1)
    if expr.kind == "mul":
        return b.scaled(a.const) if not a.terms else a.scaled(b.const) if not b.terms else None
    if expr.kind in ("min", "max"):
        low, high = a.plus(b, -1).range(extents)
        if high <= 0 or low >= 0:
            return a if (high <= 0) == (expr.kind == "min") else b
        return None
    if expr.kind in ("floordiv", "floormod") and not b.terms and b.const > 0:
        return _divided(expr.kind, a, b.const, extents)
    return None


def _divided(kind: str, a: Affine, divisor: int, extents: Extents) -> Affine | None:
    """``a // divisor`` or ``a % divisor``, where what is no multiple of the divisor stays below it."""
    quotient = Affine({v: c // divisor for v, c in a.terms.items() if c % divisor == 0}, a.const // divisor)
    rest = a.plus(quotient.scaled(divisor), -1)
    low, high = rest.range(extents)
    if low < 0 or high >= divisor:
        return None
    return quotient if kind == "floordiv" else rest
