"""What a reduction by rows reads next is asked for where the CPU's own prefetcher cannot know it.

    for step: lane[…] = lane[…] + (x[p, …] - mean[p]) ** 2        the last of several passes: the others read the
              for line: prefetch(x[p + 1, …])                     nearest cache, and memory would be idle meanwhile
              for line: prefetch(out[p, …], "write")              (where that pass is two, the one that computes most)

    for n: for step: lane[…] = lane[…] + x[n, p, …]               a row in many places, each of a page at most: it finds
                     for line: prefetch(x[n + 1, p, …])           each of them anew

Both are about a third of the time of batch norm's statistics and of its gradient, from memory or the last cache; the
first is 0.4 of softmax's and a tenth of layer norm's (znver3), also where they write past the caches; from the second
cache a twentieth of layer norm's and its gradient's (znver4; a fiftieth with its narrower vectors). Where they write
through them, what they write is asked for as well (softmax from the last cache 0.92 of the time, layer norm 0.96),
unless vectors are lines and the arithmetic is so short that a hint has to be waited for (a layer norm from the second
or the last cache would take 1.1 times as long, a softmax takes 0.8: znver4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.schedule.cost import calls_function
from pullback.schedule.group import bytes_of
from pullback.schedule.reduction.nests import Point
from pullback.schedule.reduction.program import Domain, Program, Step
from pullback.schedule.strides import Access
from pullback.tir import Buffer, BufferLoad, BufferStore, Prefetch, PrimExpr, Stmt, Var, as_expr, minimum
from pullback.tir.caches import FAR, LINE, NEAR, PAGE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import substitute, walk


@dataclass(frozen=True)
class Ahead:
    """One load of each buffer to ask for, so many steps further along an axis of this extent, and one store of each to
    ask for where it is."""

    loads: tuple[Access, ...]
    axis: Var
    further: int
    extent: int
    stores: tuple[Access, ...] = ()

    def hints(self, axis: Var, first: PrimExpr | int, count: int, place: Point) -> list[Stmt]:
        """For ``count`` elements along the innermost axis, from the first one on; ``place``: where those axes are that
        count within a part only."""
        later = minimum(place.get(self.axis, self.axis) + self.further, self.extent - 1)
        here = {self.axis: place.get(self.axis, self.axis)}
        accesses = [(n, {self.axis: later}, "read") for n in self.loads] + [(n, here, "write") for n in self.stores]
        found: list[Stmt] = []
        for access, row, kind in accesses:
            for k in range(0, count, LINE // nbytes(access.buffer.dtype)):
                at = {axis: substitute(place.get(axis, axis), {axis: as_expr(first + k)}), **row}
                if access.indices[-1] is axis:
                    indices = (substitute(i, {**place, **at}) for i in access.indices)
                    found.append(Prefetch(access.buffer, tuple(indices), kind))
        return found


def is_last_pass(steps: Sequence[Step], program: Program) -> bool:
    """Whether these steps are the last of several sums over rows."""
    sums = [s for s in program.reduces if s.domain is not None]
    passes = {s.depth for s in sums}
    if not program.axes or len(passes) < 2:
        return False
    last = {s.total for s in sums if s.depth == max(passes)}
    return steps[0].domain is not None and bool(last & {s.total for s in steps if s.role == "reduce"})


def rows_ahead(domain: Domain, program: Program, count: int) -> Ahead | None:
    """The next ``count`` rows, during the last pass over these, and what is written of these where one array is read:
    of several, as many lines are on their way as can be; short arithmetic on vectors of a line has no time for it."""
    if not domain.axes:
        return None
    row, last = program.axes[-1], domain.axes[-1]
    loads = _far(program, program.steps, BufferLoad, lambda n: n.indices[-1] is last and row in walk(n))
    if not loads or any(domain.size * nbytes(n.buffer.dtype) > NEAR for n in loads):
        return None
    elements = [s.store.value for s in program.steps if s.domain is not None]
    is_busy = program.machine.has_narrow_vectors or any(map(calls_function, elements))
    alone = len(loads) == 1 and not program.passes_caches
    stores = _far(program, program.steps, BufferStore, lambda n: n.indices[-1] is last)
    return Ahead(loads, row, count, program.extents[-1], stores if alone and is_busy else ())


def stretches_ahead(steps: Sequence[Step], program: Program) -> Ahead | None:
    """The next stretch of a row that is no more than a page in each of many places, during sums: where elements are
    written it is not worth it (batch norm from the last cache takes 1.05 times as long, its gradient 1.1)."""
    domain = steps[0].domain
    if domain is None or len(domain.axes) < 2 or all(s.role != "reduce" for s in steps):
        return None
    outer, extent = domain.axes[0], domain.extents[0]
    last = domain.axes[-1]
    loads = _far(program, steps, BufferLoad, lambda n: n.indices[-1] is last and 0 < domain.stretch(n) <= PAGE)
    least = min((domain.stretch(n) for n in loads), default=PAGE)
    return Ahead(loads, outer, max(1, PAGE // least), extent) if loads else None


def _far(program: Program, steps: Sequence[Step], kind: type, wanted: Callable[[Access], bool]) -> tuple[Access, ...]:
    """One access of this kind for each large buffer."""
    found: dict[Buffer, Access] = {}
    for node in program.accesses(steps):
        if isinstance(node, kind) and bytes_of(node.buffer) >= FAR and wanted(node):
            found.setdefault(node.buffer, node)
    return tuple(found.values())
