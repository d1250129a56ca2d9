"""Small results without an allocation each: they share slabs, which live as long as any of them does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pullback.runtime.memory import Memory, OwnedMemory

_PIECE = 64  # bytes: one cache line each
_PIECES = 1024


class _Piece(Memory):
    """A part of a slab."""

    __slots__ = ("address", "slab")
    address: int

    def __init__(self, slab: OwnedMemory, offset: int) -> None:
        super().__init__(_PIECE, writable=True)
        self.address = slab.address + offset
        self.slab = slab


class SmallMemory:
    """Hands out pieces of 64 bytes, one slab after another. Any thread, signal handler or forked child may ask at any
    moment: what they share is an iterator, whose steps are atomic."""

    limit = _PIECE

    def __init__(self) -> None:
        self._rest: Iterator[tuple[OwnedMemory, int]] = iter(())

    def take(self) -> Memory:
        """A fresh piece."""
        while (place := next(self._rest, None)) is None:
            self._rest = zip(itertools.repeat(OwnedMemory(_PIECE * _PIECES)), range(0, _PIECE * _PIECES, _PIECE))
        return _Piece(*place)
