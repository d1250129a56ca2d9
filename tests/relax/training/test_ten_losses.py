"""Ten losses of several ranks are those of one process with the same batches, natively: of an MLP, a residual network
with batch norm and a char-GPT, with dropout, clipping, AdamW and accumulation, for data parallel and ZeRO's stages.

With ``deterministic=True`` they are those of one process that cuts its batches into as many shards, bit for bit, and so
is what was trained.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from pullback.distributed import Distribution, run_local

STEPS, ROWS = 10, 8


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))


class Block(nn.Module):
    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.conv1 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm0, self.norm1 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.short = nn.Conv2d(inputs, channels, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = nn.functional.relu(self.norm0(self.conv0(x)))
        return nn.functional.relu(self.norm1(self.conv1(y)) + self.short(x))


def resnet20() -> nn.Module:
    """Three groups of three blocks, as He et al. (2016) for CIFAR-10, with few channels."""
    blocks = [
        Block(4 * 2 ** max(0, group - (place == 0)), 4 * 2**group, 2 if place == 0 and group else 1)
        for group in range(3)
        for place in range(3)
    ]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)]
    first = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
    return nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), *blocks, *head)


def char_gpt() -> nn.Module:
    characters, length, width = 11, 8, 16

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token, self.place = nn.Embedding(characters, width), nn.Embedding(length, width)
            block = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, "gelu", batch_first=True, norm_first=True)
            self.blocks = nn.TransformerEncoder(block, 2, nn.LayerNorm(width))
            self.head = nn.Linear(width, characters)

        def forward(self, x: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(length)
            h = self.token(x) + self.place.weight
            return self.head(self.blocks(h, mask, is_causal=True)).transpose(1, 2)

    return GPT()


def batches(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    if name == "char-GPT":
        text = rng.integers(0, 11, (STEPS, ROWS, 9))
        return [(t[:, :-1].copy(), t[:, 1:].copy()) for t in text]
    shape = (3, 8, 8) if name == "ResNet-20" else (12,)
    return [(rng.standard_normal((ROWS, *shape)).astype(np.float32), rng.integers(0, 5, ROWS)) for _ in range(STEPS)]


NETS: dict[str, Callable[[], nn.Module]] = {"MLP": mlp, "ResNet-20": resnet20, "char-GPT": char_gpt}


def trained(name: str, distributed: Any) -> tuple[list[float], list[np.ndarray]]:
    """Losses, and all that the trainer holds at the end."""
    optimizer = optim.Accumulate(optim.ClipByGlobalNorm(optim.AdamW(1e-3), 1.0), 2)
    data = batches(name)
    trainer = pullback.trainer(NETS[name](), "cross_entropy", optimizer, example=data[0][0], distributed=distributed)
    losses = [float(trainer.update(x, y).numpy()) for x, y in data]
    held = {**trainer.state_dict(), **trainer.optimizer_state_dict()}
    return losses, [np.array(value) for value in held.values()]


@functools.cache
def alone(name: str, micro_batches: int = 0, stage: int = 0) -> tuple[list[float], list[np.ndarray]]:
    """In one process: with batches as they are, or cut into shards."""
    chosen = Distribution(stage, deterministic=True, micro_batches=micro_batches) if micro_batches else None
    return trained(name, chosen)


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", NETS)
def test_ten_losses(name: str, ranks: int, stage: int) -> None:
    chosen = Distribution(stage, deterministic=True)
    results = run_local(ranks, lambda _: trained(name, chosen))
    plain, shards = alone(name), alone(name, ranks, stage)
    for losses, held in results:
        np.testing.assert_allclose(losses, plain[0], rtol=1e-4)
        assert losses == shards[0]
        assert len(held) == len(shards[1]) and all(map(np.array_equal, held, shards[1]))
