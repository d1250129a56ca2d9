"""The training step of a model of `benchmarks/models`, against the peers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks import peak, report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.models import MODELS

OURS = {  # name: (worker, variant)
    "pullback": ("model_pullback", "trainer"),
    "pullback-legalized": ("model_pullback", "trainer-legalized"),
    "pullback-bfloat16": ("model_pullback", "trainer-bfloat16"),
    "pullback-float16": ("model_pullback", "trainer-float16"),
    "pullback-functions": ("model_pullback", "functions"),
    "pullback-functions-legalized": ("model_pullback", "functions-legalized"),
}
PEERS = {
    "torch": ("model_torch", "eager"),
    "torch-channels-last": ("model_torch", "eager-channels-last"),
    "torch-bfloat16": ("model_torch", "eager-bfloat16"),
    "torch-compile": ("model_torch", "compile"),
    "torch-compile-channels-last": ("model_torch", "compile-channels-last"),
    "torch-compile-whole": ("model_torch", "compile-whole"),
    "jax": ("model_jax", "default"),
    "tvm": ("model_tvm", "default"),
}
MIXED = ("bfloat16", "float16")
MIXED_TOLERANCE = 0.02  # relative, of losses in mixed precision
COLUMNS = ["side", "step", "rounds", "time / best peer", "floor / time", "peak memory", "first step, cold", "cached"]


def run(
    name: str, ours: list[str], peers: list[str], rounds: int, seconds: float, threads: int, cached: bool,
    without: list[str], json_path: Path | None = None, pythons: Mapping[str, str] | None = None,
) -> bool:  # fmt: skip
    """Measure, print, and say whether every one of our sides ran, and all computed the same training.

    ``pythons``: of peers that have an environment of their own.
    """
    sides = [side_of(name, side, threads, (pythons or {}).get(side)) for side in (*ours, *peers)]
    sides += [side_without(name, schedule, threads) for schedule in without]
    model = MODELS[name]
    report.heading(f"training step of {model.title}")
    peaks = peak.measure(1, threads)
    with report.console.status("starting") as status:
        measurements = measure(sides, rounds, seconds, cached=cached, say=status.update)
    peaks = peak.better(peaks, peak.measure(1, threads))
    report.limits(peaks)
    floor = model.flops() / (peaks[threads].gflops * 1e9)
    title = f"{model.title}, {threads} threads; products at the FMA peak: {report.duration(floor)}"
    table = report.TableText(title, COLUMNS, step_rows(measurements, peers, floor))
    table.show()
    agree = losses_agree(measurements, model.loss_tolerance)
    report.warnings(measurements)
    if json_path is not None:
        more = {"title": model.title, "peers": peers, "floor_seconds": floor, "threads": threads}
        report.write_json(json_path, name, peaks, measurements, [table], **more)
    return agree and all(m.failure is None for m in measurements if m.side.name not in peers)


def step_rows(measurements: list[Measurement], peers: list[str], floor: float) -> list[list[str]]:
    """A row for each side; of one that failed, its own words."""
    times = {m.side.name: m.seconds("step") for m in measurements}
    best_peer = min((times[name] for name in peers if times[name] is not None), default=None)
    rows = []
    for m in measurements:
        step, cached = times[m.side.name], m.cached_first_seconds
        if m.failure is not None or step is None:
            rows.append([m.side.name, report.shortened(m.failure or "failed"), *[""] * 6])
            continue
        rows.append([
            m.side.name,
            report.duration(step),
            report.spread(m.rounds["step"]),
            "" if best_peer is None else f"{step / best_peer:.2f}",
            f"{floor / step:.0%}",
            f"{m.memory_bytes / 2**20:.1f} MiB",
            f"{m.first_seconds:.2f} s",
            "" if cached is None else f"{cached:.2f} s",
        ])  # fmt: skip
    return rows


def default_peers(name: str) -> str:
    """The peers that are worth a row: of PyTorch's forms those that were ever the fastest for the kind of model."""
    forms = ["torch", "torch-compile"]
    if name == "mlp":
        forms = ["torch", "torch-compile-whole"]
    elif any(array.ndim == 4 for array in MODELS[name].parameters().values()):
        forms = ["torch", "torch-channels-last", "torch-compile", "torch-compile-channels-last"]
    return ",".join([*forms, "jax"])


def side_of(model: str, name: str, threads: int, python: str | None = None) -> Side:
    """A side by its name, in OURS or PEERS, and the Python that has its packages."""
    known = OURS | PEERS
    if name not in known:
        raise ValueError(f"unknown side {name!r}; there are {', '.join(known)}")
    worker, variant = known[name]
    return Side(name, worker, (model, variant), python or sys.executable, threads)


def side_without(model: str, schedule: str, threads: int) -> Side:
    """Our side with a schedule switched off, to see what it is worth."""
    worker, variant = OURS["pullback"]
    switch = (("PULLBACK_WITHOUT", schedule),)
    return Side(f"pullback without {schedule}", worker, (model, variant), threads=threads, environment=switch)


def losses_agree(measurements: list[Measurement], tolerance: float) -> bool:
    """All sides must train the same model: their first ten losses are compared with the first side's that ran."""
    done = [m for m in measurements if m.results]
    wrong = []
    for m in done[1:]:
        mixed = any(side.side.name.endswith(MIXED) for side in (m, done[0]))
        allowed = max(tolerance, MIXED_TOLERANCE) if mixed else tolerance
        wrong += [m] if not _close(m.results["step"], done[0].results["step"], allowed) else []
    for m in wrong:
        report.console.print(
            f"[red]{m.side.name} does not compute the same training as {done[0].side.name}: losses "
            f"{m.results['step']} against {done[0].results['step']}[/red]"
        )
    return not wrong


def _close(losses: list[float], expected: list[float], tolerance: float) -> bool:
    return all(math.isclose(a, b, rel_tol=tolerance) for a, b in zip(losses, expected, strict=True))
