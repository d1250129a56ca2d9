"""Reduction: sums, maxima and what is computed from them.

`build.py` turns a group's stages into a program, steps over shared axes (`program.py`), and `merge.py` puts the axes in
the order of memory. Then there are four ways to walk through it:

    rows.py       the reduced axes are innermost: softmax, norms; one row, or a few side by side, is a task, or more of
                  them, in a pipeline
    columns.py    a kept axis is innermost: blocks of columns
    window.py     few elements in each result: written out
    phases.py     few results of many elements: chunks first, which are rows or columns again, then their results

The order of every sum is fixed by shapes and the width of vectors (each file states it); threads divide results and
chunks, never a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.cost import worth_threads
from pullback.schedule.describe import is_vectorized, moving, named, tasks_of
from pullback.schedule.group import Group
from pullback.schedule.reduction.build import build
from pullback.schedule.reduction.columns import block_width, lower_columns
from pullback.schedule.reduction.merge import merge
from pullback.schedule.reduction.nests import allocated
from pullback.schedule.reduction.phases import in_phases
from pullback.schedule.reduction.program import Program
from pullback.schedule.reduction.rows import lower_rows
from pullback.schedule.reduction.window import fits_window, lower_window
from pullback.schedule.scatter import terms_of
from pullback.te.graph import summed_product
from pullback.te.tensor import Tensor
from pullback.tir import Buffer, PrimFunc, Stmt, seq
from pullback.tir.caches import PAGE
from pullback.tir.description import Description, Nest
from pullback.tir.expr import nbytes
from pullback.tir.visitor import walk

_COLUMN_ROWS = 256  # rows of elements, in a block of columns, that stay in the cache from one pass to the next
_LONG_ROW = 1 << 17  # elements of a row that had better be divided among threads


@dataclass(frozen=True, eq=False)
class Reduction:
    """Reductions that keep the same axes, with elementwise stages before, between and after.

        s[i] = Σ_j x[i, j]                   →      for i in parallel(rows):
        y[i, j] = f(x[i, j], s[i])                      for j: partial[lane] = partial[lane] + x[i, j]
                                                        for j in vectorized(columns): y[i, j] = f(x[i, j], s[i])

    Checks: sizes are known, and all reductions keep the same axes. Sums of products that are matmuls, and scatters, are
    declined, and so are elements that wait for a sum longer than a cache keeps them, but where nothing else is left
    (``group.fallback``). Threads divide results or chunks, never a sum.
    """

    group: Group
    program: Program

    @staticmethod
    def recognize(group: Group) -> Reduction | None:
        if not group.reductions:
            return None
        if not group.fallback and any(is_matmul(r) or terms_of(r) for r in group.reductions):
            return None
        program = build(group)
        if program is None or not _is_good(program, group.fallback):
            return None
        return Reduction(group, program)

    def lower(self, name: str) -> PrimFunc:
        body = allocated(self.walks.workspace, seq(*(walk.loops for walk in self.walks.walks)))
        return self.group.function(name, body, self.walks.renamed, in_order=not self.walks.is_window)

    def describe(self) -> Description:
        return moving("reduction", self.group, [walk.nest for walk in self.walks.walks])

    @cached_property
    def walks(self) -> _Walks:
        is_window = fits_window(self.program)
        program, renamed = merge(self.program, keep=is_window)
        if is_window:
            loops = lower_window(program, worth_threads(program.cost))
            return _Walks((_Walk(program, loops, "windows"),), [], renamed, is_window)
        programs, workspace = _phases(program)
        return _Walks(tuple(map(_in_one, programs)), workspace, renamed, is_window)


@dataclass(frozen=True, eq=False)
class _Walk:
    """The loops of a program, and which way they go."""

    program: Program
    loops: Stmt
    way: str

    @property
    def nest(self) -> Nest:
        program, reduced = self.program, [s.domain for s in self.program.reduces if s.domain is not None]
        terms = max(reduced, key=lambda d: d.size, default=None)
        axes, column = named(program.axes, program.extents), program.column
        if self.way == "windows" or column is not None or terms is None or not terms.axes:
            vector_axis = axes[-1 if column is None else column][0] if axes else None
        else:
            vector_axis = terms.axes[-1].name
        return Nest(
            axes,
            max(program.cost, program.machine.memory_ns(program.bytes)),
            () if terms is None else named(terms.axes, terms.extents),
            loops=self.way,
            vector_axis=vector_axis if is_vectorized(self.loops) else None,
            tasks=tasks_of(self.loops),
        )


@dataclass(frozen=True, eq=False)
class _Walks:
    """The programs that a reduction is computed as, one after another; what they share, and what stands for buffers of
    the group."""

    walks: tuple[_Walk, ...]
    workspace: list[Buffer]
    renamed: Mapping[Buffer, Buffer]
    is_window: bool


def is_matmul(stage: Tensor) -> bool:
    """Whether a reduction sums products in which either factor has an axis that the other lacks."""
    product = summed_product(stage)
    if product is None:
        return False
    axes = {v for v, s in zip(stage.axes, stage.shape, strict=True) if s != 1}
    left, right = (axes.intersection(walk(side)) for side in (product.a, product.b))
    return bool(left - right) and bool(right - left)


def _is_good(program: Program, fallback: bool) -> bool:
    """Whether all steps like the same axes innermost; and whole rows of elements that wait for a reduction, where there
    are any, stay in the cache, and leave enough to do in parallel."""
    longest = max((s.domain.size for s in program.late_vectors if s.domain is not None), default=0)
    if longest and program.column is not None:
        return longest <= _COLUMN_ROWS and not program.is_mixed
    return fallback or not (program.is_mixed or (program.rows < 4 and longest > _LONG_ROW) or _is_far_apart(program))


def _is_far_apart(program: Program) -> bool:
    """Whether elements that wait for sums lie in pieces of a page at most, and half of the second cache doesn't hold a
    row of them from the one to the other: re-reading the elements in memory order is at least as fast (the
    gradient of batch norm over images NCHW from the last cache 0.68 of the time, from memory 0.94: znver3; of 0.45, 0.6
    and 1.2 times the second cache 1.03, 0.96 and 0.71: znver4)."""
    for domain in {s.domain for s in program.late_vectors if s.domain is not None}:
        accesses = program.accesses([s for s in program.steps if s.domain is domain])
        pieces = {a.buffer for a in accesses if 0 < domain.stretch(a) <= PAGE}
        if 2 * sum(domain.size * nbytes(b.dtype) for b in pieces) > program.machine.second_bytes:
            return True
    return False


def _phases(program: Program) -> tuple[list[Program], list[Buffer]]:
    """A program, at once or in phases; and the workspace of these."""
    width = block_width(program)
    tasks = program.rows
    if program.column is not None and tasks:
        columns = program.extents[program.column]
        tasks = tasks // columns * -(-columns // width)
    return in_phases(program, tasks) or ([program], [])


def _in_one(program: Program) -> _Walk:
    """The loops of a program, by rows or by columns."""
    threads = worth_threads(program.cost)
    if program.column is None:
        return _Walk(program, *lower_rows(program, threads))
    return _Walk(program, lower_columns(program, threads), f"blocks of {block_width(program)} columns")
