"""Numeric kernels with loops, differentiated: the value and the gradients of each, beside JAX's in the same rounds.

The kernels are those of ``benchmarks/numerics``; each side has its own form of them, as its users would write it. The
sides' results are compared.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.numerics import KERNELS
from benchmarks.report import TableText
from benchmarks.suite import KEEP_MEMORY

PEERS = {"jax": "numerics_jax"}  # name: worker
PRESETS = ("S", "M")
TOLERANCE = 1e-6  # relative, of the norms of what the sides compute


def run(
    names: Sequence[str],
    preset: str,
    peers: Sequence[str],
    rounds: int,
    seconds: float,
    threads: int,
    path: Path | None = None,
    pythons: Mapping[str, str] | None = None,
) -> bool:
    """Measure, print the table, and say whether all of ours ran and all sides computed the same.

    ``pythons``: of peers that have an environment of their own.
    """
    report.heading("loops")
    arguments = (",".join(names), preset)
    sides = [Side("pullback", "numerics_pullback", arguments, threads=threads, environment=KEEP_MEMORY)]
    sides += [Side(p, PEERS[p], arguments, (pythons or {}).get(p, sys.executable), threads, KEEP_MEMORY) for p in peers]
    with report.console.status("starting") as status:
        ours, *others = measure(sides, rounds, seconds, say=status.update)
    good = ours.failure is None and not ours.failures
    for m in (ours, *others):
        for name, why in m.failures.items():
            report.console.print(f"[red]{m.side.name} cannot compute {name}: {report.shortened(why, 100)}[/red]")
    for m in others:
        good &= agrees(m, ours)
    table = TableText(
        f"value and gradients, sizes {preset}, float64, {threads} threads",
        columns(others),
        rows(names, preset, ours, others),
    )
    table.show()
    report.warnings([ours, *others])
    if path is not None:
        report.write_json(path, "loops", {}, [ours, *others], [table], preset=preset)
    return good


def agrees(peer: Measurement, ours: Measurement) -> bool:
    """Whether a peer computed what we did, of all that both could; tells what differs."""
    good = True
    for name, norms in peer.results.items():
        expected = ours.results.get(name, norms)
        if not all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(norms, expected, strict=True)):
            report.console.print(f"[red]{peer.side.name} and pullback compute different things for {name}[/red]")
            good = False
    return good


def columns(others: Sequence[Measurement]) -> list[str]:
    names = [m.side.name for m in others]
    times = [part for name in names for part in (name, f"time / {name}'s")]
    return ["kernel", "sizes", "pullback", *times, "first call", *(f"{name}'s" for name in names)]


def rows(names: Sequence[str], preset: str, ours: Measurement, others: Sequence[Measurement]) -> list[list[str]]:
    """A row for each kernel, and the geometric means."""
    found = []
    for name in names:
        sizes = ", ".join(f"{k} {v}" for k, v in KERNELS[name].sizes[preset].items())
        beside = [part for m in others for part in (_time(m, name), _shown(ratio(ours, m, name)))]
        firsts = [_first(m, name) for m in (ours, *others)]
        found.append([KERNELS[name].title, sizes, _time(ours, name), *beside, *firsts])
    means = []
    for m in others:
        ratios = [r for name in names if (r := ratio(ours, m, name)) is not None]
        means += ["", _shown(statistics.geometric_mean(ratios) if ratios else None)]
    return [*found, ["geometric mean", "", "", *means, *[""] * (1 + len(others))]]


def ratio(ours: Measurement, peer: Measurement, name: str) -> float | None:
    """Our time over a peer's: the median over the rounds; None where one of them has none."""
    pairs = zip(ours.rounds.get(name, ()), peer.rounds.get(name, ()), strict=False)
    ratios = [a / b for a, b in pairs]
    return statistics.median(ratios) if ratios else None


def _time(m: Measurement, name: str) -> str:
    seconds = m.seconds(name)
    return "" if seconds is None else report.duration(seconds)


def _first(m: Measurement, name: str) -> str:
    seconds = m.about.get("first calls", {}).get(name)
    return "" if seconds is None else report.duration(seconds)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
