"""Every layer and function is compared with PyTorch's somewhere, or named here with the reason."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pullback import nn

FOLDER = Path(__file__).parent
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*_against_torch.py")))
NAMED = set(re.findall(r"\w+", TEXT))

# What PyTorch does not have: tested elsewhere in this folder.
OWN = {
    "GlobalAvgPool1d", "GlobalAvgPool2d", "GlobalAvgPool3d", "GlobalMaxPool1d", "GlobalMaxPool2d", "GlobalMaxPool3d",
    "Lambda", "LearnedPositionalEncoding", "RotaryEmbedding", "SinusoidalPositionalEncoding",
    "CategoricalCrossEntropyLoss", "HingeLoss", "Loss", "Module", "ModuleDict", "ModuleList", "ParameterDict",
    "ParameterList", "Sequential",
}  # fmt: skip

# Compared for each number of axes, by names that the tests put together: test_pooling…, test_padding_against_torch.py.
BY_RANK = {
    f"{kind}{rank}d"
    for rank in (1, 2, 3)
    for kind in (
        "AdaptiveAvgPool", "AdaptiveMaxPool", "AvgPool", "LPPool", "MaxPool", "CircularPad", "ConstantPad",
        "ReflectionPad", "ReplicationPad", "ZeroPad",
    )
}  # fmt: skip


def test_every_layer_has_a_twin():
    layers = {name for name in nn.__all__ if inspect.isclass(getattr(nn, name)) and name[0].isupper()}
    layers -= {"Buffer", "Parameter"}
    assert len(layers) > 130
    assert sorted(layers - NAMED - OWN - BY_RANK) == []
