"""Activations beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.nn import functional as F
from tests.nn.twins import TOLERANCE, assert_same_start, assert_twins

NAMES = [
    ("ReLU", [()]), ("ReLU6", [()]), ("SELU", [()]), ("Hardsigmoid", [()]), ("Hardswish", [()]),
    ("Mish", [()]), ("SiLU", [()]), ("Sigmoid", [()]), ("Tanh", [()]), ("LogSigmoid", [()]), ("Softsign", [()]),
    ("Tanhshrink", [()]), ("ELU", [(), (0.5,), (2,)]), ("CELU", [(), (0.5,), (3,)]), ("GELU", [(), ("tanh",)]),
    ("GLU", [(), (0,), (-2,)]), ("Hardshrink", [(), (0.1,)]), ("Softshrink", [(), (0.1,)]),
    ("Hardtanh", [(), (-0.5, 2)]), ("LeakyReLU", [(), (0.3,)]), ("PReLU", [(), (6, 0.1), (1, 0.5)]),
    ("Softplus", [(), (2,), (0.5, 0.1)]), ("Threshold", [(0.1, 20), (0, -1.5)]), ("Softmax", [(0,), (-1,)]),
    ("LogSoftmax", [(0,), (-1,)]), ("Softmin", [(1,), (-1,)]), ("Softmax2d", [()]),
]  # fmt: skip
CASES = [(name, args) for name, many in NAMES for args in many]
SHAPES = [(2, 6, 4), (4, 6, 2), (2, 6, 2, 4)]


@pytest.mark.parametrize(("name", "args"), CASES)
def test_activation(name, args):
    ours, theirs = getattr(nn, name), getattr(torch.nn, name)
    tolerance = 1e-7 if name == "Hardsigmoid" else TOLERANCE  # PyTorch divides its gradient by a float32 of 6
    for shape in SHAPES:
        assert_twins(ours(*args), theirs(*args), shape, tolerance=tolerance)


def test_compiled():
    several = lambda nn: nn.Sequential(nn.PReLU(6), nn.GELU("tanh"), nn.Softplus(), nn.ELU(), nn.Softmax(1))  # noqa: E731
    assert_twins(several(nn), several(torch.nn), (3, 6, 5), target="llvm")


def test_vectors():
    """One and two axes need no dim."""
    for shape in (5,), (3, 5):
        with pytest.warns(UserWarning, match="Implicit dimension"):
            assert_twins(nn.Softmax(), torch.nn.Softmax(), shape)
    with pytest.raises(ArgumentError, match="softmax of a tensor with 3 axes needs dim="):
        nn.Softmax()(np.zeros((2, 3, 4), "float32"))


def test_initial_values():
    assert_same_start(lambda: nn.PReLU(4, 0.3), lambda: torch.nn.PReLU(4, 0.3))


class _Function(nn.Module):
    def __init__(self, function):
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


@pytest.mark.parametrize(
    "call",
    [
        lambda F, x: F.rrelu(x, 0.1, 0.5),
        lambda F, x: F.softmax(x, dim=1) + F.log_softmax(x, 0) + F.softmin(x, dim=-1),
        lambda F, x: F.leaky_relu(x, 0.2) + F.hardtanh(x, -0.5, 0.5) + F.threshold(x, 0.1, 2.0) + F.elu(x, alpha=0.3),
        lambda F, x: F.gelu(x, approximate="tanh") + F.logsigmoid(x) + F.softplus(x, beta=3) + F.celu(x, 0.3),
    ],
)
def test_functions(call):
    x = np.random.default_rng(0).normal(size=(3, 4))
    found = _Function(lambda x: call(F, x))(x)
    np.testing.assert_allclose(found.numpy(), call(torch.nn.functional, torch.tensor(x)).numpy(), rtol=1e-12)


def test_rrelu():
    """Steps draw slopes between the bounds; predict takes their mean, as PyTorch does."""
    assert_twins(nn.RReLU(0.1, 0.9), torch.nn.RReLU(0.1, 0.9), (3, 4), training=False)

    class Net(nn.Module):
        def __init__(self):
            self.scale, self.rrelu = nn.Parameter(np.ones(400, "float32")), nn.RReLU(0.25, 0.75)

        def forward(self, x):
            return self.rrelu(x * self.scale)

    x = np.concatenate([np.full((1, 200), -1.0, "float32"), np.full((1, 200), 2.0, "float32")], 1)
    slopes = []
    for seed in 3, 3, 4:
        trainer = pullback.trainer(Net(), lambda y, t: (y * t).sum(), pullback.optim.SGD(1.0), example=x, seed=seed)
        np.testing.assert_allclose(trainer.predict(x).numpy(), np.where(x < 0, -0.5, 2.0))
        trainer.update(x, np.ones_like(x))
        slopes.append((1 - trainer.state_dict()["scale"].numpy()) / x[0])  # the gradient is x · slope
    np.testing.assert_array_equal(slopes[0], slopes[1])
    assert not np.array_equal(slopes[0], slopes[2])
    for found in slopes:
        np.testing.assert_allclose(found[200:], 1)
        assert 0.25 <= found[:200].min() < 0.3 < 0.7 < found[:200].max() <= 0.75
        assert abs(found[:200].mean() - 0.5) < 5 * 0.5 / np.sqrt(12 * 200)


def test_gumbel_softmax():
    """Classes are drawn with the probabilities of the softmax; predict draws nothing."""
    p = np.array([0.1, 0.2, 0.7], "float32")
    x = np.broadcast_to(np.log(p), (2000, 3)).copy()

    class Net(nn.Module):
        def __init__(self):
            self.counts = nn.Parameter((3,))

        def forward(self, x):
            return F.gumbel_softmax(x, tau=0.5, hard=True) + self.counts

    trainer = pullback.trainer(Net(), lambda y, t: (y * y).sum() / 2, pullback.optim.SGD(1.0), example=x)
    np.testing.assert_allclose(trainer.predict(x).numpy(), np.broadcast_to([0, 0, 1], (2000, 3)), atol=1e-6)
    trainer.update(x, np.zeros_like(x))
    drawn = -trainer.state_dict()["counts"].numpy() / 2000
    np.testing.assert_allclose(drawn, p, atol=5 * np.sqrt(0.25 / 2000))
    soft = _Function(lambda x: F.gumbel_softmax(x, tau=2.0))(x[:2])
    np.testing.assert_allclose(soft.numpy(), torch.softmax(torch.tensor(x[:2]) / 2, -1).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (lambda: nn.GELU("tan"), ArgumentError, 'approximate must be "none" or "tanh", got \'tan\''),
        (lambda: nn.ELU("1"), ArgumentError, "alpha must be a finite number, got '1'"),
        (lambda: nn.Hardtanh(2.0), UserError, "min_val must be below max_val"),
        (lambda: nn.RReLU(0.5, 0.1), ArgumentError, "lower must be at most upper, got 0.5 and 0.1"),
        (lambda: nn.PReLU(3), ShapeError, r"weight must have the shape \(4,\) or \(1,\)"),
        (lambda: nn.GLU(0), ShapeError, "axis 0 must have an even size"),
        (lambda: nn.Softmax2d(), ShapeError, "Softmax2d takes .* got 2 axes"),
        (lambda: nn.PReLU(1.5), ArgumentError, "a size must be an int"),
        (lambda: nn.LeakyReLU(slope=1), UserError, "argument 'slope' does not exist"),
        (lambda: _Function(lambda x: F.gumbel_softmax(x, 0.0)), ArgumentError, "tau must be positive"),
    ],
)
def test_bad_arguments(layer, error, message):
    with pytest.raises(error, match=message):
        layer()(np.zeros((3, 4), "float32"))


def test_text():
    assert repr(nn.LeakyReLU(0.2)) == "LeakyReLU(negative_slope=0.2)"
    assert repr(nn.ReLU(inplace=True)) == "ReLU()"  # values never change
