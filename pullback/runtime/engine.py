"""The native engine of collectives (``native/ranks.c``), seen from one rank."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np

from pullback.ir.environment import variable
from pullback.ir.errors import InternalError
from pullback.runtime import collectives
from pullback.runtime.dtype import NUMPY_DTYPES, dtype_name
from pullback.runtime.library import check, library

_CODES = {name: code for code, name in enumerate(NUMPY_DTYPES)}  # enum pb_dtype of rt.h
_SLICE = 100_000_000  # nanoseconds of waiting, after which Python looks for signals


class Collective(ctypes.Structure):
    """``pb_collective`` of rt.h."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("reduction", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("root", ctypes.c_int32),
        ("shards", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("ranks", ctypes.c_int32),
        ("elements", ctypes.POINTER(ctypes.c_int64)),
        ("given", ctypes.POINTER(ctypes.c_void_p)),
        ("received", ctypes.POINTER(ctypes.c_void_p)),
    )


class Engine:
    """A rank's engine. One thread at a time calls it; :meth:`fail` and :attr:`failure` are for all.

    ``table`` is the address of the ``pb_runtime`` by which compiled code reaches the ranks.
    """

    def __init__(self, handle: int) -> None:
        self._handle: int | None = handle
        self.rank: int = library.pb_ranks_rank(handle)
        self.size: int = library.pb_ranks_size(handle)
        self.table: int = library.pb_ranks_table(handle)
        library.pb_ranks_set_timeout(handle, int(variable("PULLBACK_RANKS_TIMEOUT", "600")) * 10**9)

    @property
    def waited(self) -> float:
        """Seconds that this rank has spent in collectives, starting them and waiting for them."""
        return library.pb_collectives_waited(self.table) / 1e9

    @classmethod
    def local(cls, size: int) -> list[Engine]:
        """Those of ranks that are threads of this process."""
        handles = (ctypes.c_void_p * size)()
        check(library.pb_ranks_local(size, handles))
        return [cls(handle) for handle in handles if handle is not None]

    @classmethod
    def over_mpi(cls, functions: ctypes.Structure) -> Engine:
        """That of this process, by a ``pb_mpi``, which is copied."""
        handle = ctypes.c_void_p()
        check(library.pb_ranks_over_mpi(ctypes.byref(functions), ctypes.byref(handle)))
        assert handle.value is not None
        return cls(handle.value)

    def collective(
        self, kind: str, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], *,
        reduction: str = "sum", root: int = 0, shards: int = 1, ranks: int = 0,
    ) -> list[np.ndarray]:  # fmt: skip
        """As :func:`collectives.collective`, of equal dtypes; undefined values where the ranks fail. Collective."""
        collectives.check_ranks(kind, self.size, ranks)
        if kind == "rank":
            given, shapes, dtype = [], ((),), np.dtype(np.int64)
        else:
            given = [np.ascontiguousarray(a) for a in arrays]
            dtype = given[0].dtype
        if any(a.dtype != dtype for a in given):
            raise InternalError(f"a collective of several dtypes: {[a.dtype for a in given]}")
        whole = [math.prod(shape) for shape in shapes]
        if kind in ("piece", "reduce_pieces"):
            received = [np.empty(collectives.piece_length(n, self.size), dtype) for n in whole]
        else:
            received = [np.empty(shape, dtype) for shape in shapes]
        count = len(received)
        call = Collective(
            collectives.KINDS.index(kind), collectives.REDUCTIONS.index(reduction), _CODES[dtype_name(dtype)], root,
            shards, count, ranks, (ctypes.c_int64 * count)(*whole),
            (ctypes.c_void_p * len(given))(*(a.ctypes.data for a in given)),
            (ctypes.c_void_p * count)(*(a.ctypes.data for a in received)),
        )  # fmt: skip
        self.wait(library.pb_collective_start(self.table, ctypes.byref(call)))
        return received

    def wait(self, ticket: int) -> None:
        """Until a collective is done or the ranks failed; signals are answered meanwhile."""
        try:
            while not library.pb_ranks_wait(self._handle, ticket, _SLICE):
                pass
        except BaseException as error:  # the engine must not write to the arrays any more
            self.fail(f"{type(error).__name__}: it was interrupted")
            raise

    @property
    def failure(self) -> str | None:
        """Why the ranks failed, if they have."""
        text = library.pb_ranks_failure(self._handle) if self._handle is not None else b"the ranks have been closed"
        return None if text is None else text.decode(errors="replace")

    def fail(self, message: str) -> None:
        """Say to all ranks that this one failed."""
        if self._handle is not None:
            library.pb_ranks_fail(self._handle, message.encode())

    def leave(self) -> None:
        """Say to all ranks that this one ends, which those do that wait for it."""
        if self._handle is not None:
            library.pb_ranks_leave(self._handle)

    def close(self) -> None:
        """End it; nobody calls code with its table any more."""
        handle, self._handle = self._handle, None
        if handle is not None:
            library.pb_ranks_close(handle)
