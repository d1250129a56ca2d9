"""Hyperparameters that are set while training runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import driver
from pullback.ir import ArgumentError, CheckpointError
from pullback.relax.training.lr_schedule import StepLR
from pullback.relax.training.optimizer import (
    EMA,
    LAMB,
    LARS,
    SGD,
    Adadelta,
    Adafactor,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    ClipByGlobalNorm,
    Lion,
    MomentumSGD,
    NAdam,
    ParameterGroups,
    RAdam,
    RMSprop,
    RunTime,
)
from tests.relax.training.models import assert_same, classes, params, trainer_of
from tests.relax.training.optimizers import run, values_and_gradients

X, Y = classes(16)

NUMBERS: list[tuple[Any, dict[str, Any]]] = [
    (SGD, {"lr": 0.1, "weight_decay": 0.05}),
    (MomentumSGD, {"lr": 0.1, "momentum": 0.8, "dampening": 0.1, "weight_decay": 0.05}),
    (Adam, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
    (AdamW, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
    (NAdam, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1, "momentum_decay": 0.01}),
    (RAdam, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
    (Adamax, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
    (RMSprop, {"lr": 0.01, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.7}),
    (Adagrad, {"lr": 0.01, "lr_decay": 0.1, "eps": 1e-4, "weight_decay": 0.1}),
    (Adadelta, {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    (Adafactor, {"lr": 0.01, "beta2_decay": -0.6, "d": 1.2, "weight_decay": 0.1}),
    (Lion, {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    (LARS, {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.1, "trust_coefficient": 0.1, "eps": 0.01}),
    (LAMB, {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("kind", "options"), NUMBERS)
def test_every_hyperparameter_of_every_optimizer(kind: Any, options: dict[str, Any]) -> None:
    """As run-time values they give what the same constants give."""
    values, gradients = values_and_gradients(5)

    def lifted(value: Any) -> Any:
        return tuple(map(RunTime, value)) if isinstance(value, tuple) else RunTime(value)

    optimizer = kind(**{k: lifted(v) for k, v in options.items()})
    constant = [found for found, _ in run(kind(**options), values, gradients)]
    for (found, _), expected in zip(run(optimizer, values, gradients), constant, strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10)
    names = {k for k in options if k != "betas"} | ({"beta1", "beta2"} if "betas" in options else set())
    assert set(optimizer.roles["run_time"]) == names


@pytest.mark.parametrize("target", ["debug", "llvm"])
def test_setting_is_as_if_it_had_been_a_schedule(target: str) -> None:
    trainer = trainer_of(target, optimizer=MomentumSGD(RunTime(0.1), 0.9))
    other = trainer_of(target, optimizer=MomentumSGD(StepLR(0.1, 3, 0.5), 0.9))
    for _ in range(3):
        trainer.update(X[:8], Y[:8])
    trainer.set_hyperparameter("lr", 0.05)
    assert trainer.hyperparameters["lr"] == 0.05 and trainer.steps == 3
    for _ in range(3):
        trainer.update(X[:8], Y[:8])
    for _ in range(6):
        other.update(X[:8], Y[:8])
    for a, b in zip(params(trainer), params(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of("llvm", optimizer=Adam(RunTime(0.1)))
    trainer.fit(X, Y, verbose=0)
    monkeypatch.setattr(driver, "compile", lambda *a, **k: pytest.fail("compiled"))
    module = trainer.mod
    bound = trainer._programs.main.step._bound.copy()
    trainer.set_hyperparameter("lr", 0.2)
    trainer.fit(X, Y, verbose=0)
    assert trainer.mod is module and trainer._programs.main.step._bound == bound


def test_clipping_and_averages_have_them_too() -> None:
    optimizer = EMA(ClipByGlobalNorm(SGD(RunTime(0.1)), RunTime(1.0)), RunTime(0.5))
    trainer = trainer_of("llvm", optimizer=optimizer)
    trainer.set_hyperparameter("max_norm", 0.0)
    before = params(trainer)
    trainer.update(X[:8], Y[:8])
    assert_same(params(trainer), before)
    with pytest.raises(ArgumentError, match="no run-time value 'momentum'; it has: lr, max_norm, decay"):
        trainer.set_hyperparameter("momentum", 0.1)


def test_groups_share_a_value_or_have_their_own() -> None:
    rules = {"w*": {"weight_decay": 0.1}, "b1": {"lr": RunTime(0.2)}, "b2": {"lr": RunTime(0.3, "last")}}
    trainer = trainer_of("llvm", optimizer=ParameterGroups(SGD(RunTime(0.1)), rules))
    names = {k: v for k, v in trainer.hyperparameters.items() if isinstance(v, float) and v}
    assert names == {"lr": 0.1, "weight_decay[w*]": 0.1, "lr[b1]": 0.2, "last": 0.3}
    for name in ("lr", "lr[b1]"):
        trainer.set_hyperparameter(name, 0.0)
    before = trainer.params
    trainer.update(X[:8], Y[:8])
    changed = [name for name, value in trainer.params.items() if (value.numpy() != before[name].numpy()).any()]
    assert changed == ["b2"]


def test_checkpoints_hold_them(tmp_path: Any) -> None:
    first, second = (trainer_of("llvm", optimizer=Adam(RunTime(lr))) for lr in (0.1, 0.3))
    first.set_hyperparameter("lr", 0.01)
    first.update(X[:8], Y[:8])
    first.save(tmp_path / "a")
    second.load(tmp_path / "a")
    assert second.hyperparameters["lr"] == 0.01
    for trainer in (first, second):
        trainer.update(X[8:], Y[8:])
    assert_same(params(first), params(second))


def test_checkpoints_of_other_groups_are_refused(tmp_path: Any) -> None:
    """The same number of states, of the same shapes, in another order."""
    rules = [{"w0": {"weight_decay": 0.1}}, {"w1": {"weight_decay": 0.1}}]
    square = (20, 20, 20, 20)
    from tests.relax.training.models import mlp

    first, second = (
        trainer_of(optimizer=ParameterGroups(MomentumSGD(0.1, 0.9), r), model=mlp(sizes=square)) for r in rules
    )
    first.save(tmp_path / "a")
    with pytest.raises(CheckpointError, match="optimizer state 1 is v of w0 in this trainer, v of b0 in the file"):
        second.load(tmp_path / "a")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", -0.1, "lr must be a finite number ≥ 0, got -0.1"),
        ("lr", "fast", "lr must be a number, got 'fast'"),
        ("beta1", 1.0, "beta1 must be less than 1, got 1.0"),
        (
            "eps",
            0.1,
            r"'eps'; it has: lr, beta1\nhint: it is 1e-08; RunTime\(1e-08\) in its place would be one",
        ),
        ("weight_decay", 0.1, "'weight_decay'; it has: lr, beta1\nhint: it follows from the step: StepLR"),
        ("rate", 0.1, "'rate'; it has: lr, beta1\nhint: RunTime"),
    ],
)
def test_errors(name: str, value: Any, message: str) -> None:
    trainer = trainer_of(optimizer=Adam(RunTime(0.1), (RunTime(0.9), 0.99), weight_decay=StepLR(0.1, 2)))
    before = [s.numpy() for s in trainer.optimizer_states]
    with pytest.raises(ArgumentError, match=message):
        trainer.set_hyperparameter(name, value)
    assert_same(before, [s.numpy() for s in trainer.optimizer_states])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(RunTime(-1.0)), "lr must be a finite number ≥ 0, got -1.0"),
        (lambda: Adam(0.1, (RunTime(1.5), 0.9)), "beta1 must be less than 1, got 1.5"),
    ],
)
def test_errors_of_initial_values(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()
