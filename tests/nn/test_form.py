"""Layers of one's own that differ between steps and predict."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.nn import functional as F
from pullback.relax import op

X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")


class Noise(nn.Module):
    """Noise in steps, and how many there were."""

    def __init__(self):
        self.scale, self.steps = nn.Parameter((3,), init="ones"), nn.Buffer(np.zeros((), "int64"))

    def forward(self, x):
        self.steps = F.in_train_phase(self.steps + 1, self.steps)
        return F.in_train_phase(x + op.random.normal(shape=x.shape, std=0.1), x) * self.scale


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_noise(target):
    """Predict neither draws nor counts; a state that it lacks for drawing is not asked for."""
    net = Noise()
    np.testing.assert_array_equal(net(X).numpy(), X)
    trainer = pullback.trainer(net, "mse", pullback.optim.SGD(0.0), example=X, target=target)
    np.testing.assert_array_equal(trainer.predict(X).numpy(), X)
    assert trainer.evaluate(X, X).loss == 0
    losses = [float(trainer.update(X, X)) for _ in range(4)]
    assert len(set(losses)) == 4
    assert np.mean(losses) == pytest.approx(0.01, rel=0.5)
    assert int(net.steps.numpy()) == 4
    np.testing.assert_array_equal(trainer.predict(X).numpy(), X)


def test_what_is_not_taken_gets_no_gradient():
    """Of two parameters, steps train that of their form, though predict takes the other."""

    class Net(nn.Module):
        def __init__(self):
            self.a, self.b = nn.Parameter((3,), init="ones"), nn.Parameter((3,), init=2.0)

        def forward(self, x):
            return x * F.in_train_phase(self.a, self.b)

    trainer = pullback.trainer(Net(), lambda y, t: (y * t).sum(), pullback.optim.SGD(1.0), example=X, target="debug")
    np.testing.assert_array_equal(trainer.predict(X).numpy(), 2 * X)
    trainer.update(X, np.ones_like(X))
    state = trainer.state_dict()
    np.testing.assert_allclose(state["a"].numpy(), 1 - X.sum(0), rtol=1e-6)
    np.testing.assert_array_equal(state["b"].numpy(), np.full(3, 2.0))


def test_bad_arguments():
    with pytest.raises(ShapeError, match="x and alt must have one shape"):
        nn.Lambda(lambda x: F.in_train_phase(x, x[0]))(X)
    with pytest.raises(DTypeError, match="x and alt must have one dtype, got float32 and bool"):
        nn.Lambda(lambda x: F.in_train_phase(x, x > 0))(X)
    with pytest.raises(UserError, match=r"random\.normal draws random numbers, and has no state"):
        nn.Lambda(lambda x: x + op.random.normal(shape=x.shape))(X)
