"""A trainer's step, measured on this machine: compiled as one of many ranks runs it, its kernels timed.

No other rank is needed: collectives end at once (:mod:`.imagined`), and what they would take is simulated.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import numpy as np

from pullback.driver import compile
from pullback.driver.artifact import Layout
from pullback.driver.executable import CompiledFunction
from pullback.driver.memory import MemoryReport
from pullback.driver.pipeline import plan_function
from pullback.driver.profile import counted
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relax.convention import ADJOINT, GRADIENT, INPUT, STEP, TARGET, Convention
from pullback.relax.training.distribution import with_distribution
from pullback.relax.training.interface import Interface
from pullback.relax.training.program import Program
from pullback.relax.training.step import Values
from pullback.relax.training.trainer import Trainer
from pullback.relax.transform.distributed import BUCKET_BYTES, Distributed, held_as_pieces
from pullback.relax.transform.plan_memory import Plan
from pullback.runtime.collective_times import CollectiveTime
from pullback.runtime.collectives import piece
from pullback.runtime.library import get_num_threads
from pullback.runtime.ranks import current, run_local, using
from pullback.runtime.tensor import Tensor, tensor
from pullback.scale.calibrate import processor
from pullback.scale.imagined import Imagined
from pullback.scale.step import STAGES, Begin, End, Kernel, Memory, RankStep, Step, Two
from pullback.target import Target
from pullback.tir import Buffer, HostCall, KernelCall, PrimFunc
from pullback.tir.expr import nbytes as item_bytes
from pullback.tir.static import static
from pullback.tir.stmt import COLLECTIVE, Await, Collective
from pullback.tir.visitor import walk

S = TypeVar("S")
RUNS = 7


def measure(
    trainer: Trainer, inputs: Any, targets: Any, ranks: Two, stages: Sequence[str] = STAGES, *, title: str = "",
    bucket_bytes: int = BUCKET_BYTES, runs: int = RUNS,
) -> Step:  # fmt: skip
    """Measure the step of a rank on its rows of a batch, for two numbers of ranks (which may be the same: then no other
    number can be asked for). A kernel's time is the median of so many runs. The trainer stays as it is.

    Raises a UserError where there is nothing to measure: the trainer is interpreted, or has no values.
    """
    program, batch = _program_and_batch(trainer, inputs, targets, runs)
    values, given = batch.values, batch.inputs
    arguments = values.copy().arguments(program.interface, STEP, given, batch.targets)
    with using(Imagined(1)):
        alone = _timed(program.training_vm.executable.function(STEP), arguments, runs)
    return Step(
        title=title or type(trainer.model).__name__,
        rows=given[0].shape[0] if given and given[0].shape else 1,
        threads=get_num_threads(),
        measured=ranks,
        alone=alone.wall,
        call=max(0.0, alone.wall - sum(alone.seconds)),
        parameters=_nbytes(values.params),
        gradients=_trained_bytes(program.interface, values),
        optimizer_states=_nbytes(values.optimizer_states),
        stages={stage: batch.step(program.module, ranks, STAGES.index(stage), bucket_bytes) for stage in stages},
    )


@dataclass(frozen=True)
class Ran:
    """Steps of ranks that were there: seconds of each on the rank that took longest, and the collectives of one step
    of rank 0."""

    seconds: tuple[float, ...]
    collectives: tuple[CollectiveTime, ...]


def run(
    trainer: Trainer, inputs: Any, targets: Any, ranks: int, stage: str, *, bucket_bytes: int = BUCKET_BYTES,
    steps: int = 20,
) -> Ran:  # fmt: skip
    """Run so many steps of so many ranks, each on these rows: of those that mpirun started, where they are as many
    (then it is collective), or else of threads of this process. The trainer stays as it is."""
    program, batch = _program_and_batch(trainer, inputs, targets, 1)
    made = with_distribution(program.module, Distributed(ranks, STAGES.index(stage), bucket_bytes=bucket_bytes))
    function = compile(made, batch.target).function(STEP)
    function.native(batch.sizes)

    def steps_of(rank: int) -> tuple[list[float], tuple[CollectiveTime, ...]]:
        call: Any = function.bind(batch.held(made, rank, ranks))
        collectives, found = call.profile().collectives, []
        for _ in range(steps):
            current().barrier()
            begin = time.perf_counter()
            call()
            found.append(time.perf_counter() - begin)
        return found, collectives

    mine = current()
    found = mine.exchange(steps_of(mine.rank)) if mine.size == ranks else run_local(ranks, steps_of)
    times, collectives = zip(*found, strict=True)
    return Ran(tuple(np.max(times, axis=0).tolist()), collectives[0])


def _program_and_batch(trainer: Trainer, inputs: Any, targets: Any, runs: int) -> tuple[Program, _Batch]:
    program, given, labels = trainer._arguments(inputs, targets)
    executable = program.training_vm.executable
    if executable.target is None:
        raise UserError("the interpreter has no kernel times", hint='make the trainer with target="llvm"')
    values = trainer._values
    values.check_complete(trainer._interface)
    sizes = executable.function(STEP).sizes_of(values.arguments(program.interface, STEP, given, labels))
    return program, _Batch(values, given, labels, sizes, executable.target, runs, processor()[1])


@dataclass(frozen=True)
class _Times:
    """Seconds of each kernel of a function, and of a call."""

    seconds: tuple[float, ...]
    wall: float


def _timed(function: CompiledFunction, flat: Sequence[Tensor], runs: int) -> _Times:
    """By the clock of imagined ranks."""
    clock = time.thread_time if get_num_threads() == 1 else time.perf_counter
    call: Any = function.bind(flat)
    call()
    reports, walls = [], []
    for _ in range(runs):
        reports.append(call.profile())
        begin = clock()
        call()
        walls.append(clock() - begin)
    seconds = (median(r.calls[k].microseconds for r in reports) / 1e6 for k in range(len(reports[0].calls)))
    return _Times(tuple(seconds), median(walls))


@dataclass(frozen=True)
class _Batch:
    """What a step is measured with."""

    values: Values
    inputs: Sequence[Tensor]
    targets: Sequence[Tensor]
    sizes: dict[str, int]
    target: Target
    runs: int
    copying: float

    def step(self, module: IRModule, ranks: Two, stage: int, bucket_bytes: int) -> RankStep:
        """Of both numbers of ranks; times are those of the first."""
        made = [
            with_distribution(module, Distributed(n, stage, bucket_bytes=bucket_bytes)) for n in dict.fromkeys(ranks)
        ]
        executables = [compile(m, self.target) for m in made]
        plans = [plan_function(e.module, STEP, self.sizes, self.target) for e in executables]
        first, last = ([*_calls(plan)] for plan in (plans[0], plans[-1]))
        if [c.outline for c in first] != [c.outline for c in last]:
            raise UserError(
                f"the step of {ranks[0]} ranks has other kernels than that of {ranks[1]}: they tell nothing of others",
                hint="ask for one number of ranks at a time, such as --ranks 1024",
            )
        with using(Imagined(ranks[0])):
            times = _timed(executables[0].function(STEP), self.held(made[0], 0, ranks[0]), self.runs)
        triples = zip(first, last, times.seconds, strict=True)
        items = tuple(item for a, b, seconds in triples for item in a.items(b, seconds, self.copying))
        return RankStep(items, (_memory(made[0], plans[0]), _memory(made[-1], plans[-1])))

    def held(self, module: IRModule, rank: int, ranks: int) -> list[Tensor]:
        """The step's arguments, as a rank holds them."""
        convention = Convention.of(module)
        given = dict(zip(convention.kept, self.values.copy().all, strict=True))
        given |= {v: tensor(piece(np.asarray(given[v]), rank, ranks)) for v in held_as_pieces(module)}
        given |= {(INPUT, i): t for i, t in enumerate(self.inputs)}
        given |= {(TARGET, i): t for i, t in enumerate(self.targets)}
        return convention[STEP].arrange(given)


@dataclass(frozen=True)
class _Call:
    """A kernel call of a plan. ``nbytes``: what it moves, in ``copies`` what it does nothing else with; ``starts`` and
    ``waits``: the collective that it is the start or the end of, which is number ``ticket``."""

    name: str
    nbytes: int = 0
    copies: bool = False
    starts: Collective | None = None
    waits: bool = False
    ticket: int = -1

    @property
    def outline(self) -> tuple[Any, ...]:
        """What is the same for any number of ranks."""
        kind = None if self.starts is None else (self.starts.kind, len(self.starts.elements))
        return kind, self.waits, self.ticket

    def items(self, other: _Call, seconds: float, copying: float) -> Iterator[Kernel | Begin | End]:
        """Of this call, and the one in its place for the other number of ranks. Copies take ``copying`` bytes a second,
        whatever they took: they were not the engine's."""
        if self.starts is not None and other.starts is not None:
            arrays = tuple(zip(self.starts.elements, other.starts.elements, strict=True))
            yield Begin(self.ticket, self.starts.kind, arrays, item_bytes(self.starts.received[0].dtype))
            return
        if self.waits:
            yield End(self.ticket)
        if self.nbytes or not self.waits:
            seconds = self.nbytes / copying if self.copies else seconds
            yield Kernel(self.name, seconds, (self.nbytes, other.nbytes))


def _calls(plan: Plan) -> Iterator[_Call]:
    """The kernel calls of a plan, in order."""
    moved = functools.cache(functools.partial(counted, plan))
    tickets: dict[tuple[str, int], int] = {}  # by where they are
    count = 0
    for node in walk(plan.host.body):
        if not isinstance(node, (KernelCall, HostCall)):
            continue
        kernel = plan.functions[node.name]
        phase = kernel.attrs.get(COLLECTIVE)
        if phase == "start":
            tickets[_place(node.buffers[-1])] = count
            yield _Call(node.name, starts=_statement(kernel, Collective), ticket=count)
            count += 1
        elif phase == "wait":
            end = _statement(kernel, Await)
            copied = sum(_bytes(a) for a, b in zip(end.received, end.targets, strict=True) if a is not b)
            yield _Call(node.name, copied, True, waits=True, ticket=tickets[_place(node.buffers[0])])
        elif phase is not None:  # nothing is sent
            yield _Call(node.name, sum(map(_bytes, _statement(kernel, Collective).received)), True)
        else:
            totals = moved(node.name)
            yield _Call(node.name, 1 if totals is None else max(1, totals[1]))


def _statement(kernel: PrimFunc, kind: type[S]) -> S:
    return next(node for node in walk(kernel.body) if isinstance(node, kind))


def _place(buffer: Buffer) -> tuple[str, int]:
    return buffer.scope, buffer.offset


def _bytes(buffer: Buffer) -> int:
    return math.prod(static(buffer.shape)) * item_bytes(buffer.dtype)


def _memory(module: IRModule, plan: Plan) -> Memory:
    report = MemoryReport.of(Layout.of(plan), module).categories
    held = {name: report.pop(name.replace("_", " ")) for name in ("parameters", "optimizer_states", "arena")}
    return Memory(**held, others=sum(report.values()))


def _nbytes(tensors: Iterable[Tensor | None]) -> int:
    return sum(t.nbytes for t in tensors if t is not None)


def _trained_bytes(interface: Interface, values: Values) -> int:
    """Bytes of the parameters of which a step takes the gradient."""
    trained = {n for kind, n in interface.convention[ADJOINT].returns if kind == GRADIENT}
    return _nbytes(v for k, v in enumerate(values.params) if k in trained)
