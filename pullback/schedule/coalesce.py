"""Merging of loop axes that every access treats as one.

    for i in 64: for j in 10: out[i, j] = x[i, j] * 2        →        for m in 640: out[m] = x[m] * 2

Buffers change their shape, not their memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.tir import Buffer, BufferLoad, BufferStore, PrimExpr, Stmt, Var
from pullback.tir.visitor import Mutator, walk

Extent = int | PrimExpr
Access = tuple[Buffer, tuple[PrimExpr, ...]]


def coalesce(
    axes: list[Var], extents: list[Extent], body: Stmt
) -> tuple[list[Var], list[Extent], Stmt, dict[Buffer, Buffer]]:
    """Merge adjacent axes, innermost first, as far as all accesses in ``body`` allow.

    Returns the new axes, extents and body, and the buffers that stand for the old ones.
    """
    renamed: dict[Buffer, Buffer] = {}
    if not all(isinstance(e, int) for e in extents):
        return axes, extents, body, renamed
    k = len(axes) - 2
    while k >= 0:
        if _mergeable(axes[k], axes[k + 1], extents[k + 1], body):
            merged = Var("m")
            merge = _Merge(axes[k], axes[k + 1], merged)
            body = merge.stmt(body)
            first_time = {old: new for old, new in merge.flat.items() if old not in renamed.values()}
            renamed = {old: merge.flat.get(new, new) for old, new in renamed.items()} | first_time
            axes = [*axes[:k], merged, *axes[k + 2 :]]
            extents = [*extents[:k], extents[k] * extents[k + 1], *extents[k + 2 :]]
        k -= 1
    return axes, extents, body, renamed


def _accesses(body: Stmt) -> list[Access]:
    return [(n.buffer, n.indices) for n in walk(body) if isinstance(n, (BufferLoad, BufferStore))]


def _mergeable(outer: Var, inner: Var, extent: Extent, body: Stmt) -> bool:
    """Every use of the two variables must be as neighbouring indices of a dimension of ``inner``'s whole extent; a
    buffer's dimensions merge in all its accesses or in none."""
    merges: dict[Buffer, int] = {}
    allowed = set()
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


class _Merge(Mutator):
    """Replaces ``[…, outer, inner, …]`` by ``[…, merged, …]``."""

    def __init__(self, outer: Var, inner: Var, merged: Var) -> None:
        super().__init__()
        self.outer, self.inner, self.merged = outer, inner, merged
        self.flat: dict[Buffer, Buffer] = {}

    def reshaped(self, buffer: Buffer, at: int) -> Buffer:
        if buffer not in self.flat:
            shape = (*buffer.shape[:at], buffer.shape[at] * buffer.shape[at + 1], *buffer.shape[at + 2 :])
            self.flat[buffer] = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, buffer.offset)
        return self.flat[buffer]

    def _expr(self, node: PrimExpr) -> PrimExpr:
        at = _position(node.indices, self.outer, self.inner) if isinstance(node, BufferLoad) else None
        if at is None:
            return super()._expr(node)
        indices = [self.expr(i) for p, i in enumerate(node.indices) if p != at]  # type: ignore[attr-defined]
        indices[at] = self.merged
        return BufferLoad(self.reshaped(node.buffer, at), tuple(indices))  # type: ignore[attr-defined]

    def stmt(self, node: Stmt) -> Stmt:
        at = _position(node.indices, self.outer, self.inner) if isinstance(node, BufferStore) else None
        if at is None:
            return super().stmt(node)
        indices = [self.expr(i) for p, i in enumerate(node.indices) if p != at]  # type: ignore[attr-defined]
        indices[at] = self.merged
        return BufferStore(self.reshaped(node.buffer, at), self.expr(node.value), tuple(indices))  # type: ignore[attr-defined]
