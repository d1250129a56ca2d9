"""Pieces: the innermost axis cut where conditions on it change, as those of a concatenation and of padding do.

    for j in 8: out[j] = select(j < 3, a[min(j, 2)], b[max(j - 3, 0)])
    →   for j in 3: out[j] = a[j]
        for j in 5: out[j + 3] = b[j]

A select reads both of its sides, each at an index that is valid where the other is meant. A piece reads the side that
is meant, and its elements lie side by side.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from pullback.schedule.affine import affine
from pullback.tir import Binary, BufferLoad, BufferStore, IntImm, PrimExpr, Select, Stmt, Var
from pullback.tir.expr import COMPARISONS, binary
from pullback.tir.visitor import Mutator, substitute, walk

_MOST = 32  # pieces: more are not worth the code

Extent = int | PrimExpr


def pieces(axes: Sequence[Var], extents: Sequence[Extent], body: Stmt) -> list[tuple[Extent, Stmt]]:
    """How long each piece of the last axis is, and the body there, whose variable counts from the piece's beginning.

    A single one where no condition of a select changes along that axis.
    """
    axis = axes[-1]
    known = {v: e for v, e in zip(axes, extents, strict=True) if isinstance(e, int) and e > 0}
    cuts = _cuts(axis, known, body) if axis in known else []
    if not cuts or len(cuts) >= _MOST:
        return [(extents[-1], body)]
    result: list[tuple[Extent, Stmt]] = []
    for begin, end in itertools.pairwise([0, *cuts, known[axis]]):
        moved = substitute(body, {axis: axis + begin}) if begin else body
        result.append((end - begin, _Decided({**known, axis: end - begin}).stmt(moved)))
    return result


def _cuts(axis: Var, extents: Mapping[Var, int], body: Stmt) -> list[int]:
    """Where a condition on this axis alone changes, in order."""
    found = set()
    for select in (n for n in walk(body) if isinstance(n, Select)):
        for node in walk(select.condition):
            if isinstance(node, Binary) and node.kind in COMPARISONS and node.a.dtype == "int64":
                found |= _changes(node, axis, extents)
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
    """Comparisons, minima and maxima of indices that the extents decide, and the selects that hang on them."""

    def __init__(self, extents: Mapping[Var, int]) -> None:
        super().__init__()
        self.extents = extents

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
        return self.decided(new) if new.a.dtype == "int64" and new.kind in (*COMPARISONS, "min", "max") else new

    def index(self, index: PrimExpr) -> PrimExpr:
        """Without what cancels out."""
        form = affine(index, self.extents) if isinstance(index, Binary) else None
        return index if form is None else form.expr()

    def decided(self, node: Binary) -> PrimExpr:
        a, b = affine(node.a, self.extents), affine(node.b, self.extents)
        if a is None or b is None:
            return node
        low, high = a.plus(b, -1).range(self.extents)
        if node.kind in ("min", "max"):
            return node if low < 0 < high else node.a if (high <= 0) == (node.kind == "min") else node.b
        signs = {low, high, *([0] if low < 0 < high else [])}  # of the difference: a comparison asks for no more
        values = {binary(node.kind, IntImm(d), IntImm(0)).value for d in signs}  # type: ignore[attr-defined]
        return IntImm(values.pop(), "bool") if len(values) == 1 else node


def _logic(node: Binary) -> PrimExpr:
    """``and``, ``or`` with a side that is known."""
    for side, other in ((node.a, node.b), (node.b, node.a)):
        if isinstance(side, IntImm):
            return other if bool(side.value) == (node.kind == "and") else side
    return node
