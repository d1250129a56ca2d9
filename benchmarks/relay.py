"""A training step written in relay, beside the relax trainer's step."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.models import MODELS
from benchmarks.report import TableText
from benchmarks.training import losses_agree

MOST = 1.2  # of the relax step's time
TOLERANCE = 1e-4  # relative, of ten losses
RELAX, KINDS = "relax", ("vm", "aot")
COLUMNS = ["step", "time", "rounds", "beside relax", "first step"]


def run(rounds: int, seconds: float, threads: int, path: Path | None = None) -> bool:
    """Measure, print, and say whether relay's steps take no more than 1.2 times as long, and learn the same."""
    report.heading("relay")
    sides = [Side(name, "relay_pullback", (name,), threads=threads) for name in (RELAX, *KINDS)]
    measured = measure(sides, rounds, seconds, say=lambda line: report.console.print(f"[dim]{line}[/dim]"))
    table = TableText(f"{MODELS['mlp'].title}, {threads} threads", COLUMNS, [row(m, measured[0]) for m in measured])
    table.show()
    good = losses_agree(measured, TOLERANCE)
    report.warnings(measured)
    if path is not None:
        report.write_json(path, "relay", {}, measured, [table])
    fast = all(m.failure is None and ratio(m, measured[0]) <= MOST for m in measured)
    report.console.print(f"at most {MOST} of the relax step: {report.verdict(fast)}")
    return good and fast


def row(one: Measurement, relax: Measurement) -> list[str]:
    """A row of the table; of a side that failed, its own words."""
    step = one.seconds("step")
    if one.failure is not None or step is None:
        return [one.side.name, report.shortened(one.failure or "failed"), *[""] * (len(COLUMNS) - 2)]
    spread = report.spread(one.rounds["step"])
    return [one.side.name, report.duration(step), spread, f"{ratio(one, relax):.2f}", f"{one.first_seconds:.1f} s"]


def ratio(one: Measurement, relax: Measurement) -> float:
    """The median over the rounds of a step's time divided by relax's; NaN where there is none."""
    pairs = zip(one.rounds.get("step", ()), relax.rounds.get("step", ()), strict=False)
    ratios = [own / other for own, other in pairs]
    return statistics.median(ratios) if ratios else float("nan")
