"""Sizes as polynomials: a canonical form for int64 expressions, so that equal sizes can be seen to be equal.

A polynomial maps monomials to integer coefficients; a monomial is a sorted tuple of atoms; an atom is a variable or
an opaque sub-expression (a quotient, a remainder, a minimum) of canonical parts. ``n*(m+2) - 2*n`` is ``n*m``.
"""

from __future__ import annotations

from pullback.tir.expr import Binary, IntImm, PrimExpr, Var, as_expr, binary

Monomial = tuple[str, ...]


class Polynomial:
    """Σ coefficient · Π atoms."""

    def __init__(self, terms: dict[Monomial, int], atoms: dict[str, PrimExpr]) -> None:
        self.terms = {m: c for m, c in terms.items() if c != 0}
        self.atoms = atoms

    @staticmethod
    def of(expr: int | PrimExpr) -> Polynomial:
        """The canonical form of an int64 expression."""
        expr = as_expr(expr)
        if isinstance(expr, IntImm):
            return Polynomial({(): expr.value}, {})
        if isinstance(expr, Binary) and expr.kind in ("add", "sub", "mul"):
            a, b = Polynomial.of(expr.a), Polynomial.of(expr.b)
            return a * b if expr.kind == "mul" else a.plus(b, 1 if expr.kind == "add" else -1)
        if isinstance(expr, Binary):
            a, b = Polynomial.of(expr.a), Polynomial.of(expr.b)
            folded = binary(expr.kind, a.expr(), b.expr())
            if isinstance(folded, IntImm):
                return Polynomial({(): folded.value}, {})
            if not isinstance(folded, Binary):
                return Polynomial.of(folded)
            return Polynomial._atom(f"({a.key} {expr.kind} {b.key})", folded)
        if isinstance(expr, Var):
            return Polynomial._atom(f"{expr.name}#{id(expr)}", expr)
        return Polynomial._atom(f"#{id(expr)}", expr)

    @staticmethod
    def _atom(name: str, expr: PrimExpr) -> Polynomial:
        return Polynomial({(name,): 1}, {name: expr})

    def plus(self, other: Polynomial, sign: int) -> Polynomial:
        terms = dict(self.terms)
        for monomial, c in other.terms.items():
            terms[monomial] = terms.get(monomial, 0) + sign * c
        return Polynomial(terms, self.atoms | other.atoms)

    def __mul__(self, other: Polynomial) -> Polynomial:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                product = tuple(sorted(m + n))
                terms[product] = terms.get(product, 0) + c * d
        return Polynomial(terms, self.atoms | other.atoms)

    def over(self, divisor: Polynomial) -> Polynomial | None:
        """The quotient, where the divisor is one term and divides every term without a remainder; else None."""
        if len(divisor.terms) != 1:
            return None
        (factors, coefficient), terms = next(iter(divisor.terms.items())), {}
        for monomial, c in self.terms.items():
            left = list(monomial)
            for atom in factors:
                if atom not in left:
                    return None
                left.remove(atom)
            if c % coefficient:
                return None
            terms[tuple(left)] = c // coefficient
        return Polynomial(terms, self.atoms)

    def divided(self) -> Polynomial:
        """The same value, with a - a // b * b for each atom a % b, and a + c // b for each (a · b + c) // b."""
        result = Polynomial({}, {})
        for monomial, factor in self.terms.items():
            term = Polynomial({(): factor}, {})
            for name in monomial:
                term = term * _divided(name, self.atoms[name])
            result = result.plus(term, 1)
        return result

    @property
    def key(self) -> str:
        """A string that is equal for polynomials that are."""
        return " + ".join(f"{self.terms[m]}*{'*'.join(m)}" for m in sorted(self.terms)) or "0"

    def expr(self) -> PrimExpr:
        """The polynomial as an expression, terms in a fixed order."""
        result: PrimExpr = IntImm(0)
        for monomial in sorted(self.terms, key=lambda m: (-len(m), m)):
            term: PrimExpr = IntImm(1)
            for atom in monomial:
                term = term * self.atoms[atom]
            result = result + term * self.terms[monomial]
        return result


def _divided(name: str, atom: PrimExpr) -> Polynomial:
    if not isinstance(atom, Binary) or atom.kind not in ("floordiv", "floormod"):
        return Polynomial._atom(name, atom)
    whole = Polynomial.of(atom.a).divided()
    if not isinstance(atom.b, IntImm) or atom.b.value <= 0:
        return Polynomial._atom(name, atom)
    by = atom.b.value
    even = Polynomial({m: c // by for m, c in whole.terms.items()}, whole.atoms)
    rest = Polynomial({m: c % by for m, c in whole.terms.items()}, whole.atoms)
    left = binary("floordiv", rest.expr(), atom.b)
    quotient = even.plus(
        Polynomial.of(left) if isinstance(left, IntImm) else Polynomial._atom(f"({key(rest.expr())} // {by})", left), 1
    )
    return quotient if atom.kind == "floordiv" else whole.plus(quotient * Polynomial.of(by), -1)


def key(expr: int | PrimExpr) -> str:
    """A string that is equal for sizes that are equal as polynomials."""
    return Polynomial.of(expr).key


def simplify(expr: int | PrimExpr) -> PrimExpr:
    """The canonical expression of the same value."""
    return Polynomial.of(expr).expr()


def same(a: int | PrimExpr, b: int | PrimExpr) -> bool:
    """Whether two sizes are equal for all values of their variables, as polynomials, quotients and
    remainders by a number as far as :meth:`Polynomial.divided` takes them apart."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if a is b:
        return True
    difference = Polynomial.of(a).plus(Polynomial.of(b), -1)
    return not difference.terms or not difference.divided().terms


def quotient(a: int | PrimExpr, b: int | PrimExpr) -> int | PrimExpr:
    """⌊a / b⌋ of sizes, written without a division where one term divides all others."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = Polynomial.of(a).over(Polynomial.of(b))
    if exact is None:
        return as_expr(a) // b
    found = exact.expr()
    return found.value if isinstance(found, IntImm) else found


def at_most(a: int | PrimExpr, b: int | PrimExpr) -> bool:
    """Whether ``a`` ≤ ``b`` for all values of their variables: False where it depends on them, or cannot be told."""
    difference = Polynomial.of(b).plus(Polynomial.of(a), -1).terms
    return set(difference) <= {()} and difference.get((), 0) >= 0
