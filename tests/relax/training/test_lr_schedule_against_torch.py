"""Schedules beside torch.optim.lr_scheduler: the rates of fifty steps and more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pullback.relax.training import lr_schedule as ours
from tests.relax.training.schedules import rates

theirs = torch.optim.lr_scheduler
LR, STEPS = 0.3, 60

CASES: list[tuple[Any, Callable[[Any], Any]]] = [
    (ours.ConstantLR(LR), lambda o: theirs.ConstantLR(o, 1.0)),
    (ours.ConstantLR(LR, 0.25, 7), lambda o: theirs.ConstantLR(o, 0.25, 7)),
    (ours.StepLR(LR, 7), lambda o: theirs.StepLR(o, 7)),
    (ours.StepLR(LR, 3, 0.77), lambda o: theirs.StepLR(o, 3, 0.77)),
    (ours.MultiStepLR(LR, [3, 20, 21], 0.3), lambda o: theirs.MultiStepLR(o, [3, 20, 21], 0.3)),
    (ours.MultiStepLR(LR, [9, 4, 4]), lambda o: theirs.MultiStepLR(o, [9, 4, 4])),
    (ours.ExponentialLR(LR, 0.9), lambda o: theirs.ExponentialLR(o, 0.9)),
    (ours.PolynomialLR(LR), lambda o: theirs.PolynomialLR(o)),
    (ours.PolynomialLR(LR, 40, 2.5), lambda o: theirs.PolynomialLR(o, 40, 2.5)),
    (ours.LinearLR(LR), lambda o: theirs.LinearLR(o)),
    (ours.LinearLR(LR, 0.01, 0.7, 33), lambda o: theirs.LinearLR(o, 0.01, 0.7, 33)),
    (ours.CosineAnnealingLR(LR, 50), lambda o: theirs.CosineAnnealingLR(o, 50)),
    (ours.CosineAnnealingLR(LR, 13, 0.01), lambda o: theirs.CosineAnnealingLR(o, 13, 0.01)),
    (ours.CosineAnnealingWarmRestarts(LR, 11), lambda o: theirs.CosineAnnealingWarmRestarts(o, 11)),
    (ours.CosineAnnealingWarmRestarts(LR, 1, 2, 0.1), lambda o: theirs.CosineAnnealingWarmRestarts(o, 1, 2, 0.1)),
    (ours.CosineAnnealingWarmRestarts(LR, 5, 3), lambda o: theirs.CosineAnnealingWarmRestarts(o, 5, 3)),
    (ours.OneCycleLR(LR, 60), lambda o: theirs.OneCycleLR(o, LR, 60, cycle_momentum=False)),
    (
        ours.OneCycleLR(LR, 61, 0.25, "linear", 10.0, 100.0),
        lambda o: theirs.OneCycleLR(
            o, LR, 61, pct_start=0.25, anneal_strategy="linear", div_factor=10.0, final_div_factor=100.0,
            cycle_momentum=False,
        ),
    ),
    (
        ours.OneCycleLR(LR, 64, three_phase=True),
        lambda o: theirs.OneCycleLR(o, LR, 64, three_phase=True, cycle_momentum=False),
    ),
    (
        ours.SequentialLR([ours.LinearLR(LR, 0.1, 1.0, 10), ours.CosineAnnealingLR(LR, 50)], [10]),
        lambda o: theirs.SequentialLR(
            o, [theirs.LinearLR(o, 0.1, 1.0, 10), theirs.CosineAnnealingLR(o, 50)], [10]
        ),
    ),
    (
        ours.SequentialLR(
            [ours.ConstantLR(LR, 0.1, 4), ours.ExponentialLR(LR, 0.9), ours.StepLR(LR, 5, 0.5)], [7, 30]
        ),
        lambda o: theirs.SequentialLR(
            o, [theirs.ConstantLR(o, 0.1, 4), theirs.ExponentialLR(o, 0.9), theirs.StepLR(o, 5, 0.5)], [7, 30]
        ),
    ),
    (ours.LambdaLR(lambda t: LR / (1.0 + t.astype("float64"))), lambda o: theirs.LambdaLR(o, lambda t: 1 / (1 + t))),
]  # fmt: skip


@pytest.mark.parametrize(("schedule", "make"), CASES, ids=[repr(schedule) for schedule, _ in CASES])
def test_rates(schedule: Any, make: Any) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own sequence calls what PyTorch deprecates
        scheduler = make(optimizer)
        expected = []
        for _ in range(STEPS):
            expected.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
    np.testing.assert_allclose(rates(schedule, STEPS), expected, rtol=1e-11, atol=1e-16)


@pytest.mark.parametrize("ratio", [2, 3, 7])
@pytest.mark.parametrize("first", [1, 10, 13])
def test_restarts_are_exact(ratio: int, first: int) -> None:
    """At the step of each restart the rate is the highest, far beyond the steps that PyTorch could make."""
    starts = [first * (ratio**n - 1) // (ratio - 1) for n in range(1, 14)]
    schedule = ours.CosineAnnealingWarmRestarts(LR, first, ratio)
    assert (rates(schedule, starts) == LR).all()
    assert (rates(schedule, [start - 1 for start in starts[1:]]) < LR / 2).all() or first == 1
