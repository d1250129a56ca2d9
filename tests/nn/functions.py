"""Functions of ``nn.functional`` beside PyTorch's: outputs and gradients, as of a layer without parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pullback import nn
from tests.nn.twins import assert_twins


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def assert_same_function(ours: Callable[..., Any], theirs: Callable[..., Any], *specs: Any, **options: Any) -> None:
    """Compare two functions of tensors: see :func:`assert_twins`."""
    assert_twins(nn.Lambda(ours), _Function(theirs), *specs, **options)
