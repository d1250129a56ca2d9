"""What a schedule chose for a kernel, in the field's words, and how fast that should be.

    kernel.attrs["schedule"]    Description("contraction", …)

    contraction: 64 x 128 x k 784; vectors along j; register tile 8 x 32; a in place, b packed in panels; split-K 8;
    k-block 98; 16 tasks; estimate 95.1 GFLOP/s on one core

A kernel keeps it as an attribute, so passes that copy attributes keep it. Like a span it tells where a kernel comes
from and nothing of what that computes: it is no part of the structure, of a digest or of the text, so it changes no key
of a cache. Who has a kernel from a cache asks the schedule again (``driver/profile.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SCHEDULE = "schedule"  # the attribute of a kernel
GFLOPS, GIGABYTES = "GFLOP/s", "GB/s"


@dataclass(frozen=True)
class Nest:
    """One loop nest of a kernel.

    Args:
        axes: Loop axes of the result and their extents, outermost in memory first.
        nanoseconds: Estimated time on one core.
        terms: Axes of the sum and their extents; none where nothing is reduced.
        loops: How the nest goes through memory, where a schedule has several ways.
        vector_axis: The axis along which the lanes of a vector lie; none in scalar code.
        tile: Rows and columns of the register tile: accumulators that stay in registers.
        packing: For each factor, by the name of its tensor, how the register tile reads it.
        split_k: Partial sums that each result is the sum of.
        k_block: Terms that are added before the accumulators are spilled; all of them where there is no number.
        tasks: Iterations of the parallel loop; 1 where the nest is too short to be divided among threads.
    """

    axes: tuple[tuple[str, int], ...]
    nanoseconds: float
    terms: tuple[tuple[str, int], ...] = ()
    loops: str = ""
    vector_axis: str | None = None
    tile: tuple[int, int] | None = None
    packing: tuple[tuple[str, str], ...] = ()
    split_k: int = 1
    k_block: int | None = None
    tasks: int = 1

    @property
    def size(self) -> str:
        """``64 x 128 x k 784``: extents of the result, then those of the sum after their names."""
        kept = " x ".join(str(n) for _, n in self.axes) or "one result"
        return " x ".join([kept, *(f"{name} {n}" for name, n in self.terms)])

    @property
    def choices(self) -> tuple[tuple[str, str], ...]:
        """What was chosen, as (name, value), without what is as in plain loops."""
        found = [
            ("loops", self.loops),
            ("vectors along", self.vector_axis or ""),
            ("register tile", "" if self.tile is None else "{} x {}".format(*self.tile)),
            ("packing", ", ".join(f"{name} {how}" for name, how in self.packing)),
            ("split-K", str(self.split_k) if self.split_k > 1 else ""),
            ("k-block", "" if self.k_block is None else str(self.k_block)),
            ("tasks", str(self.tasks)),
        ]
        return tuple((name, value) for name, value in found if value)

    @property
    def line(self) -> str:
        words = {"loops": "{}", "packing": "{}", "tasks": "{} task" if self.tasks == 1 else "{} tasks"}
        return "; ".join([self.size, *(words.get(n, n + " {}").format(value) for n, value in self.choices)])

    def nanoseconds_of(self, threads: int) -> float:
        """The estimate for so many threads, of which each takes one task after another."""
        return self.nanoseconds * math.ceil(self.tasks / threads) / self.tasks if threads > 1 else self.nanoseconds


@dataclass(frozen=True)
class Description:
    """The schedule of a kernel, its loop nests, and their estimated rate.

    Args:
        schedule: Its name.
        nests: The loop nests that take time, one after another.
        amount: FLOPs of its multiply-adds, or bytes that it must at least read and write.
        unit: ``"GFLOP/s"`` or ``"GB/s"``, of the rate.

    Example:
        >>> lower(group, "kernel").attrs["schedule"].line
        'elementwise: 4096; vectors along i0; 1 task; estimate 26.3 GB/s on one core'
    """

    schedule: str
    nests: tuple[Nest, ...]
    amount: int
    unit: str

    @property
    def nanoseconds(self) -> float:
        """Estimated time of a call on one core."""
        return sum(nest.nanoseconds for nest in self.nests)

    @property
    def rate(self) -> float:
        """The estimated rate of one core, in :attr:`unit`."""
        return self.amount / self.nanoseconds if self.nanoseconds else 0.0

    @property
    def estimate(self) -> str:
        return f"estimate {self.rate:.1f} {self.unit} on one core"

    @property
    def choices(self) -> str:
        """All but the estimate, in one line."""
        return f"{self.schedule}: {' | '.join(nest.line for nest in self.nests)}"

    @property
    def line(self) -> str:
        return f"{self.choices}; {self.estimate}"

    def __str__(self) -> str:
        """A few lines: a heading, then what was chosen for each nest."""
        lines = [f"{self.schedule}, {self.estimate}"]
        for nest in self.nests:
            lines += [f"  {nest.size}", *(f"    {name:<15}{value}" for name, value in nest.choices)]
        return "\n".join(lines)

    def nanoseconds_of(self, threads: int, fork_join: float) -> float:
        """The estimated time of a call with so many threads. ``fork_join``: nanoseconds that handing tasks to them and
        waiting for the last one takes, for each nest."""
        is_shared = [threads > 1 and nest.tasks > 1 for nest in self.nests]
        return sum(nest.nanoseconds_of(threads) for nest in self.nests) + fork_join * sum(is_shared)


def description_of(function: Any) -> Description | None:
    """What a schedule said of a kernel; None for kernels that people wrote, and for those that were parsed."""
    found = function.attrs.get(SCHEDULE)
    return found if isinstance(found, Description) else None


def without_description(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that are part of a kernel's structure and text."""
    return {k: v for k, v in attrs.items() if not isinstance(v, Description)}
