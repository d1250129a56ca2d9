"""Random graphs that draw random numbers: values and adjoints are PyTorch's, when it is given the same numbers."""

from __future__ import annotations

import pytest
import torch

import pullback
from pullback.relax.transform import Gradient
from tests.properties.random_graphs import Maker
from tests.properties.test_random_graphs import against_torch

PER_TEST = 10


@pytest.mark.parametrize("first", range(0, 100, PER_TEST))
def test_adjoints(first):
    for seed in range(first, first + PER_TEST):
        graph = Maker(seed, torch, drops=True).make()
        loss, gradients = pullback.compile(Gradient("main")(graph.module))["main_adjoint"](*graph.inputs)
        against_torch(graph, loss.numpy(), [g.numpy() for g in gradients], seed)
