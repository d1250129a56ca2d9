"""A report as trace events, the format of chrome://tracing and ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pullback.runtime.collective_times import CollectiveTime

if TYPE_CHECKING:
    from pullback.runtime.report import Report

Event = dict[str, Any]


def trace_events(reports: Sequence[Report]) -> list[Event]:
    """The calls of each report, one after another, as a process; what was in flight meanwhile in threads of its own.

    Several are the ranks of one function, by their number. Time 0 is when the first of them began.
    """
    origin = min((report.begin for report in reports), default=0.0)
    named = len(reports) > 1 or any(report.collectives for report in reports)
    return [e for rank, report in enumerate(reports) for e in _of_rank(report, rank, report.begin - origin, named)]


def _of_rank(report: Report, rank: int, begin: float, named: bool) -> Iterator[Event]:
    lanes = _lanes(report.collectives)
    if named:
        yield _name("process_name", rank, 0, f"rank {rank}")
        yield _name("thread_name", rank, 0, "kernels")
        for number in range(1, len(lanes) + 1):
            yield _name("thread_name", rank, number, "in flight" if number == 1 else f"in flight, {number}")
    starts = accumulate((call.microseconds for call in report.calls), initial=begin)
    for call, start in zip(report.calls, starts, strict=False):
        about: dict[str, Any] = {
            "FLOPs": call.flops,
            "bytes": call.bytes,
            **({} if call.layer is None else {"layer": call.layer}),
        }
        if call.chosen is not None:
            about |= {"schedule": call.chosen.text, "estimate (µs)": round(call.chosen.microseconds, 3)}
        place = _place(rank, 0, start, call.microseconds)
        yield {"name": call.name, "cat": report.function, **place, "args": about}
    for number, lane in enumerate(lanes, 1):
        for time in lane:
            about = {"bytes": time.bytes, "sent": time.sent, "waited": time.waited, "hidden": time.hidden}
            place = _place(rank, number, begin + time.begin, time.in_flight)
            yield {"name": time.name, "cat": "collective", **place, "args": about}


def _place(process: int, thread: int, start: float, duration: float) -> Event:
    """Times to the nanosecond."""
    return {"ph": "X", "pid": process, "tid": thread, "ts": round(start, 3), "dur": round(duration, 3)}


def _name(what: str, process: int, thread: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _lanes(times: Sequence[CollectiveTime]) -> list[list[CollectiveTime]]:
    """The fewest rows in which no two overlap: the events of a thread are drawn inside one another."""
    lanes: list[list[CollectiveTime]] = []
    for time in sorted(times, key=lambda t: t.begin):
        free = next((lane for lane in lanes if lane[-1].end <= time.begin), None)
        if free is None:
            lanes.append([time])
        else:
            free.append(time)
    return lanes
