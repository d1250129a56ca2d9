"""Small models of PyTorch, and losses of them, on which torch.compile and exchanges of weights are tried."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


class Transformer(nn.Module):
    """Two layers over tokens, with the weights of the embedding in the last one too."""

    def __init__(self, width: int = 16, heads: int = 2, words: int = 11) -> None:
        super().__init__()
        self.embedding, self.place = nn.Embedding(words, width), nn.Parameter(torch.randn(9, width) * 0.02)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(2))
        self.narrow = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(2))
        self.head, self.heads = nn.Linear(width, words, bias=False), heads
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.place[: tokens.shape[1]]
        for k in range(2):
            parts = self.qkv[k](self.norms[2 * k](x)).chunk(3, -1)
            q, key, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in parts)
            found = F.scaled_dot_product_attention(q, key, v, is_causal=True).transpose(1, 2).flatten(2)
            x = x + self.out[k](found)
            x = x + self.narrow[k](F.gelu(self.wide[k](self.norms[2 * k + 1](x))))
        return self.head(x)


def images(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 3, 8, 8, dtype=dtype), torch.randint(0, 4, (5,))


# A model, and of a dtype its inputs and targets.
MODELS: dict[str, tuple[Any, Any]] = {
    "mlp": (mlp, lambda dtype: (torch.randn(5, 6, dtype=dtype), torch.randint(0, 4, (5,)))),
    "cnn": (cnn, images),
    "transformer": (Transformer, lambda dtype: (torch.randint(0, 11, (3, 9)), torch.randint(0, 11, (27,)))),
}


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target)
