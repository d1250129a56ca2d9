"""Dropout beside PyTorch's: the same values from a mask, the same distribution, nothing dropped in predict."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn import functional as F
from pullback.relax import TensorStructInfo
from pullback.relax.transform import AddRandomState
from tests.nn.twins import assert_twins

SHAPES = {  # a layer's inputs, and how many of their axes have a draw of their own
    "Dropout": [((20, 3), 2), ((5, 4, 3), 3), ((64,), 1)],
    "Dropout1d": [((8, 5, 4), 2), ((40, 4), 1), ((4, 9, 1), 2)],
    "Dropout2d": [((8, 5, 4, 3), 2), ((8, 5, 4), 2), ((9, 4, 2, 2), 2)],
    "Dropout3d": [((8, 5, 2, 3, 2), 2), ((40, 2, 3, 2), 1), ((9, 4, 2, 1, 2), 2)],
    "AlphaDropout": [((20, 3), 2), ((5, 4, 3), 3), ((64,), 1)],
    "FeatureAlphaDropout": [((8, 5, 4, 3), 2), ((8, 5), 2), ((9, 4, 2, 1, 2), 2)],
}
CASES = [(name, shape, drawn) for name, cases in SHAPES.items() for shape, drawn in cases]


def in_training(module: nn.Module, x: np.ndarray, seed: int = 0, target: str = "debug") -> np.ndarray:
    """What a step computes."""
    exported = AddRandomState("backbone")(module.export(TensorStructInfo(x.shape, x.dtype.name)))
    state = [np.array([seed, 0], "uint64")][: len(exported["backbone"].params) - 1]  # none where nothing is drawn
    return pullback.compile(exported, target).function("backbone")(x, *state).numpy()


@pytest.mark.parametrize(("name", "shape", "drawn"), CASES)
@pytest.mark.filterwarnings("ignore:dropout2d. Received a 3D input")
def test_dropout(name, shape, drawn):
    """PyTorch's formula with our mask; one draw for each place of the first axes."""
    p, layer = 0.25, getattr(nn, name)(0.25)
    assert_twins(layer, getattr(torch.nn, name)(p), shape, training=False)
    x = np.random.default_rng(0).normal(size=shape) + 3
    found = in_training(layer, x)
    alpha = -1.7580993408473766 if "Alpha" in name else 0.0
    a = 1 / np.sqrt((1 - p) * (1 + p * alpha**2)) if alpha else 1 / (1 - p)
    kept = np.isclose(found, a * x - p * a * alpha)
    np.testing.assert_allclose(found[~kept], (1 - p) * a * alpha, rtol=1e-12)
    channels = kept.reshape((*shape[:drawn], -1))
    assert (channels.all(-1) | ~channels.any(-1)).all()
    count = channels[..., 0].size
    assert abs(channels[..., 0].mean() - (1 - p)) < 4 * np.sqrt(p * (1 - p) / count)
    np.testing.assert_array_equal(found, in_training(layer, x))
    assert not np.array_equal(found, in_training(layer, x, seed=1))


@pytest.mark.parametrize("name", ["AlphaDropout", "Dropout"])
def test_pytorch_draws_from_the_same_distribution(name):
    x = np.random.default_rng(0).normal(size=40000)
    torch.manual_seed(0)
    theirs = getattr(torch.nn, name)(0.3)(torch.tensor(x)).numpy()
    ours = in_training(getattr(nn, name)(0.3), x)
    assert abs(ours.mean() - theirs.mean()) < 0.04
    assert abs(ours.std() - theirs.std()) < 0.04
    np.testing.assert_allclose(np.quantile(ours, [0.1, 0.5, 0.9]), np.quantile(theirs, [0.1, 0.5, 0.9]), atol=0.06)


@pytest.mark.parametrize("name", SHAPES)
def test_compiled(name):
    """The compiler computes what the interpreter does, also for all and nothing."""
    shape = SHAPES[name][0][0]
    x = np.random.default_rng(0).normal(size=shape)
    for p in 0.5, 0.0, 1.0:
        layer = getattr(nn, name)(p)
        found = in_training(layer, x, target="llvm")
        np.testing.assert_allclose(found, in_training(layer, x), rtol=1e-12)
        if p != 0.5:
            np.testing.assert_allclose(found, x if p == 0 else 0 * x, rtol=1e-12)


def test_functions():
    """training=False drops nothing, and so by default do alpha dropouts, as PyTorch's functions."""

    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5, 6))
    for call in (
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: F.dropout1d(x[0, 0], 0.5, False),
        lambda x: F.dropout2d(x[0], 0.5, False),
        lambda x: F.dropout3d(x, 0.5, False),
        lambda x: F.alpha_dropout(x, 0.5),
        lambda x: F.feature_alpha_dropout(x, 0.5),
    ):
        found = pullback.compile(nn.Lambda(call).export(TensorStructInfo(x.shape, "float64"))).function("backbone")(x)
        np.testing.assert_array_equal(found.numpy(), x[0, 0] if found.ndim == 3 else x[0] if found.ndim == 4 else x)


def test_in_a_trainer():
    """Steps drop by the trainer's seed, anew in each step; predict and evaluate drop nothing."""
    x = np.random.default_rng(0).normal(size=(16, 6, 2, 2)).astype("float32")

    class Net(nn.Module):
        def __init__(self):
            self.scale = nn.Parameter((6, 1, 1), init="ones")
            self.inner = nn.Sequential(nn.Dropout2d(0.5), nn.AlphaDropout(0.2), nn.Dropout(0.1))

        def forward(self, x):
            return self.inner(x * self.scale)

    def losses(seed, steps=3):
        trainer = pullback.trainer(Net(), "mse", pullback.optim.SGD(0.0), example=x, seed=seed)
        np.testing.assert_array_equal(trainer.predict(x).numpy(), x)
        assert trainer.evaluate(x, x).loss == 0
        return [float(trainer.update(x, x)) for _ in range(steps)]

    first = losses(1)
    assert len(set(first)) == 3
    assert losses(1) == first
    assert losses(2) != first


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: nn.Dropout(1.5), ArgumentError, "p must be a number from 0 to 1, got 1.5"),
        (lambda x: nn.AlphaDropout("0.5"), ArgumentError, "p must be a number from 0 to 1, got '0.5'"),
        (lambda x: nn.Dropout1d()(x), ShapeError, "dropout1d takes 2 or 3 axes, got 1"),
        (lambda x: nn.Dropout2d()(x), ShapeError, "dropout2d takes 3 or 4 axes, got 1"),
        (lambda x: nn.Dropout3d()(x), ShapeError, "dropout3d takes 4 or 5 axes, got 1"),
        (lambda x: nn.FeatureAlphaDropout()(x), ShapeError, r"takes \(N, C, …\)"),
        (lambda x: nn.Lambda(lambda y: F.dropout(y, -1))(x), ArgumentError, "p must be a number from 0 to 1"),
    ],
)
def test_bad_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call(np.zeros(3, "float32"))
