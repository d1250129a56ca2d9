"""Training steps of models of PyTorch, imported, beside PyTorch's own: eager, and by torch.compile."""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.imported_cases import CASES, TOLERANCE
from benchmarks.training import losses_agree

OURS = "pullback"
PEERS = {
    "torch": "eager",
    "torch-channels-last": "eager-channels-last",
    "torch-compile": "compile",
    "torch-compile-channels-last": "compile-channels-last",
    "torch-compile-pullback": "compile-pullback",
}
OURS_IN_TORCH = "torch-compile-pullback"  # no peer: PyTorch's loop and optimizer around our forward and backward parts
WORST = 1.1  # of one model's step, beside the best peer's; all together are to be below 1
COLUMNS = ["side", "step", "rounds", "time / best peer", "memory of steps", "first step"]


def run(
    names: list[str], peers: list[str] | None, rounds: int, seconds: float, threads: int, path: Path | None = None
) -> bool:
    """Measure, print, and say whether our steps are ahead on the geometric mean, none is behind by more than a tenth,
    and all sides computed the same losses. Without ``peers``, those that were ever the fastest for such a model."""
    report.heading("imported")
    measured: dict[str, list[Measurement]] = {}
    tables: list[report.TableText] = []
    good = True
    for name in names:
        sides = sides_of(name, default_peers(name) if peers is None else peers, threads)
        with report.console.status(name) as status:
            measured[name] = measure(sides, rounds, seconds, say=lambda line, n=name: status.update(f"{n}: {line}"))
        tables.append(report.TableText(f"{CASES[name].title}, {threads} threads", COLUMNS, rows(measured[name])))
        tables[-1].show()
        good = losses_agree(measured[name], TOLERANCE) and good
        report.warnings(measured[name])
    ratios = {name: ratio(found) for name, found in measured.items()}
    known = {name: r for name, r in ratios.items() if r is not None}
    if known:
        mean, (worst, most) = statistics.geometric_mean(known.values()), max(known.items(), key=lambda item: item[1])
        ahead = mean < 1 and most <= WORST
        report.console.print(
            f"geometric mean of {len(known)} models: {mean:.2f} of the best peer's time; the most is {most:.2f},"
            f" {worst}: {report.verdict(ahead)}"
        )
        good = good and ahead
    if path is not None:
        sides_measured = [m for found in measured.values() for m in found]
        report.write_json(path, "imported", {}, sides_measured, tables, ratios=ratios, threads=threads)
    return good and len(known) == len(names)


def default_peers(name: str) -> list[str]:
    """Of images, channels-last too."""
    peers = [peer for peer in PEERS if peer != OURS_IN_TORCH]
    return [peer for peer in peers if CASES[name].has_images or not peer.endswith("channels-last")]


def sides_of(name: str, peers: list[str], threads: int) -> list[Side]:
    """Ours, and the peers."""
    ours = Side(OURS, "imported_pullback", (name,), threads=threads)
    return [ours, *(Side(peer, "imported_torch", (name, PEERS[peer]), threads=threads) for peer in peers)]


def ratio(measured: list[Measurement]) -> float | None:
    """Our step's time divided by that of the best peer; None where there is none of either."""
    times = _times(measured)
    return times[OURS] / best if OURS in times and (best := _best(times)) is not None else None


def _times(measured: list[Measurement]) -> dict[str, float]:
    """The step of each side that ran."""
    found = {m.side.name: m.seconds("step") for m in measured if m.failure is None}
    return {side: seconds for side, seconds in found.items() if seconds is not None}


def _best(times: dict[str, float]) -> float | None:
    """The best peer's step."""
    return min((seconds for side, seconds in times.items() if side not in (OURS, OURS_IN_TORCH)), default=None)


def rows(sides: list[Measurement]) -> list[list[str]]:
    """A row for each side of a model; of one that failed, its own words."""
    found = []
    times = _times(sides)
    best = _best(times)
    for m in sides:
        step = times.get(m.side.name)
        if step is None:
            found.append([m.side.name, report.shortened(m.failure or "failed"), *[""] * (len(COLUMNS) - 2)])
            continue
        found.append([
            m.side.name,
            report.duration(step),
            report.spread(m.rounds["step"]),
            "" if best is None else f"{step / best:.2f}",
            report.size(m.memory_bytes or 0),
            f"{m.first_seconds:.1f} s",
        ])  # fmt: skip
    return found
