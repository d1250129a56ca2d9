"""What an epoch costs over data in several forms, beside arrays: see workers/data_pullback.py.

Each form has a process of its own, and all take turns in every round. A form's ratio is the median over the rounds of
its epoch's time divided by that of arrays in the same round.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.report import TableText

FORMS = ("arrays", "slices", "shuffled", "uint8", "float64", "examples")
MOST = {"slices": 1.1, "shuffled": 1.1}  # ratio to arrays: of generators that are fast


def run(forms: Sequence[str], rounds: int, seconds: float, threads: int, path: Path | None = None) -> bool:
    """Measure, print, and say whether generators cost at most a tenth more than arrays."""
    report.heading("data")
    wanted = ["arrays", *(form for form in forms if form != "arrays")]
    sides = [Side(form, "data_pullback", (form,), threads=threads) for form in wanted]
    measured = measure(sides, rounds, seconds, say=lambda line: report.console.print(f"[dim]{line}[/dim]"))
    arrays = measured[0]
    ratios = {m.side.name: ratio(m, arrays) for m in measured}
    rows = [
        [m.side.name, m.failure or report.duration(m.seconds("epoch") or 0.0), f"{ratios[m.side.name]:.2f}"]
        for m in measured
    ]
    table = TableText("an epoch of 300 steps, MLP 784-128-128-10, batch 64", ["data", "epoch", "beside arrays"], rows)
    table.show()
    report.warnings(measured)
    if path is not None:
        report.write_json(path, "data", {}, measured, [table])
    return all(m.failure is None and ratios[m.side.name] <= MOST.get(m.side.name, float("inf")) for m in measured)


def ratio(measurement: Measurement, arrays: Measurement) -> float:
    """The median over the rounds of a form's time divided by that of arrays; NaN where there is none."""
    pairs = zip(measurement.rounds.get("epoch", ()), arrays.rounds.get("epoch", ()), strict=False)
    ratios = [own / other for own, other in pairs]
    return statistics.median(ratios) if ratios else float("nan")
