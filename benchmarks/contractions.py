"""How near the contractions of a training step come to the roofline of each, weighted by their FLOPs.

FLOPs are those of the tensor expressions: a convolution that takes fewer multiplications, through filters, is measured
by what it computes, not by how. Attention's products are no contractions here: its scores stay in a task.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import peak, report
from benchmarks.models import MODELS, Model
from benchmarks.workers.model_pullback import trainer_of
from pullback.driver.pipeline import lower_function, prepare
from pullback.ir.module import IRModule
from pullback.nd import array
from pullback.relax.training.step import STEP
from pullback.runtime import get_num_threads
from pullback.schedule.choose import recognize
from pullback.schedule.contraction import Contraction
from pullback.schedule.group import Group
from pullback.schedule.winograd import Winograd
from pullback.target import Target
from pullback.te.tensor import Reduce

BAR = 0.75
_READINGS = 15  # of the peak before and after each round: a millisecond each
COLUMNS = [
    "step", "contractions", "of its time", "GFLOP/s", "of the run's best peak", "of the peak", "of the roofline",
    f">= {BAR:.0%}",
]  # fmt: skip


@dataclass(frozen=True)
class Calls:
    """The contractions of a step: FLOPs and bytes of each call, its seconds in each round, and the peak of that."""

    flops: list[int]
    bytes: list[int]
    seconds: list[list[float]]  # round, call
    peaks: list[float]  # GFLOP/s
    share_of_step: float

    def gflops(self) -> float:
        """FLOPs over time, in the median of rounds."""
        return median(1e-9 * sum(self.flops) / sum(seconds) for seconds in self.seconds)

    def of_peak(self) -> float:
        """FLOPs over time, in the median of rounds, each by its own peak."""
        work = sum(self.flops)
        return median(1e-9 * work / sum(s) / rate for s, rate in zip(self.seconds, self.peaks, strict=True))

    def of_roofline(self, limit: peak.Peak) -> float:
        """Σ FLOPs · share of the roofline / Σ FLOPs, in the median of rounds."""
        memory = [limit.floor_seconds(0, read, 0) for read in self.bytes]
        shares = []
        for seconds, rate in zip(self.seconds, self.peaks, strict=True):
            calls = zip(self.flops, memory, seconds, strict=True)
            shares.append(sum(f * max(1e-9 * f / rate, least) / s for f, least, s in calls) / sum(self.flops))
        return median(shares)


def run(models: list[str], rounds: int, path: Path | None) -> bool:
    """Measure, print, and say whether the bar is met by all of the models."""
    report.heading("contractions of training steps")
    threads = get_num_threads()
    watch = peak.Watch(threads)
    peaks = peak.measure(threads)
    measured = {name: _measure(MODELS[name], rounds, watch) for name in models}
    peaks = peak.better(peaks, peak.measure(threads))
    peaks = peak.raised(peaks, threads, (rate for calls in measured.values() for rate in calls.peaks))
    report.limits(peaks)
    shares = {name: calls.of_roofline(peaks[threads]) for name, calls in measured.items()}
    rows = [
        [
            MODELS[name].title, str(len(calls.flops)), f"{calls.share_of_step:.0%}",
            f"{calls.gflops():.0f}", f"{calls.gflops() / peaks[threads].gflops:.0%}",
            f"{calls.of_peak():.0%}", f"{shares[name]:.0%}", "met" if shares[name] >= BAR else "missed",
        ]
        for name, calls in measured.items()
    ]  # fmt: skip
    table = report.TableText("by FLOPs; peak and roofline are those of the same rounds", COLUMNS, rows)
    table.show()
    if path is not None:
        report.write_json(path, "contractions", peaks, [], [table])
    return all(share >= BAR for share in shares.values())


def _measure(model: Model, rounds: int, watch: peak.Watch) -> Calls:
    trainer = trainer_of(model, legalize=False, profile=True)
    work = _work(trainer.vm.executable.module)
    x, y = (array(a) for a in model.data())
    results, rates = [], []
    for _ in range(rounds):
        before = [watch.gflops() for _ in range(_READINGS)]
        with contextlib.redirect_stdout(io.StringIO()):  # profile_step prints its table
            results.append(trainer.profile_step(x, y))
        rates.append(median([*before, *(watch.gflops() for _ in range(_READINGS))]))
    calls = [(k, work[name]) for k, call in enumerate(results[0].calls) if (name := _stem(call.name)) in work]
    seconds = [[1e-6 * result.calls[k].microseconds for k, _ in calls] for result in results]
    share = median(1e6 * sum(s) / result.total for s, result in zip(seconds, results, strict=True))
    nbytes = [results[0].calls[k].bytes or 0 for k, _ in calls]
    return Calls([flops for _, flops in calls], nbytes, seconds, rates, share)


def _work(module: IRModule) -> dict[str, int]:
    """FLOPs of each kernel of the step that is a contraction, by name."""
    groups: dict[str, Group] = {}
    lower_function(prepare(module), STEP, {}, Target("llvm"), groups)
    return {name: _flops(g) for name, g in groups.items() if isinstance(recognize(g), (Contraction, Winograd))}


def _flops(group: Group) -> int:
    """Of the group's largest sum: a multiplication and an addition for each term."""
    sums = [(s.shape, s.body.axes) for s in group.reductions if isinstance(s.body, Reduce)]
    return max(2 * math.prod((*shape, *(a.extent for a in axes))) for shape, axes in sums)  # type: ignore[return-value]


def _stem(name: str) -> str:
    """The kernel's name without the places that it shares."""
    return re.sub(r"_in_place_.*$", "", name)
