"""Values and adjoints beside PyTorch's, where it is installed: ties, zeros, infinities, weights and ignored targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.against_torch import Sides, compare

functional = torch.nn.functional

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((5, 4)), rng.standard_normal((5, 4))
TIES = np.array([[1.0, 2, 2, 0], [0, 0, 0, 0], [-1, 3, -1, 3]])
SPECIAL = np.array([-np.inf, -2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 30.0, np.inf])
TARGETS = np.array([0, 3, 1, 2, 1])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.1])
PAIRS = np.meshgrid([-2.0, -1.0, -0.0, 0.0, 0.5, 3.0], [-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0])
IMAGES, LABELS = rng.standard_normal((2, 3, 4, 5)), rng.integers(0, 3, (2, 4, 5))

CASES: dict[str, Sides] = {
    "relu": (ops.nn.relu, torch.relu, (SPECIAL,)),
    "silu": (ops.nn.silu, functional.silu, (SPECIAL[1:],)),
    "gelu": (ops.nn.gelu, functional.gelu, (SPECIAL[1:-1],)),
    "gelu_tanh": (ops.nn.gelu_tanh, lambda x: functional.gelu(x, approximate="tanh"), (SPECIAL[1:-1],)),
    "softplus": (ops.nn.softplus, functional.softplus, (SPECIAL,)),
    "softplus beta": (lambda x: ops.nn.softplus(x, 2.0, 5.0), lambda x: functional.softplus(x, 2.0, 5.0), (SPECIAL,)),
    "leakyrelu": (ops.nn.leakyrelu, functional.leaky_relu, (SPECIAL,)),
    "clip": (lambda x: ops.clip(x, -0.5, 1.0), lambda x: torch.clamp(x, -0.5, 1.0), (SPECIAL,)),
    "sigmoid": (ops.sigmoid, torch.sigmoid, (SPECIAL,)),
    "tanh": (ops.tanh, torch.tanh, (SPECIAL,)),
    "abs": (ops.abs, torch.abs, (SPECIAL,)),
    "power": (ops.power, torch.pow, tuple(PAIRS)),
    "maximum": (ops.maximum, torch.maximum, (TIES, TIES[:, ::-1].copy())),
    "minimum": (ops.minimum, torch.minimum, (TIES, TIES[:, ::-1].copy())),
    "atan2": (ops.atan2, torch.atan2, (X, Y)),
    "mod": (ops.mod, torch.remainder, (X, Y)),
    "max": (lambda x: ops.max(x, 1), lambda x: torch.amax(x, 1), (TIES,)),
    "min": (lambda x: ops.min(x, (0, 1)), lambda x: torch.amin(x, (0, 1)), (TIES,)),
    "prod": (lambda x: ops.prod(x, 1), lambda x: torch.prod(x, 1), (TIES,)),
    "variance": (lambda x: ops.variance(x, 1), lambda x: torch.var(x, 1, correction=0), (X,)),
    "std": (lambda x: ops.std(x, 1), lambda x: torch.std(x, 1, correction=0), (TIES,)),
    "softmax": (lambda x: ops.nn.softmax(x, 1), lambda x: torch.softmax(x, 1), (X,)),
    "log_softmax": (lambda x: ops.nn.log_softmax(x, 0), lambda x: torch.log_softmax(x, 0), (X,)),
    "layer_norm": (
        ops.nn.layer_norm,
        lambda x, g, b: functional.layer_norm(x, (4,), g, b),
        (X, WEIGHTS, WEIGHTS[::-1].copy()),
    ),
    "rms_norm": (ops.nn.rms_norm, lambda x, w: functional.rms_norm(x, (4,), w, 1e-5), (X, WEIGHTS)),
    "matmul": (ops.matmul, torch.matmul, (IMAGES, rng.standard_normal((3, 5, 2)))),
    "linear": (ops.linear, functional.linear, (IMAGES, rng.standard_normal((2, 5)), rng.standard_normal(2))),
    "nll_loss": (ops.nn.nll_loss, functional.nll_loss, (X, TARGETS)),
    "images": (ops.nn.cross_entropy, functional.cross_entropy, (IMAGES, LABELS)),
}
for _reduction in ("mean", "sum", "none"):
    for _weights in (None, WEIGHTS):
        name = f"cross_entropy {_reduction} {'plain' if _weights is None else 'weighted'}"
        CASES[name] = (
            lambda x, t, w=_weights, r=_reduction: ops.nn.cross_entropy(x, t, w, reduction=r, ignore_index=1),
            lambda x, t, w=_weights, r=_reduction: functional.cross_entropy(
                x, t, None if w is None else torch.tensor(w), reduction=r, ignore_index=1
            ),
            (X, TARGETS),
        )


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    compare(CASES[name])
