"""How long the collectives of a call were in flight, and how much of that its rank computed meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pullback.runtime.tables import Table

NAMES = {  # of the kinds of ``collectives.py``, as one knows them from elsewhere
    "reduce": "allreduce", "reduce_pieces": "reduce-scatter", "gather_pieces": "gather", "broadcast": "broadcast",
    "all_to_all": "all-to-all",
}  # fmt: skip
HEADING = ("collective", "calls", "bytes", "sent", "GB/s", "µs in flight", "µs waited", "hidden")


@dataclass(frozen=True)
class CollectiveTime:
    """One collective of a rank; times are in microseconds.

    ``begin`` and ``end``: when it was started and when it was done, since the call began. ``waited``: for how long the
    rank started it and waited for it, instead of computing. ``bytes``: those of its whole arrays; ``sent``: those that
    the rank sent to others.
    """

    name: str
    begin: float
    end: float
    waited: float
    bytes: int
    sent: int

    @property
    def in_flight(self) -> float:
        return self.end - self.begin

    @property
    def hidden(self) -> float:
        """The share of its time in flight in which the rank did something else, 0 to 1."""
        return share_hidden(self.waited, self.in_flight)


def share_hidden(waited: float, in_flight: float) -> float:
    """1 - waited / in flight, 0 to 1: who waits sees a little late that a collective is done."""
    return min(1.0, max(0.0, 1.0 - waited / in_flight)) if in_flight > 0 else 0.0


def time_in_flight(times: Iterable[CollectiveTime]) -> float:
    """Microseconds in which at least one of a rank's collectives was in flight."""
    total, reached = 0.0, float("-inf")
    for time in sorted(times, key=lambda t: t.begin):
        total += max(0.0, time.end - max(time.begin, reached))
        reached = max(reached, time.end)
    return total


def time_waited(times: Iterable[CollectiveTime]) -> float:
    """Microseconds that a rank waited, in all."""
    return sum(t.waited for t in times)


def hidden_on(ranks: Sequence[Sequence[CollectiveTime]]) -> float | None:
    """The share of the time with collectives in flight that was hidden, over these ranks; None without collectives."""
    if not any(ranks):
        return None
    return share_hidden(sum(map(time_waited, ranks)), sum(map(time_in_flight, ranks)))


def collective_table(ranks: Sequence[Sequence[CollectiveTime]], function: str) -> Table:
    """A row for each kind of collective: the mean over these ranks of what theirs sent and took, together."""
    names = dict.fromkeys(time.name for times in ranks for time in times)
    rows = [_row(name, [[t for t in times if t.name == name] for times in ranks]) for name in names]
    last = _row("together", ranks) if len(rows) > 1 else ()
    return Table(HEADING, rows, f"{function}: collectives" + (", mean of all ranks" if len(ranks) > 1 else ""), 1, last)


def _row(name: str, ranks: Sequence[Sequence[CollectiveTime]]) -> list[str]:
    count = len(ranks)
    calls, size, sent = (
        sum(sum(value(t) for t in times) for times in ranks) / count
        for value in (lambda t: 1, lambda t: t.bytes, lambda t: t.sent)
    )
    in_flight, waited = (sum(map(f, ranks)) / count for f in (time_in_flight, time_waited))
    rate = f"{sent / in_flight / 1e3:.2f}" if in_flight > 0 else ""
    times = [f"{in_flight:.2f}", f"{waited:.2f}", f"{share_hidden(waited, in_flight):.0%}"]
    return [name, f"{calls:g}", f"{size:,.0f}", f"{sent:,.0f}", rate, *times]
