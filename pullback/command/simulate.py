"""`python -m pullback simulate`: what a step takes on many ranks, from a step that is measured here."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pullback.command.configuration import Job
from pullback.command.train import job_of
from pullback.ir.errors import ArgumentError
from pullback.relax.training.interface import Slot
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.distributed import BUCKET_BYTES
from pullback.runtime.library import get_num_threads, set_num_threads
from pullback.runtime.ranks import Alone, current, start, using
from pullback.runtime.tables import Table
from pullback.runtime.tensor import Tensor
from pullback.scale.calibrate import calibrate, calibrate_threads
from pullback.scale.curves import curves
from pullback.scale.measure import RUNS, measure, run
from pullback.scale.network import Link, Network, parse_link
from pullback.scale.predict import Prediction, predict, table
from pullback.scale.step import Step, load

HERE = "here"  # in place of a link
MANY = 1 << 20  # ranks of a node that has all of them
SAVED = ".json"  # the ending of a measured step's file
CHECKED = 200  # steps, of which the best counts
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
    speed: float = 1.0
    jitter: float = 0.0
    slowest: float = 1.0
    runs: int = RUNS


@dataclass(frozen=True)
class Answer:
    """Predictions, and for each number of ranks the measured step that they are made of."""

    question: Question
    steps: dict[int, Step]
    found: tuple[Prediction, ...]

    @property
    def step(self) -> Step:
        """That of the first number of ranks."""
        return next(iter(self.steps.values()))

    @property
    def title(self) -> str:
        """``Net: 8 rows a rank, 1 thread a rank, 100Gb/10us``."""
        question, step = self.question, self.step
        together = len({id(s) for s in self.steps.values()}) > 1
        rows = f"{step.rows * next(iter(self.steps))} rows together" if together else f"{step.rows} rows a rank"
        threads = f"{step.threads} thread" + "s" * (step.threads != 1)
        network = question.network
        link = network.local if network.ranks_per_node == MANY else network.link
        speed = "" if question.speed == 1.0 else f", {question.speed:g}× as fast"
        jitter = "" if not question.jitter else f", jitter {question.jitter:.3g}"
        slowest = "" if question.slowest == 1.0 else f", one rank {question.slowest:g}× as slow"
        return f"{step.title}: {rows}, {threads} a rank{speed}{jitter}{slowest}, {link}"

    def table(self) -> Table:
        """A row for each prediction."""
        return table(self.found, self.title)

    def json(self) -> str:
        """Predictions, and what they are about."""
        network, step = self.question.network, self.step
        about = vars(network) | {"link": vars(network.link), "local": vars(network.local)}
        measured = {"title": step.title, "threads": step.threads, "alone": step.alone}
        predictions = [p.to_json() for p in self.found]
        return json.dumps({"step": measured, "network": about, "predictions": predictions}, indent=1)

    def picture(self) -> str:
        """The efficiency of each stage over the number of ranks, as SVG."""
        series: dict[str, list[tuple[int, float]]] = {}
        for p in self.found:
            series.setdefault(p.stage, []).append((p.ranks, 100 * p.efficiency))
        return curves(series, self.title, "efficiency, %")

    def save(self, path: Path) -> None:
        """Keep the measured step."""
        if len({id(s) for s in self.steps.values()}) > 1:
            hint = "with --rows one step tells of all numbers of ranks"
            raise ArgumentError(f"--save keeps one step, but {len(self.steps)} were measured", hint=hint)
        self.step.save(path)


def answer(source: str, settings: Sequence[str], question: Question) -> Answer:
    """Measure what a training's step takes (or read what was), and predict."""
    with using(Alone()):
        job = None if source.endswith(SAVED) else job_of(source, settings)
        steps = _saved(Path(source), question) if job is None else _steps_of(job, question)
    forecast = partial(predict, speed=question.speed, jitter=question.jitter, slowest=question.slowest)
    found = tuple(
        forecast(step, stage, ranks, question.network) for stage in question.stages for ranks, step in steps.items()
    )
    return Answer(question, steps, found)


def measured(source: str, settings: Sequence[str], question: Question) -> dict[tuple[str, int], float]:
    """Seconds of a step of ranks that are there, the best of some, by stage and number of ranks: of those that mpirun
    started, or else of threads of this process. Collective."""
    size = current().size
    others = [n for n in question.ranks if n != size]
    if size > 1 and others:
        hint = f"--check --ranks {size}; without mpirun ranks are threads, and there may be any number"
        raise ArgumentError(f"mpirun started {size} ranks: {others[0]} cannot be tried", hint=hint)
    found = {}
    with using(Alone()):
        job = job_of(source, settings)
    with _threads(question.threads):
        for stage in question.stages:
            for ranks in question.ranks:
                given = batch_of(job, question.rows or (question.batch or _batch_size(job)) // ranks)
                ran = run(job.trainer, *given, ranks, stage, bucket_bytes=question.bucket_bytes, steps=CHECKED)
                found[stage, ranks] = min(ran.seconds)
    return found


def compared(told: Answer, found: dict[tuple[str, int], float]) -> Table:
    """Predictions beside what was measured."""
    heading = ["stage", "ranks", "predicted ms", "measured ms", "predicted / measured"]
    rows = []
    for p in told.found:
        seconds = found[p.stage, p.ranks]
        numbers = (f"{1e3 * p.seconds:.3g}", f"{1e3 * seconds:.3g}", f"{p.seconds / seconds:.2f}")
        rows.append([p.stage, f"{p.ranks:,}", *numbers])
    return Table(heading, rows, told.title)


def _steps_of(job: Job, question: Question) -> dict[int, Step]:
    """For each number of ranks a step that was measured for it, with --rows the same for all."""
    with _threads(question.threads):
        if question.rows is not None:
            data = batch_of(job, question.rows)
            first, several = question.ranks[0], len(question.ranks) > 1
            step = _measured(job.trainer, data, (first, 2 * first if several else first), question)
            return dict.fromkeys(question.ranks, step)
        batch = question.batch or _batch_size(job)
        for ranks in question.ranks:
            if batch % ranks:
                hint = "--rows says how many rows each rank has, --batch how many all have together"
                raise ArgumentError(f"a batch of {batch} rows does not divide among {ranks} ranks", hint=hint)
        return {n: _measured(job.trainer, batch_of(job, batch // n), (n, n), question) for n in question.ranks}


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
            raise ArgumentError("there is nothing to train on: the data has no batch", hint="a step needs a row")
        return repeated(interface.inputs, batch.inputs), repeated(interface.targets, batch.targets)


def network_of(link: str, local: str | None, ranks_per_node: int, cores: int | None) -> Network:
    """The network that options describe. ``here``: as it is measured, between the ranks that mpirun started, or else
    between threads. Collective."""
    more: dict[str, Any] = {} if local is None else {"local": parse_link(local)}
    if link.strip() != HERE:
        return Network(parse_link(link), ranks_per_node=ranks_per_node, cores=cores, **more)
    if local is not None or ranks_per_node != 1:
        hint = "name a network between nodes: --network 100Gb/10us"
        raise ArgumentError(f"--network {HERE} is one node, with all of its ranks", hint=hint)
    return _measured_network(cores)


def _measured_network(cores: int | None) -> Network:
    """That of the ranks which mpirun started, or else of threads. Collective."""
    joined = start()
    own = cores or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    if joined.size == 1:
        return replace(calibrate_threads(), ranks_per_node=MANY, cores=own)
    nodes = len(set(joined.exchange(platform.node())))
    if nodes == 1:
        return calibrate(joined, Network(Link(1.0, 1.0), ranks_per_node=MANY, cores=own))
    if nodes < joined.size:
        hint = "start one rank on each node, for the network between nodes, or all on one"
        raise ArgumentError(f"{joined.size} ranks are on {nodes} nodes: links of two kinds", hint=hint)
    return calibrate(joined, Network(Link(1.0, 1.0), cores=cores))


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
