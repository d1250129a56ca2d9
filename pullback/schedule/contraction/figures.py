"""One table of what blocking assumes of a core, in two columns: 32 vector registers, and 16 or fewer.

Of 32 registers a tile is so large that its multiply-adds take longer than its loads; of 16 loads are in the way. Values
of one column alone were measured there (Emerald Rapids with 32, Zen 3 with 16).
"""

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
class Figures:
    """Sizes are in bytes. Times are in multiply-adds of one lane (FMAs), where the name does not say otherwise."""

    # Caches and pages
    l1: int = 32 << 10  # of columns that stay in L1
    l2: int = 384 << 10  # that stays in L2
    streamed: int = 256 << 10  # of a matrix that does not stay in L2 beside what else is read
    large: int = 1 << 20  # of a matrix that does not stay in L2
    leaves_l2: int = 1280 << 10  # of one that leaves L2 before its rows come again
    region: int = 64 << 10  # that a task packs for itself, so that it stays in L1 and L2
    most_region: int = 192 << 10  # of it, or of accumulators beside whole lines, before sums are split
    region_of_l2: int = 16  # part of L2: a region beside columns that pass through it
    rows_of_l2: float = 3 / 8  # of L2: rows that stay while columns pass (2 MiB, graniterapids, 1024 x 384 x 1536,
    #   GFLOP/s: 192 KiB 358, 384 380, 576 385, 768 396, 1024 391)
    private: int = 128 << 10  # of a thread-private copy,
    private_of_l2: int = 8  # and that part of L2
    l2_set: int = 64 << 10  # from one line of a set of L2 to the next one
    l2_ways: int = 8
    l3_batch: int = 8 << 20  # of a batch of matrices that leaves L3 beside its panels
    stack_sums: int = 96 << 10  # of accumulators that a task keeps: its stack may be small
    tlb_reach: int = 4 << 20  # of a matrix of which nearly all pages are known to the TLB
    tlb_pages: int = 256  # lines, each in another page, that stay in it
    far_line: int = 2048  # from line to line of a matrix, so that most are in another page
    k_block: KBlock = field(default=KBlock(128, 192 << 10, 96 << 10, 64 << 10))
    packed_k_block: KBlock = field(default=KBlock(256, 128 << 10, 128 << 10, 96 << 10))  # fits the smallest stack

    # Threads
    threads: int = 4  # among which tasks are divided, as a rule
    short_task_ns: float = 12_000.0  # that is not worth dividing
    parallel_loop: int = 500_000  # to begin and end one more, and find its data
    parallel_loop_ns: float = 700.0  # to begin and end one more
    copy_ns: float = 0.2  # to pack an element
    hand_over_ns: float = 0.5  # for an element to get to another thread (emeraldrapids: 8 ns for a line of 16)
    hand_over: int = 88  # likewise, 16 ns for a line
    hand_over_sum: int = 50  # for a partial sum to get to the thread that adds it, or from beyond L2
    ns_per_fma: float = 1 / 50  # of one thread

    # Moving elements
    transpose: int = 16  # in registers, on the way into a packed copy
    gather: int = 64  # or scatter
    strided_load: float = math.inf  # an element between others in the same line; inf: as a gather
    strided_store: int = 0
    pack: int = 8  # to copy an element into a region or panel
    pack_scalar: int = 2  # where there are no vectors
    store_sum: int = 8  # to spill a sum, reload it and store the result, or to add it to others
    spill: int = 4  # and reload a partial sum
    spill_tap: int = 2  # likewise, of columns that go on from tap to tap
    spill_terms: int = 16  # terms whose FMAs cost as much as one spill and reload,
    spill_terms_far: int = 24  # beyond L2
    reread: int = 16  # an element whose line left L1 or L2
    from_memory: int = 32  # an element from beyond L2 whose lines are not streamed
    page_crossing: int = 80  # an element whose column's next one is in another page (16 columns of 2048 x 2048: 20
    #   GFLOP/s, streamed 40)
    run_ns: float = 0.3  # that an element of a row waits for memory,
    run_bytes: int = 128  # and twice that if the row is so short
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
    counts_tiles: bool = False  # the cost of a blocking has that of its register tile
    rereads_columns: bool = False  # tiles are slower where other rows read the same columns again
    other_axis: tuple[float, float] = (0.9, 0.98)  # another vector axis must be estimated below this fraction of the
    #   default's cost (convolutions, matmuls), because the estimates are rough
    compares_axes: bool = False  # all vector axes are estimated, not only where the default seems poor
    prefetches_columns: bool = True  # that are read in place from beyond L1
    reads_once: bool = True  # large matrices that few rows read are not packed: all rows are in one task

    # Packing. Panels pay where lines lie this many bytes apart, in matrices of this size, with so many rows or columns
    # that read each element.
    panels_apart: int = 1024
    panels_size: int = 1 << 20  # of all matrices of a batch,
    panels_per_matrix: bool = False  # or of each
    panels_readers: int = 256
    panels_of_rows: bool = False  # pay where rows are contiguous, too, and their lines leave L1 meanwhile (znver3,
    #   128 x 1024 x 256: 69 GFLOP/s, in panels 84)
    panels_in_l2: bool = True  # are fast enough there (of the time of packing by rounds, 2048 x 2048 x 2048 0.80, 1000
    #   x 1500 x 2000 0.90; the gradient of 768 x 3072 weights 0.78; znver3, 15 products: 1.00)
    panel_rounds: int = 4  # that cost less than panels which come from L2 for every tile (znver3: 1024 x 1536 x 384
    #   takes 0.91 of the time in whole sums, 1000 x 1000 x 450 0.92)
    # Rows or columns, and terms, that make up for packing by rounds. Else prefetched lines come sooner (23 products of
    # 16, 14, 24, … rows whose other factor has 4 to 15 MB: 0.66 to 0.98 of the time; of 213 and 787 rows 1.1).
    round_readers: int = 128
    round_terms: int = 150
    rounds_of_both: bool = False  # factors, if one is packed: else the columns' lines leave L1 (2 x 280 x 93 of 240
    #   terms: 0.72 of the time); rows then only as whole vectors (8 x 639 x 85 of 509 terms: 0.85)
    whole_lines: bool = False  # rounds of as many terms as L1 holds whole lines of both factors

    def l2_lines(self, apart: int) -> int:
        """How many lines of memory, so many bytes apart, stay in L2: powers of two apart, they compete for few sets."""
        return self.l2_ways * self.l2_set // math.gcd(self.l2_set, apart)


_OF_32_REGISTERS = Figures()
_OF_16_REGISTERS = Figures(
    transpose=10,  # with vectors of 32 bytes
    gather=32,
    strided_load=16,
    strided_store=16,
    counts_tiles=True,
    rereads_columns=True,
    other_axis=(1.0, 1.0),
    compares_axes=True,
    prefetches_columns=False,
    reads_once=False,
    panels_apart=256,
    panels_size=128 << 10,
    panels_per_matrix=True,
    panels_readers=140,
    panels_of_rows=True,
    panels_in_l2=False,
    panel_rounds=0,
    round_readers=12,
    round_terms=0,
    rounds_of_both=True,
    whole_lines=True,
)


def figures_of(machine: Machine) -> Figures:
    """The table's column for a machine."""
    found = _OF_16_REGISTERS if machine.registers <= 16 else _OF_32_REGISTERS
    return replace(found, l2_ways=16) if machine.vector_bytes == 64 else found  # others have smaller caches
