"""The models that are exported in tests: an MLP, LeNet with batch norm and dropout, a small GPT."""

from __future__ import annotations

from typing import Any

import numpy as np
from pullback.training.optimizer import RunTime

import pullback
from pullback import nn, optim
from pullback.nn import functional as F

BATCH = 16


def mlp(**options: Any) -> tuple[Any, list[np.ndarray]]:
    """64-32-10 on the digits' shape, Adam with a learning rate that can be set."""
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return _made(net, "cross_entropy", optim.Adam(lr=RunTime(2e-3)), _images(64), 10, **options)


def lenet(**options: Any) -> tuple[Any, list[np.ndarray]]:
    """LeNet with batch norm and dropout: states, and random numbers on the device."""
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Dropout(0.25), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    return _made(net, "cross_entropy", optim.SGD(lr=0.05, momentum=0.9), _images(1, 28, 28), 10, **options)


class GPT(nn.Module):
    """Two blocks over characters."""

    def __init__(self, vocabulary: int = 40, length: int = 16, width: int = 32) -> None:
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            [nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True) for _ in "ab"]
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Any) -> Any:
        length = x.shape[1]
        h = self.tokens(x) + self.places(F.arange(length))
        for block in self.blocks:
            h = block(h, is_causal=True)
        return self.head(h)


def gpt(**options: Any) -> tuple[Any, list[np.ndarray]]:
    """Two blocks, AdamW."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 40, (10 * BATCH, 17))
    data = [np.ascontiguousarray(x[:, :-1]), np.ascontiguousarray(x[:, 1:])]
    trainer = pullback.trainer(
        GPT(), _token_loss, optim.AdamW(lr=1e-3), example=data[0][:BATCH], targets=data[1], **options
    )
    return trainer, data


def _token_loss(logits: Any, targets: Any) -> Any:
    return F.cross_entropy(logits.reshape(-1, 40), targets.reshape(-1))


MODELS = {"mlp": mlp, "lenet": lenet, "gpt": gpt}


def _images(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((10 * BATCH, *shape)).astype(np.float32)


def _made(
    net: Any, loss: str, optimizer: Any, x: np.ndarray, classes: int, **options: Any
) -> tuple[Any, list[np.ndarray]]:
    y = np.random.default_rng(1).integers(0, classes, len(x))
    trainer = pullback.trainer(net, loss, optimizer, example=x[:BATCH], **options)
    return trainer, [x, y]


def batches(data: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Ten batches."""
    return [[np.ascontiguousarray(a[k : k + BATCH]) for a in data] for k in range(0, 10 * BATCH, BATCH)]
