"""How exact a training is: ten losses of each model in float64 and float32, beside PyTorch's on the same values.

PyTorch's losses in float64 are the judge. Ours in float64 differ from them by rounding alone. In float32 they may be no
more than :data:`TIMES_TORCH` times as far away as PyTorch's own: the farthest of its runs with one thread and two, and
with images in both layouts, which differ in the order of their sums alone. (Where the gradient has jumps, as that of
relu, one such rounding may change a loss by far more than its own size.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks import report
from benchmarks.models import MODELS
from benchmarks.models.base import Model
from benchmarks.workers.protocol import RECORDED_STEPS, Step

FLOAT64_TOLERANCE = 1e-8
TIMES_TORCH = 2.0
COLUMNS = ["model", "float64", "float32", "PyTorch's float32", "ratio", ""]


@dataclass(frozen=True)
class Losses:
    """The losses of ten steps: PyTorch's and ours."""

    torch64: np.ndarray
    torch32: list[np.ndarray]  # runs that differ in the order of their sums
    ours64: np.ndarray
    ours32: np.ndarray

    @property
    def error64(self) -> float:
        return distance(self.ours64, self.torch64)

    @property
    def error32(self) -> float:
        return distance(self.ours32, self.torch64)

    @property
    def error32_of_torch(self) -> float:
        return max(distance(losses, self.torch64) for losses in self.torch32)

    @property
    def good(self) -> bool:
        return self.error64 <= FLOAT64_TOLERANCE and self.error32 <= TIMES_TORCH * self.error32_of_torch


def distance(losses: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative difference."""
    return float((np.abs(losses - expected) / np.abs(expected)).max())


def of_model(model: Model) -> Losses:
    """Train a model in all these ways."""
    from benchmarks.workers.model_pullback import trainer_step

    ours = [losses_of(trainer_step(replace(model, dtype=d), legalize=False)) for d in ("float64", "float32")]
    return Losses(*of_torch(model), *ours)


def of_torch(model: Model) -> tuple[np.ndarray, list[np.ndarray]]:
    """PyTorch's losses in float64, and those of its runs in float32."""
    import torch

    from benchmarks.workers.model_torch import step_of

    double, single = (replace(model, dtype=dtype) for dtype in ("float64", "float32"))
    layouts = (False, True) if any(a.ndim == 4 for a in model.parameters().values()) else (False,)
    threads, runs = torch.get_num_threads(), []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            runs += [losses_of(step_of(single, "eager", channels_last)) for channels_last in layouts]
        return losses_of(step_of(double, "eager")), runs
    finally:
        torch.set_num_threads(threads)


def losses_of(step: Step) -> np.ndarray:
    return np.array([step() for _ in range(RECORDED_STEPS)])


def run(names: list[str]) -> bool:
    """Print the table, and say whether all is as exact as it should be."""
    rows, good = [], True
    for name in names:
        with report.console.status(name):
            found = of_model(MODELS[name])
        good &= found.good
        errors = (found.error64, found.error32, found.error32_of_torch, found.error32 / found.error32_of_torch)
        rows.append([name, *(f"{e:.1e}" for e in errors[:3]), f"{errors[3]:.2f}", report.verdict(found.good)])
    title = f"largest relative distance of {RECORDED_STEPS} losses from PyTorch's in float64"
    report.TableText(title, COLUMNS, rows).show()
    return good
