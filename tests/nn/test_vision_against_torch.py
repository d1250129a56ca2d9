"""Layers and functions of shapes, pixels and channels beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback import nn
from pullback.nn import functional as F
from tests.nn.functions import assert_same_function
from tests.nn.twins import assert_twins

T = torch.nn.functional


@pytest.mark.parametrize(
    ("args", "shape"), [((), (2, 3, 4)), ((), (2, 3)), ((0,), (2, 3, 2)), ((1, 2), (2, 3, 2, 2)), ((-2, -1), (2, 3, 4))]
)
def test_flatten(args, shape):
    assert_twins(nn.Flatten(*args), torch.nn.Flatten(*args), shape)


@pytest.mark.parametrize(
    ("dim", "sizes", "shape"),
    [(1, (3, 2), (2, 6)), (1, (-1, 2), (2, 6, 3)), (-1, (2, -1), (2, 3, 4)), (0, (2, 3), (6, 2))],
)
def test_unflatten(dim, sizes, shape):
    assert_twins(nn.Unflatten(dim, sizes), torch.nn.Unflatten(dim, sizes), shape)


@pytest.mark.parametrize(
    ("name", "arg", "shape"),
    [
        ("PixelShuffle", 2, (2, 8, 3, 2)),
        ("PixelShuffle", 3, (9, 2, 2)),
        ("PixelShuffle", 1, (1, 2, 2, 2)),
        ("PixelUnshuffle", 2, (2, 2, 4, 6)),
        ("PixelUnshuffle", 3, (1, 3, 6)),
        ("PixelUnshuffle", 2, (2, 1, 2, 2)),
        ("ChannelShuffle", 2, (2, 4, 3, 2)),
        ("ChannelShuffle", 3, (1, 6, 2, 2)),
        ("ChannelShuffle", 1, (2, 4, 2, 2)),
    ],
)
def test_shuffles(name, arg, shape):
    assert_twins(getattr(nn, name)(arg), getattr(torch.nn, name)(arg), shape)


@pytest.mark.parametrize(
    ("kwargs", "shape"),
    [
        ({"scale_factor": 2}, (2, 3, 4)),
        ({"scale_factor": 3}, (1, 2, 3, 4)),
        ({"size": (5, 3)}, (1, 2, 3, 4)),
        ({"size": (3, 5, 2)}, (1, 2, 2, 3, 4)),
        ({"scale_factor": 2, "mode": "linear"}, (2, 3, 4)),
        ({"size": 7, "mode": "linear", "align_corners": True}, (2, 3, 4)),
        ({"scale_factor": 0.5, "mode": "linear", "align_corners": False}, (2, 3, 6)),
        ({"scale_factor": (2, 3), "mode": "bilinear"}, (1, 2, 3, 4)),
        ({"size": (5, 6), "mode": "bilinear", "align_corners": True}, (1, 2, 3, 4)),
        ({"scale_factor": 1.5, "mode": "bilinear"}, (1, 2, 4, 2)),
        ({"scale_factor": 1.5, "mode": "bilinear", "recompute_scale_factor": True}, (1, 2, 3, 5)),
        ({"scale_factor": 2, "mode": "bicubic"}, (1, 2, 3, 4)),
        ({"size": (2, 7), "mode": "bicubic", "align_corners": True}, (1, 2, 3, 4)),
        ({"size": (7, 2), "mode": "bicubic"}, (1, 2, 5, 4)),
        ({"scale_factor": 2, "mode": "trilinear"}, (1, 2, 2, 3, 2)),
        ({"size": (3, 2, 5), "mode": "trilinear", "align_corners": True}, (1, 2, 2, 3, 4)),
        ({"size": 3, "mode": "trilinear"}, (1, 1, 2, 5, 4)),
        ({"size": (5, 3), "mode": "nearest-exact"}, (1, 2, 3, 4)),
        ({"scale_factor": 1.7}, (2, 3, 5)),
        ({"scale_factor": (1.5, 2), "mode": "nearest-exact"}, (1, 2, 5, 3)),
        ({"scale_factor": (1.3, 0.7), "mode": "bilinear"}, (1, 2, 4, 5)),
        ({"scale_factor": 1.5, "mode": "bilinear", "align_corners": True}, (1, 2, 3, 5)),
        ({"scale_factor": 1.5, "mode": "bicubic"}, (1, 2, 5, 3)),
    ],
)
def test_upsample(kwargs, shape):
    assert_twins(nn.Upsample(**kwargs), torch.nn.Upsample(**kwargs), shape)


def test_area():
    for size, shape in ((3, (2, 3, 7)), ((2, 3), (1, 2, 5, 4)), ((1, 2, 3), (1, 1, 3, 4, 5))):
        assert_same_function(
            lambda x, size=size: F.interpolate(x, size, mode="area"),
            lambda x, size=size: T.interpolate(x, size, mode="area"),
            shape,
        )


def test_older_names():
    for name in ("UpsamplingNearest2d", "UpsamplingBilinear2d"):
        for kwargs in ({"scale_factor": 2}, {"size": (5, 7)}, {"size": 3}):
            assert_twins(getattr(nn, name)(**kwargs), getattr(torch.nn, name)(**kwargs), (1, 2, 3, 4))


UNFOLDS = [
    ((2,), (2, 2, 3, 4)),
    (((3, 2), 1, 1, (2, 1)), (2, 1, 4, 5)),
    ((2, 2, (0, 1), 1), (1, 2, 4, 5)),
    ((2, 1, 0, 2), (2, 4, 4)),
]


@pytest.mark.parametrize(("args", "shape"), UNFOLDS)
def test_unfold(args, shape):
    assert_twins(nn.Unfold(*args), torch.nn.Unfold(*args), shape)


@pytest.mark.parametrize(("args", "shape"), UNFOLDS)
def test_fold(args, shape):
    columns = torch.nn.Unfold(*args)(torch.zeros(shape)).shape
    assert_twins(nn.Fold(shape[-2:], *args), torch.nn.Fold(shape[-2:], *args), tuple(columns))


@pytest.mark.parametrize("align", [False, True, None])
@pytest.mark.parametrize(
    ("mode", "padding", "shape", "sizes"),
    [
        ("bilinear", "zeros", (2, 2, 4, 5), (2, 3, 4)),
        ("nearest", "border", (2, 1, 4, 5), (2, 2, 2)),
        ("bicubic", "reflection", (1, 2, 4, 5), (1, 3, 2)),
        ("bilinear", "zeros", (1, 2, 3, 4, 2), (1, 2, 2, 3)),
    ],
)
def test_grid_sample(mode, padding, align, shape, sizes):
    grid = np.random.default_rng(0).uniform(-1.2, 1.2, (*sizes, len(sizes) - 1))
    assert_same_function(
        lambda x, g: F.grid_sample(x, g, mode, padding, align),
        lambda x, g: T.grid_sample(x, g, mode, padding, bool(align)),
        shape,
        grid,
        training=mode != "nearest",
    )


@pytest.mark.parametrize(
    ("shape", "size", "align"),
    [((2, 2, 3), (2, 3, 4, 5), None), ((1, 2, 3), (1, 1, 3, 2), True), ((2, 3, 4), (2, 1, 2, 3, 4), False)],
)
def test_affine_grid(shape, size, align):
    assert_same_function(
        lambda x: F.affine_grid(x, size, align_corners=align), lambda x: T.affine_grid(x, size, bool(align)), shape
    )


def test_one_hot():
    labels = np.array([[0, 2], [1, 1]])
    found = nn.Lambda(lambda x: F.one_hot(x, 3))(labels)
    np.testing.assert_array_equal(found.numpy(), T.one_hot(torch.tensor(labels), 3).numpy())
    assert found.numpy().dtype == np.int64


def test_native_code():
    assert_twins(nn.Upsample(scale_factor=2, mode="bilinear"), torch.nn.Upsample(scale_factor=2, mode="bilinear"),
                 (1, 2, 3, 4), target="llvm")  # fmt: skip
    assert_twins(nn.Fold((4, 5), 3, 1, 1), torch.nn.Fold((4, 5), 3, 1, 1), (1, 18, 20), target="llvm")
    assert_twins(nn.ChannelShuffle(2), torch.nn.ChannelShuffle(2), (2, 4, 3, 2), target="llvm")
