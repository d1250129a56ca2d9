"""Merging of loop axes: those that every access treats as one, or any two that have to be one.

    for i in 64: for j in 10: out[i, j] = x[i, j] * 2        →        for m in 640: out[m] = x[m] * 2
    for i in 64: for j in 10: out[i, j] = x[i, j] * w[j]     →        for m in 640: out[m] = x[m] * w[m % 10]

Buffers change their shape, not their memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from pullback.tir import Buffer, BufferLoad, BufferStore, Prefetch, PrimExpr, Stmt, Var, as_expr
from pullback.tir.visitor import Mutator, substitute, walk

Extent = int | PrimExpr
Access = tuple[Buffer, tuple[PrimExpr, ...]]


@overload
def coalesce(
    axes: list[Var], extents: list[int], body: Stmt
) -> tuple[list[Var], list[int], Stmt, dict[Buffer, Buffer]]: ...
@overload
def coalesce(
    axes: list[Var], extents: list[Extent], body: Stmt
) -> tuple[list[Var], list[Extent], Stmt, dict[Buffer, Buffer]]: ...
def coalesce(axes: list[Var], extents: Any, body: Stmt) -> tuple[list[Var], Any, Stmt, dict[Buffer, Buffer]]:
    """Merge adjacent axes, innermost first, as far as all accesses in ``body`` allow.

    Returns the new axes, extents and body, and the buffers that stand for the old ones.
    """
    renamed: dict[Buffer, Buffer] = {}
    if not all(isinstance(e, int) for e in extents):
        return axes, extents, body, renamed
    k = len(axes) - 2
    while k >= 0:
        if _mergeable(axes[k], axes[k + 1], extents[k + 1], body):
            merged, body, flat = join(axes[k], axes[k + 1], extents[k + 1], body)
            renamed = then(renamed, flat)
            axes = [*axes[:k], merged, *axes[k + 2 :]]
            extents = [*extents[:k], extents[k] * extents[k + 1], *extents[k + 2 :]]
        k -= 1
    return axes, extents, body, renamed


def then(renamed: Mapping[Buffer, Buffer], again: Mapping[Buffer, Buffer]) -> dict[Buffer, Buffer]:
    """What stands for buffers after some of those that stood for them got another shape."""
    first_time = {old: new for old, new in again.items() if old not in renamed.values()}
    return {old: again.get(new, new) for old, new in renamed.items()} | first_time


def join(outer: Var, inner: Var, extent: int, body: Stmt) -> tuple[Var, Stmt, dict[Buffer, Buffer]]:
    """One axis for two neighbours, ``inner`` of this extent, whatever the accesses: dimensions that they run through
    side by side become one, and everywhere else they are quotient and remainder.

    Returns the new axis and body, and the buffers that stand for the old ones.
    """
    at: dict[Buffer, int] = {}
    for buffer, indices in _accesses(body):
        place = _position(indices, outer, inner)
        if place is not None and buffer.shape[place + 1] == extent:
            at.setdefault(buffer, place)
    joined = Var("m")
    flatten = _Flatten(outer, inner, joined, at)
    body = flatten.stmt(body)
    size = max(extent, 1)
    return joined, substitute(body, {outer: joined // size, inner: joined % size}), flatten.flat


def ravel(indices: Sequence[PrimExpr], shape: Sequence[Extent]) -> PrimExpr:
    """The number of an element, row by row."""
    number: PrimExpr = as_expr(0)
    for index, size in zip(indices, shape, strict=True):
        number = number * size + index
    return number


def on_one_axis(body: Stmt, flat: Mapping[Buffer, Buffer]) -> Stmt:
    """Reads of some buffers as reads of those of one axis that stand for them."""
    return _OneAxis(flat).stmt(body)


def _accesses(body: Stmt) -> list[Access]:
    return [(n.buffer, n.indices) for n in walk(body) if isinstance(n, (BufferLoad, BufferStore))]


def _mergeable(outer: Var, inner: Var, extent: Extent, body: Stmt) -> bool:
    """Every use of the two variables must be as neighbouring indices of a dimension of ``inner``'s whole extent; a
    buffer's dimensions merge in all its accesses or in none."""
    merges: dict[Buffer, int] = {}
    allowed: set[tuple[int, int]] = set()
    for buffer, indices in _accesses(body):
        at = _position(indices, outer, inner)
        if at is None:
            continue
        if buffer.shape[at + 1] != extent or merges.setdefault(buffer, at) != at:
            return False
        allowed.update((id(indices), p) for p in (at, at + 1))
    for buffer, indices in _accesses(body):
        if buffer in merges and _position(indices, outer, inner) != merges[buffer]:
            return False
        for p, index in enumerate(indices):
            if (id(indices), p) not in allowed and any(n is outer or n is inner for n in walk(index)):
                return False
    return _uses_outside_accesses(body, outer, inner) == 0


def _position(indices: Sequence[PrimExpr], outer: Var, inner: Var) -> int | None:
    """Where ``outer, inner`` stand side by side."""
    for p in range(len(indices) - 1):
        if indices[p] is outer and indices[p + 1] is inner:
            return p
    return None


def _uses_outside_accesses(body: Stmt, outer: Var, inner: Var) -> int:
    """Uses of the variables as values (``one_hot`` compares an index with data): these forbid merging."""
    inside = sum(1 for _, indices in _accesses(body) for i in indices for n in walk(i) if n is outer or n is inner)
    return sum(1 for n in walk(body) if n is outer or n is inner) - inside


class _Flatten(Mutator):
    """Makes one of the dimensions ``at`` and ``at + 1`` of buffers: ``[…, outer, inner, …]`` becomes
    ``[…, joined, …]``, and any other ``[…, i, j, …]`` becomes ``[…, i · extent + j, …]``."""

    def __init__(self, outer: Var, inner: Var, joined: Var, at: Mapping[Buffer, int]) -> None:
        super().__init__()
        self.outer, self.inner, self.joined, self.at = outer, inner, joined, at
        self.flat: dict[Buffer, Buffer] = {}

    def reshaped(self, buffer: Buffer) -> Buffer:
        if buffer not in self.flat:
            at = self.at[buffer]
            shape = (*buffer.shape[:at], buffer.shape[at] * buffer.shape[at + 1], *buffer.shape[at + 2 :])
            self.flat[buffer] = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, buffer.offset)
        return self.flat[buffer]

    def indices(self, buffer: Buffer, old: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        at = self.at[buffer]
        i, j = old[at : at + 2]
        own = self.joined if i is self.outer and j is self.inner else self.expr(i) * buffer.shape[at + 1] + self.expr(j)
        return (*map(self.expr, old[:at]), own, *map(self.expr, old[at + 2 :]))

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, BufferLoad) and node.buffer in self.at:
            return BufferLoad(self.reshaped(node.buffer), self.indices(node.buffer, node.indices))
        return super()._expr(node)

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, BufferStore) and node.buffer in self.at:
            indices = self.indices(node.buffer, node.indices)
            return BufferStore(self.reshaped(node.buffer), self.expr(node.value), indices)
        return super().stmt(node)


class _OneAxis(Mutator):
    def __init__(self, flat: Mapping[Buffer, Buffer]) -> None:
        super().__init__()
        self.flat = flat

    def _expr(self, node: PrimExpr) -> PrimExpr:
        if isinstance(node, BufferLoad) and node.buffer in self.flat:
            return self.flat[node.buffer][ravel([self.expr(i) for i in node.indices], node.buffer.shape)]
        return super()._expr(node)

    def stmt(self, node: Stmt) -> Stmt:
        if isinstance(node, Prefetch) and node.buffer in self.flat:
            indices = (ravel([self.expr(i) for i in node.indices], node.buffer.shape),)
            return Prefetch(self.flat[node.buffer], indices, node.kind)
        return super().stmt(node)
