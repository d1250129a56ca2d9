"""How large a library is that is shipped: the tutorial's perceptron, without its weights."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import nn, optim
from tests.deploy.tools import need_zig

MOST = 200 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64", "aarch64"])  # the first has the code of three CPUs
def test_the_perceptron_takes_at_most_200_kib(target, tmp_path):
    need_zig()
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    example = np.zeros((64, 784), np.float32)
    trainer = pullback.trainer(net, "cross_entropy", optim.Adam(1e-3), example=example)
    trainer.export(tmp_path / "dist", target, "mlp", batch_size=64, embed=False)
    library = (tmp_path / "dist" / "libmlp.so").read_bytes()
    assert library.startswith(b"\x7fELF") and len(library) <= MOST
