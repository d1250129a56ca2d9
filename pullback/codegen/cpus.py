"""The table of CPUs: their figures, by LLVM's name. Nothing else of the package asks what a CPU is called.

The comment on each entry names where its figures come from. Those of AMD's cores and of Golden Cove are the vendor's
(sizes of caches and of the TLB from data sheets, rates from the optimization manual's units and cycles) or *measured*,
by loops in C (``benchmarks/peak.c``), of one thread, with their date or the CPU's name. Those of the others are from
publications: rates are units and bytes a cycle at the clock that all cores keep, spills follow from the ports for loads
and stores, lines from the last cache and from memory are what somebody measured of one core on the part named.
*Estimated* figures have no source; what an entry leaves out is the nominal core's.
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
# Sizes: AnandTech's table of 2017, the last cache that of Gold 6148 and 6248 (20 cores). 1,536 pages. Two units of 512
# bits at the 2.7 GHz that Google Cloud lists for all cores; two loads of 512 bits a cycle. Kerncraft's file of a 6248
# at 2.5 GHz has for one core 111 GB/s from the second cache (44 bytes a cycle), 23.9 from the last, 13.0 from memory.
# The clock of Cascade Lake is estimated, to be the same: Google Cloud lists 3.4 GHz, of which vectors of 512 bits cost
# up to 0.9 (ComputerBase).
_SKYLAKE = Figures(
    first_cache=32 << 10, second_cache=1 << 20, last_cache=27 << 20 | 1 << 19, tlb_reach=6 << 20, vector_fma_ns=0.185,
    pair_dot_ns=0.185, first_line_ns=0.185, second_line_ns=0.53, last_line_ns=2.7, memory_line_ns=4.9, spill_ns=0.37,
)  # fmt: skip
# Sizes: Intel's list of caches and Kerncraft's file of an 8360Y (36 cores), which has 111 GB/s from the second cache
# (46 bytes a cycle at 2.4 GHz) and 24.8 from the last; streams from memory as on the 6248. 2,048 pages: CPUID of a
# client with this core. Its clock with vectors of 512 bits is estimated, to be Skylake's; Google Cloud lists 3.4 GHz.
_ICE_LAKE = replace(
    _SKYLAKE, first_cache=48 << 10, second_cache=1280 << 10, last_cache=54 << 20, tlb_reach=8 << 20,
    second_line_ns=0.51, last_line_ns=2.6,
)  # fmt: skip
# Of servers: two units of 256 bits at 2.8 GHz, which Google Cloud lists for all cores of E5 v3 and v4; two loads of 256
# bits a cycle (Real World Technologies). Sizes: Kerncraft's file of an E5-2695 v3 (14 cores), which has for one core at
# 2.3 GHz 57.9 GB/s from the second cache (25 bytes a cycle), 23.1 from the last, and, with two threads, 11.2 from
# memory. 1,024 pages: Microway's article on E5 v4.
_HASWELL = Figures(
    first_cache=32 << 10, second_cache=256 << 10, last_cache=35 << 20, tlb_reach=4 << 20, vector_fma_ns=0.179,
    pair_dot_ns=0.179, first_line_ns=0.36, second_line_ns=0.91, last_line_ns=2.8, memory_line_ns=5.7, spill_ns=0.36,
)  # fmt: skip
# 1,536 pages: the same article. 2.5 MiB of the last cache a core (Intel's list of caches): as much as Haswell's with 14
# cores. Lines are estimated, to take as long as there.
_BROADWELL = replace(_HASWELL, tlb_reach=6 << 20)
# i7-6700: 3.7 GHz on four cores (Notebookcheck); 1,536 pages (AnandTech, 2017). Intel's manual: sizes, two loads of 256
# bits a cycle, about 29 bytes from the second cache and 18 from the last. 25.4 GB/s from memory: one thread of an
# i7-6700K, measured by rigaya.
_CLIENT_SKYLAKE = Figures(
    first_cache=32 << 10, second_cache=256 << 10, last_cache=8 << 20, tlb_reach=6 << 20, vector_fma_ns=0.135,
    pair_dot_ns=0.135, first_line_ns=0.27, second_line_ns=0.60, last_line_ns=0.96, memory_line_ns=2.5, spill_ns=0.27,
)  # fmt: skip
# Graviton2, 2.5 GHz (WikiChip). Arm's white paper: two units of 128 bits, 32 bytes a cycle from the first cache. Arm's
# slides on V1: 1,280 pages. From the second cache 19.3 bytes a cycle on Altra (Chips and Cheese); 35.9 GB/s from the
# last one and 20.9 from memory, of one core (Arm's learning path on the memory subsystem, which has the sizes too).
_NEOVERSE_N1 = Figures(
    first_cache=64 << 10, second_cache=1 << 20, last_cache=32 << 20, tlb_reach=5 << 20, vector_fma_ns=0.2,
    pair_dot_ns=0.2, first_line_ns=0.8, second_line_ns=1.33, last_line_ns=1.8, memory_line_ns=3.1, spill_ns=0.4,
)  # fmt: skip
# Graviton4, 2.8 GHz (AWS's guide to Graviton). Arm's manual and talk at Hot Chips 2023: four units and three loads of
# 128 bits, 2,048 pages. Sizes, and 95.1, 78.0 and 37.0 GB/s past the first cache: the same learning path.
_NEOVERSE_V2 = replace(
    _NEOVERSE_N1, second_cache=2 << 20, last_cache=36 << 20, tlb_reach=8 << 20, vector_fma_ns=0.089,
    pair_dot_ns=0.089, first_line_ns=0.48, second_line_ns=0.67, last_line_ns=0.82, memory_line_ns=1.73, spill_ns=0.24,
)  # fmt: skip
# Graviton3, 2.6 GHz and its sizes: WikiChip. Units, loads and pages as of V2 (Arm's slides of 2021). Lines past the
# first cache are estimated, from V2's.
_NEOVERSE_V1 = replace(
    _NEOVERSE_V2, second_cache=1 << 20, last_cache=32 << 20, vector_fma_ns=0.096, pair_dot_ns=0.096,
    first_line_ns=0.51, second_line_ns=0.72, spill_ns=0.26,
)  # fmt: skip
# 3.2 GHz on all fast cores (AnandTech). Measured in jiegec's review: sizes, 3,072 pages of 16 KiB, four multiply-adds
# of 128 bits a cycle, and three loads or two loads and two stores. 62 GB/s from memory: one core's scan, in notes of a
# database engine. Lines from the second cache, which is the last one here, are estimated.
_APPLE_M1 = Figures(
    first_cache=128 << 10, second_cache=12 << 20, last_cache=12 << 20, tlb_reach=48 << 20, vector_fma_ns=0.078,
    pair_dot_ns=0.078, first_line_ns=0.42, second_line_ns=0.9, last_line_ns=0.9, memory_line_ns=1.03, spill_ns=0.16,
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
    "broadwell": _BROADWELL,
    "skylake": _CLIENT_SKYLAKE,
    "neoverse-n1": _NEOVERSE_N1,
    "neoverse-v1": _NEOVERSE_V1,
    "neoverse-v2": _NEOVERSE_V2,
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
