"""Scatter: sums in which an index, read from memory, says to which row each term belongs: the adjoint of ``take``.

A tensor expression can only say Σ over k of ``select(index[k] == row, value[k, …], 0)``: every term for every row. As
loops, each term goes to its own row. (The same for products, maxima and minima, with their neutral elements.)

    for row in parallel(rows): for j in vectorized(columns): out[row, j] = 0              or begin[row, j]
    for block in parallel(column blocks):
        for k in terms:
            row = index[k]
            for j in vectorized(block): out[row, j] = out[row, j] + value[k, j]

Where each column has rows of its own, ``index[k, j]``, the row is found within the loop over j, which is not vectorised
then. The terms of a row are added in the order of k. Threads divide columns, never a sum. Where the sums are added to
a tensor, as those of ``scatter_nd``, the rows begin with what that holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.cost import element_cost, worth_threads
from pullback.schedule.describe import is_vectorized, moved_bytes, moving, named, tasks_of
from pullback.schedule.elementwise import nest
from pullback.schedule.group import Group, bytes_of, same_axes
from pullback.schedule.pointwise import buffer_readers, tasks
from pullback.te.graph import Lower, combine, identity, loads_of, stages
from pullback.te.tensor import Reduce, ReduceAxis, Tensor, TensorLoad
from pullback.tir import For, If, Let, PrimExpr, PrimFunc, Stmt, Var, as_expr, minimum, seq, store
from pullback.tir.description import Description, Nest
from pullback.tir.expr import Binary, FloatImm, IntImm, Select, nbytes
from pullback.tir.static import is_static, static
from pullback.tir.visitor import substitute, walk

_BLOCK = 8  # vectors of columns in a block
_COMBINES = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


@dataclass(frozen=True, eq=False)
class Terms:
    """``stage[…, row, …]`` = Σ (or Π, max, min) of the ``value`` of all terms whose ``index`` is the row. Both
    may depend on the stage's other axes."""

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
    constants = (FloatImm, IntImm)
    if not isinstance(other, constants) or not isinstance(neutral, constants) or other.value != neutral.value:
        return None
    for index, row in ((condition.a, condition.b), (condition.b, condition.a)):
        at = next((k for k, axis in enumerate(stage.axes) if axis is row), None)
        if at is not None and loads_of(stage) and row not in {*walk(index), *walk(value)}:
            return Terms(at, index, value)
    return None


def begin_of(output: Tensor, stage: Tensor) -> PrimExpr | None:
    """What the output begins with, before the stage's terms are added to it, or None when it is another thing: the
    neutral element where the output is the stage, and ``e`` where it is ``e + stage`` (or ``·``, max, min)."""
    assert isinstance(stage.body, Reduce)
    if output is stage:
        return identity(stage.body.kind, stage.dtype)
    body = output.body
    if not isinstance(body, Binary) or body.kind != _COMBINES.get(stage.body.kind):
        return None
    for load, other in ((body.a, body.b), (body.b, body.a)):
        if isinstance(load, TensorLoad) and load.tensor is stage and same_axes(load.indices, output.axes):
            return None if _reads(other, stage) else other
    return None


def _reads(expr: PrimExpr, stage: Tensor) -> bool:
    return any(isinstance(n, TensorLoad) and (n.tensor is stage or stage in stages([n.tensor])) for n in walk(expr))


@dataclass(frozen=True, eq=False)
class Scatter:
    """One reduction of scattered terms, with elementwise stages before it; ``output`` begins with ``begin``.

        out[r, j] = Σ_k select(index[k] == r, value[k, j], 0)   →   for k: row = index[k]; out[row, j] += value[k, j]

    Checks: one reduction, whose term is a select between a value and the neutral element on ``index == row``, and sizes
    that are known. An index outside of the rows adds nothing. Terms of a row are taken in their order, whatever the
    threads.
    """

    group: Group
    stage: Tensor
    terms: Terms
    begin: PrimExpr

    @staticmethod
    def recognize(group: Group) -> Scatter | None:
        if len(group.reductions) != 1 or len(group.outputs) != 1:
            return None
        (stage,) = group.reductions
        terms, begin = terms_of(stage), begin_of(group.outputs[0], stage)
        reduced = stage.body.axes if isinstance(stage.body, Reduce) else ()
        if terms is None or begin is None or not is_static((*stage.shape, *(a.extent for a in reduced))):
            return None
        return Scatter(group, stage, terms, begin)

    @property
    def output(self) -> Tensor:
        return self.group.outputs[0]

    def lower(self, name: str) -> PrimFunc:
        return self.group.function(name, seq(*self.loops))

    @cached_property
    def loops(self) -> tuple[Stmt, Stmt]:
        """What writes the rows' beginnings, and what adds the terms."""
        return self._begun(), self._added()

    def describe(self) -> Description:
        begun, added = self.loops
        machine, shape = self.group.machine, self.stage.shape
        axes = named(self.stage.axes, shape)
        last = axes[-1][0] if axes else None
        size = bytes_of(self.group.buffers[self.output])
        begin = max(element_cost([self.stage]) * self._elements, machine.memory_ns(size))
        add = max(element_cost(self.group.stages) * self._additions, machine.memory_ns(moved_bytes(self.group)))
        nests = [
            Nest(axes, begin, loops="beginnings", vector_axis=last, tasks=tasks_of(begun)),
            Nest(
                axes, add, named([a.var for a in self._terms], [a.extent for a in self._terms]), loops="terms in order",
                vector_axis=last if is_vectorized(added) else None, tasks=tasks_of(added),
            ),
        ]  # fmt: skip
        return moving("scatter", self.group, nests)

    @property
    def _elements(self) -> int:
        return _product(self.stage.shape)

    @property
    def _terms(self) -> Sequence[ReduceAxis]:
        assert isinstance(self.stage.body, Reduce)
        return self.stage.body.axes

    @property
    def _additions(self) -> int:
        """Each term goes to one row."""
        kept = [s for k, s in enumerate(self.stage.shape) if k != self.terms.row]
        return _product([*kept, *(a.extent for a in self._terms)])

    def _begun(self) -> Stmt:
        axes = [Var(f"i{k}") for k in range(self.stage.ndim)]
        begin = self._inlined(self.begin, self.output.axes, axes)
        threads = worth_threads(element_cost([self.stage]) * self._elements)
        return nest(axes, list(self.stage.shape), store(self.group.buffers[self.output], axes, begin), threads)

    def _added(self) -> Stmt:
        """The terms, in order, for each block of columns: of the last axis, if that is not the rows'."""
        stage, reduce, at, buffer = self.stage, self.stage.body, self.terms.row, self.group.buffers[self.output]
        assert isinstance(reduce, Reduce)
        kept = [k for k in range(stage.ndim) if k != at]
        by_columns = bool(kept) and kept[-1] == stage.ndim - 1
        shape = static(stage.shape)
        columns = shape[-1] if by_columns else 1
        width = max(1, min(columns, _BLOCK * self.group.machine.vector_bytes // nbytes(stage.dtype)))
        block, lane, row = Var("block"), Var("j"), Var("row", self.terms.index.dtype)
        outer = kept[:-1] if by_columns else kept
        places: list[PrimExpr] = list(stage.axes)
        places[at] = row
        if by_columns:
            places[-1] = block * width + lane
        index, value = (self._inlined(e, stage.axes, places) for e in (self.terms.index, self.terms.value))
        body: Stmt = store(buffer, places, combine(reduce.kind, buffer[tuple(places)], value))
        size = as_expr(width) if columns % width == 0 else minimum(as_expr(columns) - block * width, width)
        own_rows = by_columns and lane in set(walk(index))
        if by_columns and not own_rows:
            body = For(lane, size, body, "vectorized")
        body = Let(row, index, If((row >= 0) & (row < stage.shape[at]), body))
        if own_rows:
            body = For(lane, size, body)
        for axis in reversed(reduce.axes):
            body = For(axis.var, as_expr(axis.extent), body)
        sizes = [shape[k] for k in outer]
        threads = worth_threads(element_cost(self.group.stages) * self._additions)
        return tasks([*(stage.axes[k] for k in outer), block], [*sizes, -(-columns // width)], body, threads)

    def _inlined(self, expr: PrimExpr, axes: Sequence[Var], places: Sequence[PrimExpr]) -> PrimExpr:
        """A part of an element at these indices, over the kernel's buffers."""
        return Lower(buffer_readers(self.group)).expr(substitute(expr, dict(zip(axes, places, strict=True))))


def _product(sizes: Sequence[int | PrimExpr]) -> int:
    """Of sizes that :meth:`Scatter.recognize` has seen to be numbers."""
    return math.prod(s for s in sizes if isinstance(s, int))
