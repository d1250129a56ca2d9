"""Reductions, norms and sums of products beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pullback.relax.op.namespace import ops
from tests.relax.op.against_torch import Sides, compare

rng = np.random.default_rng(4)
X = rng.standard_normal((3, 4, 5))
ZEROS = np.array([[0.0, 2.0, -2.0], [0.0, 0.0, 0.0], [1.0, -1.0, 0.5]])
ORDERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, -1.5, float("inf"), float("-inf"))
SUBSCRIPTS = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "bij,bkj->bik": ((2, 3, 4), (2, 5, 4)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "ii": ((4, 4),),
    "iji->j": ((4, 2, 4),),
    "ij,kj,lj->ikl": ((2, 3), (4, 3), (5, 3)),
    "ab,bc,cd,de->ae": ((2, 3), (3, 4), (4, 5), (5, 6)),
    "...ij,...jk": ((2, 1, 3, 4), (5, 4, 2)),
    "i...,i...->...": ((3, 2, 1), (3, 4)),
    "i,j,k->kji": ((2,), (3,), (4,)),
    "ij,ij->": ((3, 4), (3, 4)),
    "ji": ((3, 4),),
}

CASES: dict[str, Sides] = {
    "logsumexp": (lambda x: ops.logsumexp(x, (0, 2)), lambda x: torch.logsumexp(x, (0, 2)), (X * 50,)),
    "outer": (ops.outer, torch.outer, (X[0, 0], X[0, :, 0].copy())),
    "dot": (ops.dot, torch.dot, (X[0, 0], X[1, 1])),
    "tensordot": (
        lambda x, y: ops.tensordot(x, y, ((0, 2), (1, 0))),
        lambda x, y: torch.tensordot(x, y, dims=([0, 2], [1, 0])),
        (X, rng.standard_normal((5, 3, 2))),
    ),
}
for _ord in ORDERS:
    for _values in (X, ZEROS) if _ord >= 1 else (X,):
        CASES[f"norm {_ord} of {_values.shape}"] = (
            lambda x, p=_ord: ops.norm(x, p, 1),
            lambda x, p=_ord: torch.linalg.vector_norm(x, p, 1),
            (_values,),
        )
for _subscripts, _shapes in SUBSCRIPTS.items():
    CASES[f"einsum {_subscripts}"] = (
        lambda *xs, s=_subscripts: ops.einsum(xs, s),
        lambda *xs, s=_subscripts: torch.einsum(s, *xs),
        tuple(rng.standard_normal(shape) for shape in _shapes),
    )


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    compare(CASES[name])
