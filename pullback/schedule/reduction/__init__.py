"""Reduction: sums, maxima and what is computed from them.

`program.py` turns a group's stages into steps over shared axes. Then there are four ways to walk through memory:

    rows.py       the reduced axes are innermost: softmax, norms; a row is one task
    columns.py    a kept axis is innermost: blocks of columns
    window.py     few elements in each result: written out
    phases.py     few results of many elements: chunks first, which are rows or columns again, then their results

The order of every sum is fixed by shapes and the width of vectors (each file states it); threads divide results and
chunks, never a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.schedule.cost import expression_cost, worth_threads
from pullback.schedule.group import Group
from pullback.schedule.reduction.columns import block_width, lower_columns
from pullback.schedule.reduction.phases import in_phases
from pullback.schedule.reduction.program import Program, Step, build
from pullback.schedule.reduction.rows import lower_rows
from pullback.schedule.reduction.window import fits_window, lower_window
from pullback.schedule.scatter import terms_of
from pullback.schedule.strides import contiguity
from pullback.te.graph import body_expr
from pullback.te.tensor import Tensor
from pullback.tir import Allocate, PrimFunc, Stmt, Var, seq
from pullback.tir.visitor import walk

_COLUMN_ROWS = 256  # rows of elements, in a block of columns, that stay in the cache from one pass to the next
_LONG_ROW = 1 << 17  # elements of a row that had better be divided among threads


@dataclass(frozen=True, eq=False)
class Reduction:
    """Reductions that keep the same axes, with elementwise stages before, between and after."""

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
        return self.group.function(name, lower_program(self.program), self.program.renamed)


def is_matmul(stage: Tensor) -> bool:
    """Whether a reduction sums products in which either factor has an axis that the other lacks."""
    source = body_expr(stage)
    if stage.body.kind != "sum" or getattr(source, "kind", None) != "mul":  # type: ignore[union-attr]
        return False
    axes = {v for v, s in zip(stage.axes, stage.shape, strict=True) if s != 1}
    left, right = (axes.intersection(walk(side)) for side in (source.a, source.b))  # type: ignore[attr-defined, arg-type]
    return bool(left - right) and bool(right - left)


def _is_good(program: Program, fallback: bool) -> bool:
    """Whether all steps like the same axes innermost; and whole rows of elements, where there are any, stay in the
    cache, and leave enough to do in parallel."""
    vectors = program.vectors
    longest = max((s.domain.size for s in vectors if s.domain is not None), default=0)
    kinds = {_prefers_columns(program, [s]) for s in (*program.reduces, *vectors)} - {None}
    if vectors and _prefers_columns(program, [*program.reduces, *vectors]):
        return longest <= _COLUMN_ROWS and (fallback or len(kinds) < 2)
    return fallback or (len(kinds) < 2 and not (program.rows < 4 and longest > _LONG_ROW))


def column_axis(program: Program) -> int | None:
    """The kept axis that is innermost in memory, if it is so for more of what is accessed than any reduced axis."""
    steps = [*program.reduces, *program.vectors]
    if not _prefers_columns(program, steps):
        return None
    scores = _contiguity(program, steps)
    return max(range(len(program.axes)), key=lambda k: scores[program.axes[k]])


def _prefers_columns(program: Program, steps: Sequence[Step]) -> bool | None:
    """Whether a kept axis is contiguous for more elements than any reduced one; None if no axis is."""
    scores = _contiguity(program, steps)
    kept = max((scores[v] for v in program.axes), default=0)
    inner = max((n for v, n in scores.items() if v not in program.axes), default=0)
    return kept > inner if kept or inner else None


def _contiguity(program: Program, steps: Sequence[Step]) -> dict[Var, int]:
    total = dict.fromkeys(program.axes, 0)
    for step in steps:
        domain = step.domain
        assert domain is not None
        axes, extents = (*program.axes, *domain.axes), (*program.extents, *domain.extents)
        for axis, score in contiguity(program.accesses([step]), axes, extents).items():
            total[axis] = total.get(axis, 0) + score
    return total


def lower_program(program: Program) -> Stmt:
    """The loops of a program."""
    column = column_axis(program)
    threads = worth_threads(_cost(program))
    if fits_window(program, column is not None):
        return lower_window(program, threads)
    width = block_width(program, column) if column is not None else 1
    blocks = -(-program.extents[column] // width) / max(1, program.extents[column]) if column is not None else 1
    tasks = round(program.rows * blocks)
    cut = in_phases(program, tasks, width)
    if cut is not None:
        programs, workspace = cut
        body = seq(*map(_lower_whole, programs))
        for buffer in reversed(workspace):
            body = Allocate(buffer, body)
        return body
    return _lower_whole(program)


def _lower_whole(program: Program) -> Stmt:
    column = column_axis(program)
    threads = worth_threads(_cost(program))
    return lower_rows(program, threads) if column is None else lower_columns(program, column, threads)


def _cost(program: Program) -> float:
    """Nanoseconds of one core, vectorized."""
    total = 0.0
    for step in program.steps:
        total += expression_cost(step.store.value) * program.rows * (step.domain.size if step.domain is not None else 1)
    return total
