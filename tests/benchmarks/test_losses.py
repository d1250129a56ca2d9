"""Ten losses of every benchmarked model are PyTorch's in float64, and in float32 as near to them as PyTorch's own."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.losses import FLOAT64_TOLERANCE, TIMES_TORCH, distance, losses_of
from benchmarks.models.base import Model
from benchmarks.workers.model_pullback import trainer_step
from tests.pinned.models import MODELS, recorded

NAMES = [model.name for model in MODELS]


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_float64(model: Model) -> None:
    expected = recorded(model)
    losses = losses_of(trainer_step(replace(model, dtype="float64"), legalize=False))
    assert distance(losses, expected.losses) <= FLOAT64_TOLERANCE


@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_float32(model: Model) -> None:
    expected = recorded(model)
    losses = losses_of(trainer_step(model, legalize=False))
    assert distance(losses, expected.losses) <= TIMES_TORCH * expected.error32


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="compares the record with live PyTorch")
@pytest.mark.parametrize("model", MODELS, ids=NAMES)
def test_the_record_is_pytorch_s(model: Model) -> None:
    from benchmarks.workers.model_torch import step_of

    live = losses_of(step_of(replace(model, dtype="float64"), "eager"))
    np.testing.assert_allclose(live, recorded(model).losses, rtol=FLOAT64_TOLERANCE)
