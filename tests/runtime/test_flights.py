"""What the native engine records of collectives: which, their bytes, and times in the only order that is possible."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pullback.runtime import ranks
from pullback.runtime.engine import Engine
from pullback.runtime.flights import Flights
from pullback.runtime.library import library
from pullback.runtime.ranks import current, run_local


def engine() -> Engine:
    """The native engine of the calling thread's rank."""
    rank = current()
    assert isinstance(rank, ranks.Local)
    return rank._meeting.engines[rank.rank]


def ones(*sizes: int) -> tuple[list[np.ndarray], list[tuple[int, ...]]]:
    return [np.ones(n, "float32") for n in sizes], [(n,) for n in sizes]


def piece(n: int, rank: int, size: int) -> int:
    """How many of n elements belong to a rank."""
    length = -(-n // size)
    return max(0, min(n, (rank + 1) * length) - rank * length)


def recorded(size: int, *calls: tuple[Any, ...], room: int = 16) -> list[Any]:
    """What each rank records of these collectives: its Flights, and the times."""

    def run(rank: int) -> Any:
        mine, flights = engine(), Flights(current(), room)
        begin = library.pb_now_ns()
        with flights:
            for kind, arrays, shapes, *options in calls:
                mine.collective(kind, arrays, shapes, **(options[0] if options else {}))
        return flights.started, flights.times(begin), (library.pb_now_ns() - begin) / 1e3

    return run_local(size, run)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_bytes(size):
    """A piece goes once to each who lacks it; a large sum is one of pieces, which are gathered."""
    small, large = (5, 7), (9000, 1001)
    found = recorded(
        size, ("reduce", *ones(*small)), ("reduce", *ones(*large)), ("reduce_pieces", *ones(*small)),
        ("gather_pieces", [np.ones(-(-n // size), "float32") for n in small], [(n,) for n in small]),
        ("all_to_all", *ones(4 * size)), ("broadcast", *ones(*small), {"root": 1}),
    )  # fmt: skip
    names = ["allreduce", "allreduce", "reduce-scatter", "gather", "all-to-all", "broadcast"]
    whole = [4 * n for n in (12, 10001, 12, 12, 4 * size, 12)]
    sent = np.array([[t.sent for t in times] for _, times, _ in found])
    for rank, (started, times, _) in enumerate(found):
        assert started == 6 and [t.name for t in times] == names and [t.bytes for t in times] == whole
        others = [p for p in range(size) if p != rank]
        assert sent[rank, 0] == (size - 1) * 48
        assert sent[rank, 2] == 4 * sum(piece(n, p, size) for n in small for p in others)
        assert sent[rank, 3] == 4 * (size - 1) * sum(piece(n, rank, size) for n in small)
        assert sent[rank, 4] == (size - 1) * 4 * 4
    assert sent[:, 1].sum() == 2 * (size - 1) * 4 * 10001
    assert sent[:, 5].sum() == (size - 1) * 48 and sent[1, 5] > 0


def test_times_are_in_order():
    """Nobody has a sum before everybody started it; all are threads of one clock."""
    begins = library.pb_now_ns()

    def run(rank: int) -> Any:
        mine, flights = engine(), Flights(current())
        with flights:
            for n in (3, 40_000, 3, 100):
                mine.collective("reduce", *ones(n))
        return flights.times(begins)

    found = run_local(3, run)
    for number in range(4):
        last = max(times[number].begin for times in found)
        assert all(times[number].end >= last for times in found)
    for times in found:
        assert all(0 <= t.begin <= t.end and t.waited > 0 for t in times)
        assert all(a.end <= b.begin for a, b in itertools.pairwise(times))  # each was awaited


def test_what_a_rank_waits_is_what_its_collectives_tell():
    def run(rank: int) -> tuple[float, float]:
        mine, flights = engine(), Flights(current())
        mine.collective("reduce", *ones(100))
        with flights:
            before = library.pb_collectives_waited(mine.table)
            for n in (3, 40_000, 100):
                mine.collective("reduce", *ones(n))
            after = library.pb_collectives_waited(mine.table)
        assert current().waited() >= mine.waited > 0.0
        return (after - before) / 1e3, sum(t.waited for t in flights.times(0))

    for counted, told in run_local(3, run):
        assert counted == pytest.approx(told, rel=1e-12)


def test_no_more_is_recorded_than_there_is_room_for():
    for started, times, _ in recorded(2, *[("reduce", *ones(3)), ("reduce", *ones(4))] * 3, room=3):
        assert started == 6 and [t.bytes for t in times] == [12, 16, 12]
    for started, times, _ in recorded(2, ("reduce", *ones(3)), room=0):
        assert started == 1 and times == []


def test_each_block_forgets_the_one_before_and_nothing_is_recorded_between_them():
    def run(rank: int) -> list[Any]:
        mine, flights = engine(), Flights(current())
        told = []
        for count in (3, 1, 0, 2):
            with flights:
                for _ in range(count):
                    mine.collective("reduce", *ones(3))
            mine.collective("reduce", *ones(77))
            told.append((flights.started, [t.bytes for t in flights.times(0)]))
        return told

    assert run_local(2, run) == [[(3, [12] * 3), (1, [12]), (0, []), (2, [12] * 2)]] * 2


def test_what_sends_nothing_is_not_in_flight():
    for started, times, _ in recorded(2, ("piece", *ones(5)), ("rank", [], [()]), ("reduce", *ones(2))):
        assert started == 1 and [t.name for t in times] == ["allreduce"]


def test_alone_nothing_is_recorded():
    with Flights(current()) as flights:
        pass
    assert flights.started == 0 and flights.times(0) == []
