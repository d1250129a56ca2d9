"""Matrix products against the machine's FMA peak, with NumPy's and PyTorch's beside."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from benchmarks import peak, peak_tir, report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.peak import Peak
from benchmarks.workers import gemm_case

LIBRARIES = ("pullback", "numpy", "torch")
SQUARE = "512 NN"
PEAK_BAR, SQUARE_BAR, OTHER_BAR, SPEED_UP_BAR = 0.95, 0.90, 0.70, 1.8


def run(rounds: int, seconds: float, json_path: Path | None = None) -> bool:
    """Measure, print, and say whether pullback reaches its bars."""
    report.heading("matrix products")
    peaks = peak.measure(1, 2)
    names = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
    single = [Side(name, f"gemm_{name}", threads=1) for name in names]
    double = [replace(side, name=f"{side.name}, 2 threads", threads=2) for side in single]
    with report.console.status("starting") as status:
        measurements = measure(single + double, rounds, seconds, say=status.update)
    peaks = peak.better(peaks, peak.measure(1, 2))
    report.limits(peaks)
    _print(measurements, peaks)
    ours, theirs = peak_tir.compare()
    met = _print_bars({m.side.name: m for m in measurements}, peaks[1], ours / theirs if theirs else None)
    report.warnings(measurements)
    if json_path is not None:
        report.write_json(json_path, "gemm", peaks, measurements)
    return met


def _print(measurements: list[Measurement], peaks: dict[int, Peak]) -> None:
    rows = []
    for m in measurements:
        if m.failure is not None:
            rows.append([m.side.name, "failed", *[""] * (len(gemm_case.SHAPES) - 1)])
            continue
        rates = {case: _gflops(m, case) for case in gemm_case.SHAPES}
        limit = peaks[m.side.threads].gflops
        rows.append([m.side.name, *(f"{rate:.1f} ({rate / limit:.0%})" for rate in rates.values())])
    report.table("GFLOP/s (share of the peak of as many threads)", ["side", *gemm_case.SHAPES], rows)


def _gflops(m: Measurement, case: str) -> float:
    seconds = m.seconds(case)
    return 0.0 if seconds is None else gemm_case.flops(case) / seconds * 1e-9


def _print_bars(measurements: dict[str, Measurement], limit: Peak, own_peak: float | None) -> bool:
    """The project's own bars, met or missed. ``own_peak``: a loop of multiply-adds of ours over the same loop in C."""
    one, two = measurements["pullback"], measurements["pullback, 2 threads"]
    square = _gflops(one, SQUARE)
    bars = [
        ("512^3, one thread, share of the peak", square / limit.gflops, SQUARE_BAR),
        *(
            (f"{case}, one thread, share of the peak", _gflops(one, case) / limit.gflops, OTHER_BAR)
            for case in gemm_case.SHAPES
            if case != SQUARE
        ),
        ("512^3, two threads over one", _gflops(two, SQUARE) / square if square else 0.0, SPEED_UP_BAR),
    ]
    if own_peak is not None:
        bars.insert(0, ("multiply-adds in the loop IR over the same loop in C", own_peak, PEAK_BAR))
    rows = [
        [what, f"{value:.2f}", f">= {bar:.2f}", "[green]met[/green]" if value >= bar else "[red]missed[/red]"]
        for what, value, bar in bars
    ]
    report.table("bars", ["what", "pullback", "bar", ""], rows)
    return all(value >= bar for _, value, bar in bars)
