"""Layers of images: arguments that they refuse, and models of a fixed or a symbolic number of rows."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.nn import functional as F
from pullback.relax import TensorStructInfo
from pullback.relax.convention import BACKBONE
from pullback.tir import Var

REFUSED = {
    "channels": (lambda: nn.Conv2d(3, 4, 3, groups=2), "in_channels must be divisible by groups, got 3 and 2"),
    "results": (lambda: nn.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible"),
    "kernel": (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "kernel_size must be an int or 2 ints, not less than 1"),
    "stride": (lambda: nn.Conv1d(3, 4, 3, stride=0), "stride must be an int, not less than 1, got 0"),
    "same": (lambda: nn.Conv1d(3, 4, 3, stride=2, padding="same"), 'padding="same" needs stride 1'),
    "padding": (lambda: nn.Conv3d(3, 4, 3, padding="half"), 'padding must be "same", "valid" or ints'),
    "mode": (lambda: nn.Conv2d(3, 4, 3, padding_mode="mirror"), "padding_mode must be one of zeros, reflect"),
    "transposed mode": (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "ConvTranspose2d has the padding"),
    "size": (lambda: nn.Conv2d(-1, 4, 3), "a size must be an int ≥ 0, got -1"),
    "indices": (lambda: nn.MaxPool2d(2, return_indices=True), "return_indices is not supported"),
    "adaptive indices": (lambda: nn.AdaptiveMaxPool2d(2, return_indices=True), "return_indices is not supported"),
    "window": (lambda: nn.AvgPool2d(0), "kernel_size must be an int or 2 ints, not less than 1, got 0"),
    "divisor": (lambda: nn.AvgPool2d(2, divisor_override=0), "divisor_override must be an int other than 0"),
    "norm": (lambda: nn.LPPool2d(float("inf"), 2), "norm_type must be a positive, finite number"),
    "output size": (lambda: nn.AdaptiveAvgPool2d((1, 2, 3)), "output_size must be an int or 2 ints ≥ 1, or None"),
    "pad": (lambda: nn.ZeroPad2d((1, 2)), "padding must be an int or 4 ints"),
    "unflatten": (lambda: nn.Unflatten(1, (-1, -1)), "one of which may be -1, got"),
    "axis name": (lambda: nn.Unflatten("C", (2, 3)), "dim must be an int, got 'C'"),
    "upsample": (lambda: nn.Upsample(), "Upsample takes size or scale_factor: one of them"),
    "factor": (lambda: nn.PixelShuffle(0), "upscale_factor must be an int, not less than 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments(name):
    make, message = REFUSED[name]
    with pytest.raises(ArgumentError) as caught:
        make()
    assert message in caught.value.message


X = TensorStructInfo((2, 4, 6, 6), "float32")
REFUSED_INPUTS = {
    "rank": (nn.Conv2d(4, 2, 3), (2, 6), ShapeError, "(Conv2d): input must have the shape (N, C, H, W) or (C, H, W)"),
    "channels": (nn.Conv2d(3, 2, 3), X, ShapeError, "in_channels is 3, got an input of shape (n, 4, 6, 6): 4 channels"),
    "channels last": (nn.Conv2d(6, 2, 3), X, ShapeError, "in_channels is 6, got an input of shape (n, 4, 6, 6)"),
    "no channels": (nn.Conv1d(1, 2, 3), (2, 6), ShapeError, "an input of shape (n, 6) has no axis of channels"),
    "features": (nn.Linear(8, 2), X, ShapeError, "in_features is 8, got an input of shape (n, 4, 6, 6)"),
    "one row": (nn.Linear(8, 2), (8,), ShapeError, "in_features is 8, got an input of shape (n,)"),
    "up": (nn.ConvTranspose2d(6, 2, 3), X, ShapeError, "in_channels is 6, got an input of shape (n, 4, 6, 6)"),
    "flatten": (nn.Flatten(5), X, ShapeError, "flatten: axis 5 is outside a tensor of rank 4"),
    "flatten back": (nn.Flatten(2, 1), X, ShapeError, "flatten: start_dim=2 lies behind end_dim=1"),
    "transposed": (
        nn.ConvTranspose1d(4, 2, 3, stride=2, output_padding=2),
        (2, 4, 6),
        ArgumentError,
        "output_padding must be less than the stride or the dilation, got (2,)",
    ),
    "pad mode": (lambda x: F.pad(x, (1, 1), "edge"), X, ArgumentError, "mode must be one of constant, reflect"),
    "pad value": (lambda x: F.pad(x, (1, 1), "reflect", 2.0), X, ArgumentError, "mode 'reflect' takes no value"),
    "whole pad": (
        lambda x: F.pad(x.astype("int64"), (1, 1), value=0.5),
        X,
        ArgumentError,
        "a tensor of int64 cannot hold the value 0.5",
    ),
    "odd pad": (lambda x: F.pad(x, (1, 1, 1)), X, ArgumentError, "pad must be ints, before and after each axis"),
    "long pad": (lambda x: F.pad(x, (1,) * 10), X, ShapeError, "5 pairs are too many for a tensor of the shape"),
    "cut": (lambda x: F.pad(x, (-4, -3)), X, ShapeError, "axis 3 of the shape (n, 4, 6, 6) has less than (4, 3)"),
    "reflect": (nn.ReflectionPad2d(6), X, ShapeError, "reflect padding of 6 of an axis of size 6: at most 5"),
    "mode": (lambda x: F.interpolate(x, 3, mode="lanczos"), X, ArgumentError, "mode must be one of nearest"),
    "mode's rank": (nn.Upsample(3, mode="linear"), X, ShapeError, "mode 'linear' takes (N, C, L), got (n, 4, 6, 6)"),
    "antialias": (lambda x: F.interpolate(x, 3, mode="bilinear", antialias=True), X, ArgumentError, "antialias=True"),
    "corners": (nn.Upsample(3, align_corners=True), X, ArgumentError, "align_corners is for linear and cubic modes"),
    "factor": (nn.Upsample(scale_factor=0.1), X, ArgumentError, "scale_factor=0.1 leaves nothing of a size of 6"),
    "factors": (nn.Upsample(scale_factor=(1, 2, 3)), X, ArgumentError, "must be a positive number, or 2 of them"),
    "groups": (nn.ChannelShuffle(3), X, ArgumentError, "the groups must divide the 4 channels, got 3"),
    "window": (nn.Unfold(7), X, ShapeError, "unfold: a window of 7 is larger than the padded size 6"),
    "columns": (nn.Fold(5, 2), (2, 8, 15), ShapeError, "input must have the shape (N, C·4, 16) for images of (5, 5)"),
    "unflatten": (nn.Unflatten(1, (3, 2)), X, ShapeError, "axis 1 of the shape (n, 4, 6, 6) cannot have the sizes"),
    "one_hot": (lambda x: F.one_hot(x.astype("int64")), X, ArgumentError, "one_hot needs num_classes"),
    "grid": (lambda x: F.grid_sample(x, x[:, 0]), X, ShapeError, "grid_sample takes (N, C, H, W) with a grid"),
    "size": (lambda x: F.affine_grid(x[:, :2, 0, :3], (3, 4)), X, ArgumentError, "size must be (N, C, H, W)"),
}


@pytest.mark.parametrize("name", REFUSED_INPUTS)
def test_refused_inputs(name):
    module, given, error, message = REFUSED_INPUTS[name]
    shape = given.shape if isinstance(given, TensorStructInfo) else given
    layer = module if isinstance(module, nn.Module) else nn.Lambda(module)
    with pytest.raises(error) as caught:
        nn.Sequential(layer).export(np.zeros([int(s) for s in shape], "float32"))
    assert message in caught.value.message
    assert caught.value.message.startswith("0 (")


HINTS = {
    nn.Conv2d(6, 2, 3): "x.transpose(0, 3, 1, 2)",
    nn.Linear(144, 2): "nn.Flatten() before it",
    nn.Linear(8, 2): "nn.Linear(6, 2) takes such an input",
}


@pytest.mark.parametrize("layer", HINTS)
def test_hints_of_inputs_that_do_not_fit(layer):
    with pytest.raises(ShapeError) as caught:
        nn.Sequential(layer).export(np.zeros((2, 4, 6, 6), "float32"))
    assert HINTS[layer] in caught.value.hint


def test_output_size_that_no_padding_gives():
    class Net(nn.Module):
        def __init__(self):
            self.up = nn.ConvTranspose1d(2, 2, 3, stride=2)

        def forward(self, x):
            return self.up(x, output_size=[12])

    with pytest.raises(ArgumentError, match=r"output_size must be 1 sizes from \(9,\) to \(10,\)"):
        Net().export(np.zeros((1, 2, 4), "float32"))


LAYERS = {
    "Flatten": lambda: nn.Sequential(nn.Flatten(), nn.Linear(8 * 4 * 4, 3)),
    "flatten": lambda: nn.Sequential(nn.Lambda(lambda x: x.flatten(1)), nn.Linear(8 * 4 * 4, 3)),
    "Unflatten": lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, -1)), nn.Flatten(), nn.Linear(128, 3)),
    "PixelShuffle": lambda: nn.Sequential(nn.PixelShuffle(2), nn.Conv2d(2, 3, 3), nn.GlobalAvgPool2d()),
    "PixelUnshuffle": lambda: nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(32, 3, 1), nn.GlobalAvgPool2d()),
    "ChannelShuffle": lambda: nn.Sequential(nn.ChannelShuffle(4), nn.Conv2d(8, 3, 3), nn.GlobalMaxPool2d()),
    "Unfold": lambda: nn.Sequential(nn.Unfold(2, stride=2), nn.Flatten(), nn.Linear(128, 3)),
    "Fold": lambda: nn.Sequential(nn.Unfold(2), nn.Fold(4, 2), nn.Conv2d(8, 3, 3), nn.GlobalAvgPool2d()),
    "pads, pools": lambda: nn.Sequential(
        nn.Conv2d(8, 3, 3, padding=1, padding_mode="circular"), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("rows", ["symbolic", "fixed"])
def test_a_smaller_last_batch(name, rows):
    source = np.random.default_rng(0)
    x, y = source.normal(size=(10, 8, 4, 4)).astype("float32"), source.integers(0, 3, 10)
    example = x if rows == "symbolic" else TensorStructInfo((4, 8, 4, 4), "float32")
    made = pullback.trainer(LAYERS[name](), "cross_entropy", "sgd", example=example, target="debug")
    losses = made.fit(x, y, epochs=1, batch_size=4, shuffle=False)
    assert np.isfinite(losses.epochs[-1].loss)
    assert made.evaluate(x, y).count == 10


def test_layers_of_images_of_symbolic_sizes():
    sizes = [Var(name, "int64") for name in ("n", "h", "w")]
    images = TensorStructInfo((sizes[0], 1, *sizes[1:]), "float32")
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.MaxPool2d(2), nn.ZeroPad2d(1), nn.Upsample(scale_factor=2),
        nn.ChannelShuffle(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip
    assert net.export(images)[BACKBONE].ret_struct_info.sizes == (sizes[0], 2)
    with pytest.raises(UserError, match="needs spatial sizes that are known"):
        nn.Sequential(nn.AdaptiveMaxPool2d(2)).export(images)
