"""What a step of an exported library costs, beside one of the trainer: see workers/export_pullback.py.

Both have a process of their own and take turns in every round; the ratio is the median over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.report import TableText
from benchmarks.workers.export_pullback import STEPS

MODELS = tuple(STEPS)
MOST = 1.03  # of the library's step beside the trainer's


def run(models: Sequence[str], rounds: int, seconds: float, threads: int, path: Path | None = None) -> bool:
    """Measure, print, and say whether no library is slower than its trainer by more than 3 %."""
    report.heading("export")
    sides = [
        Side(f"{name} {form}", "export_pullback", (name, form), threads=threads)
        for name in models
        for form in ("trainer", "library")
    ]
    measured = measure(sides, rounds, seconds, say=lambda line: report.console.print(f"[dim]{line}[/dim]"))
    rows, good = [], True
    for name, trainer, library in zip(models, measured[::2], measured[1::2], strict=True):
        ratio = _ratio(library, trainer)
        good = good and ratio <= MOST
        rows.append([name, *(_step(m, name) for m in (trainer, library)), f"{ratio:.2f}"])
    table = TableText(f"a step, {threads} threads", ["model", "trainer", "library", "ratio"], rows)
    table.show()
    report.warnings(measured)
    if path is not None:
        report.write_json(path, "export", {}, measured, [table])
    return good


def _step(measurement: Measurement, name: str) -> str:
    return measurement.failure or report.duration((measurement.seconds("run") or 0.0) / STEPS[name])


def _ratio(library: Measurement, trainer: Measurement) -> float:
    pairs = zip(library.rounds.get("run", ()), trainer.rounds.get("run", ()), strict=False)
    ratios = [own / other for own, other in pairs]
    return statistics.median(ratios) if ratios else float("nan")
