"""Memory that tensors own or borrow, and leases, which tell whether anybody else sees it.

Every view that leaves a tensor is a NumPy array that holds a lease. A view of a view, a memoryview, a DLPack export or
a torch tensor over it each keep the first array alive, and so the lease; and a lease keeps the memory alive. So "does
anybody else see these bytes?" is the question "does the lease live?", and there is no count to get wrong.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from pullback.ir.forks import renewed
from pullback.runtime.library import allocate, allocate_zeros, library


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

    __slots__ = ("_lease", "nbytes", "writable")
    _lease_lock = threading.Lock()

    def __init__(self, nbytes: int, writable: bool) -> None:
        self.nbytes, self.writable = nbytes, writable
        self._lease: weakref.ref[_Lease] | None = None

    @property
    def address(self) -> int:
        """Where the bytes begin."""
        raise NotImplementedError

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


class OwnedMemory(Memory):
    """A block of the C runtime, aligned to 64 bytes, given back with this object: a new one, or that at ``address``."""

    __slots__ = ("address",)
    address: int

    def __init__(self, nbytes: int, address: int | None = None) -> None:
        super().__init__(nbytes, writable=True)
        self.address = allocate(nbytes) if address is None else address

    def __del__(self, runtime: Any = library) -> None:
        address = getattr(self, "address", 0)  # none where there was no memory, or no stack to begin __init__ on
        if address:
            runtime.pb_free(address)


class ZeroMemory(Memory):
    """Zeros, in a block that is allocated when somebody first asks where it is."""

    __slots__ = ("_block",)
    _lock = threading.Lock()

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes, writable=True)
        self._block: OwnedMemory | None = None

    @property
    def address(self) -> int:
        """Where the bytes begin; from then on they may be other than zeros."""
        if self._block is None:
            self.allocate([self])
            assert self._block is not None
        return self._block.address

    @classmethod
    def allocate(cls, memories: Iterable[ZeroMemory]) -> None:
        """Have blocks for all of them, at once."""
        with cls._lock:
            missing = [memory for memory in dict.fromkeys(memories) if memory._block is None]
            sizes = [memory.nbytes for memory in missing]
            for memory, address in zip(missing, allocate_zeros(sizes), strict=True):
                memory._block = OwnedMemory(memory.nbytes, address)

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has seen the bytes yet, so that they are zeros."""
        return self._block is None


renewed(Memory, "_lease_lock")
renewed(ZeroMemory, "_lock")


class BorrowedMemory(Memory):
    """The bytes of a NumPy array. Its lender may still look at them or write to them, so they are pinned for good."""

    __slots__ = ("address", "owner")
    address: int

    def __init__(self, owner: np.ndarray) -> None:
        super().__init__(owner.nbytes, writable=owner.flags.writeable)
        self.address = owner.__array_interface__["data"][0]
        self.owner = owner

    def is_pinned(self) -> bool:
        """Always: the lender sees the memory."""
        return True
