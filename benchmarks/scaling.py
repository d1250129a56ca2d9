"""The models of `docs/scaling.md`: what `python -m pullback simulate benchmarks/scaling.py:NAME` measures.

Weights are drawn. A rank has a few rows, as many as fit a step of some seconds on two cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback
from pullback import nn, optim

Job = tuple[Any, np.ndarray, np.ndarray]


class GPT(nn.Module):
    """A GPT with learned positions and a head of the embedding's own weight, without dropout."""

    def __init__(self, words: int, length: int, width: int, heads: int, layers: int) -> None:
        self.token, self.place = nn.Embedding(words, width), nn.Parameter((length, width), init=nn.init.Normal(0.02))
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, nn.LayerNorm(width))

    def forward(self, x: Any) -> Any:
        h = self.blocks(self.token(x) + self.place, is_causal=True)
        return (h @ self.token.weight.transpose(0, 1)).transpose(1, 2)


class CharGPT(GPT):
    """6 blocks of width 384 over 65 characters, texts of 256: 11 million parameters."""

    def __init__(self) -> None:
        super().__init__(65, 256, 384, 6, 6)


class GPT2(GPT):
    """GPT-2 small: 12 blocks of width 768 over 50,257 words, here for texts of 256: 124 million parameters."""

    def __init__(self) -> None:
        super().__init__(50257, 256, 768, 12, 12)


def _gpt(net: GPT, rows: int) -> Job:
    words, length = net.token.weight.shape[0], net.place.shape[0]
    text = np.random.default_rng(0).integers(0, words, (rows, length + 1))
    x, y = text[:, :-1].copy(), text[:, 1:].copy()
    return pullback.trainer(net, "cross_entropy", optim.AdamW(lr=3e-4), example=x, seed=0), x, y


def chargpt() -> Job:
    return _gpt(CharGPT(), 8)


def gpt2() -> Job:
    return _gpt(GPT2(), 1)


class Block(nn.Module):
    """A bottleneck of ResNet."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        self.reduce, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.expand, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.short = None
        if stride != 1 or inputs != 4 * width:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, 4 * width, 1, stride=stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Any) -> Any:
        h = self.norm1(self.reduce(x)).relu()
        h = self.norm2(self.conv(h)).relu()
        kept = x if self.short is None else self.short(x)
        return (self.norm3(self.expand(h)) + kept).relu()


class ResNet50(nn.Module):
    """ResNet-50 (He et al. 2015, table 1): 26 million parameters."""

    def __init__(self, classes: int = 1000) -> None:
        self.conv, self.norm = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks, inputs = [], 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for k in range(count):
                blocks.append(Block(inputs, 64 << stage, 2 if stage and k == 0 else 1))
                inputs = 256 << stage
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inputs, classes)

    def forward(self, x: Any) -> Any:
        h = self.blocks(self.pool(self.norm(self.conv(x)).relu()))
        return self.head(h.mean((2, 3)))


def resnet50() -> Job:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((4, 3, 224, 224), dtype=np.float32)
    net = ResNet50()
    trainer = pullback.trainer(net, "cross_entropy", optim.SGD(lr=0.1, momentum=0.9), example=x, seed=0)
    return trainer, x, draw.integers(0, 1000, 4)
