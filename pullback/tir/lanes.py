"""Lanes that read what others write: a vectorized loop of such lanes becomes loops of independent ones, which may be
cut into vectors of any width.

    for b in vectorized(n):                      for b in vectorized(n): t[b] = x[b] * w[b]
        t[b] = x[b] * w[b]                 →     for b in vectorized(n): y[b] = t[b] * t[n - 1 - b]
        y[b] = t[b] * t[n - 1 - b]

A statement that reads what it overwrites computes all values before it stores the first one. So do names and conditions
that depend on memory; and what a lane allocates for itself gets an axis of lanes.

    for b in vectorized(n): y[b] = y[n - 1 - b]   →   for b in vectorized(n): lane[b] = y[n - 1 - b]
                                                      for b in vectorized(n): y[b] = lane[b]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import InternalError, ShapeError
from pullback.tir.expr import Buffer, BufferLoad, PrimExpr, Var, as_expr, maximum
from pullback.tir.extents import greatest
from pullback.tir.independent import independent
from pullback.tir.overwritten import never_meet
from pullback.tir.stmt import Allocate, BufferStore, For, If, Let, Prefetch, Seq, Stmt, seq, store
from pullback.tir.visitor import Mutator, distinct, loads, substitute


def independent_lanes(body: Stmt) -> Stmt:
    """The same statements, in which no lane of a vectorized loop reads what another lane of that loop writes.

    Raises ShapeError where values of lanes have to be kept and it is not known how many there are.
    """
    return _Separate().stmt(body)


def reads_no_others(around: Sequence[For], node: BufferStore) -> bool:
    """Whether a store, alone in the last of some loops, reads nothing that other iterations of that one write."""
    reads = [load for value in (node.value, *node.indices) for load in loads(value) if load.buffer is node.buffer]
    return all(never_meet(around, node.indices, load.indices) for load in reads)


class _Separate(Mutator):
    def __init__(self) -> None:
        super().__init__()
        self.around: list[For] = []
        self.names: list[Var] = []

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, Let):
            self.names.append(node.var)
        if not isinstance(node, For):
            return super().stmt(node)
        if node.kind == "vectorized":
            lanes = _Lanes(node, self.around, self.names)
            if not lanes.are_safe(node.body):
                return lanes.loops(node.body, ())
            alone = lanes.over(node.body, ())
            return alone if alone.kind == "serial" else node
        self.around.append(node)
        result = super().stmt(node)
        self.around.pop()
        return result


def _differs(extent: PrimExpr, var: Var, body: Stmt | None = None) -> bool:
    """Whether the length of a loop, or a name in ``body`` that it uses, may differ between the lanes over ``var``."""
    named = {n.var for n in distinct(body) if isinstance(n, Let)} if body is not None else set()
    return any(n is var or n in named or isinstance(n, BufferLoad) for n in distinct(extent))


@dataclass(frozen=True)
class _Lanes:
    loop: For
    around: Sequence[For]
    names: Sequence[Var]  # that stand for values

    def are_safe(self, body: Stmt) -> bool:
        """Whether lanes are independent, or a single store whose values don't depend on it: the last lane wins."""
        return independent(self.loop.var, body) or (
            isinstance(body, BufferStore) and reads_no_others([*self.around, self.loop], body)
        )

    def loops(self, node: Stmt, masks: tuple[PrimExpr, ...]) -> Stmt:
        """A loop over the lanes for each statement of ``node``; ``masks``: the conditions of those that count."""
        if self.are_safe(node):
            return self.over(node, masks)
        if isinstance(node, Seq):
            return seq(*(self.loops(s, masks) for s in node.stmts))
        if isinstance(node, For):
            if _differs(node.extent, self.loop.var):
                return self.keeping([node.extent], masks, lambda extent: self.longest(node, extent, masks))
            return For(node.var, node.extent, self.loops(node.body, masks), node.kind, span=node.span)
        if isinstance(node, Let):
            return self.keeping([node.value], masks, lambda v: self.loops(substitute(node.body, {node.var: v}), masks))
        if isinstance(node, If):
            return self.keeping([node.condition], masks, lambda c: self.branches(node, c, masks))
        if isinstance(node, Allocate):
            own = self.buffer(node.buffer.name, node.buffer.dtype, node.buffer.shape)
            return Allocate(own, self.loops(_PerLane(node.buffer, own, self.loop.var).stmt(node.body), masks))
        if isinstance(node, BufferStore):
            values = [node.value, *node.indices]
            return self.keeping(values, masks, lambda v, *i: self.over(store(node.buffer, i, v), masks))
        raise InternalError(f"{type(node).__name__} in a vectorized loop")

    def branches(self, node: If, condition: PrimExpr, masks: tuple[PrimExpr, ...]) -> Stmt:
        then = self.loops(node.then, (*masks, condition))
        if node.otherwise is None:
            return then
        return seq(then, self.loops(node.otherwise, (*masks, ~condition)))

    def over(self, body: Stmt, masks: tuple[PrimExpr, ...]) -> For:
        for mask in reversed(masks):
            body = If(mask, body)
        loops = [n for n in distinct(body) if isinstance(n, For)]
        kind = "serial" if any(_differs(f.extent, self.loop.var, body) for f in loops) else "vectorized"
        return For(self.loop.var, self.loop.extent, body, kind, span=self.loop.span)

    def longest(self, node: For, extent: PrimExpr, masks: tuple[PrimExpr, ...]) -> Stmt:
        """A loop whose length differs between lanes: as long as that of any, for the lanes that have not left it."""
        most = Buffer("most", (), node.var.dtype, "local")
        longer: Stmt = store(most, (), maximum(most[()], extent))
        for mask in reversed(masks):
            longer = If(mask, longer)
        lanes = For(self.loop.var, self.loop.extent, longer, "serial")
        body = self.loops(node.body, (*masks, node.var < extent))
        return Allocate(most, seq(store(most, (), 0), lanes, For(node.var, most[()], body, "serial", span=node.span)))

    def keeping(self, values: Sequence[PrimExpr], masks: tuple[PrimExpr, ...], rest: Callable[..., Stmt]) -> Stmt:
        """``rest`` of the values as they are now, in all lanes: those that depend on memory are kept."""
        kept: list[Stmt] = []
        buffers, known = [], []
        for value in values:
            if not any(isinstance(n, BufferLoad) for n in distinct(value)):
                known.append(value)
                continue
            buffers.append(self.buffer("lane", value.dtype, ()))
            kept.append(self.over(store(buffers[-1], self.loop.var, value), masks))
            known.append(buffers[-1][self.loop.var])
        result = seq(*kept, rest(*known))
        for buffer in reversed(buffers):
            result = Allocate(buffer, result)
        return result

    def buffer(self, name: str, dtype: str, shape: Sequence[Any]) -> Buffer:
        """Memory for each lane: a task's own inside a parallel loop, else a workspace, which may be large."""
        extents = {f.var: f.extent for f in self.around}
        size: Any = greatest(self.loop.extent, extents)
        if size is None:
            inner = [n for n in distinct(self.loop.extent) if n in extents or n in self.names]
            if inner or loads(self.loop.extent):
                message = f"lanes of {self.loop.var.name} read what others write, but how many there are is not known"
                hint = "bound its extent, as in T.vectorized(T.min(n, 64))"
                raise ShapeError(message, span=self.loop.span, hint=hint)
            size = as_expr(self.loop.extent)
        scope = "local" if any(f.kind == "parallel" for f in self.around) else "workspace"
        return Buffer(name, (size, *shape), dtype, scope)


class _PerLane(Mutator):
    """A buffer that each lane has for itself becomes one of all lanes."""

    def __init__(self, old: Buffer, new: Buffer, lane: Var) -> None:
        super().__init__()
        self.old, self.new, self.lane = old, new, lane

    def _expr(self, node: PrimExpr) -> PrimExpr:
        node = super()._expr(node)
        if isinstance(node, BufferLoad) and node.buffer is self.old:
            return self.new[(self.lane, *node.indices)]
        return node

    def stmt(self, node: Stmt) -> Stmt:
        node = super().stmt(node)
        if isinstance(node, BufferStore) and node.buffer is self.old:
            return store(self.new, (self.lane, *node.indices), node.value)
        if isinstance(node, Prefetch) and node.buffer is self.old:
            return Prefetch(self.new, (self.lane, *node.indices), node.kind)
        return node
