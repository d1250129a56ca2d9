"""What a step of an exported library costs, beside one of the trainer: see workers/export_pullback.py. With peers, also
beside what they train with on devices, from the same weights, on the same batch, with as many threads.

Every side has a process of its own, and they take turns in every round; a ratio is the median over the rounds. Peers
have no loop of their own: a step of theirs, and of the library beside them, is a call from Python.
"""

from __future__ import annotations

import math
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import report
from benchmarks.harness import Measurement, Side, measure
from benchmarks.models import MODELS as ALL_MODELS
from benchmarks.report import TableText
from benchmarks.workers.export_pullback import STEPS

MODELS = tuple(STEPS)
PEERS = {"litert": "export_litert", "ort-training": "export_ort"}  # name: worker
MOST = 1.03  # of the library's step beside the trainer's
TOLERANCE = 1e-4  # relative, of a peer's first losses beside the library's
COLUMNS = ["side", "optimizer", "step", "quickest tenth", "ratio", "library", "model", "in one file"]
SIZES = ("library bytes", "model bytes", "whole bytes")


def run(
    models: Sequence[str],
    rounds: int,
    seconds: float,
    threads: int,
    path: Path | None = None,
    peers: Sequence[str] = (),
    pythons: Mapping[str, str] | None = None,
) -> bool:
    """Measure, print, and say whether no library is slower than its trainer by more than 3 %, and no peer that ran has
    other losses.

    ``pythons``: of peers that have an environment of their own.
    """
    report.heading("export")
    sides = [
        Side(f"{name} {form}", "export_pullback", (name, form), threads=threads)
        for name in models
        for form in ("trainer", "library")
    ]
    beside = [side for name in models for side in sides_beside(name, peers, pythons or {}, threads)]
    measured = measure([*sides, *beside], rounds, seconds, say=lambda line: report.console.print(f"[dim]{line}[/dim]"))
    own, others = measured[: len(sides)], measured[len(sides) :]
    rows, good = [], True
    for name, trainer, library in zip(models, own[::2], own[1::2], strict=True):
        ratio = _ratio(library, trainer, "run")
        good = good and ratio <= MOST
        rows.append([name, *(_step(m, name) for m in (trainer, library)), f"{ratio:.2f}"])
    tables = [TableText(f"a step, {threads} threads", ["model", "trainer", "library", "ratio"], rows)]
    for start, name in zip(range(0, len(others), 1 + len(peers)), models, strict=False):
        library, *them = others[start : start + 1 + len(peers)]
        agreeing = [losses_agree(m, library) for m in them]
        good = good and library.failure is None and all(agreeing)
        batch = len(ALL_MODELS[name].data()[1])
        title = f"{name}, batch {batch}, {threads} threads: a step called from Python, and the files that it needs"
        tables.append(TableText(title, COLUMNS, [row_beside(m, library) for m in (library, *them)]))
    for table in tables:
        table.show()
    report.warnings(measured)
    if path is not None:
        report.write_json(path, "export", {}, measured, tables)
    return good


def sides_beside(model: str, peers: Sequence[str], pythons: Mapping[str, str], threads: int) -> list[Side]:
    """The library, and the peers that are compared with it; nothing where there are none."""
    if not peers:
        return []
    library = Side(f"{model} library step", "export_pullback", (model, "step"), threads=threads)
    return [
        library,
        *(Side(f"{model} {p}", PEERS[p], (model,), pythons.get(p, sys.executable), threads) for p in peers),
    ]


def losses_agree(peer: Measurement, library: Measurement) -> bool:
    """Whether a peer that ran has the library's losses: the first ten, or the first one where its optimizer is another.
    One that has not is marked as failed."""
    if peer.failure is not None or library.failure is not None:
        return True
    steps = None if peer.about["same optimizer"] else 1
    ours, theirs = (m.results["step"][:steps] for m in (library, peer))
    for step, (loss, expected) in enumerate(zip(theirs, ours, strict=True)):
        if not math.isclose(loss, expected, rel_tol=TOLERANCE):
            peer.failure = f"its loss of step {step + 1} is {loss:.6g}, the library's is {expected:.6g}"
            return False
    return True


def row_beside(m: Measurement, library: Measurement) -> list[str]:
    """A row of the table of peers; of a side that failed, its own words."""
    step = m.seconds("step")
    if m.failure is not None or step is None:
        words = re.sub(r"^[\w.]+Error: ", "", m.failure or "failed")
        return [m.side.name, report.shortened(words), *[""] * (len(COLUMNS) - 2)]
    sizes = [report.size(m.about[key]) if key in m.about else "" for key in SIZES]
    times = [report.duration(seconds) for seconds in (step, min(m.quick["step"]))]
    return [m.side.name, m.about["optimizer"], *times, f"{_ratio(m, library, 'step'):.2f}", *sizes]


def _step(measurement: Measurement, name: str) -> str:
    return measurement.failure or report.duration((measurement.seconds("run") or 0.0) / STEPS[name])


def _ratio(one: Measurement, other: Measurement, case: str) -> float:
    pairs = zip(one.rounds.get(case, ()), other.rounds.get(case, ()), strict=False)
    ratios = [own / theirs for own, theirs in pairs]
    return statistics.median(ratios) if ratios else float("nan")
