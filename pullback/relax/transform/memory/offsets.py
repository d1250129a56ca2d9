"""Offsets in the arena: blocks that live at the same time do not overlap, and the arena is small.

The size cannot be less than the most bytes that live at one time. Blocks are placed one after another, each in the
tightest gap that is free while it lives. Which order is best depends on the graph, so several are tried, and the
smallest arena wins; where none reaches the bound, the block that sticks out is placed earlier, and all is tried again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from pullback.relax.transform.memory.values import Block

ALIGNMENT = 64
_TRIES = 32  # of placing the block that sticks out earlier, for each of the first orders
_EFFORT = 200_000  # pairs of blocks looked at for each of the first orders, beyond the first try

Interval = tuple[int, int]  # numbers of the first and the last step at which a block is used


def aligned(size: int) -> int:
    """The bytes that a block of this size takes; an empty one has an address of its own too."""
    return -(-max(1, size) // ALIGNMENT) * ALIGNMENT


def live_bytes(live: Mapping[Block, Interval]) -> int:
    """The most bytes in use at one step: no arena is smaller."""
    changes: dict[int, int] = {}
    for block, (first, last) in live.items():
        changes[first] = changes.get(first, 0) + aligned(block.nbytes)
        changes[last + 1] = changes.get(last + 1, 0) - aligned(block.nbytes)
    most = now = 0
    for step in sorted(changes):
        now += changes[step]
        most = max(most, now)
    return most


def assign_offsets(live: Mapping[Block, Interval]) -> int:
    """Give each block its offset; returns the size of the arena."""
    bound = live_bytes(live)
    orders = [
        sorted(live, key=lambda b: -b.nbytes),
        sorted(live, key=lambda b: -b.nbytes * (1 + live[b][1] - live[b][0])),
        sorted(live, key=lambda b: (live[b][0] - live[b][1], -b.nbytes)),
        sorted(live, key=lambda b: (live[b][0], -b.nbytes)),
        sorted(live, key=lambda b: (-live[b][1], -b.nbytes)),
    ]
    tries = max(1, min(_TRIES, _EFFORT // max(1, len(live) ** 2)))
    best: tuple[int, dict[Block, int]] = (-1, {})
    for order in orders:
        for _ in range(tries):
            offsets = _place(order, live)
            size = max((o + aligned(b.nbytes) for b, o in offsets.items()), default=0)
            if best[0] < 0 or size < best[0]:
                best = (size, offsets)
            if size == bound:
                break
            order = _earlier(order, offsets, live, size)
        if best[0] == bound:
            break
    for block, offset in best[1].items():
        block.offset = offset
    return best[0]


def _place(order: Sequence[Block], live: Mapping[Block, Interval]) -> dict[Block, int]:
    """Each block, in this order, in the tightest gap that is free while it lives; above all others where none fits."""
    offsets: dict[Block, int] = {}
    ranges: list[tuple[int, int, int, int]] = []  # offset, end, first, last of the placed, by offset
    for block in order:
        first, last = live[block]
        need = aligned(block.nbytes)
        at, waste, end = -1, -1, 0
        for low, high, begin, until in ranges:
            if begin > last or until < first:
                continue
            gap = low - end
            if gap >= need and (at < 0 or gap - need < waste):
                at, waste = end, gap - need
            end = max(end, high)
        offsets[block] = at if at >= 0 else end
        insort(ranges, (offsets[block], offsets[block] + need, first, last))
    return offsets


def _earlier(
    order: Sequence[Block], offsets: Mapping[Block, int], live: Mapping[Block, Interval], size: int
) -> list[Block]:
    """The order with the last placed of the blocks that end at ``size`` moved before those that live beside it."""
    top = [b for b in order if offsets[b] + aligned(b.nbytes) == size][-1]
    first, last = live[top]
    place = next(k for k, b in enumerate(order) if b is top or (live[b][0] <= last and first <= live[b][1]))
    return [*order[:place], top, *(b for b in order[place:] if b is not top)]
