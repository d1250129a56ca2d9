"""Positional encodings and rotations beside their formulas in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax import TensorStructInfo
from pullback.tir import Var
from tests.nn.test_attention_against_torch import Ours
from tests.nn.twins import assert_twins


class Sinusoidal(torch.nn.Module):
    """PyTorch's tutorial on transformers."""

    def __init__(self, d_model: int, batch_first: bool) -> None:
        super().__init__()
        self.d_model, self.batch_first = d_model, batch_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1 if self.batch_first and x.dim() == 3 else 0]
        position = torch.arange(length).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, self.d_model, 2) * (-math.log(10000.0) / self.d_model))
        pe = torch.zeros(length, self.d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)[:, : self.d_model // 2]
        return x + (pe if self.batch_first or x.dim() == 2 else pe.unsqueeze(1))


@pytest.mark.parametrize(
    ("size", "batch_first", "shape"), [(8, True, (2, 5, 8)), (7, False, (5, 2, 7)), (6, True, (5, 6))]
)
def test_sinusoidal(size, batch_first, shape):
    ours = nn.SinusoidalPositionalEncoding(size, 9, batch_first=batch_first)
    assert_twins(ours, Sinusoidal(size, batch_first), shape, tolerance=1e-6, target="llvm" if size == 8 else "debug")
    assert not ours.state_dict()


class Learned(torch.nn.Module):
    def __init__(self, count: int, size: int, batch_first: bool) -> None:
        super().__init__()
        self.weight, self.batch_first = torch.nn.Parameter(torch.empty(count, size)), batch_first
        torch.nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.batch_first or x.dim() == 2:
            return x + self.weight[: x.shape[-2]]
        return x + self.weight[: x.shape[0]].unsqueeze(1)


@pytest.mark.parametrize(("batch_first", "shape"), [(True, (2, 5, 6)), (False, (5, 2, 6)), (True, (7, 6))])
def test_learned(batch_first, shape):
    ours = nn.LearnedPositionalEncoding(7, 6, batch_first=batch_first)
    assert_twins(ours, Learned(7, 6, batch_first), shape)


class Rotary(torch.nn.Module):
    """Pairs as complex numbers, multiplied by e^(iθ)."""

    def __init__(self, dim: int, interleaved: bool, seq_dim: int, offset: int) -> None:
        super().__init__()
        self.dim, self.interleaved, self.seq_dim, self.offset = dim, interleaved, seq_dim, offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned, rest = x[..., : self.dim], x[..., self.dim :]
        pairs = turned.unflatten(-1, (-1, 2)) if self.interleaved else torch.stack(turned.chunk(2, -1), -1)
        places = torch.arange(x.shape[self.seq_dim]).double() + self.offset
        angles = torch.outer(places, 10000.0 ** (-torch.arange(0, self.dim, 2).double() / self.dim))
        angles = angles.reshape(-1, *[1] * (-self.seq_dim - 2), self.dim // 2)
        result = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(angles * 0 + 1, angles))
        result = result.flatten(-2) if self.interleaved else torch.cat(result.unbind(-1), -1)
        return torch.cat([result, rest], -1)


@pytest.mark.parametrize(
    ("dim", "options", "offset", "shape"),
    [
        (8, {}, 0, (2, 3, 5, 8)),
        (4, {"interleaved": True}, 3, (2, 5, 6)),
        (6, {"seq_dim": -3}, 0, (2, 5, 3, 6)),
    ],
)
def test_rotary(dim, options, offset, shape):
    theirs = Rotary(dim, options.get("interleaved", False), options.get("seq_dim", -2), offset)
    ours = Ours(nn.RotaryEmbedding(dim, 16, **options), offset=offset)
    assert_twins(ours, theirs, shape, tolerance=1e-6, target="llvm" if dim == 8 else "debug")


def test_lengths_may_be_symbolic():
    length = Var("t", "int64")
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    for layer in (nn.SinusoidalPositionalEncoding(8, 9), nn.LearnedPositionalEncoding(9, 8), nn.RotaryEmbedding(8, 9)):
        module = layer.export(TensorStructInfo((2, length, 8), "float32"))
        given: list[Any] = [p.data for p in layer.parameters()]
        found = pullback.compile(module, "debug").function("backbone")(x, *given)
        np.testing.assert_allclose(found.numpy(), layer(x).numpy(), rtol=1e-6)


def test_errors():
    x = np.ones((2, 5, 8), "float32")
    with pytest.raises(ArgumentError, match="dim must be an even number, got 5"):
        nn.RotaryEmbedding(5)
    with pytest.raises(ShapeError, match="the sequence has 5 places, the table 4"):
        nn.LearnedPositionalEncoding(4, 8).export(x)
    with pytest.raises(ShapeError, match="the sequence has places 2 to 6, the table 6"):
        Ours(nn.RotaryEmbedding(8, 6), offset=2).export(x)
    with pytest.raises(ShapeError, match=r"expected \(N, length, 6\)"):
        nn.SinusoidalPositionalEncoding(6).export(x)
    with pytest.raises(ShapeError, match="is no axis of places"):
        nn.RotaryEmbedding(8, seq_dim=-1).export(x)
