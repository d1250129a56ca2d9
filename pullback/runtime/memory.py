"""Memory that tensors own or borrow, and leases, which tell whether anybody else sees it.

Every view that leaves a tensor is a NumPy array that holds a lease. A view of a view, a memoryview, a DLPack export or
a torch tensor over it each keep the first array alive, and so the lease; and a lease keeps the memory alive. So "does
anybody else see these bytes?" is the question "does the lease live?", and there is no count to get wrong.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

import numpy as np

from pullback.runtime.library import allocate, library


class _Lease:
    """The base of every array over one memory."""

    __slots__ = ("__array_interface__", "__weakref__", "memory")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "data": (memory.address, not memory.writable),
        }


class Memory:
    """``nbytes`` bytes at ``address``, valid as long as this object lives."""

    __slots__ = ("_lease", "address", "nbytes", "writable")
    _lease_lock = threading.Lock()

    def __init__(self, address: int, nbytes: int, writable: bool) -> None:
        self.address, self.nbytes, self.writable = address, nbytes, writable
        self._lease: weakref.ref[_Lease] | None = None

    def is_pinned(self) -> bool:
        """Whether anybody but the tensor that holds this memory may see it."""
        return self._lease is not None and self._lease() is not None

    def view(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A C-contiguous array over the memory, which is pinned while the array or anything made from it lives."""
        with self._lease_lock:
            lease = self._lease() if self._lease is not None else None
            if lease is None:
                lease = _Lease(self)
                self._lease = weakref.ref(lease)
        return np.ndarray(shape, dtype, buffer=np.asarray(lease))

    @classmethod
    def _renew_lock(cls) -> None:
        """In a fork's child, which has not the thread that may have held it."""
        cls._lease_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Memory._renew_lock)


class OwnedMemory(Memory):
    """A block of the C runtime, aligned to 64 bytes, given back with this object."""

    __slots__ = ()

    def __init__(self, nbytes: int, address: int | None = None) -> None:
        """Allocates a block, or takes over the one at ``address``, which ``pb_alloc`` made."""
        super().__init__(0, nbytes, writable=True)  # address 0 is for __del__, should the next line raise
        self.address = allocate(nbytes) if address is None else address

    def __del__(self, free: Callable[[int], None] = library.pb_free) -> None:
        free(self.address)


class BorrowedMemory(Memory):
    """The bytes of a NumPy array. Its lender may still look at them or write to them, so they are pinned for good."""

    __slots__ = ("owner",)

    def __init__(self, owner: np.ndarray) -> None:
        super().__init__(owner.__array_interface__["data"][0], owner.nbytes, writable=owner.flags.writeable)
        self.owner = owner

    def is_pinned(self) -> bool:
        """Always: the lender sees the memory."""
        return True
