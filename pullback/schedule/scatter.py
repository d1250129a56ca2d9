"""Scatter: sums in which an index, read from memory, says to which row each term belongs: the adjoint of ``take``.

A tensor expression can only say Σ over k of ``select(index[k] == row, value[k, …], 0)``: every term for every row. As
loops, each term goes to its own row. (The same for products, maxima and minima, with their neutral elements.)

    for row in parallel(rows): for j in vectorized(columns): out[row, j] = 0
    for block in parallel(column blocks):
        for k in terms:
            row = index[k]
            for j in vectorized(block): out[row, j] = out[row, j] + value[k, j]

The terms of a row are added in the order of k. Threads divide columns, never a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pullback.schedule.cost import element_cost, worth_threads
from pullback.schedule.elementwise import nest
from pullback.schedule.group import Group
from pullback.schedule.pointwise import buffer_readers, tasks
from pullback.te.graph import Lower, combine, identity, loads_of
from pullback.te.tensor import Reduce, Tensor
from pullback.tir import For, If, Let, PrimExpr, PrimFunc, Stmt, Var, as_expr, minimum, seq, store
from pullback.tir.expr import Binary, FloatImm, IntImm, Select, nbytes
from pullback.tir.visitor import substitute, walk


@dataclass(frozen=True, eq=False)
class Terms:
    """``stage[…, row, …]`` = Σ (or Π, max, min) of the ``value`` of all terms whose ``index`` is the row."""

    row: int  # which axis of the stage
    index: PrimExpr
    value: PrimExpr


def terms_of(stage: Tensor) -> Terms | None:
    """The stage as a reduction of scattered terms, or None when it is none."""
    reduce = stage.body
    if not isinstance(reduce, Reduce) or reduce.kind.startswith("arg") or not isinstance(reduce.source, Select):
        return None
    condition, value, other = reduce.source.condition, reduce.source.a, reduce.source.b
    if not isinstance(condition, Binary) or condition.kind != "eq":
        return None
    neutral = identity(reduce.kind, stage.dtype)
    if not isinstance(other, (FloatImm, IntImm)) or other.value != neutral.value:  # type: ignore[attr-defined]
        return None
    for index, row in ((condition.a, condition.b), (condition.b, condition.a)):
        if any(row is axis for axis in stage.axes):
            used, of_value = set(walk(index)), set(walk(value))
            if loads_of(stage) and used.isdisjoint(stage.axes) and row not in of_value:
                return Terms(next(k for k, axis in enumerate(stage.axes) if axis is row), index, value)
    return None


@dataclass(frozen=True, eq=False)
class Scatter:
    """One reduction of scattered terms, with elementwise stages before it."""

    group: Group
    stage: Tensor
    terms: Terms

    @staticmethod
    def recognize(group: Group) -> Scatter | None:
        if len(group.reductions) != 1 or group.outputs != tuple(group.reductions):
            return None
        (stage,) = group.reductions
        terms = terms_of(stage)
        sizes = (*stage.shape, *(a.extent for a in stage.body.axes))  # type: ignore[union-attr]
        return Scatter(group, stage, terms) if terms and all(isinstance(s, int) for s in sizes) else None

    def lower(self, name: str) -> PrimFunc:
        return self.group.function(name, seq(self._clear(), self._add()))

    def _clear(self) -> Stmt:
        axes = [Var(f"i{k}") for k in range(self.stage.ndim)]
        body = store(self.group.buffers[self.stage], axes, identity(self.stage.body.kind, self.stage.dtype))  # type: ignore[union-attr]
        threads = worth_threads(element_cost([self.stage]) * math.prod(self.stage.shape))  # type: ignore[arg-type]
        return nest(axes, list(self.stage.shape), body, threads)

    def _add(self) -> Stmt:
        """The terms, in order, for each block of columns: of the last axis, if that is not the rows'."""
        stage, reduce, at = self.stage, self.stage.body, self.terms.row
        assert isinstance(reduce, Reduce)
        kept = [k for k in range(stage.ndim) if k != at]
        by_columns = bool(kept) and kept[-1] == stage.ndim - 1
        columns: int = stage.shape[-1] if by_columns else 1  # type: ignore[assignment]
        width = max(1, min(columns, 4 * self.group.machine.vector_bytes // nbytes(stage.dtype)))
        block = Var("block")
        lane = Var("j")
        row = Var("row", self.terms.index.dtype)
        outer = kept[:-1] if by_columns else kept
        places: list[PrimExpr] = list(stage.axes)
        places[at] = row
        if by_columns:
            places[-1] = block * width + lane
        result, value = self.group.buffers[stage][tuple(places)], self._inlined(self.terms.value, places)
        body: Stmt = store(self.group.buffers[stage], places, combine(reduce.kind, result, value))
        if by_columns:
            size = as_expr(width) if columns % width == 0 else minimum(as_expr(columns) - block * width, width)
            body = For(lane, size, body, "vectorized")
        inside = (row >= 0) & (row < stage.shape[at])
        body = Let(row, self._inlined(self.terms.index, places), If(inside, body))
        for axis in reversed(reduce.axes):
            body = For(axis.var, as_expr(axis.extent), body)
        sizes: list[int] = [stage.shape[k] for k in outer]  # type: ignore[misc]
        count = math.prod(a.extent for a in reduce.axes) * columns * math.prod(sizes)
        threads = worth_threads(element_cost(self.group.stages) * count)
        return tasks([*(stage.axes[k] for k in outer), block], [*sizes, -(-columns // width)], body, threads)

    def _inlined(self, expr: PrimExpr, places: list[PrimExpr]) -> PrimExpr:
        """A part of the stage's element at these indices, over the kernel's buffers."""
        bindings = dict(zip(self.stage.axes, places, strict=True))
        return Lower(buffer_readers(self.group)).expr(substitute(expr, bindings))
