"""Reduction: sums, maxima and what is computed from them, row by row or in blocks of columns.

Rows (the reduced axes are innermost in memory): softmax, norms and the like are one kernel.

    for p in parallel(rows):
        partial[lanes] = Σ over every lanes-th element, vectorized;  total = fixed tree over the partials
        for j in vectorized(columns): out[p, j] = f(x[p, j], total, …)

Columns (the kept axis is innermost):

    for block in parallel(column blocks):
        for k in reduced: for j in vectorized(block): acc[j] = acc[j] + x[k, block + j]
        for j in vectorized(block): out[block + j] = f(acc[j])

The order of every sum is fixed by the shape: threads divide rows and blocks, never a sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.schedule.cost import element_cost, is_costly, worth_threads
from pullback.schedule.group import Group, same_axes
from pullback.schedule.pointwise import buffer_readers, tasks
from pullback.schedule.scatter import terms_of
from pullback.te.graph import Lower, Reader, better, body_expr, combine, identity, loads_of
from pullback.te.tensor import Reduce, Tensor
from pullback.tir import Allocate, Buffer, For, If, Let, PrimExpr, PrimFunc, Stmt, Var, as_expr, select, seq, store
from pullback.tir.expr import nbytes
from pullback.tir.visitor import substitute, walk

_LOCAL_ROW = 2048  # elements of a row that are kept rather than computed again


@dataclass(frozen=True, eq=False)
class Reduction:
    """Reductions over the same kept axes, with elementwise stages before, between and after."""

    rows: _Rows

    @staticmethod
    def recognize(group: Group) -> Reduction | None:
        shapes = {_kept(r) for r in group.reductions}
        if len(shapes) != 1 or not all(isinstance(s, int) for stage in group.stages for s in stage.shape):
            return None
        if not group.fallback and any(is_matmul(r) or terms_of(r) for r in group.reductions):
            return None
        rows = _Rows(group, shapes.pop())
        return Reduction(rows) if rows.fits() else None

    def lower(self, name: str) -> PrimFunc:
        return self.rows.group.function(name, self.rows.body())


def is_matmul(stage: Tensor) -> bool:
    """Whether a reduction sums products in which either factor has an axis that the other lacks."""
    source = body_expr(stage)
    if stage.body.kind != "sum" or getattr(source, "kind", None) != "mul":  # type: ignore[union-attr]
        return False
    axes = {v for v, s in zip(stage.axes, stage.shape, strict=True) if s != 1}
    left, right = (axes.intersection(walk(side)) for side in (source.a, source.b))  # type: ignore[attr-defined, arg-type]
    return bool(left - right) and bool(right - left)


def _kept(stage: Tensor) -> tuple[int, ...]:
    """The sizes of a stage without the ones."""
    return tuple(s for s in stage.shape if s != 1)  # type: ignore[misc]


class _Rows:
    """Builds the loops of a group whose reductions keep the sizes ``kept``."""

    def __init__(self, group: Group, kept: tuple[int, ...]) -> None:
        self.group, self.kept = group, kept
        self.row = [Var(f"p{k}") for k in range(len(kept))]
        self.level = {s: self._level(s) for s in group.stages}
        self.by_columns = self._prefer_columns()
        self.width = 1
        self.point: list[PrimExpr] = list(self.row)  # the row's indices; in column mode the last one is base + lane
        self.locals: list[Buffer] = []
        self.readers: dict[Tensor, Reader] = {}

    def _level(self, stage: Tensor) -> str:
        """``row``: one element a row; ``vector``: a whole row of elements."""
        sizes = _kept(stage)
        if sizes == self.kept:
            return "row"
        return "vector" if sizes[: len(self.kept)] == self.kept else "other"

    def _prefer_columns(self) -> bool:
        if not self.kept:
            return False
        rows = columns = 0
        for reduction in self.group.reductions:
            axes = [v for v, s in zip(reduction.axes, reduction.shape, strict=True) if s != 1]
            reduced = reduction.body.axes[-1].var  # type: ignore[union-attr]
            for indices in _innermost_loads(reduction):
                rows += indices is reduced
                columns += indices is axes[-1]
        return columns > rows

    def fits(self) -> bool:
        """Whether the stages whose values are kept are one element a row or (by rows only) whole rows, and read one
        another at their own row only, stages between them inlined."""
        forbidden = ("other", "vector") if self.by_columns else ("other",)
        for stage in self.group.stages:
            if not stage.is_reduction:
                if not self._keeps(stage):
                    continue
                if self.level[stage] in forbidden:
                    return False
            if not all(self._same_row(stage, tensor, indices) for tensor, indices in self._kept_reads(stage)):
                return False
        return True

    def _kept_reads(self, stage: Tensor) -> list[tuple[Tensor, tuple[PrimExpr, ...]]]:
        """The reads of kept values in the element of a stage, other stages inlined."""
        found, seen = [], {}
        pending = [(load.tensor, load.indices) for load in loads_of(stage)]
        while pending:
            tensor, indices = pending.pop()
            key = (tensor, *map(id, indices))
            if tensor.is_placeholder or key in seen:
                continue
            seen[key] = indices  # keeps them alive, and so their ids
            if tensor.is_reduction or self._keeps(tensor):
                found.append((tensor, indices))
                continue
            bindings = dict(zip(tensor.axes, indices, strict=True))
            inner = ((load.tensor, load.indices) for load in loads_of(tensor))
            pending.extend((t, tuple(substitute(i, bindings) for i in own)) for t, own in inner)
        return found

    def _keeps(self, stage: Tensor) -> bool:
        """Whether the values of a stage are stored rather than inlined."""
        if stage.is_placeholder or stage.is_reduction:
            return False
        kept = self._keep_scalar if self.level[stage] == "row" else self._keep_vector
        return kept(stage)

    def _same_row(self, reader: Tensor, tensor: Tensor, indices: Sequence[PrimExpr]) -> bool:
        """Whether a stage at a row reads another, at these indices, at the same row."""
        rows = len(self.kept)
        own = [v for v, s in zip(reader.axes, reader.shape, strict=True) if s != 1][:rows]
        read = [i for i, s in zip(indices, tensor.shape, strict=True) if s != 1][:rows]
        return same_axes(read, own)

    # -- loops

    def body(self) -> Stmt:
        cost = element_cost(self.group.stages) * max(
            (math.prod(s.shape) * math.prod(self._reduced_sizes(s)) for s in self.group.stages), default=1
        )
        threads = worth_threads(cost)
        if not self.by_columns:
            inner = self._one_block(1)
            return tasks(self.row, list(self.kept), inner, threads)
        columns = self.kept[-1]
        lanes = max(1, self.group.machine.vector_bytes // max(4, *(nbytes(r.dtype) for r in self.group.reductions)))
        self.width = max(1, min(columns, 4 * lanes))
        full, rest = divmod(columns, self.width)
        block = Var("block")
        inner = self._columns(block, self.width) if full else self._columns(block, rest)
        if full and rest:
            inner = If(block < full, inner, self._columns(block, rest))
        return tasks([*self.row[:-1], block], [*self.kept[:-1], full + bool(rest)], inner, threads)

    def _columns(self, block: Var, width: int) -> Stmt:
        base = block * self.width
        return substitute(self._one_block(width), {self.row[-1]: base})

    @staticmethod
    def _reduced_sizes(stage: Tensor) -> list[int]:
        return [a.extent for a in stage.body.axes] if isinstance(stage.body, Reduce) else []  # type: ignore[misc]

    def _one_block(self, width: int) -> Stmt:
        """All stages for one row, or for ``width`` columns side by side."""
        self.locals, self.readers = [], dict(buffer_readers(self.group))
        statements = []
        for stage in self.group.stages:
            if stage.is_reduction:
                statements.append(self._reduce(stage, width))
            elif self.level[stage] == "row" and self._keep_scalar(stage):
                statements.append(self._row_value(stage, width))
            elif self.level[stage] == "vector" and self._keep_vector(stage):
                statements.append(self._row_vector(stage))
        body = seq(*statements)
        for buffer in reversed(self.locals):
            body = Allocate(buffer, body)
        return body

    def _keep_scalar(self, stage: Tensor) -> bool:
        readers = self.group.readers.get(stage, ())
        inner = any(s.is_reduction or self.level[s] == "vector" for s in readers)
        return stage in self.group.outputs or len(readers) > 1 or (inner and self._follows_reduction(stage))

    def _follows_reduction(self, stage: Tensor) -> bool:
        return any(x.tensor.is_reduction or self._follows_reduction(x.tensor) for x in loads_of(stage))

    def _keep_vector(self, stage: Tensor) -> bool:
        if stage in self.group.outputs:
            return True
        size = math.prod(_kept(stage)[len(self.kept) :])
        repeated = self.group.reads.get(stage, 0) > 1 and is_costly(stage)
        return repeated and size <= _LOCAL_ROW and not self.by_columns

    # -- places and values

    def _lanes(self, width: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """``body(lane)`` for all lanes of a block of columns; by rows there is one lane, 0."""
        if not self.by_columns:
            return body(as_expr(0))
        lane = Var("j")
        return For(lane, as_expr(width), body(lane), "vectorized")

    def _place(self, lane: PrimExpr) -> list[PrimExpr]:
        """The row's indices; in a block of columns, of this lane."""
        return [*self.row[:-1], self.row[-1] + lane] if self.by_columns else list(self.row)

    def _indices(self, stage: Tensor, place: Sequence[PrimExpr], inner: Sequence[PrimExpr] = ()) -> list[PrimExpr]:
        """The indices of a stage's element, zeros for sizes of 1."""
        values = iter([*place, *inner])
        return [as_expr(0) if s == 1 else next(values) for s in stage.shape]

    def _local(self, stage: Tensor, size: int, name: str = "") -> Buffer:
        buffer = Buffer(name or f"l_{stage.name}".replace(".", "_"), (size,), stage.dtype, "local")
        self.locals.append(buffer)
        return buffer

    def _read_local(self, stage: Tensor, buffer: Buffer) -> Reader:
        """Reads a row's value; :meth:`fits` has seen to it that the indices are the row's own."""

        def read(indices: tuple[PrimExpr, ...]) -> PrimExpr:
            if not self.by_columns:
                return buffer[0]
            last = [i for i, s in zip(indices, stage.shape, strict=True) if s != 1][-1]
            return buffer[last.b]  # type: ignore[attr-defined]  # it is row + lane: see _place

        return read

    def _value(self, stage: Tensor, indices: Sequence[PrimExpr], extra: dict[Var, PrimExpr] | None = None) -> PrimExpr:
        bindings = dict(zip(stage.axes, indices, strict=True)) | (extra or {})
        return Lower(self.readers).expr(substitute(body_expr(stage), bindings))

    # -- statements

    def _row_value(self, stage: Tensor, width: int) -> Stmt:
        local = self._local(stage, width)

        def compute(lane: PrimExpr) -> Stmt:
            indices = self._indices(stage, self._place(lane))
            return seq(store(local, lane, self._value(stage, indices)), self._output(stage, indices, local[lane]))

        result = self._lanes(width, compute)
        self.readers[stage] = self._read_local(stage, local)
        return result

    def _output(self, stage: Tensor, indices: Sequence[PrimExpr], value: PrimExpr) -> Stmt | None:
        return store(self.group.buffers[stage], indices, value) if stage in self.group.outputs else None

    def _row_vector(self, stage: Tensor) -> Stmt:
        """A whole row of a stage, to its output or to a local buffer."""
        sizes = _kept(stage)[len(self.kept) :]
        inner = [Var(f"j{k}") for k in range(len(sizes))]
        indices = self._indices(stage, self.row, inner)
        value = self._value(stage, indices)
        if stage in self.group.outputs:
            target = self.group.buffers[stage]
            self.readers[stage] = self._read_vector(stage, target, whole=True)
            body: Stmt = store(target, indices, value)
        else:
            local = Buffer(f"l_{stage.name}".replace(".", "_"), tuple(sizes), stage.dtype, "local")
            self.locals.append(local)
            self.readers[stage] = self._read_vector(stage, local)
            body = store(local, inner, value)
        for k in range(len(inner) - 1, -1, -1):
            body = For(inner[k], as_expr(sizes[k]), body, "vectorized" if k == len(inner) - 1 else "serial")
        return body

    def _read_vector(self, stage: Tensor, buffer: Buffer, whole: bool = False) -> Reader:
        """Reads an element of this row, from a buffer that holds the row or the ``whole`` stage."""

        def read(indices: tuple[PrimExpr, ...]) -> PrimExpr:
            used = [i for i, s in zip(indices, stage.shape, strict=True) if s != 1]
            return buffer[indices] if whole else buffer[tuple(used[len(self.row) :])]

        return read

    def _reduce(self, stage: Tensor, width: int) -> Stmt:
        if stage.body.kind.startswith("arg"):  # type: ignore[union-attr]
            return self._reduce_argument(stage, width)
        result = self._local(stage, width)
        body = self._reduce_columns(stage, result, width) if self.by_columns else self._reduce_row(stage, result)
        self.readers[stage] = self._read_local(stage, result)
        return seq(body, self._final(stage, result, width))

    def _final(self, stage: Tensor, result: Buffer, width: int) -> Stmt | None:
        if stage not in self.group.outputs:
            return None
        return self._lanes(
            width, lambda lane: store(self.group.buffers[stage], self._indices(stage, self._place(lane)), result[lane])
        )

    def _reduce_columns(self, stage: Tensor, result: Buffer, width: int) -> Stmt:
        reduce: Reduce = stage.body  # type: ignore[assignment]

        def step(lane: PrimExpr) -> Stmt:
            value = self._value(stage, self._indices(stage, self._place(lane)))
            return store(result, lane, combine(reduce.kind, result[lane], value))

        start = self._lanes(width, lambda lane: store(result, lane, identity(reduce.kind, stage.dtype)))
        return seq(start, _serial(reduce, self._lanes(width, step)))

    def _reduce_row(self, stage: Tensor, result: Buffer) -> Stmt:
        """Partial results by lanes, then a tree; rows too short for that one after another."""
        reduce: Reduce = stage.body  # type: ignore[assignment]
        last = reduce.axes[-1]
        lanes = max(1, self.group.machine.vector_bytes // max(4, nbytes(stage.dtype)))
        indices = self._indices(stage, self.row)
        if not isinstance(last.extent, int) or last.extent < 4:
            step = store(result, 0, combine(reduce.kind, result[0], self._value(stage, indices)))
            return seq(store(result, 0, identity(reduce.kind, stage.dtype)), _serial(reduce, step))
        parts = lanes * 4 if last.extent >= lanes * 8 else lanes
        partial = self._local(stage, parts, "partial")

        def accumulate(size: int, base: PrimExpr) -> Stmt:
            lane = Var("lane")
            value = self._value(stage, indices, {last.var: base + lane})
            update = store(partial, lane, combine(reduce.kind, partial[lane], value))
            return For(lane, as_expr(size), update, "vectorized")

        full, rest = divmod(last.extent, parts)
        lane, chunk = Var("lane"), Var("chunk")
        clear = For(lane, as_expr(parts), store(partial, lane, identity(reduce.kind, stage.dtype)), "vectorized")
        main = For(chunk, as_expr(full), accumulate(parts, chunk * parts)) if full else None
        tail = accumulate(rest, as_expr(full * parts)) if rest else None
        return seq(
            clear, _outer(reduce, seq(main, tail)), _tree(reduce.kind, partial, parts), store(result, 0, partial[0])
        )

    def _reduce_argument(self, stage: Tensor, width: int) -> Stmt:
        """The first index of the best value, and the best value beside it."""
        reduce: Reduce = stage.body  # type: ignore[assignment]
        axis = reduce.axes[0]
        result = self._local(stage, width)
        best = Buffer("best", (width,), reduce.source.dtype, "local")
        self.locals.append(best)

        def step(lane: PrimExpr) -> Stmt:
            new, wins = Var("value", best.dtype), Var("wins", "bool")
            value = self._value(stage, self._indices(stage, self._place(lane)))
            replace = seq(
                store(result, lane, select(wins, axis.var, result[lane])),
                store(best, lane, select(wins, new, best[lane])),
            )
            return Let(new, value, Let(wins, better(reduce.kind, new, best[lane], axis.var.equal(0)), replace))

        start = self._lanes(
            width, lambda lane: seq(store(result, lane, 0), store(best, lane, identity(reduce.kind, best.dtype)))
        )
        body = seq(start, _serial(reduce, self._lanes(width, step)))
        self.readers[stage] = self._read_local(stage, result)
        return seq(body, self._final(stage, result, width))


def _innermost_loads(stage: Tensor) -> list[PrimExpr]:
    """The last index (of a size other than 1) of every read in the source of a reduction, index maps looked through."""
    found = []
    for load in loads_of(stage):
        indices, tensor = load.indices, load.tensor
        while not tensor.is_placeholder and not tensor.is_reduction and len(loads_of(tensor)) >= 1:
            first = max(loads_of(tensor), key=lambda x: len(x.indices))
            bindings = dict(zip(tensor.axes, indices, strict=True))
            indices = tuple(substitute(i, bindings) for i in first.indices)
            tensor = first.tensor
        used = [i for i, s in zip(indices, tensor.shape, strict=True) if s != 1]
        if used:
            found.append(used[-1])
    return found


def _serial(reduce: Reduce, body: Stmt) -> Stmt:
    """Loops over all reduced axes, in order."""
    for axis in reversed(reduce.axes):
        body = For(axis.var, as_expr(axis.extent), body)
    return body


def _outer(reduce: Reduce, body: Stmt) -> Stmt:
    """Loops over the reduced axes but the last."""
    for axis in reversed(reduce.axes[:-1]):
        body = For(axis.var, as_expr(axis.extent), body)
    return body


def _tree(kind: str, partial: Buffer, parts: int) -> Stmt:
    """Halve the partial results until one is left."""
    steps = []
    half = parts // 2
    while half:
        lane = Var("lane")
        value = combine(kind, partial[lane], partial[lane + half])
        steps.append(For(lane, as_expr(half), store(partial, lane, value), "vectorized"))
        half //= 2
    return seq(*steps)
