"""The CPUs of ranks: where several of them run on one machine, each gets a share of its own.

Launchers differ: Open MPI binds each rank to one core, MPICH none at all, so that each would start a thread on every
CPU. :func:`share_cpus` looks at where the ranks may run, and divides what several of them have in common.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pullback.ir.environment import variable
from pullback.runtime.library import get_num_threads, set_num_threads

if TYPE_CHECKING:
    from pullback.runtime.ranks import Ranks

_TOPOLOGY = Path("/sys/devices/system/cpu")


def share_cpus(ranks: Ranks) -> tuple[int, ...]:
    """Bind the calling process to its share of the CPUs that it has in common with other ranks; returns those.

    Afterwards there is a thread for each CPU of the share. All shares of a machine have equally many CPUs, so no rank
    waits for a slower one. With more ranks than CPUs nothing is bound, and each has one thread. Where
    PULLBACK_NUM_THREADS is set, all stays as it is, and so it does where a launcher has bound ranks already.
    Collective.
    """
    cpus = _allowed()
    if ranks.size == 1:
        return cpus
    found = ranks.exchange((socket.gethostname(), cpus, bool(variable("PULLBACK_NUM_THREADS"))))
    mine = found[ranks.rank]
    if not cpus or mine[2]:
        return cpus
    together = [r for r, other in enumerate(found) if other[:2] == mine[:2]]
    if len(together) == 1:
        return cpus
    own = share(cpus, together.index(ranks.rank), len(together))
    if own:
        _bind(own)
    set_num_threads(min(max(1, len(own)), get_num_threads()))
    return own or cpus


def share(cpus: Collection[int], number: int, count: int) -> tuple[int, ...]:
    """Share ``number`` of ``count`` equal ones of some CPUs: neighbours, and whole cores where there are enough; none
    where there are fewer CPUs than shares.

    >>> share(range(8), 1, 2)  # on a machine without hardware threads
    (4, 5, 6, 7)
    """
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(cpus):
        cores.setdefault(_core(cpu), []).append(cpu)
    units = [threads for _, threads in sorted(cores.items())]
    if len(units) < count:
        units = [[cpu] for threads in units for cpu in threads]
    each = len(units) // count
    return tuple(sorted(cpu for unit in units[number * each : (number + 1) * each] for cpu in unit))


def _allowed() -> tuple[int, ...]:
    """The CPUs that this process may run on; none where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0)))


def _core(cpu: int) -> tuple[int, int]:
    """The socket and the core of a CPU; a core of its own where the system does not tell."""
    folder = _TOPOLOGY / f"cpu{cpu}" / "topology"
    try:
        return int((folder / "physical_package_id").read_text()), int((folder / "core_id").read_text())
    except (OSError, ValueError):
        return -1, cpu


def _bind(cpus: Collection[int]) -> None:
    """Have all threads of the process run on these CPUs only."""
    os.sched_setaffinity(0, cpus)
    with contextlib.suppress(OSError):  # without /proc, threads that there are already stay where they are
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.sched_setaffinity(int(thread), cpus)
