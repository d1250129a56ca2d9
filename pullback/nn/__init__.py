"""Layers, models and losses under PyTorch's names: ``from pullback import nn``."""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.nn import aug, functional, init
from pullback.nn.container import Lambda, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from pullback.nn.convolution import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from pullback.nn.linear import Bilinear, Identity, Linear
from pullback.nn.module import Module
from pullback.nn.padding import (
    CircularPad1d,
    CircularPad2d,
    CircularPad3d,
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad1d,
    ZeroPad2d,
    ZeroPad3d,
)
from pullback.nn.parameter import Buffer, Parameter
from pullback.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    GlobalAvgPool1d,
    GlobalAvgPool2d,
    GlobalAvgPool3d,
    GlobalMaxPool1d,
    GlobalMaxPool2d,
    GlobalMaxPool3d,
    LPPool1d,
    LPPool2d,
    LPPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from pullback.nn.shape import Flatten, Unflatten
from pullback.nn.vision import (
    ChannelShuffle,
    Fold,
    PixelShuffle,
    PixelUnshuffle,
    Unfold,
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
)

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "Bilinear", "Buffer", "ChannelShuffle",
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d",
    "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Flatten", "Fold",
    "GlobalAvgPool1d", "GlobalAvgPool2d", "GlobalAvgPool3d", "GlobalMaxPool1d", "GlobalMaxPool2d",
    "GlobalMaxPool3d", "Identity", "LPPool1d", "LPPool2d", "LPPool3d", "Lambda", "Linear", "MaxPool1d", "MaxPool2d",
    "MaxPool3d", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList",
    "PixelShuffle", "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "Sequential", "Unflatten", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "aug", "functional", "init",
]  # fmt: skip

__getattr__ = missing_from(globals())
