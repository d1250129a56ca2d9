"""Accesses that may lie beside their buffers are checked while the kernel runs: a user's kernel reads and writes no
memory but that of its buffers.

    out[i] = x[idx[i]]          →          ok[()] = True; …
                                           if not (0 <= idx[i] and idx[i] < 4): ok[()] = False
                                           out[i] = x[max(min(idx[i], 3), 0)]

An access that is proven by the ranges of its variables stays as it is. A store is left out where it would lie outside.
What one side of a select reads is checked where that side is chosen: ``x[i - 1] if i > 0 else 0.0`` is no error.
``ok`` is another output of the kernel for each such access; the caller raises the message that belongs to it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pullback.ir.depth import deep
from pullback.ir.node import Span
from pullback.tir.expr import (
    Binary,
    Buffer,
    BufferLoad,
    PrimExpr,
    Select,
    as_expr,
    call,
    cast,
    const,
    maximum,
    minimum,
)
from pullback.tir.ranges import Known
from pullback.tir.stmt import Allocate, BufferStore, For, If, Let, PrimFunc, Seq, Stmt, seq, store
from pullback.tir.visitor import Mutator, children, distinct

MOST_FLAGS = 8  # of a kernel; from there on one flag is for all


@dataclass(frozen=True)
class Access:
    """One that is checked: a flag, which is false after a run in which it lay outside, and what to say then."""

    flag: Buffer
    message: str
    span: Span | None
    hint: ClassVar[str] = "indices count from 0; an if around the access, or a select, leaves out what lies outside"

    @property
    def text(self) -> str:
        """The whole message: with the place in the kernel's text, and how to mend it."""
        return "\n".join([self.message, *([self.span.caret()] if self.span else []), f"hint: {self.hint}"])


@deep
def checked(kernel: PrimFunc) -> tuple[PrimFunc, tuple[Access, ...]]:
    """The kernel with a flag, a bool of shape (), behind its last buffer for each access that is not proven."""
    writer = _Checked(kernel)
    body = writer.body()
    if not writer.changes:
        return kernel, ()
    flags = list({a.flag: None for a in writer.accesses})
    last = max(k for k, p in enumerate(kernel.params) if isinstance(p, Buffer)) + 1
    params = (*kernel.params[:last], *flags, *kernel.params[last:])
    start = [store(flag, (), const(True, "bool")) for flag in flags]
    return replace(kernel, params=params, body=seq(*start, body)), tuple(writer.accesses)


@deep
def inside_choices(kernel: PrimFunc) -> PrimFunc:
    """The kernel, in which what one side of a choice reads lies inside also where that side is not chosen.

        y[i] = x[i - 1] if i > 0 else 0.0     →     y[i] = x[max(i - 1, 0)] if i > 0 else 0.0

    Its adjoint adds to what it reads, and adds zeros where that was not chosen.
    """
    writer = _InsideChoices(kernel)
    body = writer.body()
    return replace(kernel, body=body) if writer.changes else kernel


class _Checked:
    """Rewrites statements."""

    def __init__(self, kernel: PrimFunc) -> None:
        self.kernel, self.name = kernel, kernel.name
        self.changes = False
        self.accesses: list[Access] = []
        self.flags: dict[tuple[Any, ...], Buffer] = {}

    def body(self) -> Stmt:
        known = Known()
        for buffer in self.kernel.buffers:
            for size in buffer.shape:
                known = known.size(size)
        return self.stmt(self.kernel.body, known)

    def failed(self, buffer: Buffer, axes: Sequence[int], span: Span | None) -> Stmt:
        """Clears the flag of an access."""
        message = f"{self.name}: an index is outside axis {axes[0]} of {buffer.name}"
        key = buffer, tuple(axes), span.caret() if span else None
        if key not in self.flags:
            if len(self.accesses) < MOST_FLAGS:
                flag = Buffer(f"inside{len(self.accesses) or ''}", (), "bool")
                self.accesses.append(Access(flag, message, span))
            else:
                last = self.accesses[-1]
                self.accesses[-1] = Access(last.flag, f"{self.name}: an index is outside its axis", None)
            self.flags[key] = self.accesses[-1].flag
        return store(self.flags[key], (), const(False, "bool"))

    def stmt(self, node: Stmt, known: Known) -> Stmt:
        if isinstance(node, Seq):
            return seq(*(self.stmt(part, known) for part in node.stmts))
        if isinstance(node, For):
            checks, (extent,) = self.values((node.extent,), known, node.span)
            body = self.stmt(node.body, known.loop(node.var, node.extent))
            return seq(*checks, replace(node, extent=extent, body=body))
        if isinstance(node, Let):
            checks, (value,) = self.values((node.value,), known, node.span)
            return seq(
                *checks, replace(node, value=value, body=self.stmt(node.body, known.named(node.var, node.value)))
            )
        if isinstance(node, Allocate):
            return replace(node, body=self.stmt(node.body, known))
        if isinstance(node, If):
            checks, (condition,) = self.values((node.condition,), known, node.span)
            then = self.stmt(node.then, known.given(node.condition))
            other = self.stmt(node.otherwise, known.given(node.condition, False)) if node.otherwise else None
            return seq(*checks, replace(node, condition=condition, then=then, otherwise=other))
        if isinstance(node, BufferStore):
            return self.store(node, known)
        return node

    def store(self, node: BufferStore, known: Known) -> Stmt:
        checks, (value, *indices) = self.values((node.value, *node.indices), known, node.span)
        result: Stmt = replace(node, value=value, indices=tuple(indices))
        axes = outside(node.indices, node.buffer.shape, known)
        if axes:
            self.changes = True
            inside = is_inside(indices, node.buffer.shape, axes)
            result = If(inside, result, self.failed(node.buffer, axes, node.span), span=node.span)
        return seq(*checks, result)

    def values(
        self, values: Sequence[PrimExpr], known: Known, span: Span | None
    ) -> tuple[list[Stmt], Sequence[PrimExpr]]:
        """The values with reads that are inside, and the statements before them that check where these were."""
        if not any(isinstance(n, BufferLoad) for n in distinct(*values)):
            return [], values
        places = needed(values, known)
        reads = self.reads(places, known)
        safe = [reads.expr(v) for v in values]
        self.changes |= any(a is not b for a, b in zip(safe, values, strict=True))
        return self.checks(reads, span), safe

    def reads(self, places: Mapping[int, Place], known: Known) -> _Reads:
        return _Reads(places, known)

    def checks(self, reads: _Reads, span: Span | None) -> list[Stmt]:
        checks: list[Stmt] = []
        for load, axes in reads.found:
            inside = is_inside([reads.expr(i) for i in load.indices], load.buffer.shape, axes)
            bad = call("not", reads.places[id(load)].implies(inside, reads))
            checks.append(If(bad, self.failed(load.buffer, axes, load.span or span), None, span=span))
        return checks


class _InsideChoices(_Checked):
    """Moves reads, and checks nothing."""

    def store(self, node: BufferStore, known: Known) -> Stmt:
        _, (value, *indices) = self.values((node.value, *node.indices), known, node.span)
        return replace(node, value=value, indices=tuple(indices))

    def reads(self, places: Mapping[int, Place], known: Known) -> _Reads:
        return _Reads({k: p for k, p in places.items() if p.path}, known)

    def checks(self, reads: _Reads, span: Span | None) -> list[Stmt]:
        return []


class _Reads(Mutator):
    """Reads at the nearest valid indices, where these are not proven for both sides of a choice: code reads both."""

    def __init__(self, places: Mapping[int, Place], known: Known) -> None:
        super().__init__()
        self.places, self.known = places, known
        self.found: list[tuple[BufferLoad, Sequence[int]]] = []

    def _expr(self, node: PrimExpr) -> PrimExpr:
        result = super()._expr(node)
        if not isinstance(node, BufferLoad):
            return result
        place = self.places.get(id(node))
        axes = outside(node.indices, node.buffer.shape, self.known) if place else []
        if not place or not axes:
            return result
        unknown = outside(node.indices, node.buffer.shape, place.known)
        if unknown:
            self.found.append((node, unknown))
        assert isinstance(result, BufferLoad)
        if is_empty(node.buffer.shape):
            return const(0, node.dtype)
        return replace(result, indices=clamped(result.indices, node.buffer.shape, axes))


# ---- of kernels and of tensor expressions


Path = tuple[tuple[PrimExpr, bool], ...]  # conditions, and whether they hold


@dataclass(frozen=True)
class Place:
    """Where a part of an expression is needed: behind these choices, and what is known there."""

    path: Path
    known: Known

    def implies(self, condition: PrimExpr, rewritten: Mutator) -> PrimExpr:
        """Whether a condition holds where the part is needed."""
        for choice, holds in reversed(self.path):
            made = rewritten.expr(choice)
            condition = (call("not", made) if holds else made) | condition
        return condition


def needed(values: Sequence[PrimExpr], known: Known) -> dict[int, Place]:
    """The place of each part of some expressions, by its id. A part that is needed at several places is so where it is
    at any of them."""
    order: dict[int, PrimExpr] = {}  # readers first, when reversed
    stack: list[tuple[PrimExpr, bool]] = [(v, False) for v in values]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order[id(node)] = node
        elif id(node) not in order:
            stack.append((node, True))
            stack += [(part, False) for part in _children(node) if id(part) not in order]
    places = {id(v): Place((), known) for v in values}
    for node in reversed(order.values()):
        place = places[id(node)]
        for part in _children(node):
            path = (*place.path, *_choice(node, part))
            before = places.get(id(part))
            if before is not None:
                path = _either(path, before.path)
            if before is None or path != before.path:
                places[id(part)] = Place(path, _after(path, place, known))
    return places


def _children(node: PrimExpr) -> list[PrimExpr]:
    return [c for c in children(node) if isinstance(c, PrimExpr)]


def _choice(node: PrimExpr, part: PrimExpr) -> Path:
    """What must hold, or not, for a part of an expression to count."""
    if isinstance(node, Select) and part is not node.condition and node.a is not node.b:
        return ((node.condition, part is node.a),)
    if isinstance(node, Binary) and node.kind in ("and", "or") and part is node.b and part is not node.a:
        return ((node.a, node.kind == "and"),)
    return ()


def _either(a: Path, b: Path) -> Path:
    """The choices behind which one of two places lies."""
    count = 0
    while count < min(len(a), len(b)) and a[count][0] is b[count][0] and a[count][1] == b[count][1]:
        count += 1
    if count in (len(a), len(b)):
        return a[:count]
    return (*a[:count], (_all(a[count:]) | _all(b[count:]), True))


def _all(path: Path) -> PrimExpr:
    return functools.reduce(operator.and_, (choice if holds else call("not", choice) for choice, holds in path))


def _after(path: Path, place: Place, known: Known) -> Known:
    if path == place.path:
        return place.known
    if path[:-1] == place.path:
        return place.known.given(*path[-1])
    for condition, holds in path:
        known = known.given(condition, holds)
    return known


def outside(indices: Sequence[PrimExpr], shape: Sequence[int | PrimExpr], known: Known) -> list[int]:
    """The axes along which an access is not known to lie inside."""
    return [a for a, (i, n) in enumerate(zip(indices, shape, strict=True)) if not known.is_index(i, n)]


def is_inside(indices: Sequence[PrimExpr], shape: Sequence[int | PrimExpr], axes: Sequence[int]) -> PrimExpr:
    """Whether an access lies inside along these axes."""
    result: PrimExpr | None = None
    for axis in axes:
        index = cast("int64", indices[axis])
        one = (index >= 0) & (index < as_expr(shape[axis]))
        result = one if result is None else result & one
    assert result is not None
    return result


def clamped(indices: Sequence[PrimExpr], shape: Sequence[int | PrimExpr], axes: Sequence[int]) -> tuple[PrimExpr, ...]:
    """The nearest indices that lie inside along these axes."""
    result = list(indices)
    for axis in axes:
        index = cast("int64", indices[axis])
        result[axis] = maximum(minimum(index, as_expr(shape[axis]) - 1), 0)
    return tuple(result)


def is_empty(shape: Sequence[int | PrimExpr]) -> bool:
    """Whether there are no elements, for sure."""
    return any(getattr(as_expr(size), "value", None) == 0 for size in shape)
