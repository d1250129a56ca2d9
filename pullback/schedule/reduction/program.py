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

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.cost import expression_cost
from pullback.schedule.group import Machine, bytes_of
from pullback.schedule.order import MultiplyAdd, Order
from pullback.schedule.strides import Access, contiguity
from pullback.tir import Buffer, BufferLoad, BufferStore, PrimExpr, Var, as_expr
from pullback.tir.expr import nbytes
from pullback.tir.static import number
from pullback.tir.visitor import walk


@dataclass(frozen=True, eq=False)
class Domain:
    """Axes that are reduced, or along which a row has elements.

    Those that are reduced come as the op names them, and after merging are those of the sums' order: the inner one,
    or the outer and the inner one. Others come outermost in memory first.
    """

    axes: tuple[Var, ...]
    extents: tuple[int, ...]
    order: Order

    @property
    def size(self) -> int:
        return math.prod(self.extents)

    @property
    def points(self) -> list[dict[Var, PrimExpr]]:
        """All of its points, the last axis first to move."""
        places = itertools.product(*map(range, self.extents))
        return [{v: as_expr(k) for v, k in zip(self.axes, place, strict=True)} for place in places]

    def stretch(self, access: Access) -> int:
        """Bytes that are contiguous along the domain before the next of its outermost axis, elsewhere; 0: there is no
        such place, or it is where these end."""
        elements = 1
        outer = next((axis for axis, extent in zip(self.axes, self.extents, strict=True) if extent > 1), None)
        for index, size in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
            if outer in set(walk(index)):
                return 0
            if index not in self.axes:
                break
            elements *= number(size)
        return elements * nbytes(access.buffer.dtype) if any(outer in set(walk(i)) for i in access.indices) else 0

    @property
    def chunks(self) -> list[Chunks]:
        """The chunks of the sums' order: the whole ones together, then the last, smaller one, if there is one."""
        cut = self.order.cut
        assert cut is not None
        at = len(self.axes) - 1 if cut.is_inner else 0
        size = cut.size if cut.is_inner else cut.size // math.prod(self.extents[1:-1])  # the first axis alone is cut
        full, rest = divmod(self.extents[at], size)
        number = Var("chunk")
        found = []
        for k, count, own in ((number, full, size), (as_expr(full), 1, rest)):
            if count and own:
                extents = (*self.extents[:at], own, *self.extents[at + 1 :])
                part = Domain(self.axes, extents, self.order.chunk(own * cut.size // size))
                found.append(Chunks(k, count, part, {self.axes[at]: k * size + self.axes[at]}))
        return found

    @property
    def of_chunks(self) -> Domain:
        """The numbers of the chunks."""
        order = self.order.of_chunks
        return Domain((Var("chunk"),), (order.terms,), order)


@dataclass(frozen=True, eq=False)
class Chunks:
    """Equal chunks of a domain: ``number`` runs over ``count`` of them, or is that of the last one. ``place``: where a
    point of the chunk's domain is in the whole."""

    number: PrimExpr
    count: int
    domain: Domain
    place: Mapping[Var, PrimExpr]


@dataclass(frozen=True, eq=False)
class Step:
    """``store`` says what happens at one point. Of a reduction it holds the source's element; ``kind`` combines them,
    and the steps after it read the result from ``total``. ``depth``: how many reductions there are on the way here.
    ``products``: the elements are products that the op itself adds up."""

    role: str
    depth: int
    store: BufferStore
    domain: Domain | None = None
    kind: str = ""
    total: Buffer | None = None
    products: bool = False

    @property
    def result(self) -> Buffer:
        """``total``, of a reduction."""
        assert self.total is not None
        return self.total

    @property
    def reduced(self) -> Domain:
        """``domain``, of a reduction."""
        assert self.domain is not None
        return self.domain


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in order over the kept ``axes``, outermost in memory first.

    ``locals``: buffers of what lives inside a row: a value (of shape ()), or elements along a domain.
    """

    machine: Machine
    axes: tuple[Var, ...]
    extents: tuple[int, ...]
    steps: tuple[Step, ...]
    locals: tuple[Buffer, ...]

    @property
    def reduces(self) -> list[Step]:
        return [s for s in self.steps if s.role == "reduce"]

    @property
    def vectors(self) -> list[Step]:
        return [s for s in self.steps if s.role == "vector"]

    @property
    def late_vectors(self) -> list[Step]:
        """Those that wait for a reduction, or stay inside the row; the others are written as the data are read."""
        return [s for s in self.vectors if s.depth > 0 or s.store.buffer in self.locals]

    @cached_property
    def passes_caches(self) -> bool:
        """Whether no cache could hold until it is read what is written: rows go past them one after another."""
        stores = {n.buffer for n in self.accesses(self.steps) if isinstance(n, BufferStore)}
        return self.machine.pass_caches(stores)

    @property
    def is_far(self) -> bool:
        """Whether what it reads and writes comes from beyond the second caches of two cores."""
        return self.bytes > 2 * self.machine.second_bytes

    @property
    def rows(self) -> int:
        return math.prod(self.extents)

    def multiply_add(self, step: Step) -> MultiplyAdd | None:
        """How the products of a reduction are added, if its elements are such."""
        return self.machine.multiply_add if step.products else None

    def accesses(self, steps: Sequence[Step]) -> list[Access]:
        """What the steps read and write in memory."""
        private = {*self.locals, *(s.store.buffer for s in steps if s.role == "reduce")}
        nodes = [n for s in steps for n in walk(s.store) if isinstance(n, (BufferLoad, BufferStore))]
        return [n for n in nodes if n.buffer not in private]

    @cached_property
    def bytes(self) -> int:
        """Of all that it reads and writes."""
        return sum(map(bytes_of, {access.buffer for access in self.accesses(self.steps)}))

    @cached_property
    def read_of_a_row(self) -> int:
        """Bytes that are read of one row alone."""
        sizes: dict[Buffer, int] = {}
        for step in self.steps:
            loads = (n for n in self.accesses([step]) if isinstance(n, BufferLoad) and self.axes[-1] in walk(n))
            if step.domain is not None:
                sizes |= {n.buffer: step.domain.size * nbytes(n.dtype) for n in loads}
        return sum(sizes.values())

    @property
    def cost(self) -> float:
        """Nanoseconds of one core, vectorized."""
        points = [self.rows * (s.domain.size if s.domain is not None else 1) for s in self.steps]
        return sum(expression_cost(s.store.value) * n for s, n in zip(self.steps, points, strict=True))

    # -- which axis is innermost in memory

    @cached_property
    def _contiguity(self) -> list[dict[Var, int]]:
        """For each step over a domain, how many elements are contiguous along each axis."""
        result = []
        for step in self.steps:
            if step.domain is not None:
                axes, extents = (*self.axes, *step.domain.axes), (*self.extents, *step.domain.extents)
                result.append(contiguity(self.accesses([step]), axes, extents))
        return result

    @cached_property
    def column(self) -> int | None:
        """The number of the kept axis that is innermost, if it is so for more of what is accessed than any reduced one;
        None: rows."""
        total = dict.fromkeys(self.axes, 0)
        for scores in self._contiguity:
            for axis, score in scores.items():
                total[axis] = total.get(axis, 0) + score
        if not self._prefers_columns(total):
            return None
        return max(range(len(self.axes)), key=lambda k: total[self.axes[k]])

    @property
    def is_mixed(self) -> bool:
        """Whether some steps like a kept axis innermost, and others a reduced one."""
        return len({self._prefers_columns(scores) for scores in self._contiguity} - {None}) > 1

    def _prefers_columns(self, scores: Mapping[Var, int]) -> bool | None:
        kept = max((scores[v] for v in self.axes), default=0)
        inner = max((n for v, n in scores.items() if v not in self.axes), default=0)
        return kept > inner if kept or inner else None
