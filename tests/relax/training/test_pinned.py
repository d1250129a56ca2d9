"""Ten losses and the final parameters of every pinned training, recorded from PyTorch, on both backends."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.relax import TensorStructInfo
from pullback.relax.training import SetupTrainer, Trainer, loss, optimizer
from tests.pinned import PARAMETERS, Case, load_cases
from tests.relax.training.models import SIZES, mlp

TOLERANCES = {"float64": 1e-10, "float32": 1e-5}


def trainer_of(case: Case, target: str, legalize: bool) -> Trainer:
    options = {"lr" if k == "learning_rate" else k: v for k, v in case.optimizer_options.items()}
    infos = [TensorStructInfo((len(case.x), SIZES[-1]), case.dtype)]
    infos += [TensorStructInfo(case.target.shape, case.target.dtype.name)]
    infos += [TensorStructInfo(case.class_weights.shape, case.dtype)] if case.class_weights is not None else []
    setup = SetupTrainer(
        getattr(loss, case.loss)(**case.loss_options), getattr(optimizer, case.optimizer)(**options), infos, legalize
    )
    module = setup(mlp(len(case.x), SIZES, case.dtype))
    machine = pullback.VirtualMachine(pullback.compile(module, target), pullback.cpu())
    trainer = Trainer(module, machine, pullback.cpu())
    trainer.load_params(list(case.initial))
    return trainer


def check(case: Case, target: str, legalize: bool) -> None:
    trainer = trainer_of(case, target, legalize)
    targets = [case.target] if case.class_weights is None else [case.target, case.class_weights]
    losses = [trainer.update(case.x, targets).item() for _ in case.losses]
    tolerance = TOLERANCES[case.dtype]
    if case.dtype == "float32" and (case.loss, case.optimizer) == ("L1Loss", "Adam"):
        # Gradients of ±1/N that cancel leave rounding errors, of which Adam makes whole steps.
        np.testing.assert_allclose(losses, case.losses, rtol=1e-3)
        return
    np.testing.assert_allclose(losses, case.losses, rtol=tolerance, atol=tolerance)
    for name, expected in zip(PARAMETERS, case.final, strict=True):
        found = trainer.params[name].numpy()
        np.testing.assert_allclose(found, expected, rtol=10 * tolerance, atol=10 * tolerance, err_msg=name)
    assert trainer.steps == len(case.losses)


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_interpreter(case: Case) -> None:
    check(case, "debug", legalize=False)


@pytest.mark.parametrize("case", load_cases(), ids=lambda case: case.name)
def test_native(case: Case) -> None:
    check(case, "llvm", legalize=False)


@pytest.mark.parametrize("case", load_cases("float32")[::6], ids=lambda case: case.name)
def test_native_legalized(case: Case) -> None:
    check(case, "llvm", legalize=True)
