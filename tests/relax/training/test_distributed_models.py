"""Networks as people train them, on two ranks natively: losses are those of one process on the same batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.distributed import Distribution
from tests.relax.training.several import STAGES, assert_alike, on_ranks, state_of

BATCHES = 10
WORDS, LENGTH, WIDTH = 17, 6, 8


class GPT(nn.Module):
    """Tokens in, logits of the next ones out: two blocks with dropout."""

    def __init__(self) -> None:
        self.token = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Parameter((LENGTH, WIDTH), init=nn.init.Normal(0.02))
        block = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks, self.head = nn.TransformerEncoder(block, 2, nn.LayerNorm(WIDTH)), nn.Linear(WIDTH, WORDS)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.token(x) + self.place, is_causal=True)).transpose(1, 2)


class ResNet(nn.Module):
    """A block with a shortcut, of convolutions and batch norms."""

    def __init__(self) -> None:
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.first, self.second = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = nn.functional.relu(self.first(self.stem(x)))
        x = nn.functional.relu(x + self.second(self.conv(x)))
        return self.head(x.mean((2, 3)))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 5))


def tokens() -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0).integers(0, WORDS, (8 * BATCHES, LENGTH + 1))
    return numbers[:, :-1], numbers[:, 1:]


def images(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    numbers = np.random.default_rng(0)
    return numbers.standard_normal((8 * BATCHES, *shape)).astype(np.float32), numbers.integers(0, 5, 8 * BATCHES)


def accumulating() -> Any:
    return optim.Accumulate(optim.ClipByGlobalNorm(optim.AdamW(1e-2, weight_decay=0.1), 1.0), 2)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[np.ndarray, np.ndarray], Callable[[], Any]]] = {
    "perceptron": (perceptron, images(12), accumulating),
    "residual": (ResNet, images(3, 6, 6), lambda: optim.SGD(1e-2, momentum=0.9)),
    "gpt": (GPT, tokens(), lambda: optim.ClipByGlobalNorm(optim.AdamW(1e-2), 1.0)),
}


def losses(name: str, distributed: Any) -> Any:
    net, (x, y), optimizer = NETWORKS[name]
    trainer = pullback.trainer(net(), "cross_entropy", optimizer(), example=x[:8], seed=3, distributed=distributed)
    rows = [slice(first, first + 8) for first in range(0, 8 * BATCHES, 8)]
    return [trainer.update(x[own], y[own]).item() for own in rows], state_of(trainer)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", NETWORKS)
def test_ten_losses_are_those_of_one_process(name: str, stage: str) -> None:
    expected, _ = losses(name, None)
    for found, _ in on_ranks(2, lambda: losses(name, stage)):
        assert_alike(found, expected, rtol=1e-4)


@pytest.mark.parametrize(("name", "stage"), [("perceptron", 3), ("residual", 0), ("gpt", 3)])
def test_two_ranks_are_one_with_two_micro_batches_bit_for_bit(name: str, stage: int) -> None:
    one, two = (Distribution(stage, deterministic=True, micro_batches=count) for count in (2, 1))
    expected = losses(name, one)
    for found in on_ranks(2, lambda: losses(name, two)):
        assert_alike(found, expected, rtol=0.0, atol=0.0)
