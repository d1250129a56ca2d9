"""The report of a profile: medians, rates, the share of the machine's limits, the trace file."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from pullback.runtime.report import Chosen, KernelTime, Report, median_run

REPORT = Report.of("main", ["a", "b"], [100, 2100, 4100], 7.0)
COUNTED = REPORT.with_counts([(20_000, 8_000), None])


def test_times_are_differences_of_stamps():
    assert [call.microseconds for call in REPORT.calls] == [2.0, 2.0]
    assert (REPORT.total, REPORT.wall, REPORT.begin) == (4.0, 7.0, 0.1)


@pytest.mark.parametrize(("walls", "run"), [([4.5], 0), ([9.0, 4.5, 7.0], 2), ([4.0, 1.0, 3.0, 2.0], 3)])
def test_the_median_run(walls, run):
    assert median_run(walls) == run


def test_rates():
    first, second = COUNTED.calls
    assert (first.gflops, first.gigabytes_per_second) == (10.0, 4.0)
    assert (second.gflops, second.gigabytes_per_second) == (None, None)


@pytest.mark.parametrize(("gflops", "bandwidth", "share"), [(20.0, 40.0, 0.5), (100.0, 5.0, 0.8)])
def test_the_nearer_limit_counts(gflops, bandwidth, share):
    assert COUNTED.calls[0].share_of_roofline(gflops, bandwidth) == pytest.approx(share)
    assert COUNTED.calls[1].share_of_roofline(gflops, bandwidth) is None


def test_text():
    assert str(COUNTED).splitlines() == [
        "main: 4.0 µs in 2 kernels, 7.0 µs with the call",
        "kernel    µs  share  GFLOP/s  GB/s",
        "a       2.00  50.0%     10.0   4.0",
        "b       2.00  50.0%               ",
    ]


def test_table_shows_the_share_only_for_known_limits():
    def text(*limits: float) -> str:
        console = Console(file=StringIO(), width=100)
        console.print(COUNTED.table(*limits))
        return console.file.getvalue()  # type: ignore[attr-defined]

    assert "roofline" not in text()
    assert "roofline" in text(20.0, 40.0) and "50%" in text(20.0, 40.0)


def test_chrome_trace(tmp_path):
    COUNTED.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [(e["name"], e["ph"], e["ts"], e["dur"]) for e in events] == [("a", "X", 0.0, 2.0), ("b", "X", 2.0, 2.0)]
    assert events[0]["args"] == {"FLOPs": 20_000, "bytes": 8_000}


def test_of_a_kernel_without_time_there_is_no_rate():
    assert KernelTime("k", 0.0, 1, 1).gflops is None


def test_equal_kernels_are_one_row_and_the_most_expensive_come_first():
    calls = [KernelTime("relu", 1.0, 10, 8)]
    calls += [KernelTime(f"matmul_add_{k}", 2.0, 100, 40) for k in range(300)]
    calls += [KernelTime("matmul_add_300", 50.0, 7000, 40), KernelTime("sort", 3.0)]
    report = Report("main", tuple(calls), 700.0)
    heading, *rows = report.rows()
    assert heading == ["kernel", "calls", "µs", "share", "GFLOP/s", "GB/s"]
    assert [row[:3] for row in rows] == [
        ["matmul_add_0", "300", "600.00"], ["matmul_add_300", "1", "50.00"], ["sort", "1", "3.00"],
        ["relu", "1", "1.00"],
    ]  # fmt: skip
    assert rows[0][4] == "0.1"  # as each of them
    assert len(report.calls) == 303 and str(report).count("\n") == 5


def test_what_takes_least_is_added_up():
    report = Report("main", tuple(KernelTime(f"{chr(97 + k)}x", float(k + 1), k, k) for k in range(26)), 400.0)
    rows = report.rows()[1:]
    assert len(rows) == 21 and rows[0][0] == "zx"
    assert rows[-1][:3] == ["6 others", "6", "21.00"]
    assert len(report.rows(most=None)) == 27
    assert sum(float(row[2]) for row in rows) == pytest.approx(report.total)


def test_schedules_stand_beside_the_measured_rate(tmp_path):
    """A row for what has one: GFLOP/s of what multiplies, GB/s of what moves memory."""
    counts = [(20_000, 8_000), (20_000, 8_000), None]
    report = Report.of("main", ["mul_1", "copy", "hand"], [100, 2100, 4100, 5100], 7.0).with_counts(counts)
    product, copy = Chosen("contraction: 2 x 5", 1.0, True), Chosen("elementwise: 1000", 4.0, False)
    assert report.schedule_table() is None
    report = report.with_schedules([product, copy, None])
    assert [call.rates for call in report.calls] == [
        ("10.0 GFLOP/s", "20.0 GFLOP/s"), ("4.0 GB/s", "2.0 GB/s"), ("", ""),
    ]  # fmt: skip
    assert str(report).splitlines()[5:] == [
        "",
        "main: schedules",
        "kernel  measured      estimate      schedule",
        "mul_1   10.0 GFLOP/s  20.0 GFLOP/s  contraction: 2 x 5",
        "copy        4.0 GB/s      2.0 GB/s  elementwise: 1000",
    ]
    assert "elementwise: 1000" in report._repr_html_()
    report.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    wanted = {"FLOPs": 20_000, "bytes": 8_000, "schedule": "elementwise: 1000", "estimate (µs)": 4.0}
    assert events[1]["args"] == wanted and "schedule" not in events[2]["args"]


def test_calls_alike_have_one_schedule_and_the_sum_of_their_estimates():
    calls = [KernelTime(f"add_{k}", 2.0, 100, 40, None, Chosen("elementwise: 10", 1.0, False)) for k in range(3)]
    other = KernelTime("add_3", 2.0, 100, 40, None, Chosen("elementwise: 10; 4 tasks", 3.0, False))
    ((group, count),) = Report("main", (*calls, other), 9.0).groups()
    assert count == 4 and group.chosen == Chosen("elementwise: 10; and 1 more", 6.0, False)
    without = KernelTime("add_4", 2.0, 100, 40)
    ((group, _),) = Report("main", (*calls, without), 9.0).groups()
    assert group.chosen is None
