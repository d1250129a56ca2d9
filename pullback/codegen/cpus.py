"""The table of CPUs: their figures, by LLVM's name. Nothing else of the package asks what a CPU is called.

A figure without a word on its source is the vendor's: sizes of caches and of the TLB from data sheets, rates from the
optimization manual's units and cycles, at the clock that all cores keep. *Measured* ones are of loops in C
(``benchmarks/peak.c``), of one thread, with their date or the CPU's name.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace

from pullback.codegen.caches import Caches, host_caches
from pullback.tir.figures import Figures

_OF_SERVERS_ONLY = "+amx-tile"  # tells Golden Cove where a virtual machine hides the model, and LLVM takes another name

# Two units of 256 bits. 98 GFLOP/s measured, in tiles of 6 by 2; 46 GB/s past the caches, 106 through the last one
# (two threads). 2,048 pages.
_ZEN_3 = Figures(
    cached_bytes=16 << 20, first_cache=32 << 10, second_cache=512 << 10, last_cache=32 << 20, tlb_reach=8 << 20,
    vector_fma_ns=0.163, pair_dot_ns=0.163, first_line_ns=0.31, second_line_ns=0.62, last_line_ns=1.2,
    memory_line_ns=2.8, spill_ns=0.3,
)  # fmt: skip
# The same units, of which both take a vector of 512 bits together. Measured (November 2026): 118 GFLOP/s, and 117 GB/s
# from the second cache, 71 from the last one, 21 from memory; a dot of pairs takes the time of one multiply-add.
# 3,072 pages.
_ZEN_4 = Figures(
    second_bytes=1 << 20, cached_bytes=16 << 20, first_cache=32 << 10, second_cache=1 << 20, last_cache=32 << 20,
    tlb_reach=12 << 20, vector_fma_ns=0.271, pair_dot_ns=0.271, first_line_ns=0.27, second_line_ns=0.547,
    last_line_ns=0.90, memory_line_ns=3.05, spill_ns=0.54,
)  # fmt: skip
# Two units of 512 bits at 4.1 GHz; lines as on Zen 4. 4,096 pages.
_ZEN_5 = replace(
    _ZEN_4, first_cache=48 << 10, tlb_reach=16 << 20, vector_fma_ns=0.122, pair_dot_ns=0.122, first_line_ns=0.122,
    spill_ns=0.24,
)  # fmt: skip
# Two units of 512 bits. Measured on emeraldrapids: 184 GFLOP/s; 14 GB/s from the last cache, which many cores share, as
# from memory, so that the second one counts the more; dots of pairs take two cycles, in which there are four
# multiply-adds; 8 to 16 ns for a line of another thread. The others have the same cores, or their successors. An
# output larger than two second caches is not found again (a step of char-GPT on graniterapids would take 1.05 of the
# time with that, one of ResNet-20 1.04). 2,048 pages.
_GOLDEN_COVE = Figures(
    second_bytes=2 << 20, first_cache=48 << 10, second_cache=2 << 20, last_cache=60 << 20, tlb_reach=8 << 20,
    vector_fma_ns=0.174, pair_dot_ns=0.70, first_line_ns=0.17, second_line_ns=0.46, last_line_ns=4.6,
    memory_line_ns=4.6, spill_ns=0.35, handover_ns=8.0,
)  # fmt: skip
_SMALL_SERVER = replace(_GOLDEN_COVE, cached_bytes=4 << 20)
# Two units of 512 bits at 2.7 GHz. 1,536 pages.
_SKYLAKE = Figures(
    first_cache=32 << 10, second_cache=1 << 20, last_cache=24 << 20, tlb_reach=6 << 20, vector_fma_ns=0.185,
    pair_dot_ns=0.185, first_line_ns=0.19, second_line_ns=0.6, last_line_ns=3.0, memory_line_ns=5.0, spill_ns=0.37,
)  # fmt: skip
_ICE_LAKE = replace(_SKYLAKE, first_cache=48 << 10, second_cache=1280 << 10, tlb_reach=8 << 20)
# Two units of 256 bits at 3.2 GHz. 1,024 pages; 1,536 of Broadwell and Skylake.
_HASWELL = Figures(
    first_cache=32 << 10, second_cache=256 << 10, last_cache=8 << 20, tlb_reach=4 << 20, vector_fma_ns=0.156,
    pair_dot_ns=0.156, first_line_ns=0.31, second_line_ns=0.9, last_line_ns=2.2, memory_line_ns=5.0, spill_ns=0.31,
)  # fmt: skip
_CLIENT_SKYLAKE = replace(_HASWELL, tlb_reach=6 << 20)
# Vectors of 128 bits: two units at 2.5 GHz (N1), four of 3.0 (V2) and of 3.2 (M1: pages of 16 KiB).
_NEOVERSE_N1 = Figures(
    first_cache=64 << 10, second_cache=1 << 20, last_cache=32 << 20, tlb_reach=5 << 20, vector_fma_ns=0.2,
    pair_dot_ns=0.2, first_line_ns=0.8, second_line_ns=1.3, last_line_ns=3.0, memory_line_ns=4.0, spill_ns=0.4,
)  # fmt: skip
_NEOVERSE_V = replace(
    _NEOVERSE_N1, second_cache=2 << 20, tlb_reach=8 << 20, vector_fma_ns=0.083, pair_dot_ns=0.083, first_line_ns=0.44
)
_APPLE_M1 = Figures(
    first_cache=128 << 10, second_cache=12 << 20, last_cache=12 << 20, tlb_reach=48 << 20, vector_fma_ns=0.078,
    pair_dot_ns=0.078, first_line_ns=0.42, second_line_ns=0.9, last_line_ns=0.9, memory_line_ns=1.1, spill_ns=0.31,
)  # fmt: skip

CPUS = {
    "znver3": _ZEN_3,
    "znver4": _ZEN_4,
    "znver5": _ZEN_5,
    "sapphirerapids": _SMALL_SERVER,
    "emeraldrapids": _SMALL_SERVER,
    "graniterapids": _GOLDEN_COVE,
    "graniterapids-d": _GOLDEN_COVE,
    "skylake-avx512": _SKYLAKE,
    "cascadelake": _SKYLAKE,
    "icelake-server": _ICE_LAKE,
    "haswell": _HASWELL,
    "broadwell": _CLIENT_SKYLAKE,
    "skylake": _CLIENT_SKYLAKE,
    "neoverse-n1": _NEOVERSE_N1,
    "neoverse-v1": _NEOVERSE_V,
    "neoverse-v2": _NEOVERSE_V,
    "apple-m1": _APPLE_M1,
}


def figures_of(cpu: str, features: tuple[str, ...] = (), caches: Callable[[], Caches] | None = None) -> Figures:
    """The figures of a CPU, by LLVM's name for it; of one that is not in the table, those of a nominal core.

    Args:
        cpu: LLVM's name, as after ``-mcpu=``.
        features: LLVM's names for what it can do, as ``+name``.
        caches: Asks the operating system for the sizes of caches; None for code of another machine.
    """
    found = CPUS.get(cpu)
    if _OF_SERVERS_ONLY in features and found not in (_GOLDEN_COVE, _SMALL_SERVER):
        cached = Figures.cached_bytes if found is None else found.cached_bytes
        found = replace(_GOLDEN_COVE, cached_bytes=cached)
    found = found or Figures()
    return found if caches is None else caches().instead_of(found)


@functools.cache
def this_machines_caches() -> Caches:
    """What the operating system says of this machine, asked once."""
    return host_caches(sys.platform)
