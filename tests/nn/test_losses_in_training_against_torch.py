"""Losses as those of trainers: steps, unequal batches and evaluation beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF

import pullback
from pullback import nn, optim
from pullback.nn import functional as F

rng = np.random.default_rng(3)
ROWS, INPUTS, CLASSES, BATCH = 10, 5, 3, 4
X = rng.standard_normal((ROWS, INPUTS))
LABELS, Y = rng.integers(0, CLASSES, ROWS), rng.standard_normal((ROWS, CLASSES))
Q = rng.uniform(0.05, 0.95, (ROWS, CLASSES))
SIGNS = rng.choice([-1.0, 1.0], (ROWS, CLASSES))
WEIGHT = np.array([0.5, 2.0, 1.0])
T_WEIGHT = torch.tensor(WEIGHT)


class Heads(nn.Module):
    """Linear layers side by side; the last of several is squared."""

    def __init__(self, count: int) -> None:
        self.heads = nn.ModuleList([nn.Linear(INPUTS, CLASSES, dtype="float64") for _ in range(count)])

    def forward(self, x: Any) -> Any:
        outputs = [head(x) for head in self.heads]
        return outputs[0] if len(outputs) == 1 else (*outputs[:-1], outputs[-1] * outputs[-1])


class TorchHeads(torch.nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleList([torch.nn.Linear(INPUTS, CLASSES).double() for _ in range(count)])

    def forward(self, x: Any) -> Any:
        outputs = [head(x) for head in self.heads]
        return [outputs[0]] if len(outputs) == 1 else [*outputs[:-1], outputs[-1] * outputs[-1]]


def own(prediction, target):
    """A user's loss that calls one of nn, one of F, and a method."""
    return nn.HuberLoss(delta=0.5)(prediction, target) + 0.1 * F.l1_loss(prediction, target) + prediction.abs().mean()


class Weighted:
    """A callable object with a keyword-only argument and a default."""

    def __call__(self, prediction, target, power=2, *, factor=0.5):
        return factor * ((prediction - target) ** power).mean()


def two_outputs(reconstruction, code, target, weight=1e-3):
    return F.mse_loss(reconstruction, target) + weight * code.mean()


# our loss, PyTorch's of (outputs, target), the number of outputs, the targets, targets= of the trainer
CASES: dict[str, tuple[Any, Any, int, Any, Any]] = {
    "mse": ("mse", TF.mse_loss, 1, Y, None),
    "cross_entropy": ("cross_entropy", TF.cross_entropy, 1, LABELS, None),
    "class weights": (nn.CrossEntropyLoss(WEIGHT), lambda p, t: TF.cross_entropy(p, t, T_WEIGHT), 1, LABELS, None),
    "class weights, smoothed, one ignored": (
        nn.CrossEntropyLoss(WEIGHT.tolist(), ignore_index=1, label_smoothing=0.2),
        lambda p, t: TF.cross_entropy(p, t, T_WEIGHT, ignore_index=1, label_smoothing=0.2), 1, LABELS, None,
    ),
    "sum": (nn.MSELoss("sum"), lambda p, t: TF.mse_loss(p, t, reduction="sum"), 1, Y, None),
    "multi_margin": (nn.MultiMarginLoss(2), lambda p, t: TF.multi_margin_loss(p, t, 2), 1, LABELS, None),
    "bce": (
        nn.BCEWithLogitsLoss(pos_weight=WEIGHT),
        lambda p, t: TF.binary_cross_entropy_with_logits(p, t, pos_weight=T_WEIGHT), 1, Q, None,
    ),
    "gaussian_nll": ("gaussian_nll", lambda p, v, t: TF.gaussian_nll_loss(p, t, v), 2, Y, None),
    "margin_ranking": ("margin_ranking", TF.margin_ranking_loss, 2, SIGNS, None),
    "triplet_margin": ("triplet_margin", TF.triplet_margin_loss, 3, None, None),
    "own": (
        own, lambda p, t: TF.huber_loss(p, t, delta=0.5) + 0.1 * TF.l1_loss(p, t) + p.abs().mean(), 1, Y, None,
    ),
    "callable object": (Weighted(), lambda p, t: 0.5 * TF.mse_loss(p, t), 1, Y, None),
    "lambda": (lambda p, t: ((p - t) ** 2).mean(), TF.mse_loss, 1, Y, None),
    "two outputs": (two_outputs, lambda p, c, t: TF.mse_loss(p, t) + 1e-3 * c.mean(), 2, Y, None),
    "labels": (lambda p, t: F.cross_entropy(p, t, weight=WEIGHT), lambda p, t: TF.cross_entropy(p, t, T_WEIGHT), 1,
               LABELS, LABELS),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_training(name):
    """An epoch of batches of 4, 4 and 2 rows, and the loss of all rows, which divides once."""
    loss, in_torch, count, y, targets = CASES[name]
    net, other = Heads(count), TorchHeads(count)
    net.load_state_dict(other.state_dict())
    trainer = pullback.trainer(net, loss, optim.SGD(0.1), example=X, targets=targets, target="debug")
    data = (X, [] if y is None else y)
    trainer.fit(*data, epochs=1, batch_size=BATCH, shuffle=False)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    x, target = torch.tensor(X), [] if y is None else [torch.tensor(y)]
    for begin in range(0, ROWS, BATCH):
        rows = slice(begin, begin + BATCH)
        optimizer.zero_grad()
        in_torch(*other(x[rows]), *(t[rows] for t in target)).backward()
        optimizer.step()
    for key, value in other.state_dict().items():
        np.testing.assert_allclose(trainer.state_dict()[key].numpy(), value.numpy(), rtol=1e-7, atol=1e-9, err_msg=key)
    if y is not None:
        with torch.no_grad():
            expected = in_torch(*other(x), *target).item() / (ROWS if name == "sum" else 1)  # of sums, that of a row
        np.testing.assert_allclose(trainer.evaluate(*data, batch_size=BATCH).loss, expected, rtol=1e-6)
