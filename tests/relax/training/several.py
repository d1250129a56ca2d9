"""Trainings on several ranks, which are threads, against those of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import pullback
from pullback import nn, optim
from pullback.distributed import run_local
from pullback.relax.training import Trainer

STAGES = ("data", "zero1", "zero2", "zero3")
ROWS = 22  # two batches of eight and one of six, which four ranks divide unevenly
X = np.random.default_rng(0).standard_normal((ROWS, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, ROWS)
T = np.random.default_rng(2).standard_normal((ROWS, 3)).astype(np.float32)

Found = Mapping[str, Any]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def trainer_of(
    distributed: Any, optimizer: Any = None, net: Callable[[], Any] = mlp, loss: Any = "cross_entropy", x: Any = X,
    **options: Any,
) -> Trainer:  # fmt: skip
    """A trainer in the interpreter; every rank makes its own objects."""
    made = optim.Adam(1e-2) if optimizer is None else optimizer()
    loss = loss() if callable(loss) else loss
    options = {"seed": 1, "target": "debug", **options}
    return pullback.trainer(net(), loss, made, example=x, distributed=distributed, **options)


def arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in values.items()}


def state_of(trainer: Trainer) -> dict[str, np.ndarray]:
    """All that a trainer keeps, whole."""
    return arrays(trainer.state_dict()) | arrays(trainer.optimizer_state_dict())


def on_ranks(ranks: int, function: Callable[[], Any]) -> list[Any]:
    """What each rank's call returns."""
    return run_local(ranks, lambda _: function())


def assert_alike(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """Equal but for rounding: numbers, arrays, and lists and dicts of them."""
    if isinstance(expected, Mapping):
        assert list(found) == list(expected)
        for name in expected:
            assert_alike(found[name], expected[name], rtol, atol)
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other, rtol, atol)
    elif isinstance(expected, (str, type(None))):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol, atol)


def assert_same_on_ranks(ranks: int, function: Callable[[Any], Any], stage: str, **tolerance: float) -> None:
    """The function of ``distributed`` gives on every rank what it gives in one process."""
    expected = function(None)
    for found in on_ranks(ranks, lambda: function(stage)):
        assert_alike(found, expected, **tolerance)
