"""Micro-benchmarks: convolutions, elementwise kernels, and contractions drawn at random, each against its roofline."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement
from benchmarks.kernels.case import Case
from benchmarks.kernels.suites import sensitivity_cases
from benchmarks.report import TableText
from benchmarks.suite import Suite, measure_suite

WORST = 10
SENSITIVITY_BAR = 1.2
LIBRARIES = {
    "elementwise": ["pullback", "torch", "limit"], "random": ["pullback", "limit"], "sensitivity": ["pullback"],
}  # fmt: skip
ROUNDS = {"sensitivity": 15}  # of a suite by default: the dearest of many neighbours is the one with the most noise


def run(name: str, rounds: int, seconds: float, threads: int, json_path: Path | None = None) -> bool:
    """Measure a suite, print its table, and say whether all of it ran and was computed alike."""
    report.heading(name)
    libraries = LIBRARIES.get(name, ["pullback", "torch"])
    suite = measure_suite(name, libraries, rounds, seconds, (threads,), together=name == "sensitivity")
    report.limits(suite.peaks)
    good = suite.agrees()
    tables = {
        "conv": conv_table,
        "elementwise": elementwise_table,
        "random": random_tables,
        "sensitivity": sensitivity_tables,
    }
    shown = tables[name](suite)
    for table in shown:
        table.show()
    report.warnings(suite.sides)
    suite.write(json_path, shown)
    return good


def conv_table(suite: Suite) -> list[TableText]:
    """A row for each shape: forward and the two gradients."""
    by_name: dict[str, list[Case]] = {}
    for case in suite.cases:
        by_name.setdefault(case.name, []).append(case)
    rows = [[name, *(_cell(suite, case) for case in cases)] for name, cases in by_name.items()]
    title = "GFLOP/s (share of the roofline; PyTorch's time / ours)"
    return [TableText(title, ["convolution", "forward", "data gradient", "weight gradient"], rows)]


def elementwise_table(suite: Suite) -> list[TableText]:
    """A row for each form, a column for each level of memory: of the best rates of the run; and, as others may use the
    machine meanwhile, of those that C loops reached in the same rounds."""
    levels = list(dict.fromkeys(case.level for case in suite.cases))  # type: ignore[attr-defined]
    by_form: dict[str, list[Case]] = {}
    for case in suite.cases:
        by_form.setdefault(case.form, []).append(case)  # type: ignore[attr-defined]
    rows = [[form, *(_cell(suite, case, bandwidth=True) for case in cases)] for form, cases in by_form.items()]
    title = "GB/s (share of the bandwidth, and of the arithmetic's rate where that is less; PyTorch's time / ours)"
    (ours, *_), beside = suite.sides, "share of the roofline in the same rounds"
    shares = [
        [
            form,
            *("failed" if share is None else f"{share:.0%}" for share in (suite.share_beside(c, ours) for c in cases)),
        ]
        for form, cases in by_form.items()
    ]
    return [TableText(title, ["kernel", *levels], rows), TableText(beside, ["kernel", *levels], shares)]


def random_tables(suite: Suite) -> list[TableText]:
    """The spread of the shares of the roofline, and the worst: of the best rates of the run; and, as others may use the
    machine meanwhile, of those in the same rounds, and of the best in the quickest steps."""
    (ours,) = suite.sides
    shares = [(share, case) for case in suite.cases if (share := suite.share(case, ours)) is not None]
    shares.sort(key=lambda pair: pair[0])
    if not shares:
        return []
    spreads: dict[str, list[float | None]] = {
        "best of the run": [share for share, _ in shares],
        "in the same rounds": [suite.share_beside(case, ours) for case in suite.cases],
        "best of the run, quickest steps": [suite.share_undisturbed(case, ours) for case in suite.cases],
    }
    rows = [
        [limit, f"{len(values)} of {len(suite.cases)}", f"{statistics.median(values):.0%}", f"{decile(values):.0%}"]
        for limit, known in spreads.items()
        if (values := [share for share in known if share is not None])
    ]
    worst = [[case.label, f"{share:.0%}", _rate(case, ours)] for share, case in shares[:WORST]]
    return [
        TableText("share of the roofline", ["limit", "kernels", "median", "tenth percentile"], rows),
        TableText(f"the {WORST} worst", ["kernel", "share of the roofline", "GFLOP/s"], worst),
    ]


def sensitivity_tables(suite: Suite) -> list[TableText]:
    """Each shape with its dearest neighbour: time for each FLOP, over the shape's own in the same round."""
    (ours,) = suite.sides
    rows = []
    for base, *others in sensitivity_cases():
        own = _per_flop(base, ours)
        pairs = [(_per_flop(case, ours), case) for case in others]
        costs = [
            (statistics.median(cost / before for cost, before in zip(costs, own, strict=True)), case)
            for costs, case in pairs
            if own and costs
        ]
        if costs:
            ratio, case = max(costs, key=lambda pair: pair[0])
            rows.append([base.label, case.label, f"{ratio:.2f}", report.verdict(ratio <= SENSITIVITY_BAR)])
    columns = ["shape", "dearest neighbour", "cost of a FLOP", f"<= {SENSITIVITY_BAR}"]
    return [TableText("one more or less in one dimension", columns, rows)]


def decile(values: list[float]) -> float:
    """The tenth percentile."""
    return statistics.quantiles(values, n=10)[0] if len(values) > 1 else values[0]


def _per_flop(case: Case, side: Measurement) -> list[float]:
    """Of each round."""
    return [seconds / case.flops for seconds in side.rounds.get(case.label, [])]


def _rate(case: Case, side: Measurement) -> str:
    return f"{case.flops / side.seconds(case.label) * 1e-9:.1f}"


def _cell(suite: Suite, case: Case, bandwidth: bool = False) -> str:
    """Our rate, the share of the roofline, and how many times longer PyTorch takes."""
    ours, *others = suite.sides
    seconds, share = ours.seconds(case.label), suite.share(case, ours)
    if seconds is None or share is None:
        return "failed"
    amount, shares = case.flops, f"{share:.0%}"
    if bandwidth:
        amount = case.read + case.written
        of_memory = suite.memory_floor(case, ours.side.threads) / seconds
        shares = f"{of_memory:.0%}" if of_memory == share else f"{of_memory:.0%}, {share:.0%}"
    theirs = others[0].seconds(case.label) if others else None
    beside = "" if theirs is None else f"; {theirs / seconds:.2f}"
    return f"{amount / seconds * 1e-9:.0f} ({shares}{beside})"


TABLES = {
    "conv": conv_table, "elementwise": elementwise_table, "random": random_tables, "sensitivity": sensitivity_tables,
}  # fmt: skip
