"""What schedules share: loops over tasks, computing stages at one point of the iteration space, storing the outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pullback.schedule.group import Group, same_axes
from pullback.te.graph import Lower, Reader
from pullback.te.tensor import Tensor
from pullback.tir import For, IntImm, Let, PrimExpr, Stmt, Var, as_expr, loop, seq, store
from pullback.tir.static import static
from pullback.tir.visitor import substitute


def buffer_readers(group: Group) -> dict[Tensor, Reader]:
    """Inputs are read from memory."""
    return {t: group.buffers[t].__getitem__ for t in group.inputs}


def point(
    group: Group,
    members: Sequence[Tensor],
    axes: Sequence[PrimExpr],
    readers: Mapping[Tensor, Reader],
) -> Stmt:
    """Compute ``members`` (stages over the same space, in order) at the point ``axes``; store the outputs among them.

    Members that are outputs or read twice are bound by Let; all loads come before all stores, so that an output may
    share the memory of an input that is read at this point only.
    """
    lets: list[tuple[Var, PrimExpr]] = []
    all_readers = dict(readers)
    stores = []
    for stage in members:
        if stage not in group.outputs and group.reads.get(stage, 0) < 2:
            continue  # inlined in its only reader
        indices = tuple(axes)
        lower = Lower(all_readers)
        value = readers[stage](indices) if stage in readers else lower.element(stage, indices)
        var = Var(f"v_{stage.name}".replace(".", "_"), stage.dtype)
        lets.append((var, value))
        all_readers[stage] = _reuse(stage, var, indices, readers)
        if stage in group.outputs:
            stores.append(store(group.buffers[stage], indices, var))
    body: Stmt = seq(*stores)
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return body


def _reuse(stage: Tensor, var: Var, point: Sequence[PrimExpr], readers: Mapping[Tensor, Reader]) -> Reader:
    """Reads the bound value at this very point; elsewhere the stage is computed again."""

    def read(indices: tuple[PrimExpr, ...]) -> PrimExpr:
        if same_axes(indices, point) or all(_constant_equal(i, p) for i, p in zip(indices, point, strict=True)):
            return var
        if stage in readers:
            return readers[stage](indices)
        return Lower(readers).element(stage, indices)

    return read


def _constant_equal(a: PrimExpr, b: PrimExpr) -> bool:
    return a is b or (isinstance(a, IntImm) and isinstance(b, IntImm) and a.value == b.value)


def tasks(axes: Sequence[Var], sizes: Sequence[int], body: Stmt, threads: bool) -> Stmt:
    """One loop over all points of the axes, in row-major order; a single point needs no loop."""

    def at(number: PrimExpr) -> Stmt:
        return substitute(body, point_of(number, axes, sizes))

    return loop("task", math.prod(sizes), at, "parallel" if threads else "serial")


def point_of(number: PrimExpr, axes: Sequence[Var], sizes: Sequence[int]) -> dict[Var, PrimExpr]:
    """The point with this number, in row-major order; behind the last one, one outside along the first axis."""
    place: dict[Var, PrimExpr] = {}
    for axis, size in reversed(list(zip(axes, sizes, strict=True))):
        place[axis] = number % size if axis is not axes[0] else number
        number = number // size
    return place


TASKS = 64  # that a nest should have: so many of its outer loops become one


def outer_loops(axes: Sequence[Var], extents: Sequence[int | PrimExpr], body: Stmt, threads: bool) -> Stmt:
    """Loops over the axes; when ``threads``, as many of the outermost as make tasks enough are one parallel loop."""
    leading = _leading(extents) if threads else 0
    for k in range(len(axes) - 1, leading - 1, -1):
        body = For(axes[k], as_expr(extents[k]), body)
    if leading == 1:
        return For(axes[0], as_expr(extents[0]), body, "parallel")
    return tasks(axes[:leading], static(extents[:leading]), body, threads) if leading else body


def _leading(extents: Sequence[int | PrimExpr]) -> int:
    total = 1
    for count, extent in enumerate(extents, 1):
        if not isinstance(extent, int):
            return 1
        total *= extent
        if total >= TASKS:
            return count
    return len(extents)
