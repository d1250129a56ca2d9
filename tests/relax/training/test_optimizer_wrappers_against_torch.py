"""Clipping, accumulation, groups and averages beside PyTorch: whole trainings of a perceptron in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pullback.relax.training.lr_schedule import CosineAnnealingLR, LinearLR, SequentialLR
from pullback.relax.training.optimizer import (
    EMA,
    SGD,
    Accumulate,
    AdamW,
    ClipByGlobalNorm,
    ClipByValue,
    MomentumSGD,
    Optimizer,
    ParameterGroups,
    RMSprop,
    RunTime,
)
from tests.relax.training.models import classes, mlp, trainer_of

optim, schedulers, swa = torch.optim, torch.optim.lr_scheduler, torch.optim.swa_utils
X, Y = classes(64, dtype="float64")
BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 64, 8)] * 3
NAMES = ("w0", "b0", "w1", "b1", "w2", "b2")


class Perceptron(torch.nn.Module):
    def __init__(self, values: dict[str, np.ndarray]) -> None:
        super().__init__()
        for name, value in values.items():
            setattr(self, name, torch.nn.Parameter(torch.tensor(value)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(x @ self.w0 + self.b0)
        return torch.relu(x @ self.w1 + self.b1) @ self.w2 + self.b2


def of(model: Perceptron, prefix: str) -> list[torch.nn.Parameter]:
    return [getattr(model, name) for name in NAMES if name.startswith(prefix)]


def trained(optimizer: Optimizer, set_rates: dict[int, float] | None = None) -> tuple[Any, Perceptron, list[float]]:
    """A trainer after all batches, a torch model with its initial parameters, and the trainer's losses."""
    trainer = trainer_of("llvm", optimizer=optimizer, model=mlp(dtype="float64"))
    model = Perceptron({name: value.numpy() for name, value in trainer.params.items()})
    losses = []
    for i, batch in enumerate(BATCHES):
        if set_rates and i in set_rates:
            trainer.set_hyperparameter("lr", set_rates[i])
        losses.append(trainer.update(*batch).item())
    return trainer, model, losses


def check(trainer: Any, model: Perceptron, losses: list[float], step: Callable[[int, torch.Tensor], None]) -> None:
    """PyTorch's training, ``step`` being what follows a loss, gives the same losses and parameters."""
    for i, (x, y) in enumerate(BATCHES):
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y))
        np.testing.assert_allclose(losses[i], loss.item(), rtol=1e-8)
        step(i, loss)
    for name, value in trainer.params.items():
        np.testing.assert_allclose(value.numpy(), getattr(model, name).detach().numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_clip_by_global_norm(norm_type: float) -> None:
    found = trained(ClipByGlobalNorm(MomentumSGD(0.3, 0.9), 0.1, norm_type))
    model = found[1]
    reference = optim.SGD(model.parameters(), 0.3, momentum=0.9)

    def step(i: int, loss: torch.Tensor) -> None:
        reference.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1, norm_type)
        reference.step()

    check(*found, step)


def test_clip_by_value() -> None:
    found = trained(ClipByValue(RMSprop(0.01), 0.02))
    model = found[1]
    reference = optim.RMSprop(model.parameters(), 0.01)

    def step(i: int, loss: torch.Tensor) -> None:
        reference.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.02)
        reference.step()

    check(*found, step)


def test_run_time_rates() -> None:
    rates = {5: 0.2, 6: 0.01, 20: 0.5}
    found = trained(SGD(RunTime(0.1)), rates)
    reference = optim.SGD(found[1].parameters(), 0.1)

    def step(i: int, loss: torch.Tensor) -> None:
        reference.param_groups[0]["lr"] = rates.get(i, reference.param_groups[0]["lr"])
        reference.zero_grad()
        loss.backward()
        reference.step()

    check(*found, step)


def test_everything_at_once() -> None:
    """Groups, a frozen matrix, warm-up then cosine, clipping of the mean of three batches, averages of the steps."""
    rate = SequentialLR([LinearLR(0.05, 0.2, 1.0, 3), CosineAnnealingLR(0.05, 5)], [3])
    rules = {"b*": {"weight_decay": 0.0, "betas": (0.8, 0.99)}, "w1": {"frozen": True}}
    found = trained(
        Accumulate(EMA(ClipByGlobalNorm(ParameterGroups(AdamW(rate, weight_decay=0.1), rules), 0.3), 0.7), 3)
    )
    trainer, model, _ = found
    model.w1.requires_grad_(False)
    groups = [
        {"params": [model.w0, model.w2], "weight_decay": 0.1},
        {"params": of(model, "b"), "weight_decay": 0.0, "betas": (0.8, 0.99)},
    ]
    reference = optim.AdamW(groups, 0.05)
    warm, cosine = schedulers.LinearLR(reference, 0.2, 1.0, 3), schedulers.CosineAnnealingLR(reference, 5)
    scheduler = schedulers.SequentialLR(reference, [warm, cosine], [3])
    averaged = swa.AveragedModel(model, avg_fn=swa.get_ema_avg_fn(0.7))

    def step(i: int, loss: torch.Tensor) -> None:
        (loss / 3).backward()
        if i % 3 == 2:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
            reference.step()
            scheduler.step()
            reference.zero_grad()
            averaged.update_parameters(model)

    check(*found, step)
    for name, value in trainer.averages.items():
        np.testing.assert_allclose(value.numpy(), getattr(averaged.module, name).detach().numpy(), rtol=1e-6)
    expected = averaged(torch.tensor(X[:8])).detach().numpy()
    np.testing.assert_allclose(trainer.predict(X[:8], averaged=True).numpy(), expected, rtol=1e-6)
