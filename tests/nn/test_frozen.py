"""Modules that are frozen: steps leave them as they are, and compute them as ``evaluate`` does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import UserError
from pullback.nn import functional as F

X = np.random.default_rng(0).standard_normal((32, 2, 6, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 3, 32)


class Noisy(nn.Module):
    """A layer of one's own that differs in training."""

    def forward(self, x: Any) -> Any:
        return F.in_train_phase(x * 3.0, x)


def body() -> Any:
    return nn.Sequential(
        nn.aug.RandomFlip(), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), Noisy(),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.RReLU()), nn.Flatten(),
    )  # fmt: skip


def trained(frozen: Any) -> Any:
    """A trainer of the body and a head; the body has running statistics of its own."""
    layers = [frozen, nn.Linear(16, 3)]
    pretrained = pullback.trainer(nn.Sequential(*layers), "cross_entropy", "sgd", example=X)
    pretrained.fit(X, Y, epochs=2, batch_size=16, verbose=0)
    return layers


def losses(trainer: Any) -> tuple[float, float]:
    """That of a step, and of the same rows by ``evaluate`` before it."""
    expected = trainer.evaluate(X, Y).loss
    return float(np.asarray(trainer.update(X, Y))), expected


def changed(trainer: Any) -> list[str]:
    """What a few steps have changed."""
    before = {name: np.asarray(value).copy() for name, value in trainer.state_dict().items()}
    trainer.fit(X, Y, epochs=2, batch_size=16, verbose=0)
    return [name for name, value in trainer.state_dict().items() if not np.array_equal(np.asarray(value), before[name])]


def test_steps_compute_what_evaluate_does() -> None:
    layers = trained(body())
    assert layers[0].freeze() is layers[0]
    trainer = pullback.trainer(nn.Sequential(*layers), "cross_entropy", "adam", example=X)
    found, expected = losses(trainer)
    assert found == pytest.approx(expected, rel=1e-6)
    assert changed(trainer) == ["1.weight", "1.bias"]


def test_without_a_gradient_alone_norms_and_dropout_go_on() -> None:
    layers = trained(body())
    layers[0].requires_grad_(False)
    trainer = pullback.trainer(nn.Sequential(*layers), "cross_entropy", "adam", example=X)
    found, expected = losses(trainer)
    assert abs(found - expected) > 1e-3
    assert {"0.2.running_mean", "0.5.running_var", "0.6.1.num_batches_tracked"} <= set(changed(trainer))


def test_what_is_unfrozen_is_trained() -> None:
    layers = trained(body())
    layers[0].freeze()
    assert layers[0].unfreeze() is layers[0]
    trainer = pullback.trainer(nn.Sequential(*layers), "cross_entropy", "adam", example=X)
    assert set(changed(trainer)) == set(trainer.state_dict()) - {"0.5.num_batches_tracked"}  # PyTorch's stays 0


def test_a_part_of_what_is_frozen_can_be_trained() -> None:
    layers = trained(body())
    layers[0].freeze()
    layers[0][6].unfreeze()
    trainer = pullback.trainer(nn.Sequential(*layers), "cross_entropy", "adam", example=X)
    found = changed(trainer)
    assert {name.rpartition(".")[0] for name in found} == {"0.6.0", "0.6.1", "1"}
    assert {"0.6.1.running_mean", "0.6.1.num_batches_tracked"} <= set(found)


def test_predictions_are_the_same() -> None:
    layers = trained(body())
    net = nn.Sequential(*layers)
    before = pullback.trainer(net, "cross_entropy", "adam", example=X).predict(X)
    layers[0].freeze()
    after = pullback.trainer(net, "cross_entropy", "adam", example=X).predict(X)
    np.testing.assert_array_equal(np.asarray(before), np.asarray(after))
    np.testing.assert_array_equal(np.asarray(net(X)), np.asarray(after))


def test_all_of_a_model_cannot_be_frozen() -> None:
    net = nn.Sequential(nn.Linear(4, 3)).freeze()
    with pytest.raises(UserError, match="all parameters are frozen"):
        pullback.trainer(net, "mse", "sgd", example=np.zeros((2, 4), np.float32))
