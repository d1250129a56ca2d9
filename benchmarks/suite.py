"""Timing a suite of kernels (`benchmarks/kernels`): every side, in turns, against the roofline of each kernel."""

from __future__ import annotations

import importlib.util
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peak, report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.kernels.case import Case
from benchmarks.kernels.suites import SUITES
from benchmarks.peak import Peak

OURS = ("pullback", "limit")  # no other library
CHUNK = 24  # cases that a process holds at a time
NORM_TOLERANCE = 1e-3
# Freed memory stays with the process, on every side alike: else large results are timed with their page faults.
KEEP_MEMORY = (("MALLOC_MMAP_THRESHOLD_", str(1 << 40)), ("MALLOC_TRIM_THRESHOLD_", str(1 << 40)))


@dataclass
class Suite:
    """The cases of a suite and what was measured of them. ``limit``: the C loops of the same rounds."""

    name: str
    cases: list[Case]
    sides: list[Measurement]
    peaks: dict[int, Peak]
    limit: Measurement | None = None

    def case(self, label: str) -> Case:
        return next(case for case in self.cases if case.label == label)

    def floor(self, case: Case, threads: int) -> float:
        """Seconds at the roofline."""
        return self.peaks[threads].floor_seconds(case.flops, case.read, case.written)

    def memory_floor(self, case: Case, threads: int) -> float:
        """Seconds at the bandwidth of the level that holds the case, whatever is computed."""
        return self.peaks[threads].floor_seconds(0, case.read, case.written)

    def share(self, case: Case, side: Measurement) -> float | None:
        """Of the roofline; None where the case was not run."""
        seconds = side.seconds(case.label)
        return None if seconds is None else self.floor(case, side.side.threads) / seconds

    def share_beside(self, case: Case, side: Measurement) -> float | None:
        """Of the roofline that C loops reached in the same rounds: the median of them."""
        ours, limit = side.rounds.get(case.label), self.limit.rounds.get(case.label) if self.limit else None
        if not ours or not limit:
            return None
        return statistics.median(least / seconds for least, seconds in zip(limit, ours, strict=True))

    def share_undisturbed(self, case: Case, side: Measurement) -> float | None:
        """Of the roofline, in the quickest steps, which are those that nobody else's use of the machine slowed."""
        quick = side.quick.get(case.label)
        return self.floor(case, side.side.threads) / min(quick) if quick else None

    def agrees(self) -> bool:
        """Whether all sides computed the same; tells which did not, and which cases could not be run."""
        good = True
        for side in self.sides:
            for label, why in side.failures.items():
                report.console.print(
                    f"[red]{side.side.name} cannot compute {label}: {report.shortened(why, 100)}[/red]"
                )
                good = good and not side.side.name.startswith("pullback")
            for label, norms in side.results.items():
                expected = next(s.results[label] for s in self.sides if label in s.results)
                if not all(math.isclose(a, b, rel_tol=NORM_TOLERANCE) for a, b in zip(norms, expected, strict=True)):
                    report.console.print(f"[red]{side.side.name} computes something else for {label}[/red]")
                    good = False
        return good and all(side.failure is None for side in self.sides if side.side.name.startswith("pullback"))

    def write(self, path: Path | None, tables: list[report.TableText]) -> None:
        if path is not None:
            costs = {
                case.label: {
                    "name": case.name, "kind": case.kind, "flops": case.flops, "read": case.read,
                    "written": case.written, "floor_seconds": {n: self.floor(case, n) for n in self.peaks},
                }
                for case in self.cases
            }  # fmt: skip
            sides = [*self.sides, *([self.limit] if self.limit else [])]
            report.write_json(path, self.name, self.peaks, sides, tables, cases=costs)


def measure_suite(
    name: str,
    libraries: list[str],
    rounds: int,
    seconds: float,
    threads: tuple[int, ...] = (2,),
    together: bool = False,
) -> Suite:
    """Run the suite's cases for each library that is installed (ours, and the "limit" in C, always), and measure the
    machine's limits. ``together``: cases are compared with each other, so each round has all of them."""
    cases = SUITES[name]()
    chunk = len(cases) if together else CHUNK
    found = [lib for lib in libraries if lib in OURS or importlib.util.find_spec(lib) is not None]
    peaks = peak.measure(*threads)
    merged: dict[str, Measurement] = {}
    with report.console.status("starting") as status:
        for first in range(0, len(cases), chunk):
            last = min(first + chunk, len(cases))
            place = f"kernels {first + 1} to {last} of {len(cases)}: "
            sides = [_side(lib, name, first, last, n, len(threads) > 1 and n > 1) for n in threads for lib in found]
            for m in measure(sides, rounds, seconds, say=lambda line, place=place: status.update(place + line)):
                merged.setdefault(m.side.name, m).merge(m)
    peaks = peak.better(peaks, peak.measure(*threads))
    limit = merged.pop("limit", None)
    if limit is not None:
        rates = [1e-9 * case.flops / seconds for case in cases for seconds in limit.rounds.get(case.label, [])]
        peaks = peak.raised(peaks, limit.side.threads, rates)
    return Suite(name, cases, list(merged.values()), peaks, limit)


def _side(library: str, suite: str, first: int, last: int, threads: int, told: bool) -> Side:
    name = f"{library}, {threads} threads" if told else library
    arguments = (suite, str(first), str(last))
    return Side(name, f"kernels_{library}", arguments, threads=threads, environment=KEEP_MEMORY)
