"""Losses of the benchmarks' models, recorded once from PyTorch (`record_models.py`). Reading needs NumPy alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.models.base import Model
from benchmarks.models.chargpt import CharGPT
from benchmarks.models.lenet import LeNet
from benchmarks.models.mlp import MLP
from benchmarks.models.resnet20 import ResNet20

FILE = Path(__file__).with_name("model_losses.npz")
MODELS: tuple[Model, ...] = (
    MLP(),
    LeNet(),
    ResNet20(width=4, blocks=1, size=16, batch=8),
    CharGPT(layers=2, width=32, heads=2, length=24, batch=2),
)


@dataclass(frozen=True)
class Recorded:
    """``losses``: PyTorch's ten in float64. ``error32``: how far PyTorch's in float32 are from them, relatively."""

    losses: np.ndarray
    error32: float


def recorded(model: Model) -> Recorded:
    """What was recorded of a model; an AssertionError when its data or initial values are no longer the same."""
    with np.load(FILE, allow_pickle=False) as stored:
        assert str(stored[f"{model.name}/digest"]) == digest(model), f"{model.name} changed: record its losses anew"
        return Recorded(stored[f"{model.name}/losses"], float(stored[f"{model.name}/error32"]))


def digest(model: Model) -> str:
    """Of data and initial values."""
    arrays = [*model.data(), *model.parameters().values(), *model.states().values()]
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()
