"""What the C runtime records of collectives: when each was started and done, and for how long its rank waited."""

from __future__ import annotations

import ctypes
from typing import Any

from pullback.runtime.collective_times import NAMES, CollectiveTime
from pullback.runtime.collectives import KINDS
from pullback.runtime.library import library
from pullback.runtime.ranks import Ranks

ROOM = 256


class _Flight(ctypes.Structure):  # struct pb_flight of rt.h
    _fields_ = [(name, ctypes.c_int64) for name in ("started", "done", "waited", "bytes", "sent", "kind")]


class Flights:
    """Records, inside a ``with`` block, the collectives that the calling thread's rank starts there: the first ``room``
    of them. What sends nothing is none.

    After the block ``started`` says how many there were. Blocks may follow each other: each forgets the one before.
    """

    def __init__(self, ranks: Ranks, room: int = ROOM) -> None:
        self._ranks, self.room, self.started = ranks, room, 0
        self._flights = (_Flight * room)()

    def __enter__(self) -> Flights:
        ctypes.memset(self._flights, 0, ctypes.sizeof(self._flights))
        library.pb_collectives_record(self._ranks.table, self._flights, self.room)
        return self

    def __exit__(self, *error: Any) -> None:
        self.started = library.pb_collectives_record(self._ranks.table, None, 0)

    def times(self, begin: int) -> list[CollectiveTime]:
        """Those that are done, in the order of their start; from ``begin`` on, in nanoseconds of the runtime's
        clock."""
        return [
            CollectiveTime(
                NAMES[KINDS[f.kind]], (f.started - begin) / 1e3, (f.done - begin) / 1e3, f.waited / 1e3, f.bytes, f.sent
            )
            for f in self._flights[: self.started]
            if f.done
        ]
