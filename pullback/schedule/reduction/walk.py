"""What rows and columns share: the steps of a nest at all points of its domain, sums in the order of ``order.py``.

for lane in 16: partial[lane] = 0
for o: for step: for lane in 16:
    i = 64 · step + lane
    partial[lane] = partial[lane] + ((x[o, i] + x[o, i + 16]) + (x[o, i + 32] + x[o, i + 48]))
for lane in 8: partial[lane] = partial[lane] + partial[lane + 8];  … 4, 2, 1
total = partial[0]
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pullback.schedule.order import LANES, Piece, halves, met, pieces
from pullback.schedule.reduction.nests import Moved, Place, Point, allocated, at_points, nests, put, serial
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.te.graph import combine, identity
from pullback.tir import Binary, Buffer, For, PrimExpr, Stmt, Var, as_expr, loop, seq, store
from pullback.tir.visitor import substitute, walk

Target = Callable[[Step], PrimExpr]  # the place of a reduction's result

_FEW_CHUNKS = 4  # whose results stay in registers: a layer norm whose rows are two takes 0.93 of the time (znver4)
_UNROLLED = 256  # terms along an inner axis that is written out, where that makes indices known numbers


class Walk(ABC):
    """The steps of a program for what one task computes: one row, or some columns side by side."""

    written_out: int  # terms of a sum that is one expression
    whole_vectors: bool  # the lanes of a sum are one vector, in use or not

    def __init__(self, program: Program) -> None:
        self.program = program
        self.own = {b: self.private(b.name, b.shape, b.dtype) for b in program.locals}
        self.locals = list(self.own.values())
        self.places = {b: self.place(own) for b, own in self.own.items()}

    # -- what differs

    @abstractmethod
    def private(self, name: str, shape: Sequence[int | PrimExpr], dtype: str) -> Buffer:
        """A local buffer, with elements for the row or for every column."""

    @abstractmethod
    def at(self, buffer: Buffer, *indices: PrimExpr | int) -> PrimExpr:
        """An element of such a buffer, in a statement for every column."""

    @abstractmethod
    def everywhere(self, body: Stmt) -> Stmt:
        """The statement for the row, or for every column."""

    @abstractmethod
    def lanes(self, count: int, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """The statement everywhere, for the lanes of sums."""

    @abstractmethod
    def elements(self, steps: Sequence[Step], domain: Domain) -> Stmt:
        """Elements along a domain, with nothing reduced."""

    @abstractmethod
    def argument(self, step: Step) -> Stmt:
        """The index of the best element."""

    def beside(self, domain: Domain, first: PrimExpr | int, count: int, place: Point) -> Stmt | None:
        """What is done beside so many terms along the domain's last axis, from the first one on."""
        return None

    # -- what is the same

    def place(self, own: Buffer) -> Place:
        return lambda indices: self.at(own, *indices)

    def body(self) -> Stmt:
        return self.allocated(seq(*map(self.nest, self.nests())))

    def allocated(self, body: Stmt) -> Stmt:
        """A statement made of nests, with what is private."""
        return allocated(self.locals, body)

    def nests(self) -> list[Sequence[Step]]:
        """The program's steps, those that share loops together."""
        return list(nests(self.program))

    def here(self, body: Stmt) -> Stmt:
        """The statement everywhere, with what is private at its places."""
        return self.everywhere(Moved(self.places).stmt(body))

    def total(self, step: Step) -> PrimExpr:
        return self.at(self.own[step.result])

    def nest(self, steps: Sequence[Step]) -> Stmt:
        domain, reduces = steps[0].domain, _reduces(steps)
        if domain is None:
            return self.here(steps[0].store)
        if any(s.kind.startswith("arg") for s in reduces):
            return seq(*(self.argument(s) if s.kind.startswith("arg") else self.nest([s]) for s in steps))
        if not reduces:
            return self.elements(steps, domain)
        return self.reduced(steps, domain, self.total) if domain.order.cut is None else self.in_chunks(steps, domain)

    def in_chunks(self, steps: Sequence[Step], domain: Domain) -> Stmt:
        """The results of the chunks, one chunk after another, then what they give together."""
        whole = domain.of_chunks
        found = self.partial(steps, "chunks", whole.size)

        def result_of(chunk: PrimExpr) -> Target:
            return lambda step: self.at(found[step.result], chunk)

        parts = []
        for chunks in domain.chunks:
            number = chunks.number
            inside = [dataclasses.replace(s, store=substitute(s.store, chunks.place)) for s in steps]
            body = self.reduced(inside, chunks.domain, result_of(number), chunks.place)
            if isinstance(number, Var) and whole.size <= _FEW_CHUNKS:
                body = For(number, as_expr(chunks.count), body, "unrolled")
            elif isinstance(number, Var):
                body = serial([number], [chunks.count], body)
            parts.append(body)
        again = []
        for step in _reduces(steps):
            result = self.at(found[step.result], *whole.axes)
            again.append(dataclasses.replace(step, store=store(step.store.buffer, (), result), products=False))
        return seq(*parts, self.reduced(again, whole, self.total))

    def partial(self, steps: Sequence[Step], name: str, size: int) -> dict[Buffer, Buffer]:
        """A private buffer of this size for each result."""
        totals = [s.total for s in steps if s.total is not None]
        found = {t: self.private(name, (size,), t.dtype) for t in totals}
        self.locals += found.values()
        return found

    def reduced(self, steps: Sequence[Step], domain: Domain, target: Target, place: Point | None = None) -> Stmt:
        """The reductions over a domain, in one piece; ``place``: where its points are in the whole."""
        if domain.size <= self.written_out:
            return self.at_once(steps, domain, target)
        size = LANES if self.whole_vectors else next(iter(pieces(domain.order.inner))).lanes
        sums = [self.lanes_of(group, size) for group in self.together(_reduces(steps))]
        return seq(self.added_up(steps, domain, sums, place or {}), *(self.left(own, target) for own in sums))

    def added_up(self, steps: Sequence[Step], domain: Domain, sums: Sequence[Lanes], place: Point) -> Stmt:
        """The terms over a domain, into their lanes."""
        parts, size = list(pieces(domain.order.inner)), sums[0].size
        lanes = {step: own for own in sums for step in own.steps}
        begins = domain.order.outer == parts[0].steps == 1 and parts[0].lanes == size  # then nothing was there before
        kind = "unrolled" if domain.order.inner <= _UNROLLED and _bends(steps, domain.axes[-1]) else "serial"

        def along(part: Piece) -> Stmt:
            add = Lanes.begin if begins and part is parts[0] else Lanes.add

            def step(k: PrimExpr) -> Stmt:
                first, count = part.at(k, 0, 0), part.terms * part.lanes
                add_up = self.lanes(part.lanes, lambda lane: at(part, k, lane, add))
                return seq(add_up, self.beside(domain, first, count, place))

            return loop("step", part.steps, step, kind)

        def at(part: Piece, step: PrimExpr, lane: PrimExpr, add: Callable[..., Stmt]) -> Stmt:
            points = [{domain.axes[-1]: as_expr(part.at(step, lane, k))} for k in range(part.terms)]
            return at_points(steps, points, lambda s, values: add(lanes[s], s, values, lane))

        return seq(
            None if begins else self.lanes(size, lambda lane: seq(*(own.clear(lane) for own in sums))),
            self.outer(domain, seq(*map(along, parts))),
        )

    def outer(self, domain: Domain, body: Stmt) -> Stmt:
        """Loops over all axes of the domain but the last."""
        return serial(domain.axes[:-1], domain.extents[:-1], body)

    def together(self, reduces: Sequence[Step]) -> Iterable[Sequence[Step]]:
        """The reductions whose lanes are one buffer."""
        return [[step] for step in reduces]

    def lanes_of(self, steps: Sequence[Step], size: int) -> Lanes:
        dtype = steps[0].result.dtype
        buffer = self.private("partial", (size,) if len(steps) == 1 else (len(steps), size), dtype)
        self.locals.append(buffer)
        return Lanes(self, tuple(steps), buffer, size)

    def left(self, lanes: Lanes, target: Target) -> Stmt:
        """The lanes are added up until one is left: the result."""
        return seq(
            *(self.lanes(n, partial(lanes.take_up, half=half)) for half, n in halves(lanes.size)),
            self.everywhere(seq(*(put(target(s), lanes.at(s, 0)) for s in lanes.steps))),
        )

    def at_once(self, steps: Sequence[Step], domain: Domain, target: Target) -> Stmt:
        """All terms in one expression."""

        def reduce(step: Step, values: Sequence[PrimExpr]) -> Stmt:
            dtype, multiply_add = step.store.value.dtype, self.program.multiply_add(step)
            return put(target(step), domain.order.added(step.kind, values, dtype, multiply_add))

        return self.here(at_points(steps, domain.points, reduce))


@dataclass(frozen=True, eq=False)
class Lanes:
    """The partial results of some reductions of one kind and type, ``size`` of each."""

    walk: Walk
    steps: tuple[Step, ...]
    buffer: Buffer
    size: int

    def clear(self, lane: PrimExpr) -> Stmt:
        return seq(*(self.begin(s, [], lane) for s in self.steps))

    def begin(self, step: Step, values: Sequence[PrimExpr], lane: PrimExpr) -> Stmt:
        """The lane's first terms, if any."""
        nothing = identity(step.kind, self.buffer.dtype)
        return put(self.at(step, lane), self.met(step, nothing, values) if values else nothing)

    def add(self, step: Step, values: Sequence[PrimExpr], lane: PrimExpr) -> Stmt:
        place = self.at(step, lane)
        return put(place, self.met(step, place, values))

    def take_up(self, lane: PrimExpr, half: int) -> Stmt:
        """The lane that is ``half`` further."""
        places = [(s.kind, self.at(s, lane), self.at(s, lane + half)) for s in self.steps]
        return seq(*(put(place, combine(kind, place, further)) for kind, place, further in places))

    def at(self, step: Step, lane: PrimExpr | int) -> PrimExpr:
        number = () if len(self.steps) == 1 else (self.steps.index(step),)
        return self.walk.at(self.buffer, *number, lane)

    def of(self, number: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """A lane of the sum of this number, of all that the buffer holds, in its order."""
        indices = [lane]
        for size in reversed(self.buffer.shape[1:-1]):
            indices.append(number % size)
            number = number // size
        return self.buffer[(number, *reversed(indices))] if len(self.buffer.shape) > 1 else self.buffer[lane]

    def met(self, step: Step, before: PrimExpr, values: Sequence[PrimExpr]) -> PrimExpr:
        return met(step.kind, before, values, self.walk.program.multiply_add(step))


def _reduces(steps: Sequence[Step]) -> list[Step]:
    return [s for s in steps if s.role == "reduce"]


def _bends(steps: Sequence[Step], axis: Var) -> bool:
    """Whether an index divides the axis: known numbers only where the axis is one."""
    divisions = [
        n for s in steps for n in walk(s.store) if isinstance(n, Binary) and n.kind in ("floordiv", "floormod")
    ]
    return any(m is axis for n in divisions for m in walk(n))
