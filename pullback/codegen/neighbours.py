"""Stores of lanes that lie apart wait for their neighbours: two elements side by side are one store.

    for j in vectorized(8):                       for pairs of lanes:
        out[j, 2 * x] = a[j]                          out[j, 2 * x : 2 * x + 2] = (a[j], b[j])
        out[j, 2 * x + 1] = b[j]

So are stored the results of a filter whose vectors lie along its channels, and the phases of a strided gradient. Lanes
that are two elements apart make whole vectors with their neighbours. One by one, each lane takes a move and a store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from pullback.codegen.memory import Access, MemoryAccess
from pullback.codegen.values import Value, memory_type
from pullback.tir.expr import Buffer, BufferLoad, PrimExpr, nbytes

_HALF = 4  # elements of 128 bits, which are interleaved and taken apart without crossing to the other half


class Held(NamedTuple):
    """A store that waits: elements at known distances."""

    access: Access
    value: Value
    kind: str


class NeighbourStores(MemoryAccess):
    """Adds them to :class:`MemoryAccess`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._held: dict[Buffer, Held] = {}
        self._holds = False

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Stores may wait inside, which is straight, for one another."""
        self._holds = True
        yield
        self._holds = False
        for buffer in list(self._held):
            self._release(buffer)

    def _release(self, buffer: Buffer) -> None:
        """Store what waits, by itself."""
        held = self._held.pop(buffer, None)
        if held is not None:
            super()._store_known(buffer, *held)

    def load(self, node: BufferLoad) -> Value:
        self._release(node.buffer)
        return super().load(node)

    def load_both(self, low: PrimExpr, high: PrimExpr) -> Value | None:
        if isinstance(low, BufferLoad):
            self._release(low.buffer)
        return super().load_both(low, high)

    def _store_lanes(self, buffer: Buffer, access: Access, value: Value) -> None:
        if access.kind != "known":
            self._release(buffer)
        super()._store_lanes(buffer, access, value)

    def _store_known(self, buffer: Buffer, access: Access, value: Value, kind: str) -> None:
        held = self._held.get(buffer)
        for first, second in ((held, Held(access, value, kind)), (Held(access, value, kind), held)):
            if first is not None and second is not None and _are_neighbours(first.access, second.access):
                del self._held[buffer]
                self._store_both(first, second, memory_type(buffer.dtype))
                return
        self._release(buffer)
        is_wide = nbytes(buffer.dtype) == 4 and value.lanes % _HALF == 0
        may_gain = _are_every_second(access) or self._is_one_by_one(access, value.lanes)
        if self._holds and is_wide and may_gain and not self.memory[buffer].local:
            self._held[buffer] = Held(access, value, kind)
        else:
            super()._store_known(buffer, access, value, kind)

    def _store_both(self, first: Held, second: Held, element: str) -> None:
        """Each element of the second lies behind that of the first."""
        access, a, b, lanes = first.access, first.value, second.value, first.value.lanes
        count, start = len(access.offsets), access.offsets[0]
        if _are_every_second(access):
            both = self._shuffled(a.type, a.ref, b.ref, [k // 2 + k % 2 * lanes for k in range(2 * count)])
            place = self._shifted(access.pointer, element, start)
            self.builder.effect(f"store <{2 * count} x {element}> {both}, ptr {place}, align {access.align}")
            return
        for number in range(0, count, 2):
            picks = [number, lanes + number, number + 1, lanes + number + 1]
            both = self._shuffled(a.type, a.ref, b.ref, picks)
            pairs = self.builder.pure(f"bitcast <4 x {element}> {both} to <2 x double>")
            for k in range(number, min(number + 2, count)):
                pair = self.builder.pure(f"extractelement <2 x double> {pairs}, i64 {k - number}")
                place = self._shifted(access.pointer, element, access.offsets[k])
                self.builder.effect(f"store double {pair}, ptr {place}, align {access.align}")


def _are_every_second(access: Access) -> bool:
    return all(offset == access.offsets[0] + 2 * k for k, offset in enumerate(access.offsets))


def _are_neighbours(first: Access, second: Access) -> bool:
    """Whether each element of the second access lies behind that of the first, and they have none in common."""
    assert first.start is not None and second.start is not None
    apart = (second.start - first.start).const
    if apart is None or len(first.offsets) != len(second.offsets):
        return False
    behind = [apart + offset for offset in second.offsets]
    is_behind = all(b == a + 1 for a, b in zip(first.offsets, behind, strict=True))
    return is_behind and set(first.offsets).isdisjoint(behind)
