"""How much processor time a cold compile takes, and how it grows with depth, width and the number of branches.

Each compile is a process of its own with an empty cache; its time is what the system says of it and of its workers,
less what it took to import the package and write the graph. ``against`` names another checkout, with an environment of
its own: both are measured in turn, in every round, on the graphs of this one.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import report
from benchmarks.harness import ROOT, THREAD_VARIABLES

GROWTH = 2.3  # of the time, at each doubling
WORKER = ROOT / "benchmarks" / "workers" / "compile_pullback.py"


@dataclass
class Compiled:
    """The compiles of one graph by one checkout: seconds of processor time of each, or why there are none."""

    seconds: list[float] = field(default_factory=list)
    kernels: int = 0
    failure: str | None = None

    @property
    def best(self) -> float | None:
        """The least: others on the machine make a compile longer, never shorter."""
        return min(self.seconds, default=None)


def run(
    networks: Sequence[str], graphs: Sequence[str], sizes: Sequence[int], rounds: int, threads: int,
    against: Path | None, path: Path | None,
) -> bool:  # fmt: skip
    """Measure, print, and say whether no family grows faster than :data:`GROWTH` at a doubling."""
    report.heading("cold compiles")
    checkouts = {"this tree": ROOT} | ({"against": against.resolve()} if against else {})
    cases = [(name, 0) for name in networks] + [(name, size) for name in graphs for size in sizes]
    measured = {(case, side): Compiled() for case in cases for side in checkouts}
    for number in range(rounds):
        for case in cases:
            report.console.print(f"[dim]round {number + 1} of {rounds}: {case[0]} {case[1] or ''}[/dim]")
            for side, root in checkouts.items():
                _compile(measured[case, side], root, *case, threads)
    tables, good = [], True
    if networks:
        tables.append(_networks(networks, list(checkouts), measured))
    if graphs:
        table, good = _growth(graphs, sizes, list(checkouts), measured)
        tables.append(table)
    for table in tables:
        table.show()
    for (case, side), compiled in measured.items():
        if compiled.failure:
            report.console.print(f"[red]{case[0]} {case[1] or ''}, {side}: {compiled.failure}[/red]")
            good = False
    if path is not None:
        times = {f"{n} {size or ''}".strip() + f", {side}": vars(c) for ((n, size), side), c in measured.items()}
        report.write_json(path, "compile", {}, [], tables, times=times)
    return good


def _compile(into: Compiled, root: Path, name: str, size: int, threads: int) -> None:
    """One compile; nothing after one that failed."""
    if into.failure:
        return
    python = root / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory(prefix="pullback-bench-") as cache:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
        environment |= {"PYTHONPATH": str(root), "PULLBACK_CACHE_DIR": cache}
        before = _children()
        command = [str(python if python.exists() else sys.executable), str(WORKER), name, str(size)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        seconds = _children() - before
    if done.returncode:
        into.failure = done.stderr.strip().rsplit("\n", 1)[-1] or f"ended with code {done.returncode}"
        return
    answer = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    into.seconds.append(seconds - answer["before"])
    into.kernels = answer["kernels"]


def _children() -> float:
    """Processor time of all processes that this one has waited for, and of those they have."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _ratio(new: float | None, old: float | None) -> str:
    return f"{new / old:.2f}" if new and old else "-"


def _seconds(compiled: Compiled) -> str:
    return "failed" if compiled.failure else report.duration(compiled.best or 0.0)


Measured = dict[tuple[tuple[str, int], str], Compiled]


def _networks(names: Sequence[str], sides: list[str], measured: Measured) -> report.TableText:
    rows = []
    for name in names:
        found = [measured[(name, 0), side] for side in sides]
        ratio = [_ratio(found[0].best, found[1].best)] if len(found) > 1 else []
        rows.append([name, str(found[0].kernels), *map(_seconds, found), *ratio])
    columns = ["network", "kernels", *sides, *(["ratio"] if len(sides) > 1 else [])]
    return report.TableText("processor time of a cold compile of a training step", columns, rows)


def _growth(
    names: Sequence[str], sizes: Sequence[int], sides: list[str], measured: Measured
) -> tuple[report.TableText, bool]:
    rows, good = [], True
    for name in names:
        for side in sides:
            found = [measured[(name, size), side] for size in sizes]
            steps = [
                (b.best / a.best) ** (1 / _doublings(m, n)) if a.best and b.best else None
                for a, b, m, n in zip(found, found[1:], sizes, sizes[1:], strict=False)
            ]
            known = [s for s in steps if s is not None]
            if side == sides[0]:
                good = good and len(known) == len(steps) and all(s <= GROWTH for s in known)
            growth = f"{max(known):.2f}" if known else "-"
            mean = f"{statistics.geometric_mean(known):.2f}" if known else "-"
            rows.append([f"{name}, {side}", *map(_seconds, found), growth, mean])
    columns = ["graph", *map(str, sizes), f"most per doubling (≤ {GROWTH})", "on average"]
    return report.TableText("processor time as graphs grow", columns, rows), good


def _doublings(small: int, large: int) -> float:
    return math.log2(large / small)
