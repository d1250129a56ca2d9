"""Padding layers, and F.pad, beside PyTorch's."""

from __future__ import annotations

import pytest
import torch

from pullback import nn
from pullback.nn import functional as F
from tests.nn.functions import assert_same_function
from tests.nn.twins import assert_twins

SHAPES = {1: (2, 3, 5), 2: (2, 2, 4, 5), 3: (1, 2, 3, 4, 3)}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["ConstantPad", "ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"])
def test_layers(name, rank):
    value = (1.5,) if name == "ConstantPad" else ()
    ours, theirs = getattr(nn, f"{name}{rank}d"), getattr(torch.nn, f"{name}{rank}d")
    for padding in (1, (1, 2, 0, 1, 2, 0)[: 2 * rank], (0, 1, 2, 1, 1, 0)[: 2 * rank]):
        assert_twins(ours(padding, *value), theirs(padding, *value), SHAPES[rank])
    assert_twins(ours(2, *value), theirs(2, *value), SHAPES[rank][1:], training=False)


@pytest.mark.parametrize(
    ("shape", "pad", "mode"),
    [
        ((2, 3), (1, 2), "constant"),
        ((2, 3, 4), (0, 1, 2, 0, 1, 1), "constant"),
        ((2, 5, 4), (-1, 2, 1, -2), "constant"),
        ((2, 5, 4), (-1, -2, -1, 0), "constant"),
        ((2, 2, 5), (-1, 2), "circular"),
        ((2, 2, 5), (-3, 3), "reflect"),
        ((2, 2, 5), (2, -3), "replicate"),
        ((2, 3, 5), (4, 1), "reflect"),
        ((2, 3, 5), (7, 0), "replicate"),
        ((2, 3, 5), (5, 5), "circular"),
        ((2, 3), (0, 0), "constant"),
    ],
)
def test_pad(shape, pad, mode):
    assert_same_function(lambda x: F.pad(x, pad, mode), lambda x: torch.nn.functional.pad(x, pad, mode), shape)


def test_pad_of_a_value():
    assert_same_function(
        lambda x: F.pad(x, (1, 2, -1, 3), value=-0.5),
        lambda x: torch.nn.functional.pad(x, (1, 2, -1, 3), value=-0.5),
        (2, 3, 4),
        target="llvm",
    )
