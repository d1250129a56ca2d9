"""The report of several ranks: what was in flight, what was hidden, who is slow, and the trace of all of them."""

from __future__ import annotations

import itertools
import json
import pickle
import threading
from io import StringIO

import pytest
from rich.console import Console

from pullback.runtime.clocks import clock_offsets
from pullback.runtime.collective_times import CollectiveTime, share_hidden, time_in_flight
from pullback.runtime.ranks import current, run_local
from pullback.runtime.report import Report


def reduction(begin: float, end: float, waited: float, name: str = "allreduce", sent: int = 600) -> CollectiveTime:
    return CollectiveTime(name, begin, end, waited, 800, sent)


NAMES = ["matmul", "ccl_reduce_start", "matmul_1", "ccl_reduce_wait"]
# two ranks, the second of which takes 6 µs longer for a product
FIRST = Report.of("step", NAMES, [1000, 5000, 6000, 10000, 18000], 20.0, [reduction(4, 17, 9), reduction(5, 12, 0)])
SECOND = Report.of("step", NAMES, [3000, 7000, 8000, 18000, 20000], 20.0, [reduction(4, 15, 3), reduction(5, 10, 0)])
BOTH = Report.together([FIRST, SECOND])


def test_what_is_in_flight_at_the_same_time_counts_once():
    assert time_in_flight([]) == 0.0
    assert time_in_flight([reduction(1, 4, 0), reduction(2, 3, 0), reduction(3.5, 6, 0), reduction(8, 9, 0)]) == 6.0


@pytest.mark.parametrize(
    ("waited", "in_flight", "share"), [(0, 10, 1.0), (2.5, 10, 0.75), (10, 10, 0.0), (10.5, 10, 0.0), (1, 0, 0.0)]
)
def test_share_hidden(waited, in_flight, share):
    assert share_hidden(waited, in_flight) == share
    assert reduction(3.0, 3.0 + in_flight, waited).hidden == share


def test_what_a_rank_waited_is_no_work_of_its_own():
    assert (FIRST.waited, FIRST.own, SECOND.waited, SECOND.own) == (9.0, 11.0, 3.0, 17.0)
    assert FIRST.hidden == pytest.approx(1 - 9 / 13) and SECOND.hidden == pytest.approx(1 - 3 / 11)
    assert Report.of("f", ["a"], [0, 1], 1.0).hidden is None


def test_the_report_of_all_ranks_is_that_of_the_first_with_all_of_them():
    assert BOTH.calls == FIRST.calls and BOTH.ranks == (FIRST, SECOND)
    assert BOTH.hidden == pytest.approx(1 - 12 / 24)
    assert BOTH.rank_times.seconds == pytest.approx((11e-6, 17e-6)) and BOTH.rank_times.slowest == 1
    assert Report.together([FIRST]) is FIRST
    assert pickle.loads(pickle.dumps(BOTH)) == BOTH


def test_text():
    text = str(BOTH).split("\n\n")
    assert text[0].splitlines()[0] == "step, rank 0 of 2: 17.0 µs in 4 kernels, 20.0 µs with the call"
    assert text[1].splitlines() == [
        "step: collectives, mean of all ranks",
        "collective  calls  bytes   sent  GB/s  µs in flight  µs waited  hidden",
        "allreduce       2  1,600  1,200  0.10         12.00       6.00     50%",
    ]
    assert text[2].splitlines()[0].startswith("step: a step takes 0.01 ms on most ranks, 0.02 ms on rank 1")
    assert text[2].splitlines()[1:] == [
        "rank     µs  own µs  µs waited  µs in flight  hidden",
        "0     20.00   11.00       9.00         13.00     31%",
        "1     20.00   17.00       3.00         11.00     73%",
    ]
    assert len(text) == 3


def test_kinds_of_collectives_are_rows_with_a_total():
    times = [reduction(0, 10, 5), reduction(20, 24, 1, "gather", 30), reduction(22, 30, 1, "gather", 30)]
    table = Report.of("f", [], [0], 1.0, times).collective_table()
    assert table is not None and table.title == "f: collectives"
    assert [list(row) for row in table.rows] == [
        ["allreduce", "1", "800", "600", "0.06", "10.00", "5.00", "50%"],
        ["gather", "2", "1,600", "60", "0.01", "10.00", "2.00", "80%"],
    ]
    assert list(table.last) == ["together", "3", "2,400", "660", "0.03", "20.00", "7.00", "65%"]


def test_without_ranks_and_collectives_there_is_one_table():
    report = Report.of("f", ["a"], [0, 1000], 1.0)
    assert report.rank_table() is None and report.collective_table() is None
    assert "\n\n" not in str(report)


def test_terminal_and_notebook_show_all_tables():
    console = Console(file=StringIO(), width=120)
    console.print(BOTH)
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    for text in (" ".join(drawn.split()), BOTH._repr_html_()):
        assert "ccl_reduce_wait" in text and "µs in flight" in text and "on rank 1, the slowest" in text


def test_chrome_trace_has_a_process_for_each_rank(tmp_path):
    BOTH.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {(e["pid"], e["tid"], e["name"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {
        **{(rank, 0, "process_name"): f"rank {rank}" for rank in (0, 1)},
        **{(rank, 0, "thread_name"): "kernels" for rank in (0, 1)},
        **{(rank, 1, "thread_name"): "in flight" for rank in (0, 1)},
        **{(rank, 2, "thread_name"): "in flight, 2" for rank in (0, 1)},
    }
    drawn = [(e["pid"], e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert [d for d in drawn if d[0] == 1] == [
        (1, 0, 2.0, 4.0), (1, 0, 6.0, 1.0), (1, 0, 7.0, 10.0), (1, 0, 17.0, 2.0), (1, 1, 6.0, 11.0), (1, 2, 7.0, 5.0),
    ]  # fmt: skip
    waits = [e for e in events if e.get("cat") == "collective"]
    assert waits[0]["args"] == {"bytes": 800, "sent": 600, "waited": 9.0, "hidden": pytest.approx(4 / 13)}


def test_no_two_events_of_a_row_overlap(tmp_path):
    times = [reduction(k % 7, k % 7 + 1 + k % 3, 0) for k in range(40)]
    Report.of("f", [], [0], 1.0, times).chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    rows: dict[int, list[tuple[float, float]]] = {}
    for e in events:
        if e["ph"] == "X":
            rows.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"]))
    assert sum(map(len, rows.values())) == 40
    for row in rows.values():
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(sorted(row)))
    most = max(sum(t.begin <= at < t.end for t in times) for at in range(10))
    assert len(rows) == most


@pytest.mark.parametrize("shifts", [(0, 0), (0, 10**12, -(10**12)), (-(10**9), 10**9, 0, 10**15)])
def test_offsets_of_clocks_that_are_far_apart(shifts):
    ticks, lock = itertools.count(), threading.Lock()

    def clock_of(rank: int) -> int:
        with lock:
            return next(ticks) + shifts[rank]

    several = run_local(len(shifts), lambda rank: clock_offsets(current(), lambda: clock_of(rank)))
    assert all(found == several[0] for found in several)
    within = 2 * len(shifts)  # so many times the clock is looked at while ranks meet once
    for shift, offset in zip(shifts, several[0], strict=True):
        assert abs(offset - (shifts[0] - shift)) <= within
    if not any(shifts):
        assert several[0] == [0, 0]


def test_threads_of_a_process_have_one_clock():
    assert run_local(3, lambda rank: clock_offsets(current())) == [[0, 0, 0]] * 3
