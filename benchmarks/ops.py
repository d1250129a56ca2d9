"""Every op, its value and its gradients, at several sizes beside PyTorch."""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

from benchmarks import peak, report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.kernels.ops import KINDS, NONE, OpCase, cases
from benchmarks.report import TableText
from benchmarks.suite import KEEP_MEMORY, NORM_TOLERANCE

WORST = 10
BAR = 1.5
CHUNK = 60  # cases that a process holds at a time, and bytes
CHUNK_BYTES = 1 << 30
RANDOM = ("random.", "dropout", "nn.dropout")  # whose numbers are each side's own


def run(names: list[str], sizes: list[str], rounds: int, seconds: float, threads: int, json_path: Path | None) -> bool:
    """Measure, print the summary and the worst, and say whether everything of ours ran and none missed the bar."""
    report.heading("ops")
    chosen = cases(names, sizes)
    libraries = [lib for lib in ("pullback", "torch") if lib == "pullback" or importlib.util.find_spec(lib) is not None]
    peaks = peak.measure(threads)
    merged: dict[str, Measurement] = {}
    with report.console.status("starting") as status:
        done = 0
        for chunk in _chunks(chosen):
            place = f"calls {done + 1} to {done + len(chunk)} of {len(chosen)}: "
            labels = ",".join(case.label for case in chunk)
            sides = [Side(lib, f"ops_{lib}", (labels,), threads=threads, environment=KEEP_MEMORY) for lib in libraries]
            for m in measure(sides, rounds, seconds, say=lambda line, place=place: status.update(place + line)):
                merged.setdefault(m.side.name, m).merge(m)
            done += len(chunk)
    good = agrees(merged)
    tables = [summary_table(chosen, merged), worst_table(chosen, merged)]
    for table in tables:
        table.show()
    if json_path is not None:
        found = list(merged.values())
        # without the single rounds and norms: there are a thousand calls
        short = [{k: v for k, v in m.as_json().items() if k not in ("rounds", "results")} for m in found]
        peaks = peak.better(peaks, peak.measure(threads))
        report.write_json(json_path, "ops", peaks, found, tables, sides=short)
    return good and all(ratio <= BAR for _, ratio in ratios(chosen, merged))


def _chunks(chosen: list[OpCase]) -> Iterator[list[OpCase]]:
    """Neighbours that fit in memory together."""
    chunk: list[OpCase] = []
    for case in chosen:
        if chunk and (len(chunk) == CHUNK or sum(c.nbytes for c in [*chunk, case]) > CHUNK_BYTES):
            yield chunk
            chunk = []
        chunk.append(case)
    if chunk:
        yield chunk


def agrees(sides: dict[str, Measurement]) -> bool:
    """Whether all sides computed the same; tells which did not, and what of ours could not be run."""
    ours, theirs = sides["pullback"], sides.get("torch")
    for label, why in ours.failures.items():
        report.console.print(f"[red]pullback cannot compute {label}: {report.shortened(why, 100)}[/red]", markup=True)
    for m in sides.values():
        if m.failure is not None:
            report.console.print(f"[red]{m.side.name}: {m.failure}[/red]")
    good = not ours.failures and ours.failure is None
    if theirs is None:
        return good
    for label, why in theirs.failures.items():
        if why != NONE:
            report.console.print(f"[red]torch cannot compute {label}: {report.shortened(why, 100)}[/red]")
    for label, norms in ours.results.items():
        expected = theirs.results.get(label, norms)
        close = (math.isclose(a, b, rel_tol=NORM_TOLERANCE, abs_tol=1e-6) for a, b in zip(norms, expected, strict=True))
        if not label.startswith(RANDOM) and not all(close):
            report.console.print(f"[red]pullback and torch compute different things for {label}[/red]")
            good = False
    return good


def ratios(chosen: list[OpCase], sides: dict[str, Measurement]) -> list[tuple[OpCase, float]]:
    """Our time over PyTorch's, the worst first."""
    ours, theirs = sides["pullback"], sides.get("torch")
    found = []
    for case in chosen if theirs is not None else ():
        a, b = ours.seconds(case.label), theirs.seconds(case.label)
        if a is not None and b is not None:
            found.append((case, a / b))
    return sorted(found, key=lambda pair: -pair[1])


def summary_table(chosen: list[OpCase], sides: dict[str, Measurement]) -> TableText:
    """A row for each size and kind."""
    found = ratios(chosen, sides)
    rows = []
    for size in dict.fromkeys(case.size for case in chosen):
        for kind in KINDS:
            ran = [c for c in chosen if (c.size, c.kind) == (size, kind) and sides["pullback"].seconds(c.label)]
            values = [ratio for case, ratio in found if (case.size, case.kind) == (size, kind)]
            median = f"{statistics.median(values):.2f}" if values else ""
            slower = sum(value > BAR for value in values)
            rows.append([f"{size}, {kind}", str(len(ran)), str(len(values)), median, str(slower)])
    columns = ["elements", "calls", "PyTorch has", "median time / PyTorch's", f"slower than {BAR}"]
    title = "calls of every op (the times of its kernels, beside eager calls of PyTorch, whose views are copied)"
    return TableText(title, columns, rows)


def worst_table(chosen: list[OpCase], sides: dict[str, Measurement], count: int = WORST) -> TableText:
    rows = []
    for case, ratio in ratios(chosen, sides)[:count]:
        times = [report.duration(sides[name].seconds(case.label)) for name in ("pullback", "torch")]
        rows.append([case.op, f"{case.size}, {case.kind}", *times, f"{ratio:.2f}"])
    return TableText(f"the {count} worst", ["op", "elements", "pullback", "torch", "time / PyTorch's"], rows)
