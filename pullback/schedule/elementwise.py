"""Elementwise: outputs whose elements do not depend on one another, no reductions.

    for i in parallel(rows):
        for j in vectorized(columns):
            out[i, j] = f(x[i, j], y[j], …)

Axes that every access treats as one are merged first, so that the vector loop is long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.coalesce import coalesce
from pullback.schedule.cost import element_cost, is_costly, worth_threads
from pullback.schedule.describe import is_static, moved_bytes, moving, named, tasks_of
from pullback.schedule.group import Group
from pullback.schedule.pieces import pieces
from pullback.schedule.pointwise import buffer_readers, outer_loops, point
from pullback.schedule.transpose import crossed_axis, transposed
from pullback.tir import Buffer, For, PrimExpr, PrimFunc, Stmt, Var, as_expr, minimum, seq
from pullback.tir.caches import LINE
from pullback.tir.description import Description, Nest
from pullback.tir.visitor import substitute

_CHUNK, _LEAST = 4096, 512  # elements of a one-dimensional loop that one task takes
_TASKS = 16  # of such a loop


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A group without reductions; outputs of equal shape share one loop nest.

        y[i, j] = f(x[i, j], …)        →        for i in parallel(rows):
                                                    for j in vectorized(columns):
                                                        y[i, j] = f(x[i, j], …)

    Checks: no stage reduces, and where outputs have several shapes there are no stages before them. A costly stage has
    as many elements as an output: fewer would each be computed again and again.
    """

    group: Group

    @staticmethod
    def recognize(group: Group) -> Elementwise | None:
        shapes = {o.shape for o in group.outputs}
        if group.reductions or (len(shapes) > 1 and len(group.stages) > len(group.outputs)):
            return None
        repeats_work = any(is_costly(s) and not any(_permuted(s.shape, o) for o in shapes) for s in group.stages)
        return Elementwise(group) if group.fallback or not repeats_work else None

    def lower(self, name: str) -> PrimFunc:
        renamed = {old: new for part in self.parts for old, new in part.renamed.items()}
        in_order = all(part.crossed is None for part in self.parts)
        return self.group.function(name, seq(*(part.loops for part in self.parts)), renamed, in_order)

    @cached_property
    def parts(self) -> list[_Part]:
        """A loop nest for each shape of the outputs."""
        found, shapes = [], list(dict.fromkeys(o.shape for o in self.group.outputs))
        for shape in shapes:
            axes, extents = [Var(f"i{k}") for k in range(len(shape))], list(shape)
            renamed: dict[Buffer, Buffer] = {}
            members = [s for s in self.group.stages if s.shape == shape]
            body = point(self.group, members, axes, buffer_readers(self.group))
            if len(shapes) == 1:  # a parameter has one shape in all nests
                axes, extents, body, renamed = coalesce(axes, extents, body)
            cost = element_cost(self.group.stages) * math.prod(e for e in extents if isinstance(e, int))
            crossed = crossed_axis(axes, extents, body)
            threads = worth_threads(cost)
            loops = (
                nest(axes, extents, body, threads)
                if crossed is None
                else transposed(axes, extents, body, threads, crossed, self.group.machine)
            )
            found.append(_Part(axes, extents, cost, crossed, loops, renamed))
        return found

    def describe(self) -> Description | None:
        if not is_static(self.group):
            return None
        least = self.group.machine.memory_ns(moved_bytes(self.group)) / len(self.parts)
        return moving("elementwise", self.group, [part.nest(least) for part in self.parts])


@dataclass(frozen=True)
class _Part:
    """The loops over one shape. ``crossed``: the axis along which something is contiguous that the last one is not."""

    axes: list[Var]
    extents: list[int | PrimExpr]
    cost: float
    crossed: int | None
    loops: Stmt
    renamed: dict[Buffer, Buffer]

    def nest(self, least: float) -> Nest:
        """``least``: nanoseconds that its memory takes."""
        return Nest(
            named(self.axes, self.extents),
            max(self.cost, least),
            loops="" if self.crossed is None else f"tiles turned with {self.axes[self.crossed].name}",
            vector_axis=self.axes[-1].name if self.axes else None,
            tasks=tasks_of(self.loops),
        )


def nest(axes: list[Var], extents: list[int | PrimExpr], body: Stmt, threads: bool) -> Stmt:
    """Loops over the axes: the last vectorized, in pieces, the first parallel when ``threads``."""
    if not axes:
        return body
    parts = pieces(axes, extents, body)
    if len(axes) == 1 and threads:
        return seq(*(_chunks(axes[0], extent, part) for extent, part in parts))
    inner = seq(*(For(axes[-1], as_expr(extent), part, "vectorized") for extent, part in parts))
    return outer_loops(axes[:-1], extents[:-1], inner, threads)


def _permuted(shape: Sequence[int | PrimExpr], other: Sequence[int | PrimExpr]) -> bool:
    """Whether two shapes have the same sizes in some order: a stage of one is computed once for an output of other."""
    return sorted(map(str, shape)) == sorted(map(str, other)) if shape != other else True


def _chunks(axis: Var, extent: int | PrimExpr, body: Stmt) -> Stmt:
    """One long axis: tasks of a number of elements that is known."""
    chunk, lane, size = Var("chunk"), Var("lane"), _task_size(extent)
    divides = isinstance(extent, int) and extent % size == 0
    length = as_expr(size) if divides else minimum(as_expr(extent) - chunk * size, size)
    inner = For(lane, length, substitute(body, {axis: chunk * size + lane}), "vectorized")
    return For(chunk, (as_expr(extent) + (size - 1)) // size, inner, "parallel")


def _task_size(extent: int | PrimExpr) -> int:
    """Elements that one task takes: a divisor, if there is one, and enough tasks that threads end together."""
    if not isinstance(extent, int):
        return _CHUNK
    # A multiple of LINE elements begins at a line of memory, whatever their type.
    most = min(_CHUNK, max(_LEAST, extent // _TASKS)) // LINE * LINE
    return next((size for size in range(most, _LEAST - 1, -LINE) if extent % size == 0), most)
