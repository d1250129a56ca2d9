"""Regions: the part of a source that one task reads, copied or computed into local memory.

    for y in rows: for x in columns: for c in vectorized(C):       region[y, x, c] = x[base_y + y - 1, x - 1, c]

A source that is zero outside some bounds (padding) is not compared element by element: rows outside are filled, and the
inner loops run from bound to bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.schedule.affine import affine
from pullback.schedule.contraction.problem.memory import memory_strides, region_order, region_shape
from pullback.schedule.contraction.problem.padding import Padding, at_or_after, indices
from pullback.schedule.contraction.problem.problem import Factor, Problem
from pullback.schedule.group import Group
from pullback.schedule.pointwise import buffer_readers
from pullback.schedule.transpose import copied_across
from pullback.te.graph import Lower, body_expr
from pullback.te.tensor import Tensor
from pullback.tir import (
    Binary,
    Buffer,
    For,
    If,
    IntImm,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)
from pullback.tir.visitor import rewrite, substitute

Place = Mapping[Var, PrimExpr]
Size = PrimExpr | int
_LIMITS = "min", "max", "floordiv", "floormod"


class Region:
    """A task's own copy of what it reads of a factor's source. ``inner``: how far each axis runs inside the task."""

    def __init__(self, problem: Problem, factor: Factor, inner: Mapping[Var, int], column: Var) -> None:
        assert factor.windows is not None
        group = problem.group
        self.group, self.factor, self.inner, self.extents = group, factor, inner, problem.extents
        self.order = region_order(group, factor, column)  # the source's axes, outermost first
        self.shape = self._shape()
        self.buffer = Buffer(f"{factor.source.name}_region", self._buffer_shape(), factor.source.dtype, "local")

    def _shape(self) -> list[int]:
        """How far the region reaches along each axis."""
        shape = region_shape(self.factor, self.inner)
        return [shape[d] for d in self.order]

    def _buffer_shape(self) -> tuple[int, ...]:
        return tuple(self.shape)

    def _at(self, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        """Where the buffer has the element at these places along the region's axes."""
        return tuple(indices)

    def store(self, indices: Sequence[PrimExpr], value: PrimExpr | None) -> Stmt:
        return store(self.buffer, self._at(indices), value)

    def _start(self, d: int, bases: Place) -> PrimExpr:
        """The source's index at the region's first element along axis ``d``."""
        window = self.factor.window(d)
        first = {v: bases[v] + (self.inner[v] - 1 if c < 0 else 0) for v, c in window.terms.items()}
        return window.at(first)

    def read(self, offsets: Place) -> PrimExpr:
        """The element at these offsets of the axes from the task's first values."""
        indices = []
        for d in self.order:
            window = self.factor.window(d)
            index: PrimExpr = as_expr(0)
            for v, c in window.terms.items():
                index = index + offsets[v] * c + (-c * (self.inner[v] - 1) if c < 0 else 0)
            indices.append(index)
        return self.buffer[self._at(indices)]

    def fill(self, bases: Place) -> Stmt:
        """Copy or compute the region of a task (or of a round of it)."""
        source = self.factor.source
        fill = _Fill(self.group, source, self.order, self.factor.steps)
        starts, counts = [self._start(d, bases) for d in self.order], self._counts(bases)
        last = self.factor.window(self.order[-1]).terms
        if isinstance(counts[-1], IntImm) or list(last.values()) != [1]:
            return fill.nest(self, starts, counts, [])
        (v,) = last  # of a known size too where it is the last, shorter block
        full, rest = (
            fill.nest(self, starts, [*counts[:-1], as_expr(size)], [])
            for size in (self.inner[v], self.extents[v] % self.inner[v])
        )
        return If(bases[v] + self.inner[v] <= self.extents[v], full, rest)

    def _counts(self, bases: Place) -> list[PrimExpr]:
        """How far the region of a task reaches along each axis: shorter ones end where the source does."""
        source, counts = self.factor.source, list[PrimExpr]()
        starts = [self._start(d, bases) for d in self.order]
        for d, start, size in zip(self.order, starts, self.shape, strict=True):
            places = at_or_after(int(source.shape[d]), self.factor.steps[d])
            whole = isinstance(start, IntImm) and start.value + size <= places
            even = whole or self._is_even(d)
            counts.append(as_expr(size) if even else minimum(as_expr(places) - start, size))
        return counts

    def _is_even(self, d: int) -> bool:
        """Whether the blocks of all axes in an index end where the axes do."""
        return all(self.extents[v] % self.inner[v] == 0 for v in self.factor.window(d).terms)


class _Fill:
    """Writes the loops that fill a region, its axes in the given order."""

    def __init__(self, group: Group, source: Tensor, order: Sequence[int], steps: Sequence[tuple[int, int]]) -> None:
        self.group, self.lower = group, Lower(buffer_readers(group))
        self.is_crossed = len(order) > 1 and memory_strides(group, source)[order[-2]] == 1
        self.order = order
        self.axes = [Var(f"s{d}") for d in range(source.ndim)] if source.is_placeholder else list(source.axes)
        self.places = [at_or_after(int(size), step) for size, step in zip(source.shape, steps, strict=True)]
        self.bounds: Mapping[int, tuple[int, int]] = {}  # places outside of which the source is constant
        self.conditions: tuple[PrimExpr, ...] = ()
        self.otherwise: PrimExpr | None = None
        index = indices(self.axes, steps)
        padding = None if source.is_placeholder else Padding.of(source, steps)
        if source.is_placeholder:
            self.value: PrimExpr = substitute(group.buffers[source][tuple(self.axes)], index)
        elif padding is None:
            self.value = substitute(self.lower.expr(body_expr(source)), index)
        else:
            self.bounds, self.conditions, self.otherwise = padding.bounds, padding.conditions, padding.otherwise
            self.value = self._within(substitute(self.lower.expr(padding.inside), index))

    def _within(self, value: PrimExpr) -> PrimExpr:
        """The value inside of the bounds: there indices need no limits of their own, and are multiples of what they
        are divided by."""
        least = {self.axes[d]: low for d, (low, _) in self.bounds.items()}
        sizes = dict(zip(self.axes, self.places, strict=True))
        sizes |= {self.axes[d]: max(1, high - low) for d, (low, high) in self.bounds.items()}

        def plain(node: PrimExpr) -> PrimExpr | None:
            is_limit = isinstance(node, Binary) and node.kind in _LIMITS and node.dtype == "int64"
            found = affine(node, sizes) if is_limit else None
            return None if found is None else found.expr()

        moved = rewrite(substitute(value, {v: v + low for v, low in least.items()}), plain)
        return substitute(moved, {v: v - low for v, low in least.items()})

    def nest(
        self, region: Region, starts: Sequence[PrimExpr], counts: Sequence[PrimExpr], done: list[PrimExpr]
    ) -> Stmt:
        """The loops over the axes from number ``len(done)`` on; ``done`` holds the offsets of those before."""
        k = len(done)
        if k == len(self.order):
            return region.store(done, self._value(starts, done))
        if self.is_crossed and k == len(self.order) - 2:
            rows, columns = (self._range(region, d, starts, counts) for d in (k, k + 1))
            if rows is not None and columns is not None:
                return self._transposed(starts, region, done, rows, columns)
        start, count, bounds = starts[k], counts[k], self._bounds(region, self.order[k])

        def inside(first: Size, size: Size) -> Stmt | None:
            return self._loop(k, size, lambda i: self.nest(region, starts, counts, [*done, i + first]))

        def outside(first: Size, size: Size) -> Stmt | None:
            return self._loop(k, size, lambda i: self._constant(region, counts, [*done, i + first]))

        if bounds is None:
            return inside(0, count) or seq()
        if isinstance(start, IntImm) and isinstance(count, IntImm):
            low = min(max(bounds[0] - start.value, 0), count.value)
            high = max(low, min(bounds[1] - start.value, count.value))
            return seq(outside(0, low), inside(low, high - low), outside(high, count.value - high))
        if k == len(self.order) - 1:
            first, end = (minimum(maximum(as_expr(bound) - start, 0), count) for bound in bounds)
            return seq(outside(0, region.shape[k]), inside(first, maximum(end - first, 0)))
        i = Var("i")
        within = (start + i >= bounds[0]) & (start + i < bounds[1])
        body = If(within, self.nest(region, starts, counts, [*done, i]), self._constant(region, counts, [*done, i]))
        return For(i, count, body)

    def _bounds(self, region: Region, d: int) -> tuple[int, int] | None:
        """Those along an axis; None where no task reaches beyond them."""
        bounds = self.bounds.get(d)
        assert region.factor.windows is not None
        least, _ = region.factor.windows[d].range(region.extents)
        return None if bounds is None or (bounds[0] <= least and self.places[d] <= bounds[1]) else bounds

    def _loop(self, axis: int, size: Size, body: Callable[[PrimExpr], Stmt]) -> Stmt | None:
        """Over so many places along an axis; None where they are none."""
        size = as_expr(size)
        if isinstance(size, IntImm) and size.value == 0:
            return None
        return loop("i", size, body, "vectorized" if axis == len(self.order) - 1 else "serial")

    def _constant(self, region: Region, counts: Sequence[PrimExpr], done: list[PrimExpr]) -> Stmt:
        """Fill the rest of the axes."""
        k = len(done)
        if k == len(self.order):
            return region.store(done, self.otherwise)
        return self._loop(k, counts[k], lambda i: self._constant(region, counts, [*done, i])) or seq()

    def _range(
        self, region: Region, k: int, starts: Sequence[PrimExpr], counts: Sequence[PrimExpr]
    ) -> tuple[int, int, int] | None:
        """(first inside the bounds, first after them, count) along axis number ``k`` of a region, where known."""
        start, count, bounds = starts[k], counts[k], self._bounds(region, self.order[k])
        if not isinstance(count, IntImm):
            return None
        if bounds is None:
            return 0, count.value, count.value
        if not isinstance(start, IntImm):
            return None
        low, high = (bound - start.value for bound in bounds)
        low = min(max(low, 0), count.value)
        return low, max(low, min(high, count.value)), count.value

    def _transposed(
        self,
        starts: Sequence[PrimExpr],
        region: Region,
        done: list[PrimExpr],
        rows: tuple[int, int, int],
        columns: tuple[int, int, int],
    ) -> Stmt:
        """The last two axes, the first of which is the innermost in memory."""
        (top, bottom, height), (left, right, width) = rows, columns

        def constant(i0: int, j0: int, height: int, width: int) -> Stmt | None:
            def row(i: PrimExpr) -> Stmt:
                return loop("j", width, lambda j: region.store([*done, i + i0, j + j0], self.otherwise), "vectorized")

            return loop("i", height, row) if height and width else None

        inside = None
        if bottom > top and right > left:
            inside = copied_across(
                bottom - top,
                right - left,
                self.group.machine,
                lambda i, j: self._value(starts, [*done, i + top, j + left]),
                lambda i, j, value: region.store([*done, i + top, j + left], value),
            )
        return seq(
            constant(0, 0, top, width),
            constant(bottom, 0, height - bottom, width),
            constant(top, 0, bottom - top, left),
            constant(top, right, bottom - top, width - right),
            inside,
        )

    def _value(self, starts: Sequence[PrimExpr], done: Sequence[PrimExpr]) -> PrimExpr:
        place = {self.axes[d]: start + i for d, start, i in zip(self.order, starts, done, strict=True)}
        value = substitute(self.value, place)
        for condition in self.conditions:
            value = select(substitute(condition, place), value, self.otherwise)
        return value
