"""What a round of a task packs of a factor, in the type that it is multiplied as. A matrix that exceeds L2 is then read
once, a long piece of each line at a time.

    for round of terms:
        for k in terms: for line in columns: prefetch(b[round + k + 8, block + line])
                        for tile in columns: for j in vectorized(tile): copy[tile, k, j] = b[round + k, block + …]
        for register tile: acc[r, j] += Σ_k a[r, round + k] · copy[tile, k, j]

So a tile reads one term after the other, whole lines of all sets of L1. Where lines of memory are along the terms,
those of the copy are, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pullback.schedule.contraction.emit.epilogue import whole_or_tail
from pullback.schedule.contraction.plan.blocking import Blocking
from pullback.schedule.contraction.problem.memory import distance
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.tir import Buffer, For, If, Prefetch, PrimExpr, Stmt, Var, as_expr, cast, loop, minimum, seq, store
from pullback.tir.caches import LINE
from pullback.tir.expr import nbytes
from pullback.tir.visitor import loads

Place = Mapping[Var, PrimExpr]
_AHEAD = 8  # lines that are prefetched before they are packed (4: as fast; of 10 x 24x603x301 0.84 of the time without)
_FEW = 16  # prefetches that are unrolled


@dataclass(frozen=True, eq=False)
class RoundCopy:
    """``step``: the columns or rows of a register tile, if each tile's part is packed in lines of its own, of ``width``
    elements."""

    buffer: Buffer
    inner: Mapping[Var, int]  # how far each axis of the factor runs in a round, in the order of memory
    step: int | None
    width: int

    @staticmethod
    def of(problem: Problem, factor: Factor, blocking: Blocking) -> RoundCopy:
        *outer, last = sorted(factor.axes, key=lambda v: -distance(problem, factor, v))
        inner = {v: blocking.inner[v] for v in (*outer, last)}
        step = blocking.tile.columns if last is blocking.column else dict(blocking.rows).get(last)
        if factor not in blocking.packed_by_tile:
            step, width = None, _apart(inner[last], nbytes(factor.dtype))
        else:
            assert step is not None
            width = step if last is blocking.column else 1 << (step - 1).bit_length()
        shape = [*(inner[v] for v in outer), width]
        if step is not None:
            shape[-2:-1] = [count | 1 for count in shape[-2:-1]]  # else tiles might begin in the same set of the cache
            shape = [-(-inner[last] // step), *shape]
        return RoundCopy(Buffer("round", tuple(shape), factor.dtype, "local"), inner, step, width)

    def read(self, offsets: Place, tile: Place, lane: Place) -> PrimExpr:
        """The element at these offsets from the round's first one, at a place in the tile of this number."""
        *outer, last = self.inner
        place = [offsets[v] for v in outer]
        return self.buffer[(*place, offsets[last]) if self.step is None else (tile[last], *place, lane[last])]

    def copy(self, bases: Place, extents: Mapping[Var, int], element: Callable[[Place], PrimExpr]) -> Stmt:
        """``element``: the factor's source at these values of its axes."""
        offsets = {v: Var(v.name) for v in self.inner}
        *outer, last = self.inner
        place, j = [offsets[v] for v in outer], offsets[last]

        def read(changes: Place) -> PrimExpr:
            return element({v: bases[v] + offset for v, offset in {**offsets, **changes}.items()})

        def count(v: Var) -> PrimExpr:
            size = self.inner[v]
            return as_expr(size) if extents[v] % size == 0 else minimum(as_expr(extents[v]) - bases[v], size)

        def line(size: PrimExpr | int, first: PrimExpr | int = 0, tile: Sequence[PrimExpr] = ()) -> Stmt:
            value = cast(self.buffer.dtype, read({last: first + j}))
            return For(j, as_expr(size), store(self.buffer, (*tile, *place, j), value), "vectorized")

        def of_tile(number: PrimExpr, step: int) -> Stmt:
            first = number * step
            begin, extent, wide = bases[last] + first, extents[last], line(self.width, first, [number])
            parts = whole_or_tail(begin, extent, step, lambda size: line(size, first, [number]))
            return wide if extent % step == 0 and self.width == step else If(begin <= extent - self.width, wide, parts)

        if (step := self.step) is None:
            copy: Stmt = line(count(last))
        else:
            copy = loop("tile", (count(last) + (step - 1)) // step, lambda number: of_tile(number, step))
        if outer and self.inner[outer[-1]] > _AHEAD:
            copy = seq(self._ahead(read, {outer[-1]: offsets[outer[-1]] + _AHEAD}), copy)
        for v in reversed(outer):
            copy = For(offsets[v], count(v), copy)
        return copy

    def _ahead(self, read: Callable[[Place], PrimExpr], place: Place) -> Stmt:
        """Hints for a whole piece of a line, along its last axis."""
        last, size = list(self.inner.items())[-1]
        (load,) = loads(read(place))
        lines = -(-size * nbytes(load.dtype) // LINE) + 1  # as pieces do not begin with a line

        def hint(line: PrimExpr) -> Stmt:
            (element,) = loads(read({**place, last: line * (LINE // nbytes(load.dtype))}))
            return Prefetch(element.buffer, element.indices)

        return loop("line", lines, hint, "unrolled" if lines <= _FEW else "serial")


def _apart(count: int, size: int) -> int:
    """Elements from line to line, of so many elements of this size: whole lines of the cache, and an odd number of
    them, so that they take all of its sets."""
    return count if count * size < LINE else (-(-count * size // LINE) | 1) * LINE // size
