"""Figures of a CPU, in physical units: what schedules and the code generator know of how fast it is.

The defaults are those of a nominal core: vectors as wide as they may be, two multiply-adds in a cycle of 3 GHz.
``codegen/cpus.py`` has the table of the CPUs whose figures are known, each with its source.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.tir.caches import FIRST, LINE

FEW_REGISTERS = 16  # for vectors, at the most: loads of a register tile take about as long as its multiply-adds


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of one core, and of what it shares. Bytes, and nanoseconds of one thread.

    The first two, and which of ``pair_dot_ns`` and ``vector_fma_ns`` is how much larger, *decide*: the kernels of a
    target depend on them, so they come from the table alone. The others count for estimates. Sizes of caches are asked
    of the operating system, on the machine that code is compiled for; of others the table has the data sheet's.

    Args:
        second_bytes: What schedules take the second cache of a core to hold.
        cached_bytes: Outputs of so many bytes are not found in a cache again that is faster than memory: half of the
            last cache, if few cores share it, as what they are computed from is there too.
        first_cache: Data in the first cache of a core.
        second_cache: Its second cache.
        last_cache: The last cache, which some cores share.
        tlb_reach: Memory whose pages the second TLB knows.
        vector_fma_ns: The reciprocal throughput of a multiply-add of whole vectors: 1 / (units · GHz).
        pair_dot_ns: Likewise, of the dot products of pairs of bfloat16.
        first_line_ns: A line from the first cache, read one after another,
        second_line_ns: from the second,
        last_line_ns: from the last,
        memory_line_ns: and from memory.
        spill_ns: A vector that is put into the first cache and taken up again, beside other work: a store and a load.
        handover_ns: A line that another core has written, and this one reads.
        fork_join_ns: Handing tasks to the threads of the pool, and waiting for the last one.
    """

    second_bytes: int = 512 << 10
    cached_bytes: int = 8 << 20
    first_cache: int = FIRST
    second_cache: int = 512 << 10
    last_cache: int = 16 << 20
    tlb_reach: int = 6 << 20
    vector_fma_ns: float = 1 / 6
    pair_dot_ns: float = 1 / 6
    first_line_ns: float = 1 / 3
    second_line_ns: float = 2 / 3
    last_line_ns: float = 1.5
    memory_line_ns: float = 4.0
    spill_ns: float = 1 / 3
    handover_ns: float = 16.0
    fork_join_ns: float = 2_000.0

    def line_ns(self, footprint: int) -> float:
        """Nanoseconds for a line of data of so many bytes, which lie in the nearest cache that holds all of them."""
        sizes = (self.first_cache, self.second_cache, self.last_cache)
        times = (self.first_line_ns, self.second_line_ns, self.last_line_ns)
        return next((t for size, t in zip(sizes, times, strict=True) if footprint <= size), self.memory_line_ns)

    def memory_ns(self, moved: int) -> float:
        """Nanoseconds that one core takes to read or write so many bytes, each once."""
        return moved / LINE * self.line_ns(moved)
