"""The tutorial's MLP training step, 784-128-128-10 at batch 64 with SGD, against the peers."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from benchmarks import peak, report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.workers import mlp_step

OURS = {  # name: (worker, variant)
    "pullback": ("mlp_pullback", "trainer"),
    "pullback-unlegalized": ("mlp_pullback", "trainer-unlegalized"),
    "pullback-functions": ("mlp_pullback", "functions"),
    "pullback-functions-legalized": ("mlp_pullback", "functions-legalized"),
}
PEERS = {
    "torch": ("mlp_torch", "eager"),
    "torch-compile": ("mlp_torch", "compile"),
    "jax": ("mlp_jax", "default"),
    "tvm": ("mlp_tvm", "default"),
}
LOSS_TOLERANCE = 1e-3


def run(
    ours: list[str], peers: list[str], rounds: int, seconds: float, threads: int, cached: bool,
    json_path: Path | None = None, python_tvm: str | None = None,
) -> bool:  # fmt: skip
    """Measure, print, and say whether every side ran and computed the same training."""
    sides = [_side(name, threads, python_tvm) for name in (*ours, *peers)]
    report.heading("MLP training step")
    peaks = peak.measure(1, threads)
    with report.console.status("starting") as status:
        measurements = measure(sides, rounds, seconds, cached=cached, say=status.update)
    peaks = peak.better(peaks, peak.measure(1, threads))
    report.limits(peaks)
    floor = mlp_step.flops() / (peaks[threads].gflops * 1e9)
    _print(measurements, set(peers), floor, threads)
    agree = _losses_agree(measurements)
    report.warnings(measurements)
    if json_path is not None:
        report.write_json(json_path, "mlp", peaks, measurements, floor_seconds=floor)
    return agree and all(m.failure is None for m in measurements)


def _side(name: str, threads: int, python_tvm: str | None) -> Side:
    known = OURS | PEERS
    if name not in known:
        raise ValueError(f"unknown side {name!r}; there are {', '.join(known)}")
    worker, variant = known[name]
    python = python_tvm if name == "tvm" and python_tvm else sys.executable
    return Side(name, worker, variant, python, threads)


def _print(measurements: list[Measurement], peers: set[str], floor: float, threads: int) -> None:
    times = {m.side.name: m.seconds("step") for m in measurements}
    best_peer = min((times[name] for name in peers if times[name] is not None), default=None)
    rows = []
    for m in measurements:
        step = times[m.side.name]
        if m.failure is not None or step is None:
            rows.append([m.side.name, "failed", *[""] * 6])
            continue
        spread = m.rounds["step"]
        rows.append([
            m.side.name,
            f"{step * 1e6:.0f} µs",
            f"{min(spread) * 1e6:.0f}-{max(spread) * 1e6:.0f}",
            "" if best_peer is None else f"{step / best_peer:.2f}",
            f"{floor / step:.0%}",
            f"{m.memory_bytes / 2**20:.1f} MiB",
            f"{m.first_seconds:.2f} s",
            "" if m.cached_first_seconds is None else f"{m.cached_first_seconds:.2f} s",
        ])  # fmt: skip
    report.table(
        f"784-128-128-10, batch 64, SGD, {threads} threads; floor at the FMA peak: {floor * 1e6:.0f} µs",
        ["side", "step", "rounds", "time / best peer", "floor / time", "peak memory", "first step, cold", "cached"],
        rows,
    )


def _losses_agree(measurements: list[Measurement]) -> bool:
    """All sides must train the same model: their first ten losses are compared with the first side's that ran."""
    done = [m for m in measurements if m.results]
    wrong = [m for m in done[1:] if not _close(m.results["step"], done[0].results["step"])]
    for m in wrong:
        report.console.print(
            f"[red]{m.side.name} does not compute the same training as {done[0].side.name}: losses "
            f"{m.results['step']} against {done[0].results['step']}[/red]"
        )
    return not wrong


def _close(losses: list[float], expected: list[float]) -> bool:
    return all(math.isclose(a, b, rel_tol=LOSS_TOLERANCE) for a, b in zip(losses, expected, strict=True))
