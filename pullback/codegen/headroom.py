"""How much memory this process may still take: LLVM ends its process where it gets none.

A limit on address space or data (``ulimit -v``, ``ulimit -d``, a batch system's) makes an allocation fail, and so does
a system that promises no more memory than there is. Elsewhere allocations succeed, and the system ends processes when
memory does.
"""

from __future__ import annotations

import contextlib
import os

from pullback.ir.errors import CompileError

LEAST = 48 << 20  # what LLVM takes for a small text, its tables for all targets among it, with something to spare
LITTLE = 16 << 20  # what its tables for one target take, or the linker besides the code
OF_A_CHARACTER = 100  # bytes of memory for each of a text, at the most: 20 were measured
MANY = 5  # so much more than that is left where another thread may take some, too
HINT = "raise the limit on this process's memory (`ulimit -v`, or the batch system's), or use fewer threads"


def memory_left() -> int | None:
    """Bytes that may still be allocated; None where no limit is known."""
    limits = _limits()
    if not limits:
        return None
    return max(0, min(limit - _used(name) for name, limit in limits))


def needed(characters: int) -> int:
    """Bytes of memory that LLVM takes at the most for a text."""
    return LEAST + OF_A_CHARACTER * characters


def require(nbytes: int, what: str) -> None:
    """Raise a CompileError where so much memory is not left."""
    left = memory_left()
    if left is not None and left < nbytes:
        raise CompileError(f"there is not enough memory to {what}: {left >> 20} MiB are left", hint=HINT)


def _limits() -> list[tuple[str, int]]:
    """The limits that there are, by the name of what they limit."""
    if not os.path.exists("/proc/self/status"):
        return []
    try:
        import resource
    except ImportError:  # not on Windows
        return []
    found = []
    for name, kind in (("VmSize", resource.RLIMIT_AS), ("VmData", resource.RLIMIT_DATA)):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            found.append((name, soft))
    if _is_strict():
        found.append(("Committed_AS", _kilobytes("/proc/meminfo", "CommitLimit")))
    return found


def _is_strict() -> bool:
    """Whether the system promises no more memory than there is."""
    with contextlib.suppress(OSError), open("/proc/sys/vm/overcommit_memory", "rb") as file:
        return file.read().strip() == b"2"
    return False


def _used(name: str) -> int:
    return _kilobytes("/proc/self/status" if name.startswith("Vm") else "/proc/meminfo", name)


def _kilobytes(path: str, name: str) -> int:
    """The number in such a line of a file, in bytes."""
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(name.encode() + b":"):
                return int(line.split()[1]) << 10
    return 0
