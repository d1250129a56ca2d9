"""The models that are timed: every side computes the same training, shown on tiny ones."""

from __future__ import annotations

import pytest

from benchmarks.models import MODELS
from benchmarks.models.base import Model
from benchmarks.models.chargpt import CharGPT
from benchmarks.models.lenet import LeNet
from benchmarks.models.mlp import MLP
from benchmarks.models.resnet20 import ResNet20
from benchmarks.workers import model_pullback, model_torch

STEPS = 4
TINY: tuple[Model, ...] = (
    MLP(sizes=(7, 5, 3), batch=4),
    LeNet(channels=(2, 3), widths=(8, 6), batch=3),
    ResNet20(width=2, blocks=1, size=8, batch=3),
    CharGPT(layers=1, width=6, heads=2, length=5, batch=2, vocabulary=7),
)


MISSING = {"lenet": "conv2d, max_pool2d", "resnet20": "conv2d, batch_norm", "chargpt": "attention"}


def _case(model: Model) -> object:
    reason = MISSING.get(model.name)
    return pytest.param(model, id=model.name, marks=[pytest.mark.xfail(reason=f"no {reason}")] if reason else [])


@pytest.mark.parametrize("model", map(_case, TINY))
def test_same_training_as_torch(model: Model) -> None:
    eager = model_torch.step_of(model, "eager")
    expected = [eager() for _ in range(STEPS)]
    ours = model_pullback.trainer_step(model, legalize=False)
    assert [ours() for _ in range(STEPS)] == pytest.approx(expected, rel=1e-4)


def test_flops_agree_with_torch() -> None:
    """PyTorch counts what its ops cost, but for attention, of which it counts what lies above the diagonal too."""
    from torch.utils.flop_counter import FlopCounterMode

    for model in MODELS.values():
        if isinstance(model, CharGPT):
            continue
        step = model_torch.step_of(model, "eager")
        with FlopCounterMode(display=False) as counter:
            step()
        assert counter.get_total_flops() == model.flops(), model.name
