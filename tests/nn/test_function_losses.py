"""Functions as losses: which are taken, what their targets are, and what is said of those that are none.

Their values are compared in ``test_losses_in_training_against_torch.py``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.nn import functional as F
from pullback.relax.training.loss import FunctionLoss

X, Y, LABELS = np.ones((6, 5), "float32"), np.zeros((6, 3), "float32"), np.array([0, 1, 2, 2, 1, 0])


class Two(nn.Module):
    def __init__(self) -> None:
        self.encode, self.decode = nn.Linear(5, 2), nn.Linear(2, 5)

    def forward(self, x: Any) -> Any:
        code = self.encode(x)
        return self.decode(code), code


def trainer(loss: Any, model: Any = None, **options: Any) -> Any:
    return pullback.trainer(model or nn.Linear(5, 3), loss, "sgd", example=X, target="debug", **options)


def scaled(p, t, *, scale):
    return scale * F.mse_loss(p, t)


def many(p, t, **options):
    return (p - t).abs().mean()


@dataclass  # which is not hashable
class Penalty:
    factor: float

    def __call__(self, p, t, extra=0.0):
        return F.l1_loss(p, t) + self.factor * (p * p).mean() + extra


@pytest.mark.parametrize(
    "loss", [partial(scaled, scale=2.0), many, Penalty(0.1), lambda p, t: (p - t).square().mean(), F.huber_loss]
)
def test_functions(loss):
    made = trainer(loss)
    found = [made.update(X, Y) for _ in range(4)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0


def test_two_outputs_and_two_targets():
    def loss(reconstruction, code, x, goal):
        return F.mse_loss(reconstruction, x) + nn.MSELoss()(code, goal)

    goal = np.ones((6, 2), "float32")
    made = trainer(loss, Two(), targets=[X, goal])
    assert made.update(X, [X, goal]) > made.update(X, [X, goal])
    with pytest.raises(ShapeError, match="MSELoss: predictions and targets must have the same shape"):
        trainer(loss, Two())  # by default targets are like the first output


def test_class_indices():
    """Of functions the targets are like the prediction, unless ``targets`` says otherwise; F.cross_entropy is known."""
    made = trainer(lambda p, t: F.cross_entropy(p, t), targets=LABELS)
    with pytest.raises(ShapeError, match=r"targets=labels\) says so"):
        trainer(lambda p, t: F.cross_entropy(p, t)).fit(X, LABELS)
    known = trainer(F.cross_entropy)
    assert made.update(X, LABELS) == pytest.approx(known.update(X, LABELS))
    assert known.evaluate(X, LABELS).accuracy is not None
    for function in (F.nll_loss, F.multi_margin_loss):
        assert trainer(function).evaluate(X, LABELS).accuracy is not None


def gives_none(p, t): ...


def gives_number(p, t):
    return 0.5


def gives_pair(p, t):
    return p.mean(), t.mean()


def gives_rows(p, t):
    return p - t


def of_none():
    return 0


def of_any(*values):
    return values[0].mean()


def by_numpy(p, t):
    return np.mean(p - t)


def branches(p, t):
    return p.mean() if p.mean() > t.mean() else t.mean()


@pytest.mark.parametrize(
    ("loss", "error", "text"),
    [
        (gives_none, ArgumentError, "gives_none returns None, not a graph value"),
        (gives_number, ArgumentError, "gives_number returns float, not a graph value"),
        (gives_pair, ArgumentError, "gives_pair returns tuple, not a graph value"),
        (gives_rows, ShapeError, "the loss must be one floating-point scalar"),
        (of_none, ArgumentError, r"the loss of_none\(\) must take the model's output, then its targets"),
        (of_any, ArgumentError, r"the loss of_any\(\) must take the model's output"),
        (scaled, ArgumentError, "the loss scaled takes scale by name only, and it has no default"),
        (by_numpy, UserError, "mean of NumPy computes with arrays"),
        (branches, UserError, "a graph value has no truth value"),
        (nn.MSELoss, ArgumentError, "got the class MSELoss"),
        (3, ArgumentError, "loss must be a Loss"),
        ("cross-entropy", ArgumentError, "did you mean cross_entropy"),
    ],
)
def test_refusals(loss, error, text):
    with pytest.raises(error, match=text):
        trainer(loss)


def test_numbers_of_outputs_and_targets():
    with pytest.raises(ArgumentError, match=r"the loss one\(p\) must take the model's 2 outputs"):
        trainer(named("one", lambda p: p.mean()), Two())
    with pytest.raises(ArgumentError, match=r"the loss pair takes the types of \(p, t\), got 3"):
        trainer(named("pair", lambda p, t: p.mean()), targets=[Y, Y])


def named(name: str, function: Any) -> Any:
    function.__name__ = name
    return function


def test_names():
    assert FunctionLoss(lambda p, t: p, 1).name == "loss"
    assert FunctionLoss(Penalty(1.0), 1).name == "Penalty"
    assert FunctionLoss(gives_rows, 1).options == {}
