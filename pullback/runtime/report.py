"""Where the time of a call went, kernel by kernel, and what each kernel did in it.

report = trainer.profile_step(x, y)           # or vm.profile("main", x)
print(report)                                 # a table: equal kernels are one row, the most expensive come first
print(report.table(230, 30))                  # with the share of the machine's limits: 230 GFLOP/s, 30 GB/s
report.layers()                               # the kernels of each layer added up
report.schedule_table()                       # what was chosen for each kernel, its measured and its estimated rate
report.chrome_trace("step.json")              # for chrome://tracing and ui.perfetto.dev

Of several ranks it is rank 0's, with those of all in ``ranks``: what was in flight between them, how much of that was
hidden behind kernels, and which rank is the slowest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from pullback.runtime.collective_times import (
    CollectiveTime,
    collective_table,
    hidden_on,
    time_in_flight,
    time_waited,
)
from pullback.runtime.rank_times import RankTimes
from pullback.runtime.tables import Table, stacked
from pullback.runtime.trace_events import trace_events

MOST_ROWS = 20  # of a printed report
REST = "loss, update"  # what is in no layer
SCHEDULES = ("kernel", "measured", "estimate", "schedule")
WHOLE_MODEL = "(model)"  # the layer whose name is empty: what the model's own forward computes


@dataclass(frozen=True)
class Chosen:
    """What a schedule chose for a kernel, as a line of text, and the microseconds that it should take by the costs that
    schedules are compared by. ``multiplies``: its rate is in FLOPs; else it moves memory."""

    text: str
    microseconds: float
    multiplies: bool


@dataclass(frozen=True)
class KernelTime:
    """One kernel call: its name and its wall time in microseconds.

    ``flops`` and ``bytes``: the arithmetic of its loops, and the memory that it must at least read and write (scratch
    copies are time, but no traffic). None where that depends on values in memory.

    ``layer``: the dotted name of the ``nn.Module``, or the variable that a line of the script computes, whose op it is.
    Several ops in one kernel count for the layer of the first matmul or convolution. None for the loss, and for updates
    that are no part of a gradient's kernel.

    ``chosen``: what its schedule chose; None for kernels that people wrote, and for those that run a branch or a loop.
    """

    name: str
    microseconds: float
    flops: int | None = None
    bytes: int | None = None
    layer: str | None = None
    chosen: Chosen | None = None

    @property
    def gflops(self) -> float | None:
        """GFLOP/s."""
        return None if self.flops is None or not self.microseconds else self.flops / self.microseconds / 1e3

    @property
    def gigabytes_per_second(self) -> float | None:
        return None if self.bytes is None or not self.microseconds else self.bytes / self.microseconds / 1e3

    @property
    def rates(self) -> tuple[str, str]:
        """Measured and estimated, as text: GFLOP/s, or GB/s of what moves memory; empty where it is not known."""
        amount = self.flops if self.chosen is None or self.chosen.multiplies else self.bytes
        unit = "GFLOP/s" if self.chosen is None or self.chosen.multiplies else "GB/s"
        times = self.microseconds, 0.0 if self.chosen is None else self.chosen.microseconds
        measured, estimated = (f"{amount / t / 1e3:.1f} {unit}" if amount is not None and t else "" for t in times)
        return measured, estimated

    def share_of_roofline(self, gflops: float, gigabytes_per_second: float) -> float | None:
        """max(FLOPs / peak, bytes / bandwidth) over the time that it took: 1 is what the machine can do.

        More than 1 means that the bytes came from a cache which is faster than the given bandwidth.
        """
        if self.flops is None or self.bytes is None or not self.microseconds:
            return None
        return max(self.flops / gflops, self.bytes / gigabytes_per_second) / (1e3 * self.microseconds)


@dataclass(frozen=True, repr=False)
class Report:
    """The kernel calls of a function, in order, in the median of some runs. Printing it gives a table of those alike.

    ``total`` is the sum of the kernels, ``wall`` the time of the whole call as seen from Python; both in microseconds.

    ``collectives``: those of this rank, in the order in which it started them; what it waited for them is time of the
    kernels ``ccl_…_start`` and ``ccl_…_wait``, too. ``begin``: when the call began, in microseconds of the clock of all
    ranks. ``ranks``: the reports of all ranks in the same run, by rank, where several ran the function together; this
    one is rank 0's then.
    """

    function: str
    calls: tuple[KernelTime, ...]
    wall: float
    collectives: tuple[CollectiveTime, ...] = ()
    begin: float = 0.0
    ranks: tuple[Report, ...] = ()

    @staticmethod
    def of(
        function: str, names: Sequence[str], stamps: Sequence[int], wall: float,
        collectives: Sequence[CollectiveTime] = (),
    ) -> Report:  # fmt: skip
        """Of one run. ``stamps``: the times in nanoseconds before each call and after the last; ``wall``: the run's
        wall time in microseconds."""
        times = ((after - before) / 1000 for before, after in pairwise(stamps))
        calls = tuple(KernelTime(n, t) for n, t in zip(names, times, strict=True))
        return Report(function, calls, wall, tuple(collectives), stamps[0] / 1000)

    @staticmethod
    def together(reports: Sequence[Report]) -> Report:
        """The reports of all ranks, by rank, as one."""
        return reports[0] if len(reports) == 1 else replace(reports[0], ranks=tuple(reports))

    def with_counts(self, counts: Sequence[tuple[int, int] | None]) -> Report:
        """With FLOPs and bytes of each kernel call."""
        pairs = zip(self.calls, (c or (None, None) for c in counts), strict=True)
        return replace(self, calls=tuple(replace(call, flops=c[0], bytes=c[1]) for call, c in pairs))

    def with_layers(self, layers: Sequence[str | None]) -> Report:
        """With the layer of each kernel call."""
        return replace(self, calls=tuple(replace(c, layer=n) for c, n in zip(self.calls, layers, strict=True)))

    def with_schedules(self, chosen: Sequence[Chosen | None]) -> Report:
        """With what the schedule of each kernel call chose."""
        return replace(self, calls=tuple(replace(c, chosen=s) for c, s in zip(self.calls, chosen, strict=True)))

    @property
    def total(self) -> float:
        return sum(call.microseconds for call in self.calls)

    @property
    def waited(self) -> float:
        """Microseconds that this rank waited for collectives, starting them included."""
        return time_waited(self.collectives)

    @property
    def own(self) -> float:
        """Microseconds of the call without those: a slow rank has more, and the others wait for it."""
        return self.wall - self.waited

    @property
    def hidden(self) -> float | None:
        """The share of the time with collectives in flight in which the ranks computed; None without collectives."""
        return hidden_on([report.collectives for report in self.all_ranks])

    @property
    def rank_times(self) -> RankTimes:
        """How long the call took on each rank, without what it waited: ``rank_times.slowest`` is the slowest one."""
        return RankTimes(tuple(report.own / 1e6 for report in self.all_ranks), 1)

    @property
    def all_ranks(self) -> tuple[Report, ...]:
        """The reports of all ranks; of one alone, this one."""
        return self.ranks or (self,)

    def layers(self) -> dict[str | None, KernelTime]:
        """The calls of each layer as one, in the order in which the layers first run; None stands for what is in no
        layer."""
        found: dict[str | None, list[KernelTime]] = {}
        for call in self.calls:
            found.setdefault(call.layer, []).append(call)
        return {layer: replace(_added(layer or "", calls), layer=layer) for layer, calls in found.items()}

    def groups(self) -> list[tuple[KernelTime, int]]:
        """Calls of kernels that do the same, as one with their time, FLOPs and bytes added up, and how many they are:
        the most expensive first. Names differ at most by a number at their end."""
        alike: dict[tuple[Any, ...], list[KernelTime]] = {}
        for call in self.calls:
            alike.setdefault((re.sub(r"_\d+$", "", call.name), call.flops, call.bytes), []).append(call)
        found = [(_added(calls[0].name, calls), len(calls)) for calls in alike.values()]
        return sorted(found, key=lambda group: -group[0].microseconds)

    def rows(
        self, gflops: float | None = None, gigabytes_per_second: float | None = None, most: int | None = MOST_ROWS
    ) -> list[list[str]]:
        """The table: a heading, then a row for each of :meth:`groups`, at most so many, and one for the rest. With the
        machine's limits there is a last column: the share of the roofline that they give."""
        limits = None if gflops is None or gigabytes_per_second is None else (gflops, gigabytes_per_second)
        groups = self.groups()
        if most is not None and len(groups) > most + 1:
            rest = groups[most:]
            others = _added(f"{len(rest)} others", [call for call, _ in rest])
            groups = [*groups[:most], (others, sum(count for _, count in rest))]
        counts = ["calls"] if any(count > 1 for _, count in groups) else []
        layers = ["layer"] if any(call.layer is not None for call in self.calls) else []
        rows = [["kernel", *layers, *counts, "µs", "share", "GFLOP/s", "GB/s", *(["roofline"] if limits else [])]]
        total = self.total or 1.0
        for call, count in groups:
            rates = [_rate(call.gflops), _rate(call.gigabytes_per_second)]
            times = [f"{call.microseconds:.2f}", f"{call.microseconds / total:.1%}"]
            row = [call.name, *times, *rates]
            row[1:1] = [*([call.layer or ""] if layers else []), *([str(count)] if counts else [])]
            if limits:
                share = call.share_of_roofline(*limits)
                row.append("" if share is None else f"{share:.0%}")
            rows.append(row)
        return rows

    @property
    def title(self) -> str:
        name = f"{self.function}, rank 0 of {len(self.ranks)}" if self.ranks else self.function
        return f"{name}: {self.total:.1f} µs in {len(self.calls)} kernels, {self.wall:.1f} µs with the call"

    def table(
        self, gflops: float | None = None, gigabytes_per_second: float | None = None, most: int | None = MOST_ROWS
    ) -> Table:
        """The table, for ``rich.print`` and notebooks. The machine's limits for float32 are the caller's to know:
        GFLOP/s, GB/s."""
        heading, *rows = self.rows(gflops, gigabytes_per_second, most)
        return Table(heading, rows, self.title, left=heading.index("calls" if "calls" in heading else "µs"))

    def schedule_table(self, most: int | None = MOST_ROWS) -> Table | None:
        """A row for each of :meth:`groups`, at most so many: the measured rate, the one that the schedule estimates for
        as many threads as there are, and what it chose. None where no kernel has a schedule."""
        groups = [call for call, _ in self.groups()[:most] if call.chosen is not None]
        rates = [call.rates for call in groups]
        widths = [max(map(len, column)) for column in zip(*rates, strict=True)]
        rows = [
            [call.name, *(rate.rjust(width) for rate, width in zip(own, widths, strict=True)), call.chosen.text]
            for call, own in zip(groups, rates, strict=True)
            if call.chosen is not None
        ]
        return Table(SCHEDULES, rows, f"{self.function}: schedules", left=len(SCHEDULES)) if rows else None

    def chrome_trace(self, path: str | Path) -> None:
        """Write the calls as trace events (the format of chrome://tracing), one after another. Each rank is a process,
        whose second row are its collectives in flight (and a third, where two are at a time)."""
        events = trace_events(self.all_ranks)
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))

    def collective_table(self) -> Table | None:
        """A row for each kind of collective: how many, the bytes of their arrays and those that a rank sent, for how
        long one was in flight, how long a rank waited, and the share hidden. Of several ranks, the mean. None without
        collectives."""
        ranks = [report.collectives for report in self.all_ranks]
        return collective_table(ranks, self.function) if any(ranks) else None

    def rank_table(self) -> Table | None:
        """A row for each rank: the time of its call, without what it waited, and how much of its collectives' time was
        hidden. None for one rank."""
        if not self.ranks:
            return None
        rows = []
        for rank, report in enumerate(self.ranks):
            times = (report.wall, report.own, report.waited, time_in_flight(report.collectives))
            rows.append(
                [str(rank), *(f"{t:.2f}" for t in times), "" if report.hidden is None else f"{report.hidden:.0%}"]
            )
        heading = ["rank", "µs", "own µs", "µs waited", "µs in flight", "hidden"]
        return Table(heading, rows, f"{self.function}: {self.rank_times.line}")

    def __str__(self) -> str:
        heading, *rows = self.rows()
        tables = [Table(heading, rows, self.title, left=2 if "layer" in heading else 1), *self._more_tables()]
        return "\n\n".join(map(_compact, tables))

    def _more_tables(self) -> list[Table]:
        found = (self.schedule_table(), self.collective_table(), self.rank_table())
        return [table for table in found if table is not None]

    def __rich__(self) -> Any:
        return stacked([self.table(), *self._more_tables()])

    def __repr__(self) -> str:
        return f"Report({self.title})"

    def _repr_html_(self) -> str:
        """In a notebook: the time of each layer, where layers are known, and of each kernel, what schedules chose, and
        what ranks waited for."""
        tables = (self.layer_table(), self.table(), *self._more_tables())
        return "".join(table.html() for table in tables if table is not None)

    def layer_table(self) -> Table | None:
        """Time, FLOPs and their rate by layer, the backward part of each included; None where no layer is known."""
        layers = self.layers()
        if set(layers) <= {None}:
            return None
        total = self.total or 1.0
        rows = []
        for layer, call in sorted(layers.items(), key=lambda item: item[0] is None):
            times = [f"{call.microseconds:.2f}", f"{call.microseconds / total:.1%}"]
            name = REST if layer is None else layer or WHOLE_MODEL
            rows.append([name, *times, "" if call.flops is None else f"{call.flops:,}", _rate(call.gflops)])
        return Table(["layer", "µs", "share", "FLOPs", "GFLOP/s"], rows, f"{self.function}: by layer")


def median_run(walls: Sequence[float]) -> int:
    """The number of the run whose time is the median; of an even number, the lower."""
    return sorted(range(len(walls)), key=walls.__getitem__)[(len(walls) - 1) // 2]


def _compact(table: Table) -> str:
    """A table as plain text without lines."""
    rows = [table.heading, *table.rows, *([table.last] if table.last else [])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.heading))]
    last = len(widths) - 1
    lines = [
        "  ".join(
            c if k == last and k < table.left else c.ljust(w) if k < table.left else c.rjust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([table.title, *lines])


def _added(name: str, calls: Sequence[KernelTime]) -> KernelTime:
    """Several calls as one."""
    flops, moved = [c.flops for c in calls], [c.bytes for c in calls]
    layers = list(dict.fromkeys(c.layer for c in calls if c.layer is not None))
    return KernelTime(
        name,
        sum(c.microseconds for c in calls),
        None if None in flops else sum(f for f in flops if f is not None),
        None if None in moved else sum(b for b in moved if b is not None),
        _several(layers),
        _chosen(calls),
    )


def _chosen(calls: Sequence[KernelTime]) -> Chosen | None:
    """Of several calls, if all have a schedule; where they are not alike, that of the first."""
    found = [c.chosen for c in calls if c.chosen is not None]
    if len(found) < len(calls) or not found:
        return None
    others = len({c.text for c in found}) - 1
    text = found[0].text + (f"; and {others} more" if others else "")
    return Chosen(text, sum(c.microseconds for c in found), found[0].multiplies)


def _several(names: Sequence[str]) -> str | None:
    """Names in few words."""
    if not names:
        return None
    named = [name or WHOLE_MODEL for name in names]
    return ", ".join(named if len(named) <= 2 else [named[0], f"{len(named) - 1} more"])


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
