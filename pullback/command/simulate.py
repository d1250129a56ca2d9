"""`python -m pullback simulate`: what a step takes on many ranks, from a step that is measured here."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pullback.command.configuration import Job
from pullback.ir.errors import ArgumentError
from pullback.relax.training.interface import Slot
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.distributed import BUCKET_BYTES
from pullback.runtime.library import get_num_threads, set_num_threads
from pullback.runtime.tables import Table
from pullback.runtime.tensor import Tensor
from pullback.scale.calibrate import calibrate_threads
from pullback.scale.curves import curves
from pullback.scale.measure import RUNS, measure, run
from pullback.scale.network import Network, parse_link
from pullback.scale.predict import Prediction, predict
from pullback.scale.step import Step, load

HERE = "here"  # in place of a link
MANY = 1 << 20  # ranks of a node that has all of them
SAVED = ".json"  # the ending of a measured step's file
_FEW = 64  # rows of a batch that nobody gives a size


@dataclass(frozen=True)
class Question:
    """What is asked. ``rows``: of each rank; ``batch``: of all ranks together; neither: the batch of ``fit``."""

    ranks: tuple[int, ...]
    network: Network
    stages: tuple[str, ...]
    rows: int | None = None
    batch: int | None = None
    bucket_bytes: int = BUCKET_BYTES
    threads: int | None = None
    jitter: float = 0.0
    slowest: float = 1.0
    runs: int = RUNS


def steps_of(source: str | Job, question: Question) -> dict[int, Step]:
    """For each number of ranks the measured step that tells of it: a saved one, or that of a training."""
    if isinstance(source, str):
        return _saved(Path(source), question)
    job = source
    with _threads(question.threads):
        if question.rows is not None:
            data = batch_of(job, question.rows)
            two = (question.ranks[0], 2 * question.ranks[0] if len(question.ranks) > 1 else question.ranks[0])
            step = _measured(job.trainer, data, two, question)
            return dict.fromkeys(question.ranks, step)
        batch = question.batch or _batch_size(job)
        for ranks in question.ranks:
            if batch % ranks:
                hint = "--rows says how many rows each rank has, --batch how many all have together"
                raise ArgumentError(f"a batch of {batch} rows does not divide among {ranks} ranks", hint=hint)
        return {n: _measured(job.trainer, batch_of(job, batch // n), (n, n), question) for n in question.ranks}


def predictions(steps: dict[int, Step], question: Question) -> list[Prediction]:
    """A prediction for each stage and number of ranks."""
    options = {"jitter": question.jitter, "slowest": question.slowest}
    return [
        predict(step, stage, ranks, question.network, **options)
        for stage in question.stages
        for ranks, step in steps.items()
    ]


def title(step: Step, question: Question) -> str:
    """What a table of predictions is about."""
    rows = f"{step.rows} rows a rank" if question.batch is None else f"{question.batch} rows together"
    threads = f"{step.threads} thread" + "s" * (step.threads != 1)
    network = question.network
    link = network.local if network.ranks_per_node == MANY else network.link
    return f"{step.title}: {rows}, {threads} a rank, {link}"


def as_json(found: Sequence[Prediction], steps: dict[int, Step], question: Question) -> str:
    """Predictions, and what they are about, as JSON."""
    network = question.network
    about = vars(network) | {"link": vars(network.link), "local": vars(network.local)}
    step = next(iter(steps.values()))
    measured = {"title": step.title, "threads": step.threads, "alone": step.alone}
    return json.dumps({"step": measured, "network": about, "predictions": [p.to_json() for p in found]}, indent=1)


def picture(found: Sequence[Prediction], title: str) -> str:
    """The efficiency of each stage over the number of ranks, as SVG."""
    series: dict[str, list[tuple[int, float]]] = {}
    for p in found:
        series.setdefault(p.stage, []).append((p.ranks, 100 * p.efficiency))
    return curves(series, title, "efficiency, %")


def batch_of(job: Job, rows: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """So many rows of what a job trains on, the first ones repeated where there are fewer: inputs and targets."""
    trainer, interface = job.trainer, job.trainer._interface
    source = trainer._source(job.fit["x"], job.fit.get("y"))

    def repeated(slots: Sequence[Slot], tensors: Sequence[Tensor]) -> list[np.ndarray]:
        arrays = [np.array(t) for t in tensors]  # the next batch overwrites them
        pairs = zip(slots, arrays, strict=True)
        return [np.resize(a, (rows, *a.shape[1:])) if interface.has_rows(s) else a for s, a in pairs]

    with contextlib.closing(source.batches(rows)) as batches:
        batch = next(batches, None)
        if batch is None:
            raise ArgumentError(
                "there is nothing to train on: the data has no batch", hint="a step needs a row at least"
            )
        return repeated(interface.inputs, batch.inputs), repeated(interface.targets, batch.targets)


def network_of(link: str, local: str | None, ranks_per_node: int, cores: int | None) -> Network:
    """The network that options describe. ``here``: that of ranks on this machine, as it is measured."""
    more: dict[str, Any] = {} if local is None else {"local": parse_link(local)}
    if link.strip() != HERE:
        return Network(parse_link(link), ranks_per_node=ranks_per_node, cores=cores, **more)
    if local is not None or ranks_per_node != 1:
        hint = "name a network between nodes: --network 100Gb/10us"
        raise ArgumentError(f"--network {HERE} is one node, with all of its ranks", hint=hint)
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return replace(calibrate_threads(), ranks_per_node=MANY, cores=cores or own)


def compared(found: Sequence[Prediction], job: Job, steps: dict[int, Step], question: Question) -> Table:
    """Predictions beside what steps take of ranks that are threads of this process."""
    heading = ["stage", "ranks", "predicted ms", "measured ms", "predicted / measured"]
    rows = []
    with _threads(question.threads):
        for p in found:
            given = batch_of(job, steps[p.ranks].rows)
            times = run(job.trainer, *given, p.ranks, p.stage, bucket_bytes=question.bucket_bytes)
            measured = min(times)
            numbers = (f"{1e3 * p.seconds:.3g}", f"{1e3 * measured:.3g}", f"{p.seconds / measured:.2f}")
            rows.append([p.stage, f"{p.ranks:,}", *numbers])
    return Table(heading, rows, title(next(iter(steps.values())), question))


def _measured(
    trainer: Trainer, data: tuple[list[np.ndarray], list[np.ndarray]], ranks: tuple[int, int], question: Question
) -> Step:
    return measure(trainer, *data, ranks, question.stages, bucket_bytes=question.bucket_bytes, runs=question.runs)


def _saved(path: Path, question: Question) -> dict[int, Step]:
    given = {"--rows": question.rows, "--batch": question.batch, "--threads": question.threads}
    for option, value in given.items():
        if value:
            raise ArgumentError(f"{option} changes nothing of a step that was measured", hint=f"leave {option} out")
    step = load(path)
    first, second = step.measured
    others = [n for n in question.ranks if n != first]
    if first == second and others:
        raise ArgumentError(
            f"{path} tells of {first} ranks, not of {others[0]}",
            hint="measure with --rows and several numbers of ranks, such as --ranks 2-4096, then --save",
        )
    return dict.fromkeys(question.ranks, step)


def _batch_size(job: Job) -> int:
    """The rows of a batch of the training."""
    own = job.trainer._interface.batch
    asked = job.fit.get("batch_size")
    return asked if isinstance(asked, int) else own if isinstance(own, int) else _FEW


@contextlib.contextmanager
def _threads(wanted: int | None) -> Iterator[None]:
    before = get_num_threads()
    if wanted is not None:
        set_num_threads(wanted)
    try:
        yield
    finally:
        if wanted is not None:
            set_num_threads(before)
