"""Activations beside PyTorch's, at their kinks and far out too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.against_torch import Sides, compare

functional = torch.nn.functional
rng = np.random.default_rng(1)
FINITE = np.array([-800.0, -30.0, -7.5, -3.0, -1.0, -0.5, -0.25, -0.0, 0.0, 0.25, 0.5, 1.0, 3.0, 6.0, 7.5, 30.0, 800.0])
SPECIAL = np.array([-np.inf, *FINITE, np.inf])
X = rng.standard_normal((3, 4, 6))

CASES: dict[str, Sides] = {
    "relu6": (ops.nn.relu6, functional.relu6, (SPECIAL,)),
    "elu": (ops.nn.elu, functional.elu, (SPECIAL,)),
    "elu alpha": (lambda x: ops.nn.elu(x, 0.3), lambda x: functional.elu(x, 0.3), (SPECIAL,)),
    "selu": (ops.nn.selu, functional.selu, (SPECIAL,)),
    "celu": (ops.nn.celu, functional.celu, (SPECIAL,)),
    "celu alpha": (lambda x: ops.nn.celu(x, 2.0), lambda x: functional.celu(x, 2.0), (SPECIAL,)),
    "mish": (ops.nn.mish, functional.mish, (FINITE,)),
    "softsign": (ops.nn.softsign, functional.softsign, (FINITE,)),
    "hardswish": (ops.nn.hardswish, functional.hardswish, (FINITE,)),
    "hardsigmoid": (ops.nn.hardsigmoid, functional.hardsigmoid, (SPECIAL,)),
    "hardtanh": (ops.nn.hardtanh, functional.hardtanh, (SPECIAL,)),
    "hardtanh bounds": (
        lambda x: ops.nn.hardtanh(x, -0.5, 3.0),
        lambda x: functional.hardtanh(x, -0.5, 3.0),
        (SPECIAL,),
    ),
    "tanhshrink": (ops.nn.tanhshrink, functional.tanhshrink, (FINITE,)),
    "softshrink": (ops.nn.softshrink, functional.softshrink, (FINITE,)),
    "softshrink lambd": (lambda x: ops.nn.softshrink(x, 1.0), lambda x: functional.softshrink(x, 1.0), (FINITE,)),
    "hardshrink": (ops.nn.hardshrink, functional.hardshrink, (SPECIAL,)),
    "hardshrink 0": (lambda x: ops.nn.hardshrink(x, 0.0), lambda x: functional.hardshrink(x, 0.0), (SPECIAL,)),
    "threshold": (lambda x: ops.nn.threshold(x, 0.5, 9.0), lambda x: functional.threshold(x, 0.5, 9.0), (SPECIAL,)),
    "logsigmoid": (ops.nn.logsigmoid, functional.logsigmoid, (FINITE,)),
    "prelu": (ops.nn.prelu, functional.prelu, (X, rng.standard_normal(4))),
    "prelu of one weight": (ops.nn.prelu, functional.prelu, (SPECIAL[1:-1], rng.standard_normal(1))),
    "glu": (ops.nn.glu, functional.glu, (X,)),
    "glu axis": (lambda x: ops.nn.glu(x, 1), lambda x: functional.glu(x, 1), (X,)),
    "softmin": (lambda x: ops.nn.softmin(x, 1), lambda x: functional.softmin(x, 1), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    compare(CASES[name], rtol=1e-7 if name == "hardsigmoid" else 1e-9)  # PyTorch's 1/6 there is that of float32
