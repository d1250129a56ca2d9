"""How exact a training is: ten losses of each model in float64 and float32, beside PyTorch's on the same values; and a
hundred in mixed precision, beside ours in float32.

PyTorch's losses in float64 are the judge. Ours in float64 differ from them by rounding alone. In float32 they may be no
more than :data:`TIMES_TORCH` times as far away as PyTorch's own. How far that is depends on luck where the gradient has
jumps, as that of relu: one rounding error may turn a unit on. (PyTorch's distances for ResNet-20 lie between 2e-4 and
5e-3, for one seed and with images in one layout or the other.) So both are means over :data:`SEEDS` initial values,
geometric ones, in which no single draw weighs more than the others.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import report
from benchmarks.models import MODELS
from benchmarks.models.base import Model
from benchmarks.workers.protocol import RECORDED_STEPS, Step

FLOAT64_TOLERANCE = 1e-8
TIMES_TORCH = 2.0
SEEDS = (1, 2, 3, 4, 5)
MIXED_STEPS, MIXED_TOLERANCE = 100, 0.02
MIXED_COLUMNS = [
    "model", "first loss", "last, float32", "last, mixed", "mean loss", "distance", "of each loss", "PyTorch's", "",
]  # fmt: skip
COLUMNS = ["model", "float64", "float32", "PyTorch's float32", "ratio", ""]


@dataclass(frozen=True)
class Losses:
    """The losses of ten steps from the same initial values: PyTorch's and ours."""

    torch64: np.ndarray
    torch32: np.ndarray
    ours64: np.ndarray
    ours32: np.ndarray


@dataclass(frozen=True)
class Exactness:
    """Ours for several initial values."""

    draws: Sequence[Losses]

    @property
    def error64(self) -> float:
        return max(distance(d.ours64, d.torch64) for d in self.draws)

    @property
    def error32(self) -> float:
        return mean([distance(d.ours32, d.torch64) for d in self.draws])

    @property
    def error32_of_torch(self) -> float:
        return mean([distance(d.torch32, d.torch64) for d in self.draws])

    @property
    def good(self) -> bool:
        return self.error64 <= FLOAT64_TOLERANCE and self.error32 <= TIMES_TORCH * self.error32_of_torch


def distance(losses: np.ndarray, expected: np.ndarray) -> float:
    """The largest relative difference."""
    return float((np.abs(losses - expected) / np.abs(expected)).max())


def mean(distances: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.log(distances).mean()))


def of_model(model: Model) -> Losses:
    """Train a model in all these ways."""
    from benchmarks.workers.model_pullback import trainer_step
    from benchmarks.workers.model_torch import step_of

    double, single = (replace(model, dtype=dtype) for dtype in ("float64", "float32"))
    theirs = [losses_of(step_of(m, "eager")) for m in (double, single)]
    ours = [losses_of(trainer_step(m, legalize=False)) for m in (double, single)]
    return Losses(*theirs, *ours)


def losses_of(step: Step) -> np.ndarray:
    return np.array([step() for _ in range(RECORDED_STEPS)])


def run(names: list[str]) -> bool:
    """Print the table, and say whether all is as exact as it should be."""
    rows, good = [], True
    for name in names:
        with report.console.status(name):
            found = Exactness([of_model(replace(MODELS[name], seed=seed)) for seed in SEEDS])
        good &= found.good
        errors = (found.error64, found.error32, found.error32_of_torch, found.error32 / found.error32_of_torch)
        rows.append([name, *(f"{e:.1e}" for e in errors[:3]), f"{errors[3]:.2f}", report.verdict(found.good)])
    title = f"relative distance of {RECORDED_STEPS} losses from PyTorch's in float64, over {len(SEEDS)} initial values"
    report.TableText(title, COLUMNS, rows).show()
    return good


def run_mixed(names: list[str], precision: str) -> bool:
    """Print the table of mixed precision, and say whether training goes as in float32: the mean loss differs by at most
    :data:`MIXED_TOLERANCE`, and no loss by more than that share of the first.

    A loss's distance from the loss itself is told too, and what PyTorch's is under its autocast. All steps are made on
    one batch, which some models learn by heart: what is left of the loss then is a matter of luck.
    """
    theirs = "eager-bfloat16" if precision == "bfloat16" and importlib.util.find_spec("torch") is not None else None
    rows, good = [], True
    for name in names:
        with report.console.status(name):
            single, mixed = (losses_of_steps_made(MODELS[name], p) for p in (None, precision))
            torch = distance_of_torch(MODELS[name], theirs) if theirs else None
        means = abs(mixed.mean() / single.mean() - 1)
        apart = float(np.abs(mixed - single).max() / abs(single[0]))
        close = max(means, apart) <= MIXED_TOLERANCE
        good &= close
        numbers = [f"{loss:.4g}" for loss in (single[0], single[-1], mixed[-1])]
        shares = [f"{share:.2%}" for share in (means, apart, distance(mixed, single))]
        rows.append([name, *numbers, *shares, "" if torch is None else f"{torch:.2%}", report.verdict(close)])
    title = f"{MIXED_STEPS} losses in {precision} beside those in float32"
    report.TableText(title, MIXED_COLUMNS, rows).show()
    return good


def distance_of_torch(model: Model, variant: str) -> float:
    """How far PyTorch's losses in mixed precision are from its own in float32, relative to each."""
    from benchmarks.workers.model_torch import step_of

    steps = [step_of(model, v) for v in ("eager", variant)]
    single, mixed = (np.array([step() for _ in range(MIXED_STEPS)]) for step in steps)
    return distance(mixed, single)


def losses_of_steps_made(model: Model, precision: str | None) -> np.ndarray:
    """Of a hundred steps, those that a loss scale made the optimizer leave out not counted."""
    import pullback
    from benchmarks.workers.model_pullback import trainer_of

    trainer = trainer_of(model, legalize=False, precision=precision)
    x, y = (pullback.nd.array(array) for array in model.data())
    losses: list[float] = []
    while len(losses) < MIXED_STEPS:
        scale, loss = trainer.loss_scale, float(trainer.update(x, y).numpy())
        losses += [loss] if trainer.loss_scale >= scale else []
    return np.array(losses)
