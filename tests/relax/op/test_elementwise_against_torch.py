"""Elementwise ops beside PyTorch's, at special values too."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.against_torch import Sides, compare

rng = np.random.default_rng(2)
X, Y = rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
SPECIAL = np.array([-np.inf, -30.0, -2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 30.0, np.inf])
INSIDE = np.array([-1 + 1e-15, -0.999, -0.5, -1e-9, 0.0, 1e-300, 0.3, 0.5, 0.75, 1 - 1e-6])
GAMMA = np.array([-5.3, -1.7, -0.2, 1e-3, 0.3, 0.5, 0.9, 1.3, 2.5, 7.0, 30.0, 1e3, 1e8])

CASES: dict[str, Sides] = {
    "exp2": (ops.exp2, torch.exp2, (SPECIAL,)),
    "reciprocal": (ops.reciprocal, torch.reciprocal, (X,)),
    "sinc": (ops.sinc, torch.sinc, (np.append(X, [0.0, 1.0, 2.5]),)),
    "erfc": (ops.erfc, torch.erfc, (SPECIAL,)),
    "erfinv": (ops.erfinv, torch.erfinv, (INSIDE,)),
    "nan_to_num": (ops.nan_to_num, torch.nan_to_num, (np.append(SPECIAL, np.nan),)),
    "nan_to_num values": (
        lambda x: ops.nan_to_num(x, 1.0, 2.0, -3.0),
        lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0),
        (np.append(SPECIAL, np.nan),),
    ),
    "lgamma": (ops.lgamma, torch.lgamma, (GAMMA,)),
    "digamma": (ops.digamma, torch.digamma, (GAMMA,)),
    "polygamma 1": (lambda x: ops.polygamma(x, 1), lambda x: torch.polygamma(1, x), (GAMMA,)),
    "polygamma 3": (lambda x: ops.polygamma(x, 3), lambda x: torch.polygamma(3, x), (GAMMA,)),
    "polygamma 6": (lambda x: ops.polygamma(x, 6), lambda x: torch.polygamma(6, x), (GAMMA,)),
    "logit": (ops.logit, torch.logit, (np.linspace(0.01, 0.99, 13),)),
    "xlogy": (ops.xlogy, torch.xlogy, (X, np.abs(Y))),
    "logaddexp": (ops.logaddexp, torch.logaddexp, (X * 100, Y * 100)),
    "hypot": (ops.hypot, torch.hypot, (X, Y)),
    "hypot of large ones": (ops.hypot, torch.hypot, (X * 1e200, Y * 1e200)),
    "fmod": (ops.fmod, torch.fmod, (X * 5, Y)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    compare(CASES[name], rtol=1e-8 if name in ("digamma", "polygamma 1") else 1e-9)  # PyTorch's trigamma is that exact
