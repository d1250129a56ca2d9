"""One table of what blocking assumes of a core. CPUs differ in how wide a vector is, and in their L2."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from pullback.schedule.group import Machine


class KBlock(NamedTuple):
    """Limits of what a round covers."""

    depth: int  # terms
    columns: int  # bytes of the factor of columns
    rows: int  # and of the other one
    sums: int  # bytes of accumulators that are spilled and reloaded


@dataclass(frozen=True)
class BlockingFigures:
    """Sizes are in bytes. Times are in multiply-adds of one lane (FMAs), where the name does not say otherwise."""

    # Caches and pages
    l1: int = 32 << 10  # of columns that stay in L1
    l2: int = 384 << 10  # that stays in L2
    streamed: int = 256 << 10  # of a matrix that does not stay in L2 beside what else is read
    large: int = 1 << 20  # of a matrix that does not stay in L2
    leaves_l2: int = 1280 << 10  # of one that leaves L2 before its rows come again
    region: int = 64 << 10  # that a task packs for itself, so that it stays in L1 and L2
    most_region: int = 192 << 10  # of it before sums are split
    rows_of_l2: float = 3 / 8  # of L2: rows that stay while columns pass (2 MiB, graniterapids, 1024 x 384 x 1536,
    #   GFLOP/s: 192 KiB 358, 384 380, 576 385, 768 396, 1024 391)
    private: int = 128 << 10  # of a thread-private copy,
    private_of_l2: int = 8  # and that part of L2
    l2_set: int = 64 << 10  # from one line of a set of L2 to the next one
    l2_ways: int = 8
    stack_sums: int = 96 << 10  # of accumulators that a task keeps: its stack may be small
    tlb_pages: int = 256  # lines, each in another page, that stay in it
    k_block: KBlock = field(default=KBlock(128, 192 << 10, 96 << 10, 64 << 10))

    # Threads
    threads: int = 4  # among which tasks are divided, as a rule
    short_task_ns: float = 12_000.0  # that is not worth dividing
    parallel_loop: int = 500_000  # to begin and end one more, and find its data
    parallel_loop_ns: float = 700.0  # to begin and end one more
    copy_ns: float = 0.2  # to pack an element
    hand_over_ns: float = 0.5  # for an element to get to another thread (emeraldrapids: 8 ns for a line of 16)

    # Moving elements
    transpose: int = 16  # in registers, on the way into a packed copy; of vectors of 64 bytes
    gather: int = 64  # or scatter; likewise
    strided_load: int = 16  # an element between others in the same line
    strided_store: int = 16
    pack: int = 8  # to copy an element into a region or panel
    pack_row: int = 4  # along a row, of sums in lanes
    pack_scalar: int = 2  # where there are no vectors
    spill: int = 4  # and reload a partial sum
    spill_terms: int = 16  # terms whose FMAs cost as much as one spill and reload,
    spill_terms_far: int = 24  # beyond L2
    reread_far: int = 8  # or L2 (znver3, of the time with a tail split: 7 x 28 x 911 sums of 526 terms, neither factor
    #   contiguous along them, 0.85, 7 x 19 x 552 of 173 0.89; but contiguous 2000 x 50 x 500 1.29)
    pair_reads: int = 4  # of each element that make up for packing pairs of bfloat16
    widen_reads: int = 16  # of each element that make up for a widened copy

    # Sums in lanes (calibrated on 107 gradients of weights, emeraldrapids: mostly 0.8 to 1.3 of the estimate)
    lane_total: int = 10  # vectors of FMAs to add up the lanes of one sum
    lane_line_cycles: tuple[float, float] = (1.0, 2.0)  # for a line from L2: of long rows, of short ones
    lane_long: int = 128  # elements of a row that prefetchers follow
    lane_unaligned: float = 1.5  # relative cost of a load from an unaligned row: most straddle two lines
    lane_row_cycles: float = 4.0  # from the end of a row to the next one

    # Register tiles
    latency_chains: int = 8  # accumulators that keep two units of a latency of four busy
    other_axis: tuple[float, float] = (0.9, 0.98)  # another vector axis must be estimated below this fraction of the
    #   default's cost (convolutions, matmuls), because the estimates are rough

    # Packing. Panels pay where lines lie this many bytes apart, in matrices of this size, with so many rows or columns
    # that read each element.
    panels_apart: int = 1024
    panels_size: int = 1 << 20  # of all matrices of a batch; or of L2, if that is less
    panels_readers: int = 256
    panel_rounds: int = 4  # that cost less than panels which come from L2 for every tile (znver3: 1024 x 1536 x 384
    #   takes 0.91 of the time in whole sums, 1000 x 1000 x 450 0.92)

    def l2_lines(self, apart: int) -> int:
        """How many lines of memory, so many bytes apart, stay in L2: powers of two apart, they compete for few sets."""
        return self.l2_ways * self.l2_set // math.gcd(self.l2_set, apart)


FIGURES = BlockingFigures()


def blocking_figures(machine: Machine) -> BlockingFigures:
    """The table for a machine. An element that moves takes the time of more multiply-adds, the more of them a vector
    has: all lanes of a gather, a load, a store and some shuffles of a transposition."""
    lanes = machine.vector_bytes / 64
    transpose, gather = FIGURES.transpose * (1 + 3 * lanes) / 4, FIGURES.gather * lanes
    ways = FIGURES.l2_ways * (2 if machine.vector_bytes == 64 else 1)  # others have smaller caches
    return replace(FIGURES, transpose=round(transpose), gather=round(gather), l2_ways=ways)
