"""Matrix products against the machine's FMA peak, with NumPy's and PyTorch's beside."""

from __future__ import annotations

from pathlib import Path

from benchmarks import peak_tir, report
from benchmarks.harness import Measurement
from benchmarks.kernels.suites import GEMM
from benchmarks.peak import Peak
from benchmarks.suite import Suite, measure_suite

SQUARE = GEMM[0].label
PEAK_BAR, SQUARE_BAR, OTHER_BAR, SPEED_UP_BAR = 0.95, 0.90, 0.70, 1.8


def run(rounds: int, seconds: float, json_path: Path | None = None) -> bool:
    """Measure, print, and say whether pullback reaches its bars."""
    report.heading("matrix products")
    suite = measure_suite("gemm", ["pullback", "numpy", "torch"], rounds, seconds, (1, 2))
    report.limits(suite.peaks)
    title, columns = "GFLOP/s (share of the peak of as many threads)", ["side", *(case.label for case in suite.cases)]
    ours, theirs = peak_tir.compare()
    bars = _bars(suite, ours / theirs if theirs else None)
    verdicts = [[what, f"{value:.2f}", f">= {bar:.2f}", report.verdict(value >= bar)] for what, value, bar in bars]
    tables = [
        report.TableText(title, columns, gemm_rows(suite)),
        report.TableText("bars", ["what", "pullback", "bar", ""], verdicts),
    ]
    for table in tables:
        table.show()
    report.warnings(suite.sides)
    suite.write(json_path, tables)
    return suite.agrees() and all(value >= bar for _, value, bar in bars)


def gemm_rows(suite: Suite) -> list[list[str]]:
    rows = []
    for side in suite.sides:
        limit = suite.peaks[side.side.threads]
        rates = [(case.label in side.rounds, _gflops(suite, side, case.label)) for case in suite.cases]
        cells = [f"{rate:.1f} ({rate / limit.gflops:.0%})" if there else "failed" for there, rate in rates]
        rows.append([side.side.name, *cells])
    return rows


def _gflops(suite: Suite, side: Measurement, label: str) -> float:
    seconds = side.seconds(label)
    return 0.0 if seconds is None else suite.case(label).flops / seconds * 1e-9


def _bars(suite: Suite, own_peak: float | None) -> list[tuple[str, float, float]]:
    """The project's own bars. ``own_peak``: a loop of multiply-adds of ours over the same loop in C."""
    sides = {side.side.name: side for side in suite.sides}
    one, two = sides["pullback"], sides["pullback, 2 threads"]
    limit: Peak = suite.peaks[1]
    square = _gflops(suite, one, SQUARE)
    bars = [
        ("512^3, one thread, share of the peak", square / limit.gflops, SQUARE_BAR),
        *(
            (f"{case.label}, one thread, share of the peak", _gflops(suite, one, case.label) / limit.gflops, OTHER_BAR)
            for case in suite.cases[1:]
        ),
        ("512^3, two threads over one", _gflops(suite, two, SQUARE) / square if square else 0.0, SPEED_UP_BAR),
    ]
    if own_peak is not None:
        bars.insert(0, ("multiply-adds in the loop IR over the same loop in C", own_peak, PEAK_BAR))
    return bars
