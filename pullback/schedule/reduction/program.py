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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pullback.schedule.cost import expression_cost
from pullback.schedule.group import Machine
from pullback.schedule.strides import Access, contiguity
from pullback.tir import Buffer, BufferLoad, BufferStore, Var
from pullback.tir.visitor import walk


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

    @property
    def rows(self) -> int:
        return math.prod(self.extents)

    def accesses(self, steps: Sequence[Step]) -> list[Access]:
        """What the steps read and write in memory."""
        private = {*self.locals, *(s.store.buffer for s in steps if s.role == "reduce")}
        nodes = [n for s in steps for n in walk(s.store) if isinstance(n, (BufferLoad, BufferStore))]
        return [n for n in nodes if n.buffer not in private]

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
