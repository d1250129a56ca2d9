"""The program of a group with reductions: its stages as steps over shared loop variables, not yet loops.

    softmax of x (p0: rows; d0: columns)

    reduce   max    of  x[p0, d0]                              over d0
    vector   e      =   exp(x[p0, d0] - max[p0])
    reduce   sum    of  e[p0, d0]                              over d0
    vector   out    =   e[p0, d0] / sum[p0]

Every step happens at a point: of the kept axes (``row``), or of the kept axes and a domain, the axes that are reduced
(``reduce``, ``vector``). Which of a stage's own axes is which follows from what it reads, so a stage may name them in
another order (a result written NHWC of a reduction that is NCHW). What one step reads of another must lie at the very
same point: that is what makes a group one kernel.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pullback.schedule.coalesce import coalesce
from pullback.schedule.cost import is_costly
from pullback.schedule.group import Group, Machine
from pullback.schedule.pointwise import buffer_readers
from pullback.schedule.strides import Access, outermost_first
from pullback.te.graph import Lower, body_expr
from pullback.te.tensor import Reduce, Tensor
from pullback.tir import Buffer, BufferLoad, BufferStore, PrimExpr, Seq, Var, as_expr, store
from pullback.tir.equality import Equality
from pullback.tir.visitor import substitute, walk

LOCAL_ROW = 4096  # elements of a row that are kept rather than computed again
ORDER = {"row": 0, "vector": 1, "reduce": 2}  # of the steps of equal depth


@dataclass(frozen=True, eq=False)
class Domain:
    """Axes that are reduced, or along which a row has elements; outermost in memory first."""

    axes: tuple[Var, ...]
    extents: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.extents)


@dataclass(frozen=True, eq=False)
class Step:
    """``store`` says what happens at one point. Of a reduction it holds the source's element; ``kind`` combines them,
    and the steps after it read the result from ``total``. ``depth``: how many reductions there are on the way here."""

    role: str
    depth: int
    store: BufferStore
    domain: Domain | None = None
    kind: str = ""
    total: Buffer | None = None


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in order over the kept ``axes``, outermost in memory first.

    ``locals``: buffers of what lives inside a row: a value (of shape ()), or elements along a domain. ``renamed``: the
    kernel's parameters that have got another shape.
    """

    machine: Machine
    axes: tuple[Var, ...]
    extents: tuple[int, ...]
    steps: tuple[Step, ...]
    locals: tuple[Buffer, ...]
    renamed: dict[Buffer, Buffer] = field(default_factory=dict)

    @property
    def reduces(self) -> list[Step]:
        return [s for s in self.steps if s.role == "reduce"]

    @property
    def vectors(self) -> list[Step]:
        return [s for s in self.steps if s.role == "vector"]

    @property
    def rows(self) -> int:
        return math.prod(self.extents)

    def accesses(self, steps: Sequence[Step]) -> list[Access]:
        """What the steps read and write in memory."""
        private = {*self.locals, *(s.store.buffer for s in steps if s.role == "reduce")}
        nodes = [n for s in steps for n in walk(s.store) if isinstance(n, (BufferLoad, BufferStore))]
        return [n for n in nodes if n.buffer not in private]


def build(group: Group) -> Program | None:
    """The program of a group, or None when some step would read another one at a different point."""
    kept = {sizes(r.shape) for r in group.reductions}
    known = all(isinstance(s, int) for stage in group.stages for s in (*stage.shape, *_reduced(stage)))
    if len(kept) != 1 or not known:
        return None
    builder = _Builder(group, kept.pop())
    return builder.program() if all(builder.place(s) for s in group.stages) else None


def sizes(shape: Sequence[int | PrimExpr]) -> tuple[int, ...]:
    """A shape without the ones."""
    return tuple(s for s in shape if s != 1)  # type: ignore[misc]


def _reduced(stage: Tensor) -> tuple[int | PrimExpr, ...]:
    return tuple(a.extent for a in stage.body.axes) if isinstance(stage.body, Reduce) else ()


class _Builder:
    def __init__(self, group: Group, kept: tuple[int, ...]) -> None:
        self.group, self.kept = group, kept
        self.axes = tuple(Var(f"p{k}") for k in range(len(kept)))
        self.domains: dict[tuple[int, ...], Domain] = {}
        self.point: dict[Tensor, tuple[PrimExpr, ...]] = {}  # where a stage is computed; others are inlined anywhere
        self.bindings: dict[Tensor, dict[PrimExpr, Var]] = {}
        self.domain: dict[Tensor, Domain | None] = {}
        self.depth: dict[Tensor, int] = {}

    # -- the point of each stage

    def place(self, stage: Tensor) -> bool:
        """Find the point of a stage that is an output, or reads what is computed at a point; False if there is none."""
        reads = [load for load in stage.loads if load.tensor in self.point]
        if not (reads or stage.is_reduction or stage in self.group.outputs):
            return True
        own = [v for v, s in zip(stage.axes, stage.shape, strict=True) if s != 1]
        reduced = [a for a in stage.body.axes if a.extent != 1] if isinstance(stage.body, Reduce) else []
        free = {*own, *(a.var for a in reduced)}
        at: dict[PrimExpr, Var] = {}
        for load in reads:
            for index, size, place in zip(load.indices, load.tensor.shape, self.point[load.tensor], strict=True):
                if size != 1 and (index not in free or at.setdefault(index, place) is not place):  # type: ignore[arg-type]
                    return False
        if stage.is_reduction:
            domain: Domain | None = self._domain([a.extent for a in reduced])  # type: ignore[misc]
            inner = [a.var for a in reduced]
            for axis, place in zip(own, self.axes, strict=True):
                at.setdefault(axis, place)
        else:
            if not any(v in at for v in own) and sizes(stage.shape)[: len(self.kept)] == self.kept:
                at.update(zip(own, self.axes, strict=False))
            inner = [v for v in own if at.get(v) not in self.axes]
            extents = dict(zip(stage.axes, stage.shape, strict=True))
            domain = self._domain([extents[v] for v in inner]) if inner else None  # type: ignore[misc]
        return self._placed(stage, own, inner, domain, at)

    def _placed(
        self, stage: Tensor, own: list[Var], inner: list[Var], domain: Domain | None, at: dict[PrimExpr, Var]
    ) -> bool:
        """Note a stage's point; False unless its axes correspond one to one to the kept ones and the domain's."""
        for axis, place in zip(inner, domain.axes if domain is not None else (), strict=True):
            if at.setdefault(axis, place) is not place:
                return False
        if {at[v] for v in own if v not in inner} != set(self.axes) or len(set(at.values())) != len(at):
            return False
        self.bindings[stage] = at
        self.point[stage] = tuple(at.get(v, as_expr(0)) for v in stage.axes)
        self.domain[stage] = domain
        depths = (self.depth[t.tensor] + t.tensor.is_reduction for t in stage.loads if t.tensor in self.point)
        self.depth[stage] = max(depths, default=0)
        return True

    def _domain(self, extents: Sequence[int]) -> Domain:
        key = tuple(extents)
        if key not in self.domains:
            first = sum(len(d.axes) for d in self.domains.values())
            self.domains[key] = Domain(tuple(Var(f"d{first + k}") for k in range(len(key))), key)
        return self.domains[key]

    # -- steps

    def program(self) -> Program:
        self.readers = dict(buffer_readers(self.group))
        self.lower = Lower(self.readers)
        self.locals: list[Buffer] = []
        self.known: dict[object, PrimExpr] = {}
        self.equal = Equality()
        steps = [step for stage in self.group.stages if stage in self.point for step in self._steps(stage)]
        steps.sort(key=lambda s: (s.depth, ORDER[s.role]))
        return _Merging(self, steps).program()

    def _steps(self, stage: Tensor) -> list[Step]:
        output, depth, domain = stage in self.group.outputs, self.depth[stage], self.domain[stage]
        if not (stage.is_reduction or output or self._kept(stage)):
            return []
        value, kind = self._value(stage), stage.body.kind if isinstance(stage.body, Reduce) else ""
        if domain is not None and not kind and output:
            target, indices = self.group.buffers[stage], self.point[stage]
            self.readers[stage] = lambda _: target[indices]
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
        known = (kind, domain, stage.dtype, self.equal(value))
        if known in self.known:
            own = self.known[known]
            self.readers[stage] = lambda _: own
            return own, []
        shape, indices = (domain.extents, domain.axes) if domain is not None and not kind else ((), ())
        buffer = Buffer(f"l_{stage.name}".replace(".", "_"), shape, stage.dtype, "local")
        own = self.known[known] = buffer[indices]
        self.locals.append(buffer)
        self.readers[stage] = lambda _: own
        if not kind:
            role = "row" if domain is None else "vector"
            return own, [Step(role, depth, store(buffer, indices, value), domain)]
        source = Buffer("source", (), value.dtype, "local")
        return own, [Step("reduce", depth, store(source, (), value), domain, kind, buffer)]

    def _result(self, stage: Tensor, depth: int, value: PrimExpr) -> Step:
        """Writing a value of the row to the output's place."""
        return Step("row", depth, store(self.group.buffers[stage], self.point[stage], value))

    def _value(self, stage: Tensor) -> PrimExpr:
        """The stage's element (of a reduction, the source's) at its point."""
        reduced = stage.body.axes if isinstance(stage.body, Reduce) else ()
        zeros = dict.fromkeys([*stage.axes, *(a.var for a in reduced)], as_expr(0))
        return self.lower.expr(substitute(body_expr(stage), zeros | self.bindings[stage]))

    def _kept(self, stage: Tensor) -> bool:
        """Whether the values of a stage that is no reduction are kept inside the row, rather than computed where they
        are read."""
        readers, domain = self.group.readers.get(stage, []), self.domain[stage]
        if domain is None:
            return len(readers) > 1 or any(self.domain.get(r) is not None for r in readers)
        repeated = self.group.reads.get(stage, 0) > 1 and is_costly(stage)
        return repeated and domain.size <= LOCAL_ROW and stage not in self.group.outputs


class _Merging:
    """Puts the axes of each domain in the order of memory, and merges axes that every access treats as one."""

    def __init__(self, builder: _Builder, steps: list[Step]) -> None:
        self.builder, self.steps = builder, steps
        self.body: Seq = Seq(tuple(s.store for s in steps))
        self.renamed: dict[Buffer, Buffer] = {}

    def program(self) -> Program:
        builder = self.builder
        axes, extents = self.merged(builder.axes, builder.kept)
        domains = {d: Domain(*self.merged(d.axes, d.extents)) for d in builder.domains.values()}
        steps = [
            dataclasses.replace(s, store=new, domain=domains.get(s.domain), total=self.renamed.get(s.total, s.total))  # type: ignore[arg-type]
            for s, new in zip(self.steps, self.body.stmts, strict=True)
        ]
        local = tuple(self.renamed.get(b, b) for b in builder.locals)
        return Program(builder.group.machine, axes, extents, tuple(steps), local, self.renamed)  # type: ignore[arg-type]

    def merged(self, axes: tuple[Var, ...], extents: tuple[int, ...]) -> tuple[tuple[Var, ...], tuple[int, ...]]:
        extent = dict(zip(axes, extents, strict=True))
        private = {*self.builder.locals, *(s.store.buffer for s in self.steps if s.role == "reduce")}
        nodes = [n for n in walk(self.body) if isinstance(n, (BufferLoad, BufferStore)) and n.buffer not in private]
        order = outermost_first(nodes, axes)
        new_axes, new_extents, body, renamed = coalesce(order, [extent[v] for v in order], self.body)
        self.body = body  # type: ignore[assignment]
        self.renamed = {old: renamed.get(new, new) for old, new in self.renamed.items()} | {
            old: new for old, new in renamed.items() if old not in self.renamed.values()
        }
        return tuple(new_axes), tuple(new_extents)  # type: ignore[arg-type]
