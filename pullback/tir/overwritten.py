"""Which stores overwrite a value that is asked for again on the way back.

    for i in range(n):
        s[0] = b[i]                              overwrites what the statement below read in the iteration before
        for j in range(i):
            s[0] = s[0] - a[i, j] * x[j]         overwrites what no derivative reads
        x[i] = s[0] / a[i, i]                    x[i] is written once: x[j], j < i, are others

The derivatives of a statement read values as they were when it ran. A store keeps what it overwrites, unless it is
certain that no derivative of an earlier statement has read that element ("to be recorded": Hascoët, Naumann & Pascual,
TBR analysis, 2005), where earlier is meant for each pair of iterations of the loops around both. What lies in buffers
of one element is followed from statement to statement: one store keeps the value, those after it need not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.tir.expr import Binary, Buffer, BufferLoad, IntImm, PrimExpr, Var, as_expr
from pullback.tir.inequalities import Row, can_hold
from pullback.tir.polynomial import Polynomial
from pullback.tir.stmt import BufferStore, For, If, Seq, Stmt
from pullback.tir.visitor import children, distinct, substitute

Uses = Mapping[Stmt, Sequence[BufferLoad]]  # what the way back reads when it comes to a statement


def overwriting(body: Stmt, uses: Uses, names: Mapping[Var, PrimExpr]) -> set[BufferStore]:
    """The stores that have to keep what they overwrite. ``names``: the values of names of whole numbers."""
    places = list(_places(body, ()))
    reads: dict[Buffer, list[tuple[_Place, BufferLoad]]] = {}
    for place in places:
        for load in uses.get(place.stmt, ()):
            reads.setdefault(load.buffer, []).append((place, load))
    found: set[BufferStore] = set()
    single = {b for b in reads if all(size == 1 for size in b.shape)}
    for buffer in single:
        _Follow(buffer, uses, found).stmt(body, False)
    for place in places:
        node = place.stmt
        if isinstance(node, BufferStore) and node.buffer in reads and node.buffer not in single:
            pairs = ((p, load.indices) for p, load in reads[node.buffer])
            if any(_may_meet(p, indices, place, node.indices, names) for p, indices in pairs):
                found.add(node)
    return found


@dataclass
class _Follow:
    """Follows a buffer of one element: whether its value was read by a derivative and is kept nowhere yet."""

    buffer: Buffer
    uses: Uses
    found: set[BufferStore]

    def stmt(self, node: Stmt, is_used: bool) -> bool:
        is_used |= any(load.buffer is self.buffer for load in self.uses.get(node, ()))
        if isinstance(node, BufferStore):
            if node.buffer is not self.buffer:
                return is_used
            if is_used:
                self.found.add(node)
            return False
        if isinstance(node, For):
            after = is_used
            while True:
                end = self.stmt(node.body, after)
                if not end or after:
                    break
                after = True
            runs = isinstance(node.extent, IntImm) and node.extent.value > 0
            return end if runs else end or is_used
        if isinstance(node, If):
            other = is_used if node.otherwise is None else self.stmt(node.otherwise, is_used)
            return self.stmt(node.then, is_used) or other
        for child in children(node):
            if isinstance(child, Stmt):
                is_used = self.stmt(child, is_used)
        return is_used


_Path = tuple[tuple[Stmt, int], ...]


@dataclass(frozen=True)
class _Place:
    """A statement with those around it, and which part of each it is in."""

    stmt: Stmt
    path: _Path


def _places(node: Stmt, path: _Path) -> Iterator[_Place]:
    yield _Place(node, path)
    for k, child in enumerate(c for c in children(node) if isinstance(c, Stmt)):
        yield from _places(child, (*path, (node, k)))


def _may_meet(
    use: _Place, read: Sequence[PrimExpr], store: _Place, written: Sequence[PrimExpr], names: Mapping[Var, PrimExpr]
) -> bool:
    """Whether a store may write, after it was read, an element that a statement's derivatives read."""
    common: list[For] = []
    is_before = True
    for (a, i), (b, k) in zip(use.path, store.path, strict=False):
        if a is not b:
            break
        if i != k:
            is_before = isinstance(a, Seq) and i < k
            break
        if isinstance(a, For):
            common.append(a)
    else:
        is_before = len(use.path) <= len(store.path)
    first, second = Copy(use.path, names), Copy(store.path, names)
    rows = [*first.rows, *second.rows]
    for index, other in zip(read, written, strict=True):
        rows += equal(first.of(index), second.of(other))
    for loop in common:
        earlier, later = first.of(loop.var), second.of(loop.var)
        if can_hold([*rows, _less(earlier, later)]):
            return True
        rows += equal(earlier, later)
    return is_before and can_hold(rows)


def never_meet(loops: Sequence[For], a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    """Whether the place ``a`` in an iteration of the last loop is none of ``b`` in another one."""
    path = [(f, 0) for f in loops]
    first, second = Copy(path, {}), Copy(path, {})
    rows = [*first.rows, *second.rows]
    for x, y in zip(a, b, strict=True):
        rows += equal(first.of(x), second.of(y))
    for loop in loops[:-1]:
        rows += equal(first.of(loop.var), second.of(loop.var))
    i, k = (copy.of(loops[-1].var) for copy in (first, second))
    return not can_hold([*rows, _less(i, k)]) and not can_hold([*rows, _less(k, i)])


class Copy:
    """An iteration of the loops around a statement: variables of their own, and what is known of them."""

    def __init__(self, path: Sequence[tuple[Stmt, int]], names: Mapping[Var, PrimExpr]) -> None:
        self.names = names
        self.vars: dict[Var, PrimExpr] = {}
        self.rows: list[Row] = []
        for node, part in path:
            if isinstance(node, For):
                self.vars[node.var] = var = Var(node.var.name, node.var.dtype)
                self.rows.append(_row(Polynomial.of(var)))
                for extent in _least_of(substitute(as_expr(node.extent), names)):
                    self.rows.append(_less(Polynomial.of(var), self.of(extent)))
            elif isinstance(node, If):
                self.rows += self.given(node.condition, part == 0)

    def of(self, expr: PrimExpr) -> Polynomial:
        return Polynomial.of(substitute(substitute(as_expr(expr), self.names), self.vars))

    def given(self, condition: PrimExpr, holds: bool) -> list[Row]:
        """What a comparison of whole numbers says."""
        if not isinstance(condition, Binary):
            return []
        if condition.kind == ("and" if holds else "or"):
            return [*self.given(condition.a, holds), *self.given(condition.b, holds)]
        if condition.a.dtype != "int64" or any(isinstance(n, BufferLoad) for n in distinct(condition)):
            return []
        a, b = self.of(condition.a), self.of(condition.b)
        kind = condition.kind if holds else _NEGATED.get(condition.kind, "")
        rows: dict[str, Any] = {
            "lt": lambda: [_less(a, b)],
            "gt": lambda: [_less(b, a)],
            "le": lambda: [_row(b.plus(a, -1))],
            "ge": lambda: [_row(a.plus(b, -1))],
            "eq": lambda: equal(a, b),
        }
        return rows[kind]() if kind in rows else []


_NEGATED = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "ne": "eq"}


def _least_of(expr: PrimExpr) -> list[PrimExpr]:
    """What a minimum is the least of."""
    if isinstance(expr, Binary) and expr.kind == "min":
        return [*_least_of(expr.a), *_least_of(expr.b)]
    return [expr]


def _row(value: Polynomial) -> Row:
    return value.terms


def _less(a: Polynomial, b: Polynomial) -> Row:
    return b.plus(a, -1).plus(Polynomial({(): 1}, {}), -1).terms


def equal(a: Polynomial, b: Polynomial) -> list[Row]:
    """That two indices are equal, as far as they are no reads of memory."""
    difference = a.plus(b, -1)
    if any(isinstance(n, BufferLoad) for atom in difference.atoms.values() for n in distinct(atom)):
        return []  # an index from memory
    return [difference.terms, {m: -c for m, c in difference.terms.items()}]
