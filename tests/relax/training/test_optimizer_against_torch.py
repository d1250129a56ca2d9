"""Optimizers beside torch.optim: twenty steps in float64, with every option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pullback.relax.training import optimizer as ours
from tests.relax.training.optimizers import run, values_and_gradients

STEPS = 20
torch_optim = torch.optim
BETAS = {"betas": (0.8, 0.95)}

CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    (ours.SGD, torch_optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
    (ours.Adam, torch_optim.Adam, {"lr": 0.01}),
    (ours.Adam, torch_optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, **BETAS}),
    (ours.Adam, torch_optim.Adam, {"lr": 0.01, "eps": 1e-3, "maximize": True}),
    (ours.AdamW, torch_optim.AdamW, {}),
    (ours.AdamW, torch_optim.AdamW, {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True, "maximize": True, **BETAS}),
    (ours.NAdam, torch_optim.NAdam, {}),
    (ours.NAdam, torch_optim.NAdam, {"lr": 0.02, "weight_decay": 0.2, "momentum_decay": 0.1, **BETAS}),
    (ours.NAdam, torch_optim.NAdam, {"weight_decay": 0.2, "decoupled_weight_decay": True, "maximize": True}),
    (ours.RAdam, torch_optim.RAdam, {}),
    (ours.RAdam, torch_optim.RAdam, {"lr": 0.02, "weight_decay": 0.2, **BETAS}),
    (ours.RAdam, torch_optim.RAdam, {"betas": (0.5, 0.3), "lr": 0.1}),  # never rectified
    (ours.RAdam, torch_optim.RAdam, {"weight_decay": 0.2, "decoupled_weight_decay": True, "maximize": True}),
    (ours.Adamax, torch_optim.Adamax, {}),
    (ours.Adamax, torch_optim.Adamax, {"lr": 0.1, "weight_decay": 0.2, "eps": 1e-2, "maximize": True, **BETAS}),
    (ours.RMSprop, torch_optim.RMSprop, {}),
    (ours.RMSprop, torch_optim.RMSprop, {"alpha": 0.9, "momentum": 0.8, "centered": True, "weight_decay": 0.1}),
    (ours.RMSprop, torch_optim.RMSprop, {"centered": True, "eps": 1e-3, "maximize": True}),
    (ours.RMSprop, torch_optim.RMSprop, {"momentum": 0.5}),
    (ours.Adagrad, torch_optim.Adagrad, {}),
    (ours.Adagrad, torch_optim.Adagrad, {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "maximize": True}),
    (ours.Adagrad, torch_optim.Adagrad, {"initial_accumulator_value": 0.5, "eps": 1e-3}),
    (ours.Adadelta, torch_optim.Adadelta, {}),
    (ours.Adadelta, torch_optim.Adadelta, {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    (ours.Adafactor, torch_optim.Adafactor, {}),
    (ours.Adafactor, torch_optim.Adafactor, {"lr": 0.5, "weight_decay": 0.1, "beta2_decay": -0.5, "maximize": True}),
    (ours.Adafactor, torch_optim.Adafactor, {"eps": (1e-2, 0.1), "d": 1.5}),
]


@pytest.fixture(autouse=True)
def _scalars_in_float64() -> Iterator[None]:
    """NAdam's product of μ is of the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("kind", "oracle", "options"), CASES)
def test_twenty_steps(kind: Any, oracle: Any, options: dict[str, Any]) -> None:
    values, gradients = values_and_gradients(STEPS)
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    reference = oracle(theirs, **options)
    for (params, _), given in zip(run(kind(**options), values, gradients), gradients, strict=True):
        for parameter, gradient in zip(theirs, given, strict=True):
            parameter.grad = torch.tensor(gradient)
        reference.step()
        for mine, other in zip(params, theirs, strict=True):
            np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("kind", "oracle", "options"), CASES)
def test_defaults_are_theirs(kind: Any, oracle: Any, options: dict[str, Any]) -> None:
    given = {k: v for k, v in options.items() if k == "lr" or (kind is ours.MomentumSGD and k == "momentum")}
    mine = kind(**given)
    defaults = oracle([torch.zeros(2, requires_grad=True)], **given).defaults
    betas = defaults.get("betas")
    assert betas is None or betas == (mine.beta1, mine.beta2)
    shared = mine.hyperparameters.keys() & defaults.keys()
    assert {name: mine.hyperparameters[name] for name in shared} == {name: defaults[name] for name in shared}


BOTH_ZERO, FIRST_ZERO, SECOND_ZERO = ({"betas": b} for b in ((0.0, 0.0), (0.0, 0.9), (0.9, 0.0)))
CORNERS: list[tuple[Any, Any, dict[str, Any]]] = [
    (ours.SGD, torch_optim.SGD, {"lr": 0.0, "weight_decay": 0.1}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 0, "dampening": 0.3}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 0, "dampening": 1, "maximize": True}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 0, "dampening": 2, "weight_decay": 0.1}),
    (ours.MomentumSGD, torch_optim.SGD, {"lr": 0.1, "momentum": 1, "dampening": 1}),
    *((kind, getattr(torch_optim, kind.__name__), {"lr": 0.01, **betas, **more})
      for kind in (ours.Adam, ours.AdamW, ours.NAdam, ours.RAdam, ours.Adamax)
      for betas, more in ((BOTH_ZERO, {}), (FIRST_ZERO, {"weight_decay": 0}), (SECOND_ZERO, {"maximize": True}))),
    (ours.Adam, torch_optim.Adam, {"lr": 0.01, "eps": 0, "amsgrad": True, **FIRST_ZERO}),
    (ours.AdamW, torch_optim.AdamW, {"lr": 0.01, "eps": 0, "weight_decay": 0, **BOTH_ZERO}),
    (ours.RMSprop, torch_optim.RMSprop, {"alpha": 0, "eps": 0}),
    (ours.RMSprop, torch_optim.RMSprop, {"alpha": 1, "momentum": 0.5, "centered": True}),
    (ours.Adagrad, torch_optim.Adagrad, {"eps": 0, "initial_accumulator_value": 0.5}),
    (ours.Adadelta, torch_optim.Adadelta, {"rho": 0}),
    (ours.Adadelta, torch_optim.Adadelta, {"rho": 1.0}),
    (ours.Adafactor, torch_optim.Adafactor, {"beta2_decay": 0}),
    (ours.Adafactor, torch_optim.Adafactor, {"eps": (1e-30, 1e-3)}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "oracle", "options"), CORNERS)
def test_hyperparameters_at_their_bounds(kind: Any, oracle: Any, options: dict[str, Any]) -> None:
    """Four steps in which some gradients are 0."""
    values, gradients = values_and_gradients(4)
    for given in gradients:
        given[0][0], given[1] = 0, np.zeros_like(given[1])
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    reference = oracle(theirs, **options)
    for (params, _), given in zip(run(kind(**options), values, gradients), gradients, strict=True):
        for parameter, gradient in zip(theirs, given, strict=True):
            parameter.grad = torch.tensor(gradient)
        reference.step()
        for mine, other in zip(params, theirs, strict=True):
            np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_momentum_that_is_zero_at_run_time_is_not_dampened() -> None:
    """As that which is 0 when the step is compiled."""
    values, gradients = values_and_gradients(3)
    constant, at_run_time = (ours.MomentumSGD(0.1, m, dampening=0.4) for m in (0, ours.RunTime(0.0)))
    for (mine, _), (other, _) in zip(
        run(at_run_time, values, gradients), run(constant, values, gradients), strict=True
    ):
        for a, b in zip(mine, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
