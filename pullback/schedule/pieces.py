"""Pieces: the innermost axis cut where conditions on it change, as those of a concatenation and of padding do, and
where an index goes over from one rule to another, as at the edge of a resized image or between adaptive windows.

    for j in 8: out[j] = select(j < 3, a[min(j, 2)], b[max(j - 3, 0)])
    →   for j in 3: out[j] = a[j]
        for j in 5: out[j + 3] = b[j]

A select reads both of its sides, each at an index that is valid where the other is meant. A piece reads the side that
is meant, and its elements lie side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from pullback.schedule.affine import affine
from pullback.schedule.along import Along
from pullback.tir import Binary, BufferLoad, BufferStore, IntImm, PrimExpr, Select, Stmt, Var, as_expr
from pullback.tir.expr import COMPARISONS, binary
from pullback.tir.static import number
from pullback.tir.visitor import Mutator, substitute, walk

_MOST = 32  # pieces: more are not worth the code, unless as many selects are in it that go
_AT_ONCE = 8  # cuts for which all of the body is looked at
_SHORT = 8  # elements that pieces have on average, where it is no select that makes them
_STEPS = (*COMPARISONS, "min", "max", "floordiv")

Extent = int | PrimExpr


def pieces(axes: Sequence[Var], extents: Sequence[Extent], body: Stmt) -> list[tuple[Extent, Stmt]]:
    """How long each piece of the last axis is, and the body there, whose variable counts from the piece's beginning.

    A single one where nothing that is decided for all of a piece changes along that axis.
    """
    axis = axes[-1]
    known = {v: e for v, e in zip(axes, extents, strict=True) if isinstance(e, int) and e > 0}
    cuts = _cuts(axis, known, body) if axis in known else []
    selects = {id(n) for n in walk(body) if isinstance(n, Select)}
    if not cuts or len(cuts) >= max(_MOST, len(selects) + 1):
        return [(extents[-1], body)]
    return list(_divided(axis, known, cuts, body))


def _divided(axis: Var, extents: Mapping[Var, int], cuts: list[int], body: Stmt) -> Iterator[tuple[Extent, Stmt]]:
    """The pieces. Of a long concatenation, halves first: each reads only half of what is put together."""
    chosen = cuts if len(cuts) <= _AT_ONCE else [cuts[len(cuts) // 2]]
    for begin, end in itertools.pairwise([0, *chosen, extents[axis]]):
        known = {**extents, axis: end - begin}
        piece = _Decided(known, axis).stmt(substitute(body, {axis: axis + begin}) if begin else body)
        within = [c - begin for c in cuts if begin < c < end]
        yield from _divided(axis, known, within, piece) if within else [(end - begin, piece)]


def _cuts(axis: Var, extents: Mapping[Var, int], body: Stmt) -> list[int]:
    """Where something on this axis alone changes, in order: a condition of a select; and where that leaves pieces long
    enough, a quotient, or which side a minimum or maximum is."""
    found: set[int] = set()
    for select in (n for n in walk(body) if isinstance(n, Select)):
        for node in walk(select.condition):
            if isinstance(node, Binary) and node.kind in COMPARISONS and node.a.dtype == "int64":
                found |= _changes(node, axis, extents)
    along = Along(axis, extents[axis])
    for node in {id(n): n for n in walk(body) if isinstance(n, Binary) and n.kind in _STEPS}.values():
        steps = along.steps(node)
        if steps is not None and (len(found.union(steps)) + 1) * _SHORT <= extents[axis]:
            found.update(steps)
    return sorted(c for c in found if 0 < c < extents[axis])


def _changes(comparison: Binary, axis: Var, extents: Mapping[Var, int]) -> set[int]:
    """The values of the axis from which on a comparison has another value than before, if it depends on the axis
    alone: those beside the point where both sides are equal."""
    a, b = affine(comparison.a, extents), affine(comparison.b, extents)
    difference = a.plus(b, -1) if a is not None and b is not None else None
    if difference is None or list(difference.terms) != [axis] or abs(difference.terms[axis]) != 1:
        return set()
    equal = -difference.const * difference.terms[axis]
    if comparison.kind in ("eq", "ne"):
        return {equal, equal + 1}
    with_equal = (comparison.kind in ("lt", "ge")) == (
        difference.terms[axis] > 0
    )  # where both sides are equal, or after
    return {equal if with_equal else equal + 1}


class _Decided(Mutator):
    """Comparisons, minima and maxima of indices that the extents decide, and the selects that hang on them; quotients
    that are one number."""

    def __init__(self, extents: Mapping[Var, int], axis: Var) -> None:
        super().__init__()
        self.extents = extents
        self.along = Along(axis, extents[axis])

    def stmt(self, node: Stmt) -> Stmt:
        new = super().stmt(node)
        if isinstance(new, BufferStore):
            return BufferStore(new.buffer, new.value, tuple(map(self.index, new.indices)))
        return new

    def _expr(self, node: PrimExpr) -> PrimExpr:
        new = super()._expr(node)
        if isinstance(new, BufferLoad):
            return BufferLoad(new.buffer, tuple(map(self.index, new.indices)))
        if not isinstance(new, Binary):
            return new
        if new.kind in ("and", "or"):
            return _logic(new)
        return self.decided(new) if new.a.dtype == "int64" and new.kind in _STEPS else new

    def index(self, index: PrimExpr) -> PrimExpr:
        """Without what cancels out."""
        form = affine(index, self.extents) if isinstance(index, Binary) else None
        return index if form is None else form.expr()

    def decided(self, node: Binary) -> PrimExpr:
        if node.kind == "floordiv":
            quotients = self.along.range(node)
            return as_expr(quotients[0]) if quotients is not None and quotients[0] == quotients[1] else node
        bounds = self.difference(node)
        if bounds is None:
            return node
        low, high = bounds
        if node.kind in ("min", "max"):
            return node if low < 0 < high else node.a if (high <= 0) == (node.kind == "min") else node.b
        signs = {low, high, *([0] if low < 0 < high else [])}  # of the difference: a comparison asks for no more
        values = {number(binary(node.kind, IntImm(d), IntImm(0))) for d in signs}
        return IntImm(values.pop(), "bool") if len(values) == 1 else node

    def difference(self, node: Binary) -> tuple[int, int] | None:
        """The least and the largest value of one side minus the other: by algebra, or by looking at all places."""
        a, b = affine(node.a, self.extents), affine(node.b, self.extents)
        if a is not None and b is not None:
            return a.plus(b, -1).range(self.extents)
        return self.along.range(binary("sub", node.a, node.b))


def _logic(node: Binary) -> PrimExpr:
    """``and``, ``or`` with a side that is known."""
    for side, other in ((node.a, node.b), (node.b, node.a)):
        if isinstance(side, IntImm):
            return other if bool(side.value) == (node.kind == "and") else side
    return node
