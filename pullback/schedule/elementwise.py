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

from pullback.schedule.coalesce import coalesce
from pullback.schedule.cost import element_cost, is_costly, worth_threads
from pullback.schedule.group import Group
from pullback.schedule.pointwise import buffer_readers, point, tasks
from pullback.tir import For, PrimExpr, PrimFunc, Stmt, Var, as_expr, minimum, seq
from pullback.tir.visitor import loads, substitute

_TILE = 16  # of a transpose, in elements
_CHUNK = 4096  # elements of a one-dimensional loop that one task takes
_TASKS = 64  # that a nest should have: so many of its outer loops become one


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A group without reductions; outputs of equal shape share one loop nest."""

    group: Group

    @staticmethod
    def recognize(group: Group) -> Elementwise | None:
        shapes = {o.shape for o in group.outputs}
        if group.reductions or (len(shapes) > 1 and len(group.stages) > len(group.outputs)):
            return None
        repeats_work = any(is_costly(s) and not any(_permuted(s.shape, o) for o in shapes) for s in group.stages)
        return Elementwise(group) if group.fallback or not repeats_work else None

    def lower(self, name: str) -> PrimFunc:
        nests, renamed = [], {}
        shapes = list(dict.fromkeys(o.shape for o in self.group.outputs))
        for shape in shapes:
            axes = [Var(f"i{k}") for k in range(len(shape))]
            extents = list(shape)
            members = [s for s in self.group.stages if s.shape == shape]
            body = point(self.group, members, axes, buffer_readers(self.group))
            if len(shapes) == 1:  # a parameter has one shape in all nests
                axes, extents, body, renamed = coalesce(axes, extents, body)
            cost = element_cost(self.group.stages) * math.prod(e for e in extents if isinstance(e, int))
            crossed = _crossed_axis(axes, extents, body)
            threads = worth_threads(cost)
            nests.append(
                nest(axes, extents, body, threads) if crossed is None else _tiled(axes, extents, body, threads, crossed)
            )
        return self.group.function(name, seq(*nests), renamed)


def nest(axes: list[Var], extents: list[int | PrimExpr], body: Stmt, threads: bool) -> Stmt:
    """Loops over the axes: the last vectorized, the first parallel when ``threads``."""
    if not axes:
        return body
    if len(axes) == 1 and threads:
        return _chunks(axes[0], extents[0], body)
    result: Stmt = For(axes[-1], as_expr(extents[-1]), body, "vectorized")
    leading = _leading(extents[:-1]) if threads else 1
    for k in range(len(axes) - 2, leading - 1, -1):
        result = For(axes[k], as_expr(extents[k]), result)
    if leading > 1:
        return tasks(axes[:leading], extents[:leading], result, threads)  # type: ignore[arg-type]
    return For(axes[0], as_expr(extents[0]), result, "parallel" if threads else "serial") if axes[1:] else result


def _leading(extents: Sequence[int | PrimExpr]) -> int:
    """How many of the outermost axes together make tasks enough."""
    total = 1
    for count, extent in enumerate(extents, 1):
        if not isinstance(extent, int):
            return 1
        total *= extent
        if total >= _TASKS:
            return count
    return len(extents)


def _permuted(shape: Sequence[int | PrimExpr], other: Sequence[int | PrimExpr]) -> bool:
    """Whether two shapes have the same sizes in some order: a stage of one is computed once for an output of other."""
    return sorted(map(str, shape)) == sorted(map(str, other)) if shape != other else True


def _crossed_axis(axes: list[Var], extents: list[int | PrimExpr], body: Stmt) -> int | None:
    """An axis, not the last, along which some access is contiguous: a transpose, if both axes are long."""
    for load in loads(body):
        last = load.indices[-1] if load.indices else None
        for k, axis in enumerate(axes[:-1]):
            if last is axis and all(isinstance(e, int) and e >= 2 * _TILE for e in (extents[k], extents[-1])):
                return k
    return None


def _tiled(axes: list[Var], extents: list[int | PrimExpr], body: Stmt, threads: bool, crossed: int) -> Stmt:
    """Square tiles of the last and the crossed axis, so that the lines of both accesses are used while in the cache.

    for ib in parallel(I / 16): for jb in J / 16: for i in 16: for j in vectorized(16): …
    """
    blocks, inner = {}, {}
    for k in (crossed, len(axes) - 1):
        block, offset = Var("block"), Var("offset")
        extent = as_expr(extents[k])
        size = as_expr(_TILE) if extents[k] % _TILE == 0 else minimum(extent - block * _TILE, _TILE)  # type: ignore[operator]
        blocks[k], inner[k] = (block, (extent + (_TILE - 1)) // _TILE), (offset, size)
        body = substitute(body, {axes[k]: block * _TILE + offset})
    last = len(axes) - 1
    result: Stmt = For(inner[last][0], inner[last][1], body, "vectorized")
    result = For(inner[crossed][0], inner[crossed][1], result)
    loops = [(axes[k], as_expr(extents[k])) for k in range(last) if k != crossed]
    order = [blocks[crossed], *loops, blocks[last]]
    for number, (var, extent) in reversed(list(enumerate(order))):
        result = For(var, extent, result, "parallel" if threads and number == 0 else "serial")
    return result


def _chunks(axis: Var, extent: int | PrimExpr, body: Stmt) -> Stmt:
    """One long axis: tasks of a fixed number of elements."""
    chunk, lane = Var("chunk"), Var("lane")
    size = minimum(as_expr(extent) - chunk * _CHUNK, _CHUNK) if not _divides(extent) else as_expr(_CHUNK)
    inner = For(lane, size, substitute(body, {axis: chunk * _CHUNK + lane}), "vectorized")
    return For(chunk, (as_expr(extent) + (_CHUNK - 1)) // _CHUNK, inner, "parallel")


def _divides(extent: int | PrimExpr) -> bool:
    return isinstance(extent, int) and extent % _CHUNK == 0
