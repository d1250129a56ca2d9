"""What ranks train together: models written once, as functions of a package ``nn``, PyTorch's or ours.

Their layers have the same names in both, so parameters do too, and begin with the same values (:func:`initial`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LEARNING_RATE = 1e-3  # of Adam
Rows = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class ScaleModel:
    """``net(nn)`` makes the model; ``batch``: rows of all ranks together; ``rows(generator, count)`` draws inputs and
    labels. ``tolerance``: relative, of ten losses in float32 between sides, whose sums have other orders.
    ``is_bare``: parameters, gradients and optimizer states are nearly all that a step holds."""

    title: str
    net: Callable[[Any], Any]
    batch: int
    rows: Rows
    tolerance: float
    is_bare: bool = False

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of the batch on which all steps are made."""
        return self.rows(np.random.default_rng(0), self.batch)


def initial(net: Any) -> dict[str, np.ndarray]:
    """Values for the parameters of a model, of either library: weights normal, with standard deviation √(2 / inputs)
    of a linear layer and 0.02 of an embedding, those of norms 1, biases 0."""
    generator, found = np.random.default_rng(1), {}
    for name, parameter in sorted(net.named_parameters(), key=lambda item: item[0]):
        shape = tuple(parameter.shape)
        if len(shape) == 1:
            values = np.full(shape, float(name.endswith("weight")))
        else:
            deviation = 0.02 if "embed" in name else np.sqrt(2 / shape[1])
            values = deviation * generator.standard_normal(shape)
        found[name] = values.astype(np.float32)
    return found


def mlp(nn: Any, sizes: tuple[int, ...] = (784, 128, 128, 10)) -> Any:
    layers = [layer for pair in itertools.pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def char_gpt(
    nn: Any, layers: int = 6, width: int = 384, heads: int = 6, length: int = 256, characters: int = 65
) -> Any:
    """Learned positions, causal attention, pre-norm blocks, exact gelu; logits (rows, characters, length)."""
    functional = nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm0, self.norm1 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            parts = self.qkv(self.norm0(x)).split(width, -1)
            q, k, v = (p.reshape(-1, length, heads, width // heads).transpose(1, 2) for p in parts)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(-1, length, width))
            return x + self.down(functional.gelu(self.up(self.norm1(x))))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_token, self.embed_place = nn.Embedding(characters, width), nn.Embedding(length, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

        def forward(self, x: Any) -> Any:
            x = self.embed_token(x) + self.embed_place.weight
            return self.head(self.norm(self.blocks(x))).transpose(1, 2)

    return GPT()


def _images(inputs: int) -> Rows:
    return lambda generator, rows: (generator.random((rows, inputs), dtype=np.float32), generator.integers(0, 10, rows))


def _text(length: int, characters: int = 65) -> Rows:
    def rows(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        text = generator.integers(0, characters, (count, length + 1))
        return text[:, :-1].copy(), text[:, 1:].copy()

    return rows


_WIDE = (1024,) * 25 + (10,)
MODELS = {
    "mlp": ScaleModel("MLP 784-128-128-10, batch 512, Adam", mlp, 512, _images(784), 1e-4),
    "chargpt": ScaleModel("char-GPT 6x384, 6 heads, 4x256 characters, Adam", char_gpt, 4, _text(256), 2e-3),
    "wide": ScaleModel(
        "MLP of 24 layers 1024x1024, batch 8, Adam", lambda nn: mlp(nn, _WIDE), 8, _images(1024), 2e-3, is_bare=True
    ),
}
