"""The C runtime, loaded with ctypes: threads, memory and clock.

Calls through ``library`` release Python's global lock. The library is compiled when the package is installed, and
loaded when something of it is first used.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.ir.environment import MOST_THREADS
from pullback.ir.errors import ArgumentError, InternalError, UserError

LIBRARY_NAME = "libpullback_rt" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
NATIVE_DIRECTORY = Path(__file__).parent / "native"  # the C sources too: exported code takes them from here
ABI = 5

# enum pb_status of rt.h
STATUS_OK, _STATUS_ARGUMENT, _STATUS_MEMORY, _STATUS_ENVIRONMENT, _STATUS_STATE, STATUS_STEP, STATUS_VALUE = range(7)
STATUS_RANKS = 10
_HOW_TO_BUILD = (
    "Build it with a C compiler on the PATH (cc, or $CC): `pip install -e .` in a checkout of pullback,"
    " or `pip install --force-reinstall pullback`."
)
_SIGNATURES = {
    "pb_last_error": (ctypes.c_char_p, []),
    "pb_alloc": (ctypes.c_void_p, [ctypes.c_size_t]),
    "pb_alloc_zeros": (ctypes.c_void_p, [ctypes.c_size_t]),
    "pb_alloc_all_zeros": (ctypes.c_int, [ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]),
    "pb_free": (None, [ctypes.c_void_p]),
    "pb_allocation_count": (ctypes.c_int64, []),
    "pb_allocated_bytes": (ctypes.c_int64, []),
    "pb_peak_bytes": (ctypes.c_int64, []),
    "pb_now_ns": (ctypes.c_int64, []),
    "pb_thread_ns": (ctypes.c_int64, []),
    "pb_get_num_threads": (ctypes.c_int, []),
    "pb_set_num_threads": (ctypes.c_int, [ctypes.c_int]),
    "pb_check_environment": (ctypes.c_int, []),
    "pb_shutdown": (ctypes.c_int, []),
    "pb_runtime_get": (ctypes.c_void_p, []),
    "pb_always_fits": (ctypes.c_int, [ctypes.c_int32, ctypes.c_int32]),
    "pb_copy_rows": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]),
    "pb_epoch_gather": (ctypes.c_int, [ctypes.c_void_p]),
    "pb_epoch_extend": (None, [ctypes.c_void_p, ctypes.c_int64]),
    "pb_epoch_done": (ctypes.c_int64, [ctypes.c_void_p]),
    "pb_epoch_wait": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]),
    "pb_epoch_run": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]),
    "pb_collectives_record": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]),
    "pb_collectives_waited": (ctypes.c_int64, [ctypes.c_void_p]),
    "pb_ranks_local": (ctypes.c_int, [ctypes.c_int32, ctypes.c_void_p]),
    "pb_ranks_over_mpi": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p]),
    "pb_ranks_table": (ctypes.c_void_p, [ctypes.c_void_p]),
    "pb_ranks_rank": (ctypes.c_int32, [ctypes.c_void_p]),
    "pb_ranks_size": (ctypes.c_int32, [ctypes.c_void_p]),
    "pb_ranks_set_timeout": (None, [ctypes.c_void_p, ctypes.c_int64]),
    "pb_ranks_wait": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]),
    "pb_ranks_fail": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "pb_ranks_leave": (None, [ctypes.c_void_p]),
    "pb_ranks_failure": (ctypes.c_char_p, [ctypes.c_void_p]),
    "pb_ranks_close": (None, [ctypes.c_void_p]),
    "pb_collective_start": (ctypes.c_int64, [ctypes.c_void_p, ctypes.c_void_p]),
}


def load(path: Path) -> ctypes.CDLL:
    """The library at ``path``, its signatures declared; if it is no good, an ImportError that says how to build it."""
    if sys.platform == "win32":
        raise ImportError("pullback's C runtime does not run on Windows yet: use Linux, macOS or WSL")
    if not path.exists():
        raise ImportError(f"pullback's C runtime is missing: {path} does not exist. {_HOW_TO_BUILD}")
    try:
        loaded = ctypes.CDLL(str(path))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(f"pullback's C runtime cannot be used: {error}. {_HOW_TO_BUILD}") from error
    abi = ctypes.c_int64.from_address(loaded.pb_runtime_get()).value
    if abi != ABI:
        raise ImportError(f"pullback's C runtime at {path} has ABI {abi}, expected {ABI}: it is stale. {_HOW_TO_BUILD}")
    return loaded


def check(status: int) -> None:
    """Raises what a ``pb_status`` other than ``PB_OK`` stands for, with the runtime's own message."""
    if status == STATUS_OK:
        return
    message = library.pb_last_error().decode(errors="replace")
    if status == _STATUS_ARGUMENT:
        raise ArgumentError(message)
    if status == _STATUS_MEMORY:
        raise MemoryError(message)
    if status in (_STATUS_ENVIRONMENT, _STATUS_STATE):
        raise UserError(message)
    raise InternalError(f"unknown status {status} from the C runtime: {message}")


class _OnFirstUse:
    """The library's functions as attributes. So the package can be imported where there is none."""

    def __getattr__(self, name: str) -> Any:
        if name not in _SIGNATURES:
            raise AttributeError(f"the C runtime has no function {name!r}")
        loaded = load(NATIVE_DIRECTORY / LIBRARY_NAME)
        self.__dict__.update({known: getattr(loaded, known) for known in _SIGNATURES})
        return self.__dict__[name]


library = _OnFirstUse()


def allocate(nbytes: int) -> int:
    """The address of a new block of ``nbytes`` bytes, aligned to 64, which ``library.pb_free`` gives back."""
    address = library.pb_alloc(nbytes) if nbytes < 2**63 else None  # ctypes would cut a larger number to 64 bits
    if address is None:
        raise MemoryError(f"out of memory: could not allocate {nbytes} bytes")
    return address


def allocate_zeros(sizes: Sequence[int]) -> list[int]:
    """The addresses of new blocks of so many bytes, filled with zeros; other threads run while the system finds them
    memory."""
    count = len(sizes)
    blocks = (ctypes.c_void_p * count)()
    fits = all(nbytes < 2**63 for nbytes in sizes)
    if not fits or library.pb_alloc_all_zeros(count, (ctypes.c_size_t * count)(*sizes), blocks) != STATUS_OK:
        raise MemoryError(f"out of memory: could not allocate {sum(sizes)} bytes")
    return [block or 0 for block in blocks]


def runtime_table() -> int:
    """The address of the ``pb_runtime`` table that compiled code calls the runtime through."""
    check(library.pb_check_environment())
    return library.pb_runtime_get()


def get_num_threads() -> int:
    """How many threads compiled code uses: ``PULLBACK_NUM_THREADS``, or else the CPUs this process may run on."""
    return library.pb_get_num_threads()


def set_num_threads(threads: int) -> None:
    """Changes how many threads compiled code uses; its results do not depend on it."""
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise ArgumentError(f"the number of threads must be an int, got {threads!r}", hint="such as 4")
    if not 1 <= threads <= MOST_THREADS:
        hint = "more threads than cores make nothing faster: os.cpu_count() says how many there are"
        raise ArgumentError(f"the number of threads must be from 1 to {MOST_THREADS}, got {threads}", hint=hint)
    check(library.pb_set_num_threads(threads))


def allocation_count() -> int:
    """How many blocks the runtime has allocated since the start."""
    return library.pb_allocation_count()


def allocated_bytes() -> int:
    """How many bytes the runtime's live blocks hold."""
    return library.pb_allocated_bytes()


def peak_bytes() -> int:
    """The most bytes the runtime's live blocks have held at one time."""
    return library.pb_peak_bytes()
