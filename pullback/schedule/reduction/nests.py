"""Loop nests of a program's steps: what the ways to traverse it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.ir.errors import InternalError
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.te.graph import combine
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
from pullback.tir.expr import nbytes
from pullback.tir.visitor import Mutator, substitute

Place = Callable[[tuple[PrimExpr, ...]], PrimExpr]  # what a load at these indices becomes


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


def lanes_of(program: Program, steps: Sequence[Step]) -> int:
    """Elements in a vector of the widest thing that these reductions accumulate."""
    widest = max([4, *(nbytes(s.store.value.dtype) for s in steps if s.role == "reduce")])
    return max(1, program.machine.vector_bytes // widest)


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
        if isinstance(new, BufferStore) and new.buffer in self.places:
            target = self.places[new.buffer](new.indices)
            assert isinstance(target, BufferLoad)
            return store(target.buffer, target.indices, new.value)
        return new


def _no_reduction(step: Step, value: PrimExpr) -> Stmt:
    raise InternalError("a reduction where only elements are written")


def at_point(steps: Sequence[Step], reduce: Callable[[Step, PrimExpr], Stmt] = _no_reduction) -> Stmt:
    """The steps of one nest at one point: values of vector steps are bound, so that later steps need not load them."""
    places: dict[Buffer, Place] = {}
    bound: list[tuple[Var, PrimExpr]] = []
    stores: list[Stmt] = []
    for step in steps:
        value = Moved(places).expr(step.store.value)
        if step.role == "reduce":
            stores.append(reduce(step, value))
            continue
        var = Var(f"v_{step.store.buffer.name}".replace("v_l_", "v_"), value.dtype)
        bound.append((var, value))
        stores.append(store(step.store.buffer, step.store.indices, var))
        places[step.store.buffer] = lambda _, var=var: var  # type: ignore[misc]
    body = seq(*stores)
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


def outer_axes(domain: Domain, body: Stmt) -> Stmt:
    """Loops over all axes of a domain but the last."""
    return serial(domain.axes[:-1], domain.extents[:-1], body)


def tree(kind: str, values: Sequence[PrimExpr]) -> PrimExpr:
    """The values combined in pairs: ((0 1) (2 3)) ((4 5) (6 7))."""
    while len(values) > 1:
        pairs = [combine(kind, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = [*pairs, *values[2 * len(pairs) :]]
    return values[0]


def halve(kind: str, partial: Buffer, parts: int) -> Stmt:
    """Halve the partial results, lane by lane, until one is left."""
    steps = []
    while parts > 1:
        parts //= 2
        steps.append(
            lane_loop("lane", parts, lambda k, h=parts: store(partial, k, combine(kind, partial[k], partial[k + h])))  # type: ignore[misc]
        )
    return seq(*steps)


def allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    for buffer in reversed(buffers):
        body = Allocate(buffer, body)
    return body
