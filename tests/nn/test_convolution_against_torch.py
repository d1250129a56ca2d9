"""Convolutions and their transposes beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from tests.nn.twins import assert_same_start, assert_twins

SPATIAL = {1: (7,), 2: (6, 7), 3: (4, 5, 4)}


def _case(name, args, shape, **kwargs):
    return pytest.param(name, args, kwargs, shape, id=f"{name}-{args}-{kwargs}")


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "shape"),
    [
        _case("Conv1d", (3, 4, 3), (2, 3, 7)),
        _case("Conv1d", (4, 6, 2), (2, 4, 8), stride=3, padding=1, dilation=2, groups=2),
        _case("Conv1d", (2, 3, 4), (2, 2, 7), padding="same", bias=False),
        _case("Conv1d", (2, 3, 3), (2, 7), padding="valid"),
        _case("Conv2d", (3, 4, 3), (2, 3, 5, 6), padding=1),
        _case("Conv2d", (2, 4, (3, 2)), (2, 2, 7, 6), stride=(2, 1), padding=(0, 2), dilation=(1, 2), groups=2),
        _case("Conv2d", (2, 3, (2, 3)), (2, 2, 4, 5), padding="same", dilation=2),
        _case("Conv2d", (3, 2, 1), (3, 4, 5), stride=2, bias=False),
        _case("Conv3d", (2, 3, 2), (1, 2, 3, 4, 3)),
        _case("Conv3d", (2, 2, (1, 3, 2)), (1, 2, 3, 4, 4), stride=(1, 2, 1), padding=1, groups=2),
        _case("Conv3d", (1, 2, 2), (1, 3, 3, 3), padding="same"),
    ],
)
def test_conv(name, args, kwargs, shape):
    assert_twins(getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs), shape)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("name", "padding", "shape"),
    [("Conv1d", 2, (2, 2, 6)), ("Conv2d", (2, 1), (2, 2, 4, 5)), ("Conv3d", "same", (1, 2, 3, 3, 3))],
)
def test_padding_mode(name, padding, mode, shape):
    kwargs = {"padding": padding, "padding_mode": mode}
    assert_twins(getattr(nn, name)(2, 3, 2, **kwargs), getattr(torch.nn, name)(2, 3, 2, **kwargs), shape)


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "shape"),
    [
        _case("ConvTranspose1d", (3, 4, 3), (2, 3, 4)),
        _case("ConvTranspose1d", (4, 2, 2), (2, 4, 3), stride=3, padding=1, output_padding=2, dilation=2, groups=2),
        _case("ConvTranspose1d", (2, 3, 4), (2, 5), stride=2, padding=1, bias=False),
        _case("ConvTranspose1d", (2, 2, 3), (1, 2, 4), stride=1, dilation=3, output_padding=2),
        _case("ConvTranspose2d", (3, 2, 3), (1, 3, 3, 4), stride=2, padding=1, output_padding=1),
        _case("ConvTranspose2d", (4, 6, (2, 3)), (2, 4, 3, 3), stride=(1, 2), padding=(0, 1), groups=2),
        _case("ConvTranspose2d", (2, 3, 2), (2, 3, 3), stride=2, dilation=2),
        _case("ConvTranspose3d", (2, 3, 2), (1, 2, 2, 3, 2)),
        _case("ConvTranspose3d", (2, 2, 3), (1, 2, 2, 2, 2), stride=2, padding=1, output_padding=(1, 0, 1), groups=2),
        _case("ConvTranspose3d", (1, 2, (1, 2, 3)), (1, 2, 3, 2), bias=False),
    ],
)
def test_transpose(name, args, kwargs, shape):
    assert_twins(getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs), shape)


@pytest.mark.parametrize("size", [(7, 9), (8, 10), (2, 2, 8, 9)])
def test_output_size(size):
    class Ours(nn.Module):
        def __init__(self):
            self.up = nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1)

        def forward(self, x):
            return self.up(x, output_size=size)

    class Theirs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1)

        def forward(self, x):
            return self.up(x, output_size=size)

    assert_twins(Ours(), Theirs(), (2, 2, 4, 5))


@pytest.mark.parametrize(
    ("name", "kwargs", "shape"),
    [
        ("Conv2d", {"padding": 1, "stride": 2}, (2, 3, 6, 5)),
        ("ConvTranspose2d", {"padding": 1, "stride": 2}, (2, 3, 3, 4)),
    ],
)
def test_native_code(name, kwargs, shape):
    ours, theirs = getattr(nn, name)(3, 4, 3, **kwargs), getattr(torch.nn, name)(3, 4, 3, **kwargs)
    assert_twins(ours, theirs, shape, target="llvm")


def test_initial_values():
    assert_same_start(lambda: nn.Conv1d(4, 30, 5), lambda: torch.nn.Conv1d(4, 30, 5))
    assert_same_start(lambda: nn.Conv2d(8, 16, 3, groups=4), lambda: torch.nn.Conv2d(8, 16, 3, groups=4))
    assert_same_start(
        lambda: nn.ConvTranspose2d(4, 12, 3, groups=2), lambda: torch.nn.ConvTranspose2d(4, 12, 3, groups=2)
    )
    assert_same_start(lambda: nn.ConvTranspose3d(3, 8, 2), lambda: torch.nn.ConvTranspose3d(3, 8, 2))


def _network(layers):
    """Layers of ``nn``, or of ``torch.nn``, under the same names: down to a quarter, up again, and classes of that."""
    return layers.Sequential(
        layers.Conv2d(3, 6, 3, padding="same", padding_mode="circular"), layers.MaxPool2d(2),
        layers.ReplicationPad2d(1), layers.Conv2d(6, 8, 3, groups=2), layers.AvgPool2d(2, ceil_mode=True),
        layers.ConvTranspose2d(8, 8, 4, stride=2, padding=1), layers.ChannelShuffle(4), layers.PixelShuffle(2),
        layers.Upsample(scale_factor=2, mode="bilinear"), layers.AdaptiveMaxPool2d((3, 2)), layers.Flatten(),
        layers.Linear(12, 5),
    )  # fmt: skip


def test_training():
    """Steps from the same values give the same losses and values."""
    source = np.random.default_rng(0)
    x, y = source.normal(size=(6, 3, 8, 8)), source.integers(0, 5, 6)
    ours, theirs = _network(nn).to("float64"), _network(torch.nn).double()
    trainer = pullback.trainer(ours, "cross_entropy", pullback.optim.SGD(0.1, 0.9), example=x)
    trainer.load_state_dict(theirs.state_dict())
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, 0.9)
    for _ in range(6):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        assert float(trainer.update(x, y)) == pytest.approx(loss.item(), rel=1e-8)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(trainer.state_dict()[name].numpy(), value.numpy(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(torch.tensor(trainer.predict(x).numpy()), theirs(torch.tensor(x)).detach())
