"""Pooling layers beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback import nn
from tests.nn.twins import assert_twins

SHAPES = {1: (2, 3, 9), 2: (2, 2, 7, 6), 3: (1, 2, 5, 4, 6)}


def _twins(name, args, kwargs, shape, **more):
    assert_twins(getattr(nn, name)(*args, **kwargs), getattr(torch.nn, name)(*args, **kwargs), shape, **more)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((2,), {}),
        ((3, 2), {"padding": 1}),
        ((2, 1), {"dilation": 2}),
        ((3,), {"stride": 2, "padding": 1, "ceil_mode": True}),
        ((2,), {"ceil_mode": True}),
    ],
)
def test_max(rank, args, kwargs):
    _twins(f"MaxPool{rank}d", args, kwargs, SHAPES[rank])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((2,), {}),
        ((3, 2, 1), {}),
        ((3,), {"stride": 2, "padding": 1, "ceil_mode": True}),
        ((3, 2), {"padding": 1, "count_include_pad": False}),
        ((2,), {"ceil_mode": True, "count_include_pad": False}),
    ],
)
def test_avg(rank, args, kwargs):
    _twins(f"AvgPool{rank}d", args, kwargs, SHAPES[rank])


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize(
    "kwargs",
    [
        {"divisor_override": 3},
        {"divisor_override": -2, "stride": 1, "padding": 1},
        {"divisor_override": 5, "ceil_mode": True},
        {"divisor_override": 5, "ceil_mode": True, "stride": 3, "padding": 1},
    ],
)
def test_divisor(rank, kwargs):
    _twins(f"AvgPool{rank}d", (3 if kwargs["divisor_override"] > 0 else 2,), kwargs, SHAPES[rank])


def test_numbers_for_each_axis_and_single_examples():
    _twins("MaxPool2d", ((3, 2), (2, 1)), {"padding": (1, 0)}, (2, 6, 5))
    _twins("AvgPool2d", ((2, 3), (1, 2)), {"padding": (0, 1)}, (2, 6, 5))
    _twins("MaxPool1d", (2,), {}, (3, 6))
    _twins("AvgPool3d", ((1, 2, 2),), {}, (2, 3, 4, 4))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize(
    ("args", "kwargs"), [((2.0, 2), {}), ((3, 2), {"stride": 1}), ((1, 3), {"stride": 2, "ceil_mode": True})]
)
def test_lp(rank, args, kwargs):
    data = np.random.default_rng(0).uniform(0.2, 3.0, SHAPES[rank])
    _twins(f"LPPool{rank}d", args, kwargs, data)


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize(
    ("rank", "size", "shape"),
    [
        (1, 3, (2, 3, 9)),
        (1, 4, (2, 9)),
        (1, 1, (2, 3, 9)),
        (2, 1, (2, 3, 4, 5)),
        (2, (2, 3), (2, 3, 4, 7)),
        (2, (None, 2), (2, 3, 4, 5)),
        (2, (3, 7), (3, 5, 4)),
        (3, 2, (1, 2, 3, 4, 5)),
        (3, (1, None, 2), (1, 2, 3, 2, 4)),
        (3, (5, 1, 3), (1, 1, 3, 2, 3)),
    ],
)
def test_adaptive(kind, rank, size, shape):
    _twins(f"Adaptive{kind}Pool{rank}d", (size,), {}, shape)


def test_native_code():
    _twins("MaxPool2d", (3, 2, 1), {"ceil_mode": True}, SHAPES[2], target="llvm")
    _twins("AvgPool2d", (3,), {"divisor_override": 5, "ceil_mode": True, "padding": 1}, SHAPES[2], target="llvm")
    _twins("AdaptiveMaxPool2d", ((2, 4),), {}, SHAPES[2], target="llvm")


class _Global(torch.nn.Module):
    def __init__(self, rank, kind, keepdim):
        super().__init__()
        self.axes, self.kind, self.keepdim = list(range(-rank, 0)), kind, keepdim

    def forward(self, x):
        function = torch.mean if self.kind == "Avg" else torch.amax
        return function(x, self.axes, keepdim=self.keepdim)


@pytest.mark.parametrize("kind", ["Avg", "Max"])
@pytest.mark.parametrize(("rank", "keepdim"), [(1, False), (2, False), (2, True), (3, False)])
def test_global(kind, rank, keepdim):
    ours = getattr(nn, f"Global{kind}Pool{rank}d")(keepdim)
    assert_twins(ours, _Global(rank, kind, keepdim), SHAPES[rank])
