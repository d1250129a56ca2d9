"""What is known of integers at a place in loops: ranges of variables, and differences that are not negative.

    for i in range(8):            i: 0 … 7
        if i > 0:                 i: 1 … 7
            … x[i - 1]            i - 1: 0 … 6

A range holds for the machine's integers: an expression that might overflow has the range of its dtype. Where sizes are
symbolic, comparisons are kept as polynomials that are at least 0 (after ``i < n``, n - 1 - i). What several of them
say together is found by elimination (``inequalities.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.tir.expr import Binary, Call, Cast, IntImm, PrimExpr, Select, Var, as_expr, is_integer, limits
from pullback.tir.inequalities import Row, can_hold
from pullback.tir.polynomial import Polynomial
from pullback.tir.visitor import distinct

Range = tuple[int, int]  # the least and the largest value
LARGEST_SIZE = 1 << 48  # of an axis, or a loop of unknown length: no memory is larger, and no run as long
_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True)
class Known:
    """What holds at a place, for all variables there."""

    ranges: Mapping[Var, Range] = field(default_factory=dict)
    facts: tuple[Polynomial, ...] = ()  # each is at least 0
    is_reached: bool = True  # no loop around the place is empty

    def size(self, size: int | PrimExpr) -> Known:
        """With the variables of the size of an axis."""
        found = {v: (0, LARGEST_SIZE) for v in distinct(as_expr(size)) if isinstance(v, Var) and v not in self.ranges}
        return replace(self, ranges={**self.ranges, **found}) if found else self

    def loop(self, var: Var, extent: int | PrimExpr) -> Known:
        """In the body of a loop."""
        extent = as_expr(extent)
        most = self.range(extent)[1]
        known = self._with(var, (0, max(0, most - 1)))
        if most <= 0:
            return replace(known, is_reached=False)
        return known if isinstance(extent, IntImm) else known._at_least_zero(extent - 1, var)

    def named(self, var: Var, value: PrimExpr) -> Known:
        """Where a variable stands for a value."""
        if not is_integer(var.dtype):
            return self
        return self._with(var, self.range(value))._at_least_zero(var, value)._at_least_zero(value, var)

    def given(self, condition: PrimExpr, holds: bool = True) -> Known:
        """Where a condition holds, or does not."""
        if isinstance(condition, Call) and condition.name == "not":
            return self.given(condition.args[0], not holds)
        if not isinstance(condition, Binary):
            return self
        if condition.kind == ("and" if holds else "or"):
            return self.given(condition.a, holds).given(condition.b, holds)
        kind = condition.kind if holds else _NEGATED.get(condition.kind, "")
        a, b = condition.a, condition.b
        if not is_integer(a.dtype):
            return self
        if kind in ("lt", "gt"):
            return self._less(a, b) if kind == "lt" else self._less(b, a)
        if kind in ("le", "eq", "ge"):
            known = self._at_least_zero(b, a) if kind in ("le", "eq") else self
            return known._at_least_zero(a, b) if kind in ("ge", "eq") else known
        return self._differs(a, b)._differs(b, a) if kind == "ne" else self

    def is_index(self, index: PrimExpr, size: int | PrimExpr) -> bool:
        """Whether an index certainly lies in 0 … size - 1."""
        if not self.is_reached:
            return True
        low, high = self.range(index)
        known = self.size(size)
        if low >= 0 and high < known.range(as_expr(size))[0]:
            return True
        if not known._is_exact(index) or not known._is_exact(as_expr(size)):
            return False
        place = Polynomial.of(index)
        last = Polynomial.of(size).plus(Polynomial({(): 1}, {}), -1)
        return (low >= 0 or known._is_positive(place)) and known._is_positive(last.plus(place, -1))

    def range(self, expr: PrimExpr) -> Range:
        """The least and the largest value of an integer or bool expression."""
        return self._ranges(expr)[id(expr)]

    # ---- the parts of it

    def _with(self, var: Var, bounds: Range) -> Known:
        return replace(self, ranges={**self.ranges, var: bounds})

    def _less(self, a: PrimExpr, b: PrimExpr) -> Known:
        low, high = self.range(a)[0], self.range(b)[1]
        known = self._bounded(a, high=high - 1)._bounded(b, low=low + 1)
        return known._fact(b, a, 1)

    def _differs(self, a: PrimExpr, b: PrimExpr) -> Known:
        """a is not b, which counts where b is a bound of a."""
        (low, high), (least, most) = self.range(a), self.range(b)
        if least != most:
            return self
        known = self._bounded(a, low=low + 1) if low == least else self
        return known._bounded(a, high=high - 1) if high == least else known

    def _at_least_zero(self, a: PrimExpr, b: PrimExpr) -> Known:
        """a - b ≥ 0."""
        known = self._bounded(a, low=self.range(b)[0])._bounded(b, high=self.range(a)[1])
        return known._fact(a, b, 0)

    def _bounded(self, expr: PrimExpr, low: int | None = None, high: int | None = None) -> Known:
        """With a nearer bound of a variable, where the expression is one."""
        if not isinstance(expr, Var):
            return self
        before = self.range(expr)
        after = (
            max(before[0], low if low is not None else before[0]),
            min(before[1], high if high is not None else before[1]),
        )
        return self._with(expr, after) if after[0] <= after[1] else self

    def _fact(self, a: PrimExpr, b: PrimExpr, less: int) -> Known:
        """a - b - less ≥ 0, unless these may overflow."""
        if not (self._is_exact(a) and self._is_exact(b)):
            return self
        difference = Polynomial.of(a).plus(Polynomial.of(b), -1).plus(Polynomial({(): less}, {}), -1)
        return replace(self, facts=(*self.facts, difference)) if difference.atoms else self

    def _is_exact(self, expr: PrimExpr) -> bool:
        """Whether an expression is its polynomial: of variables that do not change, without overflow."""
        if expr.dtype != "int64":
            return False
        ranges = self._ranges(expr)
        return all(
            isinstance(n, (Var, IntImm)) or (isinstance(n, Binary) and _combined(n, ranges[id(n.a)], ranges[id(n.b)]))
            for n in distinct(expr)
        )

    def _is_positive(self, value: Polynomial) -> bool:
        """Whether a polynomial is at least 0."""
        if self._least(value) >= 0 or any(self._least(value.plus(fact, -1)) >= 0 for fact in self.facts):
            return True
        below = Polynomial({(): -1}, {}).plus(value, -1)
        return bool(self.facts) and not can_hold([below.terms, *self._rows(value)])

    def _rows(self, value: Polynomial) -> list[Row]:
        """What is known of a polynomial's atoms, and of all that these are compared with."""
        rows: list[Row] = []
        near, facts = dict(value.atoms), list(self.facts)
        while linked := [fact for fact in facts if not near.keys().isdisjoint(fact.atoms)]:
            rows += [fact.terms for fact in linked]
            facts = [fact for fact in facts if fact not in linked]
            for fact in linked:
                near.update(fact.atoms)
        for name, atom in near.items():
            low, high = self.range(atom)
            rows += [{(name,): 1, (): -low}, {(name,): -1, (): high}]
        return rows + [row for name, atom in near.items() for row in _quotient(name, atom, rows)]

    def _least(self, value: Polynomial) -> int:
        result = 0
        for monomial, factor in value.terms.items():
            low = high = 1
            for atom in monomial:
                ends = [x * y for x in (low, high) for y in self.range(value.atoms[atom])]
                low, high = min(ends), max(ends)
            result += factor * (low if factor > 0 else high)
        return result

    def _ranges(self, expr: PrimExpr) -> dict[int, Range]:
        """The ranges of an expression's parts, by their ids."""
        found: dict[int, Range] = {}
        stack = [expr]
        while stack:
            node = stack[-1]
            parts = _parts(node)
            missing = [p for p in parts if id(p) not in found]
            if missing:
                stack += missing
                continue
            stack.pop()
            known = [found[id(p)] for p in parts]
            whole = _of_dtype(node.dtype)
            if isinstance(node, IntImm):
                found[id(node)] = (int(node.value), int(node.value))
            elif isinstance(node, Var):
                found[id(node)] = self.ranges.get(node, whole)
            elif isinstance(node, Binary):
                found[id(node)] = _combined(node, *known) or whole if parts else whole
            elif isinstance(node, Select):
                found[id(node)] = (min(known[0][0], known[1][0]), max(known[0][1], known[1][1]))
            elif isinstance(node, Cast) and parts:
                found[id(node)] = known[0] if whole[0] <= known[0][0] and known[0][1] <= whole[1] else whole
            else:
                found[id(node)] = whole
        return found


def _quotient(name: str, atom: PrimExpr, rows: Sequence[Row]) -> list[Row]:
    """What is left of a division by a number is at least 0, and less than that; so is the quotient of what is."""
    if not isinstance(atom, Binary) or atom.kind != "floordiv" or not isinstance(atom.b, IntImm) or atom.b.value <= 0:
        return []
    whole, by = Polynomial.of(atom.a), atom.b.value
    left = whole.plus(Polynomial({(name,): by}, {name: atom}), -1)
    found: list[Row] = [left.terms, Polynomial({(): by - 1}, {}).plus(left, -1).terms]
    if not can_hold([Polynomial({(): -1}, {}).plus(whole, -1).terms, *rows]):
        found.append({(name,): 1})
    return found


def _parts(node: PrimExpr) -> tuple[PrimExpr, ...]:
    """What the range of an expression depends on."""
    if isinstance(node, Binary) and is_integer(node.dtype):
        return node.a, node.b
    if isinstance(node, Select) and is_integer(node.dtype):
        return node.a, node.b
    if isinstance(node, Cast) and (is_integer(node.value.dtype) or node.value.dtype == "bool"):
        return (node.value,)
    return ()


def _of_dtype(dtype: str) -> Range:
    if dtype == "bool":
        return 0, 1
    return limits(dtype) if is_integer(dtype) else (0, 0)  # nobody asks for that of a float


def _combined(node: Binary, a: Range, b: Range) -> Range | None:
    """The range of an operation; None where it may overflow, or is not known to be nearer than the dtype's."""
    ends: list[int]
    if node.kind == "add":
        ends = [a[0] + b[0], a[1] + b[1]]
    elif node.kind == "sub":
        ends = [a[0] - b[1], a[1] - b[0]]
    elif node.kind == "mul":
        ends = [x * y for x in a for y in b]
    elif node.kind in ("min", "max"):
        choose = min if node.kind == "min" else max
        ends = [choose(a[0], b[0]), choose(a[1], b[1])]
    elif node.kind == "floordiv" and b[0] > 0:
        ends = [x // y for x in a for y in b]
    elif node.kind == "floormod" and b[0] > 0:
        ends = [a[0], a[1]] if a[0] >= 0 and a[1] < b[0] else [0, b[1] - 1]
    elif node.kind == "bitand" and (a[0] >= 0 or b[0] >= 0):
        ends = [0, min(x[1] for x in (a, b) if x[0] >= 0)]
    else:
        return None
    low, high = min(ends), max(ends)
    whole = _of_dtype(node.dtype)
    return (low, high) if whole[0] <= low and high <= whole[1] else None
