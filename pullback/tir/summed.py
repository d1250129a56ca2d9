"""Loops that add up at places that stay the same: sums in lanes.

    for j in range(n):                            for o in range(n // 8): for l in vectorized(8):
        s[k] += x[j] * y[j]                           j = 8 * o + l; sum[l] += x[j] * y[j]; z[j] += x[j]
        z[j] += x[j]                       →      for l in vectorized(n - n // 8 * 8): …
                                                  s[k] += (sum[0] + sum[1]) + (sum[2] + sum[3]) + …

What else the iterations do has to be independent (``independent.py``), and read no element that is a sum: it is certain
that they do not where elimination shows their places to be others (``inequalities.py``). The lanes are eight on every
machine, so the order of the sum is the same on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.tir.expr import Binary, Buffer, BufferLoad, IntImm, PrimExpr, Var, as_expr, const
from pullback.tir.independent import independent
from pullback.tir.inequalities import can_hold
from pullback.tir.overwritten import Copy, equal
from pullback.tir.polynomial import key
from pullback.tir.stmt import Allocate, BufferStore, For, Let, Stmt, loop, seq, store
from pullback.tir.visitor import Mutator, Substitute, distinct, substitute

_LANES = 8
_LEAST = 16  # iterations that lanes are worth


def summed(node: For, around: Sequence[For], names: Mapping[Var, PrimExpr]) -> Stmt | None:
    """The loop with its sums in lanes, inside of loops; None where it has none, or its iterations do more that is not
    independent. ``names``: the values of names of whole numbers outside of it."""
    extent = node.extent
    if isinstance(extent, IntImm) and extent.value < _LEAST:
        return None
    nodes = list(distinct(node.body))
    if any(isinstance(n, For) for n in nodes):
        return None
    inner = {n.var for n in nodes if isinstance(n, Let)} | {node.var}
    own = {n.buffer for n in nodes if isinstance(n, Allocate)}
    sums = [n for n in nodes if isinstance(n, BufferStore) and n.buffer not in own and _is_sum(n, inner)]
    if not sums or not all(_is_read_by_none(s, nodes, node, around, names) for s in sums):
        return None
    totals = {s: Buffer(f"sum{k}", (_LANES,), s.buffer.dtype, "local") for k, s in enumerate(sums)}
    apart = {s: Buffer("apart", (1,), s.buffer.dtype, "local") for s in sums}
    if not independent(node.var, _Elsewhere(apart, node.var).stmt(node.body)):
        return None
    return _in_lanes(node, totals)


def _is_sum(node: BufferStore, inner: set[Var]) -> bool:
    """Whether a store adds to an element that is the same in all iterations."""
    return _added(node) is not None and not any(
        n in inner or isinstance(n, BufferLoad) for n in distinct(*node.indices)
    )


def _added(node: BufferStore) -> PrimExpr | None:
    """What a store adds to its element; None where it does something else."""
    value = node.value
    if not isinstance(value, Binary) or value.kind != "add" or not _is_element(value.a, node):
        return None
    return None if any(isinstance(n, BufferLoad) and n.buffer is node.buffer for n in distinct(value.b)) else value.b


def _is_element(expr: PrimExpr, node: BufferStore) -> bool:
    return (
        isinstance(expr, BufferLoad)
        and expr.buffer is node.buffer
        and list(map(key, expr.indices)) == list(map(key, node.indices))
    )


def _is_read_by_none(
    total: BufferStore, nodes: Sequence[object], node: For, around: Sequence[For], names: Mapping[Var, PrimExpr]
) -> bool:
    """Whether the loop has no other access of an element than to add to it."""
    stores = [n for n in nodes if isinstance(n, BufferStore) and n.buffer is total.buffer]
    others = [n for n in stores if _added(n) is None]
    within = {id(n.value.a) for n in stores if n not in others and isinstance(n.value, Binary)}
    loads = [n for n in nodes if isinstance(n, BufferLoad) and n.buffer is total.buffer and id(n) not in within]
    places = [*(n.indices for n in others), *(n.indices for n in loads)]
    return all(_are_apart(total.indices, place, [*around, node], names, nodes) for place in places)


def _are_apart(
    a: Sequence[PrimExpr],
    b: Sequence[PrimExpr],
    around: Sequence[For],
    names: Mapping[Var, PrimExpr],
    nodes: Sequence[object],
) -> bool:
    """Whether the places are others in all iterations of the loops."""
    inside = {n.var: n.value for n in nodes if isinstance(n, Let)}
    copy = Copy([(f, 0) for f in around], names)
    places = zip(a, b, strict=True)
    rows = [row for x, y in places for row in equal(copy.of(substitute(x, inside)), copy.of(substitute(y, inside)))]
    return not can_hold([*copy.rows, *rows])


class _Elsewhere(Mutator):
    """Sums go to other buffers, to an element of each iteration's own."""

    def __init__(self, buffers: Mapping[BufferStore, Buffer], place: PrimExpr, *, adding: bool = False) -> None:
        super().__init__()
        self.buffers, self.place, self.adding = buffers, place, adding

    def stmt(self, node: Stmt) -> Stmt:
        if not isinstance(node, BufferStore) or node not in self.buffers:
            return super().stmt(node)
        added = _added(node)
        assert added is not None  # that is how it got here
        buffer, value = self.buffers[node], self.expr(added)
        return store(buffer, (self.place,), buffer[self.place] + value if self.adding else value)


def _in_lanes(node: For, totals: Mapping[BufferStore, Buffer]) -> Stmt:
    lanes, whole = as_expr(_LANES), node.extent // _LANES

    def lanes_from(start: PrimExpr, count: PrimExpr) -> Stmt:
        lane = Var("lane")
        body = _Elsewhere(totals, lane, adding=True).stmt(node.body)
        body = _renamed(substitute(body, {node.var: start + lane}))
        return For(lane, count, body, "vectorized", span=node.span)

    zeros = [
        loop("lane", _LANES, lambda i, t=t: store(t, (i,), const(0, t.dtype)), "vectorized") for t in totals.values()
    ]
    rounds = loop(node.var.name, whole, lambda i: lanes_from(i * lanes, lanes))
    rest = node.extent - whole * lanes
    ends = [store(s.buffer, s.indices, s.buffer[s.indices] + _tree(totals[s])) for s in totals]
    parts = [*zeros, rounds]
    if not (isinstance(node.extent, IntImm) and node.extent.value % _LANES == 0):
        parts.append(lanes_from(whole * lanes, rest))
    result = seq(*parts, *ends)
    for total in totals.values():
        result = Allocate(total, result)
    return result


def _renamed(body: Stmt) -> Stmt:
    """A copy with names and memory of its own."""
    nodes = list(distinct(body))
    names = {n.var: Var(n.var.name, n.var.dtype) for n in nodes if isinstance(n, Let)}
    buffers = {
        n.buffer: Buffer(n.buffer.name, n.buffer.shape, n.buffer.dtype, n.buffer.scope)
        for n in nodes
        if isinstance(n, Allocate)
    }
    return Substitute(names, buffers=buffers).stmt(body)


def _tree(total: Buffer) -> PrimExpr:
    values: list[PrimExpr] = [total[k] for k in range(_LANES)]
    while len(values) > 1:
        values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]
