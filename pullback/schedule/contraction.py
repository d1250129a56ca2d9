"""Contraction: matmuls, with elementwise work on the result done while it is still in registers.

    for tile in parallel(batch · panels · row tiles):
        acc = register tile of rows × columns, 0
        for k in K:
            for j in vectorized(columns):
                for r in unrolled(rows):
                    acc[r, j] = fma(A[i0 + r, k], B[k, j0 + j], acc[r, j])
        for r: for j: out[i0 + r, j0 + j] = f(acc[r, j], …)

One operand, ``B``, has the column axis and is read by vectors: where its columns do not lie side by side in memory it
is first copied, transposed, into panels. Each element is one sum in the order of k, whatever the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from pullback.schedule.cost import worth_threads
from pullback.schedule.group import Group, same_axes
from pullback.schedule.pointwise import buffer_readers, point, tasks
from pullback.schedule.tiles import Tile, choose_tile
from pullback.te.graph import Lower, body_expr, is_index_map, loads_of
from pullback.te.tensor import Reduce, Tensor, TensorLoad
from pullback.tir import (
    Allocate,
    Binary,
    Buffer,
    Cast,
    For,
    If,
    PrimExpr,
    PrimFunc,
    Stmt,
    Var,
    as_expr,
    cast,
    const,
    fma,
    loop,
    seq,
    store,
)
from pullback.tir.expr import is_float, nbytes
from pullback.tir.visitor import substitute, walk

_NANOSECONDS_PER_FMA = 1 / 50


@dataclass(frozen=True, eq=False)
class Operand:
    """A factor of the products: an expression with one load, over the axes of the contraction."""

    expr: PrimExpr
    axes: frozenset[Var]
    last: PrimExpr | None  # the innermost index of its load


@dataclass(frozen=True, eq=False)
class Contraction:
    """``anchor[batch…, i, j] = Σ_k a·b``, then elementwise stages of the anchor's shape."""

    group: Group
    anchor: Tensor
    a: Operand
    b: Operand
    row: Var | None
    column: Var
    tile: Tile = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tile", choose_tile(self.rows, self.columns, self.lanes, self.group.machine.registers))

    # -- recognition

    @staticmethod
    def recognize(group: Group) -> Contraction | None:
        if len(group.reductions) != 1:
            return None
        anchor = group.reductions[0]
        if not _is_epilogue(group, anchor) or not _is_sum_of_products(anchor):
            return None
        first, second = (_operand(f, anchor) for f in _factors(anchor))
        if first is None or second is None or not anchor.axes:
            return None
        column = anchor.axes[-1]
        k = anchor.body.axes[0].var  # type: ignore[union-attr]
        if column in first.axes:
            first, second = second, first
        if column in first.axes or column not in second.axes or k not in first.axes or k not in second.axes:
            return None
        rows = [v for v in anchor.axes[:-1] if v in first.axes and v not in second.axes]
        if not rows and second.last is not column:
            return None  # a matrix times a vector: sums along the rows of memory need no transposed copy
        return Contraction(group, anchor, first, second, rows[-1] if rows else None, column)

    # -- sizes

    @property
    def extents(self) -> dict[Var, int]:
        reduce = self.anchor.body
        pairs = [*zip(self.anchor.axes, self.anchor.shape, strict=True)]
        return dict(pairs) | {a.var: a.extent for a in reduce.axes}  # type: ignore[union-attr]

    @property
    def rows(self) -> int:
        return self.extents[self.row] if self.row is not None else 1

    @property
    def columns(self) -> int:
        return self.extents[self.column]

    @property
    def lanes(self) -> int:
        return max(1, self.group.machine.vector_bytes // max(4, nbytes(self.anchor.dtype)))

    @property
    def k(self) -> Var:
        return self.anchor.body.axes[0].var  # type: ignore[union-attr]

    @property
    def outer(self) -> list[Var]:
        """Batch axes and further row axes: one tile at a time."""
        return [v for v in self.anchor.axes if v is not self.row and v is not self.column]

    # -- lowering

    def lower(self, name: str) -> PrimFunc:
        work = math.prod(self.extents.values()) * _NANOSECONDS_PER_FMA
        threads = worth_threads(work)
        lower = Lower(buffer_readers(self.group))
        a, b = lower.expr(self.a.expr), lower.expr(self.b.expr)
        if self.b.last is self.column:
            return self.group.function(
                name, self._tiles(a, lambda j0, j: substitute(b, {self.column: j0 + j}), threads)
            )
        panels = Buffer("panels", self._panel_shape(), b.dtype, "workspace")
        copy, read = self._pack(b, panels, threads)
        return self.group.function(name, Allocate(panels, seq(copy, self._tiles(a, read, threads))))

    def _batch(self) -> list[Var]:
        """Outer axes that the packed operand depends on."""
        return [v for v in self.outer if v in self.b.axes]

    def _panel_shape(self) -> tuple[int, ...]:
        count = -(-self.columns // self.tile.columns)
        return (*(self.extents[v] for v in self._batch()), count, self.extents[self.k], self.tile.columns)

    def _pack(self, b: PrimExpr, panels: Buffer, threads: bool) -> tuple[Stmt, Callable[..., PrimExpr]]:
        """The copy of B into panels of the tile's width, and how tiles read them."""
        batch, width, (full, rest) = self._batch(), self.tile.columns, divmod(self.columns, self.tile.columns)
        panel = Var("panel")

        def copy(columns: int) -> Stmt:
            j = Var("j")
            value = substitute(b, {self.column: panel * width + j})
            body: Stmt = For(j, as_expr(columns), store(panels, (*batch, panel, self.k, j), value), "vectorized")
            return For(self.k, as_expr(self.extents[self.k]), body)

        body = copy(rest) if not full else copy(width)
        if full and rest:
            body = If(panel < full, copy(width), copy(rest))
        nest = tasks([*batch, panel], [*(self.extents[v] for v in batch), full + bool(rest)], body, threads)

        def read(j0: PrimExpr, j: PrimExpr) -> PrimExpr:
            return panels[(*batch, j0 // width, self.k, j)]

        return nest, read

    def _tiles(self, a: PrimExpr, read_b: Callable[..., PrimExpr], threads: bool) -> Stmt:
        """All register tiles; those at the lower and right edge are smaller."""
        mr, nr = self.tile.rows, self.tile.columns
        (m_full, m_rest), (n_full, n_rest) = divmod(self.rows, mr), divmod(self.columns, nr)
        row_tile, panel = Var("row_tile"), Var("panel")

        def body(rows: int, columns: int) -> Stmt:
            return self._tile(a, read_b, row_tile * mr, panel * nr, rows, columns)

        def edges(rows: int) -> Stmt:
            if not n_rest:
                return body(rows, nr)
            return If(panel < n_full, body(rows, nr), body(rows, n_rest)) if n_full else body(rows, n_rest)

        whole = edges(mr) if m_full else edges(m_rest)
        if m_full and m_rest:
            whole = If(row_tile < m_full, edges(mr), edges(m_rest))
        axes = [*self.outer, panel, row_tile]
        sizes = [*(self.extents[v] for v in self.outer), n_full + bool(n_rest), m_full + bool(m_rest)]
        return tasks(axes, sizes, whole, threads)

    def _tile(
        self, a: PrimExpr, read_b: Callable[..., PrimExpr], i0: PrimExpr, j0: PrimExpr, rows: int, columns: int
    ) -> Stmt:
        """One register tile: clear, accumulate over k, finish and store."""
        dtype = self.anchor.dtype
        acc = Buffer("acc", (rows, columns), dtype, "local")

        def over_tile(element: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
            j = Var("j")
            return For(j, as_expr(columns), loop("r", rows, lambda r: element(r, j), "unrolled"), "vectorized")

        def multiply(j: PrimExpr) -> Callable[[PrimExpr], Stmt]:
            b = read_b(j0, j)

            def step(r: PrimExpr) -> Stmt:
                left = substitute(a, {self.row: i0 + r}) if self.row is not None else a
                total = fma(left, b, acc[r, j]) if is_float(dtype) else acc[r, j] + left * b
                return store(acc, (r, j), total)

            return step

        j = Var("j")
        product = For(j, as_expr(columns), loop("r", rows, multiply(j), "unrolled"), "vectorized")
        clear = over_tile(lambda r, j: store(acc, (r, j), const(0, dtype)))
        finish = over_tile(lambda r, j: self._finish(acc, r, j, i0, j0))
        steps = For(self.k, as_expr(self.extents[self.k]), product)
        return Allocate(acc, seq(clear, steps, finish))

    def _finish(self, acc: Buffer, r: PrimExpr, j: PrimExpr, i0: PrimExpr, j0: PrimExpr) -> Stmt:
        """The elementwise stages at one element of the tile."""
        place = {self.column: j0 + j} | ({self.row: i0 + r} if self.row is not None else {})
        axes = [place.get(v, v) for v in self.anchor.axes]
        readers = buffer_readers(self.group) | {self.anchor: lambda _: acc[r, j]}
        members = [s for s in self.group.stages if s is self.anchor or s.shape == self.anchor.shape]
        return point(self.group, members, axes, readers)


def _is_sum_of_products(anchor: Tensor) -> bool:
    reduce = anchor.body
    if not isinstance(reduce, Reduce) or reduce.kind != "sum" or len(reduce.axes) != 1:
        return False
    sizes = (*anchor.shape, reduce.axes[0].extent)
    is_product = isinstance(reduce.source, Binary) and reduce.source.kind == "mul"
    return is_product and all(isinstance(s, int) and s > 0 for s in sizes)


def _factors(anchor: Tensor) -> tuple[PrimExpr, PrimExpr]:
    source = anchor.body.source  # type: ignore[union-attr]
    return source.a, source.b


def _operand(expr: PrimExpr, anchor: Tensor) -> Operand | None:
    """A factor that is a load (perhaps cast) whose indices are axes or constants; index maps are looked through."""
    wanted = expr.dtype
    inner = expr.value if isinstance(expr, Cast) else expr
    while isinstance(inner, TensorLoad) and not inner.tensor.is_placeholder:
        tensor = inner.tensor
        if not is_index_map(tensor) or not isinstance(body_expr(tensor), TensorLoad):
            return None
        inner = substitute(body_expr(tensor), dict(zip(tensor.axes, inner.indices, strict=True)))
    if not isinstance(inner, TensorLoad):
        return None
    axes = {*anchor.axes, *(a.var for a in anchor.body.axes)}  # type: ignore[union-attr]
    used = [i for i in inner.indices if isinstance(i, Var)]
    if any(i not in axes for i in used) or len(set(used)) != len(used):
        return None
    if any(isinstance(n, Var) for i in inner.indices if not isinstance(i, Var) for n in walk(i)):
        return None
    last = next((i for i, s in reversed(list(zip(inner.indices, inner.tensor.shape, strict=True))) if s != 1), None)
    return Operand(cast(wanted, inner), frozenset(used), last)


def _is_epilogue(group: Group, anchor: Tensor) -> bool:
    """Whether only index maps precede the anchor, and what follows is elementwise in its shape, outputs included."""
    before, after = set(_ancestors(anchor)), {anchor}
    for stage in group.stages:
        if stage is anchor or stage in before:
            if stage in before and (stage in group.outputs or not is_index_map(stage)):
                return False
            continue
        dependent = [load for load in loads_of(stage) if load.tensor in after]
        if dependent:
            after.add(stage)
            if stage.shape != anchor.shape or any(not same_axes(load.indices, stage.axes) for load in dependent):
                return False
    return all(o.shape == anchor.shape for o in group.outputs)


def _ancestors(tensor: Tensor) -> list[Tensor]:
    found: list[Tensor] = []
    for load in loads_of(tensor):
        if not load.tensor.is_placeholder:
            found += [load.tensor, *_ancestors(load.tensor)]
    return found
