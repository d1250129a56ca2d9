"""What a step costs that trains the last block of char-GPT alone, beside one that trains all of it: time, and memory.

Each subset has a process of its own, and they take turns in every round; a ratio is the median over the rounds of a
step's time divided by that of the whole step in the same round. Memory is that of the plans, and the same in each run.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.models import MODELS
from benchmarks.report import TableText
from benchmarks.workers.finetune_pullback import subsets

MOST_TIME, MOST_MEMORY = 0.5, 0.4  # of the last block's step, beside the whole one's
MEMORY = ("saved bytes", "arena bytes", "optimizer bytes")
COLUMNS = ["trained", "step", "beside all", "saved for backward", "arena", "optimizer"]


def run(rounds: int, seconds: float, threads: int, path: Path | None = None) -> bool:
    """Measure, print, and say whether the last block takes no more than half of the time, and two fifths of the memory
    of activations."""
    report.heading("finetune")
    model = MODELS["chargpt"]
    sides = [Side(name, "finetune_pullback", (name,), threads=threads) for name in subsets(model)]
    measured = measure(sides, rounds, seconds, say=lambda line: report.console.print(f"[dim]{line}[/dim]"))
    table = TableText(f"{model.title}, {threads} threads", COLUMNS, [row(m, measured[0]) for m in measured])
    table.show()
    report.warnings(measured)
    if path is not None:
        report.write_json(path, "finetune", {}, measured, [table])
    return is_good(*measured[:2])


def row(one: Measurement, whole: Measurement) -> list[str]:
    """A row of the table; of a side that failed, its own words."""
    step = one.seconds("step")
    if one.failure is not None or step is None:
        return [one.side.name, report.shortened(one.failure or "failed"), *[""] * (len(COLUMNS) - 2)]
    sizes = [f"{report.size(one.about[key])} ({share(one, whole, key):.0%})" for key in MEMORY]
    return [one.side.name, report.duration(step), f"{ratio(one, whole):.2f}", *sizes]


def ratio(one: Measurement, whole: Measurement) -> float:
    """The median over the rounds of a step's time divided by the whole one's; NaN where there is none."""
    pairs = zip(one.rounds.get("step", ()), whole.rounds.get("step", ()), strict=False)
    ratios = [own / other for own, other in pairs]
    return statistics.median(ratios) if ratios else float("nan")


def share(one: Measurement, whole: Measurement, key: str) -> float:
    return one.about.get(key, 0) / whole.about[key] if whole.about.get(key) else float("nan")


def is_good(whole: Measurement, last: Measurement) -> bool:
    memory = [share(last, whole, key) <= MOST_MEMORY for key in ("saved bytes", "arena bytes")]
    return whole.failure is last.failure is None and ratio(last, whole) <= MOST_TIME and all(memory)
