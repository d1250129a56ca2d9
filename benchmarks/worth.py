"""What each schedule is worth: the training step with it switched off, over the step with all of them."""

from __future__ import annotations

from pathlib import Path

from benchmarks import peak, report
from benchmarks.harness import Measurement, measure
from benchmarks.models import MODELS
from benchmarks.training import side_of, side_without


def run(models: list[str], schedules: list[str], rounds: int, seconds: float, threads: int, path: Path | None) -> bool:
    """Measure, print, and say whether everything ran."""
    report.heading("what each schedule is worth")
    measured: dict[str, list[Measurement]] = {}
    for model in models:
        sides = [side_of(model, "pullback", threads), *(side_without(model, name, threads) for name in schedules)]
        with report.console.status("starting") as status:
            measured[model] = measure(sides, rounds, seconds, say=lambda line, m=model: status.update(f"{m}: {line}"))
    rows = [
        [name, *(_ratio(sides[0], sides[number]) for sides in measured.values())]
        for number, name in enumerate(schedules, 1)
    ]
    table = report.TableText("the step's time without a schedule, over the time with it", ["without", *models], rows)
    table.show()
    every = [side for sides in measured.values() for side in sides]
    report.warnings(every)
    if path is not None:
        titles = [MODELS[model].title for model in models]
        report.write_json(path, "schedules", peak.measure(threads), every, [table], titles=titles)
    return all(side.failure is None for side in every)


def _ratio(whole: Measurement, without: Measurement) -> str:
    if without.failure is not None or whole.failure is not None:
        return report.shortened(without.failure or whole.failure or "")
    return f"{without.seconds('step') / whole.seconds('step'):.2f}"
