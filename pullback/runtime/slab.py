"""Small results without an allocation each: they share slabs, which live as long as any of them does."""

from __future__ import annotations

import threading

from pullback.runtime.memory import Memory, OwnedMemory

_PIECE = 64  # bytes: one cache line each
_PIECES = 1024


class _Piece(Memory):
    """A part of a slab."""

    __slots__ = ("slab",)

    def __init__(self, slab: OwnedMemory, offset: int) -> None:
        super().__init__(slab.address + offset, _PIECE, writable=True)
        self.slab = slab


class SmallMemory:
    """Hands out pieces of 64 bytes, one slab after another."""

    limit = _PIECE

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slab: OwnedMemory | None = None
        self._next = _PIECES

    def take(self) -> Memory:
        """A fresh piece."""
        with self._lock:
            if self._next == _PIECES:
                self._slab, self._next = OwnedMemory(_PIECE * _PIECES), 0
            piece = _Piece(self._slab, self._next * _PIECE)  # type: ignore[arg-type]
            self._next += 1
            return piece
