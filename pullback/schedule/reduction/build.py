"""From a group's stages to a program: where each stage is computed, what is kept inside a row, what is equal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.schedule.cost import is_costly
from pullback.schedule.group import Group
from pullback.schedule.order import Order
from pullback.schedule.pointwise import buffer_readers
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.te.graph import Lower, Reader, body_expr, summed_product
from pullback.te.tensor import Reduce, Tensor
from pullback.tir import Buffer, PrimExpr, Var, as_expr, const, store
from pullback.tir.equality import Equality
from pullback.tir.static import static
from pullback.tir.visitor import substitute

LOCAL_ROW = 4096  # elements of a row that are kept rather than computed again
_ORDER = {"row": 0, "vector": 1, "reduce": 2}  # of the steps of equal depth


def build(group: Group) -> Program | None:
    """The program of a group, or None when some step would read another one at a different point."""
    kept = {sizes(r.shape) for r in group.reductions}
    known = all(isinstance(s, int) for stage in group.stages for s in (*stage.shape, *_reduced(stage)))
    if len(kept) != 1 or not known:
        return None
    builder = _Builder(group, kept.pop())
    if not all(builder.place(s) for s in group.stages) or not all(builder.place(s, last=True) for s in builder.waiting):
        return None
    program = builder.program()
    return program if builder.consistent else None


def sizes(shape: Sequence[int | PrimExpr]) -> tuple[int, ...]:
    """A shape without the ones."""
    return tuple(s for s in static(shape) if s != 1)


def _reduced(stage: Tensor) -> tuple[int | PrimExpr, ...]:
    return tuple(a.extent for a in stage.body.axes) if isinstance(stage.body, Reduce) else ()


class _Builder:
    def __init__(self, group: Group, kept: tuple[int, ...]) -> None:
        self.group, self.kept = group, kept
        self.axes = tuple(Var(f"p{k}") for k in range(len(kept)))
        self.domains: dict[tuple[int, ...], Domain] = {}
        self.point: dict[Tensor, tuple[PrimExpr, ...]] = {}  # where a stage is computed; others are inlined anywhere
        self.bindings: dict[Tensor, dict[PrimExpr, PrimExpr]] = {}
        self.domain: dict[Tensor, Domain | None] = {}
        self.depth: dict[Tensor, int] = {}
        self.waiting: list[Tensor] = []  # outputs that read nothing at a point: theirs follows from who reads them
        self.consistent = True

    # -- the point of each stage

    def place(self, stage: Tensor, last: bool = False) -> bool:
        """Find the point of a stage that is an output, or reads what is computed at a point; False if there is none."""
        if stage in self.point:
            return True
        reads = [load for load in stage.loads if load.tensor in self.point]
        if not (reads or stage.is_reduction or stage in self.group.outputs):
            return True
        if not (reads or stage.is_reduction or last):
            self.waiting.append(stage)
            return True
        own = [v for v, s in zip(stage.axes, stage.shape, strict=True) if s != 1]
        reduced = [a for a in stage.body.axes if a.extent != 1] if isinstance(stage.body, Reduce) else []
        free = {*own, *(a.var for a in reduced)}
        at: dict[PrimExpr, PrimExpr] = {}
        for load in reads:
            for index, size, place in zip(load.indices, load.tensor.shape, self.point[load.tensor], strict=True):
                if size != 1 and (index not in free or at.setdefault(index, place) is not place):
                    return False
        if stage.is_reduction:
            domain: Domain | None = self._domain(static([a.extent for a in reduced]))
            inner = [a.var for a in reduced]
            for axis, place in zip(own, self.axes, strict=True):
                at.setdefault(axis, place)
        else:
            if not any(v in at for v in own) and sizes(stage.shape)[: len(self.kept)] == self.kept:
                at.update(zip(own, self.axes, strict=False))
            inner = [v for v in own if at.get(v) not in self.axes]
            extents = dict(zip(stage.axes, stage.shape, strict=True))
            domain = self._domain(static([extents[v] for v in inner])) if inner else None
        placed = self._placed(stage, own, inner, domain, at)
        if placed and stage.is_reduction and self.waiting and domain is not None:
            self._place_sources(stage, domain)
        return placed

    def _place_sources(self, reduction: Tensor, domain: Domain) -> None:
        """Outputs that wait are computed where the reduction reads them."""
        found: dict[Tensor, tuple[PrimExpr, ...]] = {}

        def watched(stage: Tensor) -> Reader:
            def read(indices: tuple[PrimExpr, ...]) -> PrimExpr:
                found.setdefault(stage, indices)
                return const(0, stage.dtype)

            return read

        everything = {t: watched(t) for t in (*self.group.inputs, *self.point, *self.waiting)}
        Lower(everything).expr(self._element(reduction))
        for stage in [s for s in self.waiting if s in found]:
            own = [v for v, s in zip(stage.axes, stage.shape, strict=True) if s != 1]
            places = [i for i, s in zip(found[stage], stage.shape, strict=True) if s != 1]
            at: dict[PrimExpr, PrimExpr] = dict(zip(own, places, strict=True))
            inner = [v for v in own if at[v] not in self.axes]
            order: dict[PrimExpr, int] = {v: k for k, v in enumerate(domain.axes)}
            if all(at[v] in order for v in inner) and len(inner) == len(order):
                self._placed(stage, own, sorted(inner, key=lambda v: order[at[v]]), domain, at)

    def _placed(
        self, stage: Tensor, own: list[Var], inner: list[Var], domain: Domain | None, at: dict[PrimExpr, PrimExpr]
    ) -> bool:
        """Note a stage's point; False unless its axes correspond one to one to the kept ones and the domain's, and are
        as long as they: a part of a row is no row."""
        for axis, place in zip(inner, domain.axes if domain is not None else (), strict=True):
            if at.setdefault(axis, place) is not place:
                return False
        extents = dict(zip(stage.axes, stage.shape, strict=True))
        if any(extents[v] != size for v, size in self._extents(own, domain, at)):
            return False
        if {at[v] for v in own if v not in inner} != set(self.axes) or len(set(at.values())) != len(at):
            return False
        self.bindings[stage] = at
        self.point[stage] = tuple(at.get(v, as_expr(0)) for v in stage.axes)
        self.domain[stage] = domain if inner or stage.is_reduction else None
        depths = (self.depth[t.tensor] + t.tensor.is_reduction for t in stage.loads if t.tensor in self.point)
        self.depth[stage] = max(depths, default=0)
        return True

    def _extents(self, own: list[Var], domain: Domain | None, at: dict[PrimExpr, PrimExpr]) -> list[tuple[Var, int]]:
        """The axes of a stage that stand for kept ones or the domain's, with the sizes of those."""
        sizes: dict[PrimExpr, int] = dict(zip(self.axes, self.kept, strict=True))
        if domain is not None:
            sizes.update(zip(domain.axes, domain.extents, strict=True))
        return [(v, sizes[at[v]]) for v in own if at.get(v) in sizes]

    def _domain(self, extents: Sequence[int]) -> Domain:
        key = tuple(extents)
        if key not in self.domains:
            first = sum(len(d.axes) for d in self.domains.values())
            axes = tuple(Var(f"d{first + k}") for k in range(len(key)))
            self.domains[key] = Domain(axes, key, Order.of(key, math.prod(self.kept)))
        return self.domains[key]

    # -- steps

    def program(self) -> Program:
        self.readers = dict(buffer_readers(self.group))
        self.lower = Lower(self.readers)
        self.locals: list[Buffer] = []
        self.known: dict[object, PrimExpr] = {}
        self.equal = Equality()
        steps = [step for stage in self.group.stages if stage in self.point for step in self._steps(stage)]
        steps.sort(key=lambda s: (s.depth, _ORDER[s.role]))
        return Program(self.group.machine, self.axes, self.kept, tuple(steps), tuple(self.locals))

    def _steps(self, stage: Tensor) -> list[Step]:
        output, depth, domain = stage in self.group.outputs, self.depth[stage], self.domain[stage]
        if not (stage.is_reduction or output or self._kept(stage)):
            return []
        value, kind = self._value(stage), stage.body.kind if isinstance(stage.body, Reduce) else ""
        if domain is not None and not kind and output:
            target, indices = self.group.buffers[stage], self.point[stage]
            self._read(stage, target[indices])
            return [Step("vector", depth, store(target, indices, value), domain)]
        if domain is None and not self._kept(stage):
            return [self._result(stage, depth, value)]
        own, steps = self._local(stage, value, kind)
        if output:
            steps.append(self._result(stage, depth + bool(kind), own))
        return steps

    def _local(self, stage: Tensor, value: PrimExpr, kind: str) -> tuple[PrimExpr, list[Step]]:
        """How a stage that lives inside the row is read from now on, and the steps that compute it: none where an equal
        one is there already (gradients compute a norm's mean and variance again)."""
        depth, domain = self.depth[stage], self.domain[stage]
        products = summed_product(stage) is not None
        known = (kind, domain, stage.dtype, products, self.equal(value))
        if known in self.known:
            own = self.known[known]
            self._read(stage, own)
            return own, []
        shape, indices = (domain.extents, domain.axes) if domain is not None and not kind else ((), ())
        buffer = Buffer(f"l_{stage.name}".replace(".", "_"), shape, stage.dtype, "local")
        own = self.known[known] = buffer[indices]
        self.locals.append(buffer)
        self._read(stage, own)
        if not kind:
            role = "row" if domain is None else "vector"
            return own, [Step(role, depth, store(buffer, indices, value), domain)]
        source = Buffer("source", (), value.dtype, "local")
        return own, [Step("reduce", depth, store(source, (), value), domain, kind, buffer, products)]

    def _result(self, stage: Tensor, depth: int, value: PrimExpr) -> Step:
        """Writing a value of the row to the output's place."""
        return Step("row", depth, store(self.group.buffers[stage], self.point[stage], value))

    def _value(self, stage: Tensor) -> PrimExpr:
        """The stage's element (of a reduction, the source's) at its point."""
        return self.lower.expr(self._element(stage))

    def _element(self, stage: Tensor) -> PrimExpr:
        reduced = stage.body.axes if isinstance(stage.body, Reduce) else ()
        zeros = dict.fromkeys([*stage.axes, *(a.var for a in reduced)], as_expr(0))
        bound = {v: place for v, place in self.bindings[stage].items() if isinstance(v, Var)}
        return substitute(body_expr(stage), zeros | bound)

    def _read(self, stage: Tensor, own: PrimExpr) -> None:
        """From now on the stage is read as ``own``, at its point alone."""

        def read(indices: tuple[PrimExpr, ...]) -> PrimExpr:
            wanted = zip(indices, self.point[stage], stage.shape, strict=True)
            self.consistent = self.consistent and all(s == 1 or i is p for i, p, s in wanted)
            return own

        self.readers[stage] = read

    def _kept(self, stage: Tensor) -> bool:
        """Whether the values of a stage that is no reduction are kept inside the row, rather than computed where they
        are read."""
        readers, domain = self.group.readers.get(stage, []), self.domain[stage]
        if domain is None:
            return len(readers) > 1 or any(self.domain.get(r) is not None for r in readers)
        repeated = self.group.reads.get(stage, 0) > 1 and is_costly(stage)
        return repeated and domain.size <= LOCAL_ROW and stage not in self.group.outputs
