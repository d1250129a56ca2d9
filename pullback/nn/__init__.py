"""Layers, models and losses under PyTorch's names: ``from pullback import nn``."""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.nn import functional, init
from pullback.nn.container import Lambda, ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from pullback.nn.linear import Bilinear, Identity, Linear
from pullback.nn.module import Module
from pullback.nn.parameter import Buffer, Parameter

__all__ = [
    "Bilinear", "Buffer", "Identity", "Lambda", "Linear", "Module", "ModuleDict", "ModuleList", "Parameter",
    "ParameterDict", "ParameterList", "Sequential", "functional", "init",
]  # fmt: skip

__getattr__ = missing_from(globals())
