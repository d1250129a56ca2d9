"""Whole networks of layers trained beside PyTorch's, and their values handed over in both directions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, UserError
from pullback.nn import functional as F

source = np.random.default_rng(0)
X, Y = source.normal(size=(12, 3, 8, 8)), source.integers(0, 5, 12)


class _Net:
    """A network of either library's layers."""

    def __init__(self, nn, p, q):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout2d(p),
            nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=None), nn.LeakyReLU(0.1), nn.GroupNorm(2, 8),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Dropout(q), nn.Linear(8, 16), nn.BatchNorm1d(16), nn.PReLU(16), nn.Linear(16, 5))

    def forward(self, x):
        return self.head(self.features(x).mean(dim=(2, 3)))


class Ours(_Net, nn.Module):
    def __init__(self, p, q):
        super().__init__(nn, p, q)


class Theirs(_Net, torch.nn.Module):
    def __init__(self, p, q):
        super().__init__(torch.nn, p, q)


def _state(theirs):
    return {name: value.numpy() for name, value in theirs.state_dict().items()}


def _assert_same_state(trainer, theirs, tolerance=1e-8):
    mine, expected = trainer.state_dict(), _state(theirs)
    assert mine.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(mine[name].numpy(), value, rtol=tolerance, atol=tolerance, err_msg=name)


def test_what_comes_from_torch_itself():
    with pytest.raises(ArgumentError, match="a Linear of another library"):
        nn.Sequential(torch.nn.Linear(2, 2))
    theirs = torch.optim.Adam(torch.nn.Linear(2, 2).parameters())
    with pytest.raises(ArgumentError, match=r"another library(.|\n)*optim\.Adam\(lr"):
        pullback.trainer(nn.Linear(2, 2), "mse", theirs, example=np.zeros((2, 2)))
    with pytest.raises(UserError, match=r"relu of PyTorch(.|\n)*nn\.Lambda\(torch\.relu\)") as caught:
        pullback.trainer(nn.Lambda(torch.relu), "mse", "sgd", example=np.zeros((2, 2)))
    assert "overrides.py" not in str(caught.value)


def test_training():
    """Ten steps from the same values give the same losses and values; both predict the same with either's values."""
    torch.manual_seed(0)
    ours, theirs = Ours(0.0, 0.0).to("float64"), Theirs(0.0, 0.0).double().train()
    trainer = pullback.trainer(ours, "cross_entropy", pullback.optim.SGD(0.1, 0.9), example=X)
    trainer.load_state_dict(theirs.state_dict())
    _assert_same_state(trainer, theirs)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, 0.9)
    for step in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(X)), torch.tensor(Y))
        loss.backward()
        optimizer.step()
        assert float(trainer.update(X, Y)) == pytest.approx(loss.item(), rel=1e-8), step
    _assert_same_state(trainer, theirs)
    assert int(trainer.state_dict()["features.1.num_batches_tracked"].numpy()) == 10

    fresh = Theirs(0.3, 0.5).double().eval()
    fresh.load_state_dict({name: torch.tensor(v.numpy()) for name, v in trainer.state_dict().items()}, strict=True)
    with torch.no_grad():
        expected = fresh(torch.tensor(X)).numpy()
    np.testing.assert_allclose(trainer.predict(X).numpy(), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(ours(X).numpy(), expected, rtol=1e-8, atol=1e-10)
    second = pullback.trainer(Ours(0.3, 0.5).to("float64"), "cross_entropy", "adam", example=X)
    second.load_state_dict(theirs.state_dict())
    np.testing.assert_allclose(second.predict(X[:5]).numpy(), expected[:5], rtol=1e-8, atol=1e-10)


def test_training_with_dropout():
    """The loss falls, and a second run draws the same."""

    def losses():
        trainer = pullback.trainer(Ours(0.2, 0.2), "cross_entropy", pullback.optim.Adam(0.01), example=X, seed=4)
        x = X.astype("float32")
        return [float(trainer.update(x, Y)) for _ in range(30)]

    first = losses()
    assert first == losses()
    assert np.mean(first[-5:]) < 0.7 * np.mean(first[:5])


def test_text_classifier():
    """Embeddings, bags and norms: five steps of Adam."""

    class Net:
        def __init__(self, nn):
            super().__init__()
            self.words, self.bag = nn.Embedding(20, 6, padding_idx=0), nn.EmbeddingBag(20, 6, mode="max")
            self.norm, self.out = nn.LayerNorm(6), nn.Linear(6, 3)

        def forward(self, x):
            gelu = (F if isinstance(self, nn.Module) else torch.nn.functional).gelu
            return self.out(gelu(self.norm(self.words(x).mean(dim=1) + self.bag(x))))

    ours = type("Ours", (Net, nn.Module), {})(nn).to("float64")
    torch.manual_seed(1)
    theirs = type("Theirs", (Net, torch.nn.Module), {})(torch.nn).double()
    x, y = source.integers(0, 20, (8, 5)), source.integers(0, 3, 8)
    trainer = pullback.trainer(ours, "cross_entropy", pullback.optim.Adam(0.01), example=x, target="debug")
    trainer.load_state_dict(theirs.state_dict())
    optimizer = torch.optim.Adam(theirs.parameters(), 0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        assert float(trainer.update(x, y)) == pytest.approx(loss.item(), rel=1e-7)
    _assert_same_state(trainer, theirs, 1e-6)
