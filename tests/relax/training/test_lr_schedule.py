"""Schedules: in both backends, within optimizers, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.ir import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax import op
from pullback.relax.training import lr_schedule as s
from pullback.relax.training.optimizer import SGD, Accumulate, Adam, MomentumSGD
from tests.relax.training.models import assert_same, classes, params, trainer_of
from tests.relax.training.optimizers import run, values_and_gradients
from tests.relax.training.schedules import rates

SCHEDULES = [
    s.ConstantLR(0.1, 0.5, 3),
    s.StepLR(0.1, 3),
    s.MultiStepLR(0.1, [2, 5]),
    s.ExponentialLR(0.1, 0.9),
    s.PolynomialLR(0.1, 6, 1.5),
    s.LinearLR(0.1, 0.2, 1.0, 4),
    s.CosineAnnealingLR(0.1, 6),
    s.CosineAnnealingWarmRestarts(0.1, 2, 2),
    s.OneCycleLR(0.1, 9),
    s.SequentialLR([s.LinearLR(0.1, 0.1, 1.0, 3), lambda t: 0.1 / (1.0 + t.astype("float32")), 0.05], [3, 6]),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_backends_agree(schedule: s.Schedule) -> None:
    np.testing.assert_allclose(rates(schedule, 12, "llvm"), rates(schedule, 12, "debug"), rtol=1e-14, atol=1e-18)


def test_one_cycle_stays_at_its_end() -> None:
    schedule = s.OneCycleLR(1.0, 20, div_factor=10, final_div_factor=100)
    np.testing.assert_allclose(rates(schedule, [0, 19, 20, 1000]), [0.1, 1e-3, 1e-3, 1e-3])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_an_optimizer_follows_it(schedule: s.Schedule) -> None:
    values, gradients = values_and_gradients(8)
    expected, wanted = [v.copy() for v in values], rates(schedule, 8)
    for t, (found, _) in enumerate(run(SGD(schedule), values, gradients)):
        expected = [p - wanted[t] * g for p, g in zip(expected, gradients[t], strict=True)]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_any_hyperparameter_may_follow_one() -> None:
    values, gradients = values_and_gradients(6)
    momentum, decay = s.LinearLR(0.9, 0.5, 1.0, 4), s.StepLR(0.1, 2, 0.5)
    optimizer = MomentumSGD(lambda t: op.exp(t.astype("float64") * -0.1), momentum, weight_decay=decay)
    expected, v = [x.copy() for x in values], [np.zeros_like(x) for x in values]
    momenta, decays = rates(momentum, 6), rates(decay, 6)
    for t, (found, _) in enumerate(run(optimizer, values, gradients)):
        g = [g + decays[t] * p for g, p in zip(gradients[t], expected, strict=True)]
        v = [momenta[t] * old + new for old, new in zip(v, g, strict=True)]
        expected = [p - np.exp(-0.1 * t) * new for p, new in zip(expected, v, strict=True)]
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_accumulation_counts_its_own_steps() -> None:
    """Two batches a step: the rate of the second step is that of t = 1."""
    values, gradients = values_and_gradients(4)
    last = list(run(Accumulate(SGD(s.StepLR(0.1, 1, 0.5)), 2), values, gradients))[-1][0]
    for a, p, *g in zip(last, values, *gradients, strict=True):
        np.testing.assert_allclose(a, p - 0.1 * (g[0] + g[1]) / 2 - 0.05 * (g[2] + g[3]) / 2, rtol=1e-12)


def test_a_trainer_of_float32_takes_the_rate_from_float64() -> None:
    x, y = classes(16)
    trainers = [trainer_of("llvm", optimizer=Adam(lr)) for lr in (0.01, s.ConstantLR(0.01), lambda t: 0.01)]
    for trainer in trainers:
        trainer.fit(x, y, epochs=2, verbose=0)
    assert_same(params(trainers[0]), params(trainers[1]))
    assert_same(params(trainers[0]), params(trainers[2]))
    assert trainers[1].hyperparameters["lr"] == "ConstantLR(lr=0.01, factor=1.0, total_iters=5)"
    assert trainers[2].hyperparameters["lr"] == "LambdaLR(<lambda>)"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: s.StepLR(-0.1, 3), ArgumentError, "lr must be a finite number ≥ 0, got -0.1"),
        (lambda: s.StepLR(0.1, 0), ArgumentError, "step_size must be an int ≥ 1, got 0"),
        (lambda: s.StepLR(0.1, 2.5), ArgumentError, "step_size must be an int ≥ 1, got 2.5"),
        (lambda: s.MultiStepLR(0.1, 3), ArgumentError, "milestones must be a list of steps, got 3"),
        (lambda: s.MultiStepLR(0.1, [3, -1]), ArgumentError, r"milestones\[1\] must be an int ≥ 0, got -1"),
        (lambda: s.PolynomialLR(0.1, 0), ArgumentError, "total_iters must be an int ≥ 1, got 0"),
        (lambda: s.CosineAnnealingLR(0.1, True), ArgumentError, "T_max must be an int ≥ 1, got True"),
        (lambda: s.OneCycleLR(0.1, 20, 1.5), ArgumentError, "pct_start must be at most 1, got 1.5"),
        (lambda: s.OneCycleLR(0.1, 20, anneal_strategy="sine"), ArgumentError, 'must be "cos" or "linear", got'),
        (lambda: s.OneCycleLR(0.1, 20, div_factor=0), ArgumentError, "div_factor must be positive, got 0"),
        (lambda: s.OneCycleLR(0.1, 3), ArgumentError, "end at the steps -0.1, 2: each needs one step"),
        (lambda: s.SequentialLR([], []), ArgumentError, r"a list of at least one schedule, got \[\]"),
        (
            lambda: s.SequentialLR([0.1, 0.2], [3, 4]),
            ArgumentError,
            r"2 schedules need 1 milestones in rising order, got \[3, 4\]",
        ),
        (lambda: s.SequentialLR([0.1, "x"], [3]), ArgumentError, r"schedules\[1\] must be a number, got 'x'"),
        (lambda: s.LambdaLR(3), ArgumentError, "LambdaLR takes a function of the step, got 3"),
        (lambda: SGD(s.StepLR), ArgumentError, "lr must be a number or a schedule, got the class StepLR"),
        (lambda: rates(s.LambdaLR(lambda t: "x"), 1), UserError, "a scalar built of ops, it returned 'x'"),
        (lambda: rates(s.LambdaLR(lambda t: t), 1), DTypeError, "must return a float, it returned int64"),
        (
            lambda: rates(s.LambdaLR(lambda t: op.ones((2,), "float32")), 1),
            ShapeError,
            r"must return a scalar, it returned Tensor\(\(2,\)",
        ),
    ],
)
def test_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
