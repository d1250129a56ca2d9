"""Loop nests of a program's steps: what the ways to traverse it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.ir.errors import InternalError
from pullback.schedule.reduction.program import Program, Step
from pullback.tir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    Let,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    loop,
    seq,
    store,
)
from pullback.tir.visitor import Mutator, substitute

Place = Callable[[tuple[PrimExpr, ...]], PrimExpr]  # what a load at these indices becomes
Point = Mapping[Var, PrimExpr]  # a place along a domain


def nests(program: Program) -> list[list[Step]]:
    """The steps in order, those that share a nest together: of one depth and one domain; a row's value is by itself."""
    result: list[list[Step]] = []
    for step in program.steps:
        last = result[-1][-1] if result else None
        if last is not None and step.domain is not None and (step.depth, step.domain) == (last.depth, last.domain):
            result[-1].append(step)
        else:
            result.append([step])
    return result


class Moved(Mutator):
    """Replaces loads and stores of buffers: each by the place that is given for it."""

    def __init__(self, places: Mapping[Buffer, Place]) -> None:
        super().__init__()
        self.places = places

    def _expr(self, node: PrimExpr) -> PrimExpr:
        new = super()._expr(node)
        if isinstance(new, BufferLoad) and new.buffer in self.places:
            return self.places[new.buffer](new.indices)
        return new

    def stmt(self, node: Stmt) -> Stmt:
        new = super().stmt(node)
        return self._moved(new) if isinstance(new, BufferStore) else new

    def store(self, node: BufferStore) -> BufferStore:
        """:meth:`stmt` of a store."""
        new = super().stmt(node)
        assert isinstance(new, BufferStore)
        return self._moved(new)

    def _moved(self, node: BufferStore) -> BufferStore:
        return put(self.places[node.buffer](node.indices), node.value) if node.buffer in self.places else node


def value_at(value: PrimExpr) -> Place:
    """The place of a value that is the same whatever the indices."""
    return lambda indices: value


def put(place: PrimExpr, value: PrimExpr) -> BufferStore:
    """A store to where a load would read."""
    assert isinstance(place, BufferLoad)
    return store(place.buffer, place.indices, value)


def _no_reduction(step: Step, values: Sequence[PrimExpr]) -> Stmt:
    raise InternalError("a reduction where only elements are written")


def at_points(
    steps: Sequence[Step],
    points: Sequence[Point],
    reduce: Callable[[Step, Sequence[PrimExpr]], Stmt] = _no_reduction,
) -> Stmt:
    """The steps of one nest at some points. Values of vector steps are bound, so that later steps need not load them.

    Reductions come first, with their values at all points; what is written is written after all is read.
    """
    values: dict[Step, list[PrimExpr]] = {s: [] for s in steps if s.role == "reduce"}
    bound: list[tuple[Var, PrimExpr]] = []
    writes: list[Stmt] = []
    for point in points:
        places: dict[Buffer, Place] = {}
        for step in steps:
            at = substitute(step.store, point)
            value = Moved(places).expr(at.value)
            if step.role == "reduce":
                values[step].append(value)
                continue
            var = Var(f"v_{at.buffer.name}".replace("v_l_", "v_"), value.dtype)
            bound.append((var, value))
            writes.append(store(at.buffer, at.indices, var))
            places[at.buffer] = value_at(var)
    body = seq(*(reduce(s, v) for s, v in values.items()), *writes)
    for var, value in reversed(bound):
        body = Let(var, value, body)
    return body


def serial(axes: Sequence[Var], extents: Sequence[int], body: Stmt) -> Stmt:
    """Plain loops."""
    for axis, extent in reversed(list(zip(axes, extents, strict=True))):
        body = For(axis, as_expr(extent), body) if extent != 1 else substitute(body, {axis: as_expr(0)})
    return body


def lane_loop(name: str, extent: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    return loop(name, extent, body, "vectorized")


def allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body
