"""How far the clocks of ranks are apart: those of one machine not at all, those of others by any number."""

from __future__ import annotations

from collections.abc import Callable

from pullback.runtime.library import library
from pullback.runtime.ranks import Ranks

ROUNDS = 8  # how often ranks meet: the shortest ways there and back tell most


def clock_offsets(ranks: Ranks, clock: Callable[[], int] | None = None) -> list[int]:
    """What to add to the clock of each rank, by rank, so that it tells the time of rank 0's. Collective.

    Nobody leaves a barrier before all have entered it. So rank 0 left no earlier than rank r entered, and the other way
    round: either bounds the offset, which is between them. Where 0 is possible, it is one clock.

    ``clock`` tells nanoseconds; by default the clock by which kernels and collectives are timed.
    """
    now = clock or library.pb_now_ns
    own = []
    for _ in range(ROUNDS):
        entered = now()
        ranks.barrier()
        own.append((entered, now()))
    several = ranks.exchange(own)
    return [0, *(_offset(several[0], other) for other in several[1:])]


def _offset(first: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    most = min(left - entered for (_, left), (entered, _) in zip(first, other, strict=True))
    least = max(entered - left for (entered, _), (_, left) in zip(first, other, strict=True))
    return 0 if least <= 0 <= most else (least + most) // 2
