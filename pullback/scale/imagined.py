"""Ranks that are not there: one rank of many, whose collectives end at once, so that its kernels can be timed.

What a collective would give is made of what this rank gives: a sum is its own term, all pieces are its own. So values
stay in the range that they have in a training, and nobody waits.

A rank of one thread is timed by how long that has a processor: others on this machine don't count. (Kernels of several
threads are timed by the clock: a thread that waits for others' tasks has no processor.)
"""

from __future__ import annotations

import ctypes
from typing import TypeVar

from pullback.ir.errors import InternalError
from pullback.runtime.collectives import KINDS, piece_length
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.engine import Collective
from pullback.runtime.library import get_num_threads, library, runtime_table
from pullback.runtime.ranks import Ranks
from pullback.tir.expr import nbytes

T = TypeVar("T")
_ITEM_BYTES = [nbytes(name) for name in NUMPY_DTYPES]  # by enum pb_dtype of rt.h
_START = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
_WAIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class _Table(ctypes.Structure):
    """``struct pb_runtime`` of rt.h."""

    _fields_ = [
        ("abi", ctypes.c_int64), ("parallel_for", ctypes.c_void_p), ("now_ns", ctypes.c_void_p),
        ("parallel_share", ctypes.c_void_p), ("grow", ctypes.c_void_p), ("shrink", ctypes.c_void_p),
        ("ranks", ctypes.c_void_p), ("start", _START), ("wait", _WAIT),
    ]  # fmt: skip


class Imagined(Ranks):
    """Rank 0 of so many, of which there is no other.

    >>> with using(Imagined(1024)): step()
    """

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size
        self._made = _Table.from_buffer_copy(_Table.from_address(runtime_table()))
        self._made.ranks = None
        if get_num_threads() == 1:
            self._made.now_ns = ctypes.cast(library.pb_thread_ns, ctypes.c_void_p)
        self._made.start, self._made.wait = _START(self._start), _WAIT(lambda table, ticket: None)

    @property
    def table(self) -> int:
        return ctypes.addressof(self._made)

    def check(self) -> None:
        pass

    def exchange(self, value: T) -> list[T]:
        return [value] * self.size

    def fail(self, message: str) -> None:
        raise InternalError(message)

    def _start(self, table: int, address: int) -> int:
        what = Collective.from_address(address)
        kind, item = KINDS[what.kind], _ITEM_BYTES[what.dtype]
        for k in range(what.count):
            if kind == "rank":
                ctypes.memset(what.received[k], 0, item)
                continue
            whole = what.elements[k] * item
            piece = piece_length(what.elements[k], self.size) * item
            source, target = what.given[k * max(1, what.shards)], what.received[k]
            if kind in ("piece", "reduce_pieces"):
                ctypes.memmove(target, source, piece)
            elif kind == "gather_pieces":
                for begin in range(0, whole, piece or 1):
                    ctypes.memmove(target + begin, source, min(piece, whole - begin))
            else:
                ctypes.memmove(target, source, whole)
        return 0
