"""Tuning: the contractions of a function, measured with other tiles on this machine.

The candidates are the neighbours of the analytical choice: they take every sum in the same order, so what is computed
stays the same, bit for bit, which is checked. The best of them is measured once more against the default, in pairs, and
kept where it wins beyond what chance gives: other programs, and the clock of the CPU, make single times worthless.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from statistics import median
from time import perf_counter

import numpy as np

from pullback import codegen
from pullback.driver.pipeline import lower_function
from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.runtime.dtype import numpy_dtype
from pullback.runtime.library import runtime_table
from pullback.runtime.tensor import Tensor, tensor
from pullback.schedule.choose import recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.contraction.plan.alternatives import other_tasks, other_tiles
from pullback.schedule.group import Group
from pullback.schedule.tuning import Choice, Choices
from pullback.target import Target
from pullback.tir.static import static
from pullback.tir.workspace import lift_workspaces

WORTH = 1.03  # a choice that is not faster than the default by this factor is not kept
CHANCE = 0.01  # a choice that is no faster than the default is kept in at most this share of the cases
FEWEST_ROUNDS = 7  # 2^-7 < CHANCE: of fewer, even winning all says too little


@dataclass(frozen=True)
class Tuned:
    """What tuning found for one kernel: seconds of a call with the analytical tiles and with those to keep, by how much
    the best tiles were faster at the least (see :func:`least_gain`), whether they are kept or not, and the choices to
    keep (None: the analytical one) by key."""

    name: str
    flops: int
    default: float
    best: float
    least: float
    choices: Mapping[str, Choice | None]

    @property
    def gain(self) -> float:
        return self.default / self.best

    @property
    def is_kept(self) -> bool:
        """Whether any tiles are better than the analytical ones."""
        return any(self.choices.values())


def least_gain(ratios: Sequence[float]) -> float:
    """A lower bound of the median of the distribution that these come from, which holds but for :data:`CHANCE`; 0 where
    they are too few for one.

    It is the order statistic of the sign test, whatever the distribution is: the k-th least of n numbers lies above the
    median with the probability that at most k - 1 of n tosses are heads.
    """
    n, k, chance = len(ratios), 0, 0.0
    while k < n and (chance := chance + comb(n, k) / 2**n) <= CHANCE:
        k += 1
    return sorted(ratios)[k - 1] if k else 0.0


def contractions(module: IRModule, function: str, sizes: dict[str, int], target: Target) -> dict[str, Contraction]:
    """The contractions among the kernels of a function of a prepared module, with their analytical tiles, by the name
    of the kernel."""
    groups: dict[str, Group] = {}
    lower_function(module, function, sizes, target, groups)
    found: dict[bytes, tuple[str, Contraction]] = {}
    for name, group in groups.items():
        schedule = recognize(replace(group, machine=replace(group.machine, choices=Choices())))
        if isinstance(schedule, Contraction) and all(problem.terms for problem, _ in schedule.parts):
            found.setdefault(schedule.group.digest, (name, schedule))
    return dict(found.values())


def tune(
    module: IRModule, function: str, sizes: dict[str, int], target: Target, rounds: int = 7, seconds: float = 0.002
) -> Iterator[Tuned]:
    """Measure each contraction of a function of a prepared module: ``rounds`` interleaved rounds, in which each
    candidate runs for ``seconds``; medians count. With fewer than :data:`FEWEST_ROUNDS` no choice is kept."""
    for name, schedule in contractions(module, function, sizes, target).items():
        yield _Tuning(name, schedule, target, rounds, seconds).run()


class _Tuning:
    """The search for one kernel: part by part, first for a tile, then for the size of its tasks."""

    def __init__(self, name: str, schedule: Contraction, target: Target, rounds: int, seconds: float) -> None:
        self.name, self.group, self.target = name, schedule.group, target
        self.default = schedule
        self.rounds, self.seconds = rounds, seconds
        rng = np.random.default_rng(0)
        self.inputs = [_random(static(t.shape), t.dtype, rng) for t in self.group.inputs]
        self.outputs = [Tensor(static(t.shape), t.dtype) for t in self.group.outputs]

    def run(self) -> Tuned:
        best: dict[str, Choice] = {}
        for part in range(len(self.default.parts)):
            for alternatives in (other_tiles, other_tasks):
                candidates = [best]
                for choice in alternatives(*self._scheduled(best).parts[part]):
                    candidates.append({**best, Choices.key(self.group.digest, part): choice})
                times = self._times(candidates)
                best = candidates[min(range(len(times)), key=times.__getitem__)]
        samples = self._samples([{}, best] if best else [{}])
        default = median(s[0] for s in samples)
        ratios = [s[0] / s[-1] for s in samples]
        least, gain = least_gain(ratios), median(ratios)
        if least <= 1 or gain < WORTH:
            best, gain = {}, 1.0
        keys = [Choices.key(self.group.digest, k) for k in range(len(self.default.parts))]
        flops = 2 * sum(problem.work for problem, _ in self.default.parts)
        return Tuned(self.name, flops, default, default / gain, least, {key: best.get(key) for key in keys})

    def _scheduled(self, choices: Mapping[str, Choice]) -> Contraction:
        machine = replace(self.group.machine, choices=Choices(choices))
        schedule = Contraction.recognize(replace(self.group, machine=machine))
        if schedule is None:
            raise InternalError(f"{self.name} is no contraction any more")
        return schedule

    def _times(self, candidates: Sequence[Mapping[str, Choice]]) -> list[float]:
        """The median seconds of a call for each candidate."""
        return [median(column) for column in zip(*self._samples(candidates), strict=True)]

    def _samples(self, candidates: Sequence[Mapping[str, Choice]]) -> list[list[float]]:
        """The seconds of a call for each candidate, for each round; every other round goes backwards, so that what
        changes in the meantime favours none."""
        calls = [self._call(c) for c in candidates]
        expected: list[bytes] = []
        for call, choices in zip(calls, candidates, strict=True):
            call()
            results = [t.numpy().tobytes() for t in self.outputs]
            expected = expected or results
            if results != expected:
                raise InternalError(f"{self.name}: other tiles gave other results: {dict(choices)}")
        repeat = max(1, round(self.seconds / max(1e-7, _seconds(calls[0], 1))))
        samples = []
        for number in range(self.rounds):
            order = calls if number % 2 == 0 else calls[::-1]
            seconds = [_seconds(call, repeat) for call in order]
            samples.append(seconds if number % 2 == 0 else seconds[::-1])
        return samples

    def _call(self, choices: Mapping[str, Choice]) -> Callable[[], None]:
        kernel, workspaces = lift_workspaces(self._scheduled(choices).lower("kernel"))
        library = codegen.load_object(codegen.compile_object(codegen.emit_module([kernel], self.target), self.target))
        scratch = [Tensor(static(b.shape), b.dtype) for b in workspaces]
        tensors = [*self.inputs, *self.outputs, *scratch]
        entry = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(tensors)))(library.address("kernel"))
        pointers = [runtime_table(), *(t.data_ptr for t in tensors)]

        def call(kept: object = (library, tensors)) -> None:
            entry(*pointers)

        return call


def _seconds(call: Callable[[], None], repeat: int) -> float:
    """Of one call."""
    start = perf_counter()
    for _ in range(repeat):
        call()
    return (perf_counter() - start) / repeat


def _random(shape: Sequence[int], dtype: str, rng: np.random.Generator) -> Tensor:
    """Normal numbers; zeros of the types that are no floats, which are indices."""
    kind = numpy_dtype(dtype)
    is_index = np.dtype(kind).kind in "iub"
    return tensor(np.zeros(shape, kind) if is_index else rng.standard_normal(shape).astype(kind), copy=True)
