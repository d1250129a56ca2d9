"""Linear layers beside PyTorch's."""

from __future__ import annotations

import pytest
import torch

from pullback import nn
from tests.nn.twins import assert_same_start, assert_twins


@pytest.mark.parametrize(("args", "shape"), [((3, 4), (2, 3)), ((3, 1, False), (2, 5, 3)), ((5, 2), (5,))])
def test_linear(args, shape):
    assert_twins(nn.Linear(*args), torch.nn.Linear(*args), shape, target="llvm")


@pytest.mark.parametrize(("args", "lead"), [((3, 4, 5), (2,)), ((3, 1, 2, False), (2, 5)), ((2, 2, 1), (1,))])
def test_bilinear(args, lead):
    assert_twins(nn.Bilinear(*args), torch.nn.Bilinear(*args), (*lead, args[0]), (*lead, args[1]))


def test_identity():
    assert_twins(nn.Identity(54, unused=0.1), torch.nn.Identity(), (2, 3))


def test_initial_values():
    assert_same_start(lambda: nn.Linear(20, 30), lambda: torch.nn.Linear(20, 30))
    assert_same_start(lambda: nn.Bilinear(4, 9, 6), lambda: torch.nn.Bilinear(4, 9, 6))
