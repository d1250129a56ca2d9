"""A training step over ranks, beside PyTorch's: data parallel and the stages of ZeRO over MPI, DDP and FSDP2 over gloo.

Each side is a job of as many processes, and trains the same model on the same batch from the same values. All jobs
live during the whole run and take turns in every round, so a ratio is the median of those of the rounds.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.harness import Measurement, measure
from benchmarks.jobs import Job, RunningJob
from benchmarks.report import TableText
from benchmarks.scale_models import MODELS
from benchmarks.training import losses_agree
from pullback.command.mpirun import Launcher
from pullback.relax.training.distribution import NAMES

STAGES = tuple(NAMES)
PEERS = {  # name: variant of the worker
    "torch-ddp": "ddp",
    "torch-zero1": "zero1",
    "torch-fsdp": "fsdp",
    "torch-fsdp-keep": "fsdp-keep",
}
AHEAD_OF = {"data": "torch-ddp", "zero1": "torch-fsdp", "zero2": "torch-fsdp", "zero3": "torch-fsdp"}
TIME_MODELS = ("mlp", "chargpt")
MEMORY_MODELS = ("wide", "chargpt")
CLOSE = 0.05  # relative, of bytes
MEMORY_COLUMNS = [
    "stage", "parameters", "optimizer states", "ZeRO's", "arena", "planned", "held", "all / ZeRO's",
]  # fmt: skip
COMMUNICATION_COLUMNS = ["profiled step", "in flight", "waited", "hidden", "collectives", "sent"]


def run(
    models: Sequence[str],
    stages: Sequence[str],
    peers: Sequence[str],
    ranks: int,
    launcher: Launcher,
    rounds: int,
    seconds: float,
    threads: int,
    path: Path | None = None,
    pythons: Mapping[str, str] | None = None,
) -> bool:
    """Measure, print, and say whether every stage is ahead of its peer (data parallel of DDP, ZeRO of FSDP2), as far as
    that was asked for, and all sides have the same losses."""
    report.heading("scale")
    everything: list[Measurement] = []
    tables: list[TableText] = []
    ratios: dict[str, float] = {}
    good = True
    for name in models:
        sides = sides_of(name, stages, peers, ranks, launcher, threads, pythons or {})
        measured = _measured(name, sides, rounds, seconds)
        ours, theirs = measured[: len(stages)], measured[len(stages) :]
        title = f"{MODELS[name].title}; {ranks} ranks, {threads} thread{'s' * (threads > 1)} each"
        tables += [step_table(title, measured, theirs), communication_table(f"communication of {name}", ours)]
        for table in tables[-2:]:
            table.show()
        report.warnings(measured)
        good = losses_agree(measured, MODELS[name].tolerance) and all(m.failure is None for m in ours) and good
        ratios |= {f"{name} {what}": found for what, found in ratios_of(ours, theirs).items()}
        everything += measured
    for what, found in ratios.items():
        report.console.print(f"{what}: {found:.2f}, {report.verdict(found < 1)}")
    if path is not None:
        report.write_json(path, "scale", {}, everything, tables, ratios=ratios, threads=threads, ranks=ranks)
    return good and all(found < 1 for found in ratios.values())


def run_memory(
    models: Sequence[str],
    stages: Sequence[str],
    ranks: int,
    launcher: Launcher,
    threads: int,
    path: Path | None = None,
) -> bool:
    """Print what a rank holds in each stage, and say whether that is what was planned, and of parameters and optimizer
    states what ZeRO's formula says, within a twentieth; of a bare model all together may not be more than that either.
    (It may be less: a gradient that was used makes room for the next.)"""
    report.heading("memory of ranks")
    everything: list[Measurement] = []
    tables: list[TableText] = []
    good = True
    for name in models:
        sides = [side_of(name, stage, ranks, launcher, threads, "memory") for stage in stages]
        measured = _measured(name, sides, 0, 0.0)
        title = f"bytes of {MODELS[name].title}; a rank of {ranks}"
        tables.append(TableText(title, MEMORY_COLUMNS, memory_rows(measured, ranks)))
        tables[-1].show()
        report.warnings(measured)
        good = good and all(m.failure is None and memory_is_close(m, ranks, MODELS[name].is_bare) for m in measured)
        everything += measured
    report.console.print(f"planned = held, and ZeRO's formula, within {CLOSE:.0%}: {report.verdict(good)}")
    if path is not None:
        report.write_json(path, "scale-memory", {}, everything, tables, threads=threads, ranks=ranks)
    return good


def _measured(name: str, sides: Sequence[Job], rounds: int, seconds: float) -> list[Measurement]:
    with report.console.status(name) as status:

        def say(line: str) -> None:
            status.update(f"{name}: {line}")

        return measure(sides, rounds, seconds, say=say, start=RunningJob, tell=True)


# ---- sides


def sides_of(
    model: str, stages: Sequence[str], peers: Sequence[str], ranks: int, launcher: Launcher, threads: int,
    pythons: Mapping[str, str],
) -> list[Job]:  # fmt: skip
    """Ours, then the peers, which may have a Python of their own."""
    ours = [side_of(model, stage, ranks, launcher, threads, "profile") for stage in stages]
    return ours + [
        Job(peer, "scale_torch", (model, PEERS[peer]), pythons.get(peer, sys.executable), threads, ranks=ranks)
        for peer in peers
    ]


def side_of(model: str, stage: str, ranks: int, launcher: Launcher, threads: int, told: str) -> Job:
    """A stage of ours, of which the worker tells ``profile`` or ``memory``."""
    return Job(stage, "scale_pullback", (model, stage, told), threads=threads, ranks=ranks, launcher=launcher)


# ---- times


def ratio(one: Measurement, other: Measurement) -> float | None:
    """The median over the rounds of a step's time divided by the other's; None where there is none."""
    pairs = zip(one.rounds.get("step", ()), other.rounds.get("step", ()), strict=False)
    ratios = [own / beside for own, beside in pairs]
    return statistics.median(ratios) if ratios else None


def ratios_of(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> dict[str, float]:
    """The ratios that decide, by what they are of."""
    peers = {m.side.name: m for m in theirs}
    pairs = [(m, AHEAD_OF[m.side.name]) for m in ours]
    found = {f"{m.side.name} / {peer}": ratio(m, peers[peer]) for m, peer in pairs if peer in peers}
    return {what: value for what, value in found.items() if value is not None}


def step_table(title: str, measured: Sequence[Measurement], peers: Sequence[Measurement]) -> TableText:
    """A row for each side; of one that failed, its own words."""
    columns = ["side", "step", "rounds", *(f"/ {m.side.name}" for m in peers), "memory of steps", "first step"]
    rows = []
    for m in measured:
        step = m.seconds("step")
        if m.failure is not None or step is None:
            rows.append([m.side.name, report.shortened(m.failure or "failed"), *[""] * (len(columns) - 2)])
            continue
        beside = [ratio(m, peer) for peer in peers]
        rows.append([
            m.side.name,
            report.duration(step),
            report.spread(m.rounds["step"]),
            *("" if found is None else f"{found:.2f}" for found in beside),
            report.size(m.memory_bytes or 0),
            f"{m.first_seconds:.1f} s",
        ])  # fmt: skip
    return TableText(title, columns, rows)


def communication_table(title: str, ours: Sequence[Measurement]) -> TableText:
    """Of a profiled step, the mean of all ranks: its time, how long collectives were in flight, and how much of that
    ranks waited for them instead of computing."""
    rows = []
    for m in ours:
        if m.failure is None:
            told = [rank["profile"] for rank in m.about["ranks"]]
            mean = {key: statistics.fmean(one[key] for one in told) for key in told[0]}
            rows.append([
                m.side.name,
                *(report.duration(mean[key]) for key in ("seconds", "in flight", "waited")),
                f"{hidden(mean):.0%}",
                f"{mean['collectives']:g}",
                report.size(round(mean["sent"])),
            ])  # fmt: skip
    return TableText(title, ["side", *COMMUNICATION_COLUMNS], rows)


def hidden(told: Mapping[str, float]) -> float:
    """The share of the time with collectives in flight in which ranks computed."""
    return max(0.0, 1.0 - told["waited"] / told["in flight"]) if told["in flight"] > 0 else 0.0


# ---- memory


def memory_rows(measured: Sequence[Measurement], ranks: int) -> list[list[str]]:
    """A row for each stage; of one that failed, its own words. ``ZeRO's`` is its formula for what stands before it;
    ``all`` are these, gradients and what else is in the arena, beside the formula with gradients."""
    rows = []
    for m in measured:
        if m.failure is not None:
            rows.append([m.side.name, report.shortened(m.failure), *[""] * (len(MEMORY_COLUMNS) - 2)])
            continue
        planned, held = m.about["ranks"][0]["memory"]["planned"], held_bytes(m)
        own = [planned["parameters"], planned["optimizer states"], formula(m, ranks, gradients=False)]
        own += [planned["arena"], planned_bytes(m), held]
        beside = planned_bytes(m) / formula(m, ranks, gradients=True)
        rows.append([m.side.name, *(f"{count:,}" for count in own), f"{beside:.2f}"])
    return rows


def memory_is_close(m: Measurement, ranks: int, is_bare: bool) -> bool:
    """Whether a rank holds what was planned, and what the formula says."""
    planned = m.about["ranks"][0]["memory"]["planned"]
    kept = planned["parameters"] + planned["optimizer states"]
    pairs = [(kept, formula(m, ranks, gradients=False)), (held_bytes(m), planned_bytes(m))]
    is_most = not is_bare or planned_bytes(m) <= (1 + CLOSE) * formula(m, ranks, gradients=True)
    return is_most and all(abs(own - expected) <= CLOSE * expected for own, expected in pairs)


def formula(m: Measurement, ranks: int, gradients: bool) -> int:
    """Bytes of a rank by ZeRO's formula: parameters, gradients and optimizer states, of which a stage divides some."""
    whole, stage = m.about["ranks"][0]["memory"]["whole"], STAGES.index(m.side.name)
    parts = [(whole["optimizer states"], 1), (whole["parameters"], 3)]
    parts += [(whole["parameters"], 2)] if gradients else []
    return sum(-(-nbytes // ranks) if stage >= first else nbytes for nbytes, first in parts)


def planned_bytes(m: Measurement) -> int:
    """Of a rank, without the batch."""
    planned: dict[str, int] = m.about["ranks"][0]["memory"]["planned"]
    return sum(nbytes for category, nbytes in planned.items() if category != "inputs")


def held_bytes(m: Measurement) -> int:
    """Of the rank that holds most."""
    found: list[Any] = [rank["memory"]["held"] for rank in m.about["ranks"]]
    return max(found)
