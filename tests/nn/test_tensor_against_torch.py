"""Functions that PyTorch has beside its layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pullback
from pullback import nn
from pullback.ir.errors import ArgumentError, NoAttribute
from pullback.nn import functional as F

X = np.arange(12.0).reshape(3, 4)
Y = X[::-1].copy()

CASES = {
    "cat": lambda t, a, b: t.cat([a, b], dim=1),
    "stack": lambda t, a, b: t.stack([a, b], -1),
    "split": lambda t, a, b: t.split(a, 3, 1),
    "sections": lambda t, a, b: t.split(b, [1, 3], dim=1),
    "where": lambda t, a, b: t.where(a > 5.0, a, b),
    "einsum": lambda t, a, b: t.einsum("ij,kj->ik", a, b),
    "matmul": lambda t, a, b: t.matmul(a, b.T),
    "exp": lambda t, a, b: t.exp(a * 0.1),
    "mean": lambda t, a, b: t.mean(a, dim=1, keepdim=True),
    "equal": lambda t, a, b: (a == b) | (a == 5.0) | (b == 3.0),
    "not equal": lambda t, a, b: (a != b) & (a != 5.0),
    "no number": lambda t, a, b: (a / (a - 5.0) * 0.0) != (a / (a - 5.0) * 0.0),
    "clamp": lambda t, a, b: t.clamp(a, 2.0, 7.0),
}


@pytest.mark.parametrize("case", CASES)
def test_as_in_torch(case):
    found = nn.Lambda(lambda a, b: CASES[case](F, a, b))(X, Y)
    expected = CASES[case](torch, torch.tensor(X), torch.tensor(Y))
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for mine, other in pairs:
        np.testing.assert_allclose(mine.numpy(), other.numpy())


def test_comparisons_with_arrays_and_of_tensors_with_themselves():
    found = nn.Lambda(lambda x: (np.float64(3.0) == x, x == X[0], x != x))(X)
    for mine, expected in zip(found, (X == 3, X[0] == X, X != X), strict=True):
        np.testing.assert_array_equal(mine.numpy(), expected)
    x = pullback.relax.Var("x", pullback.relax.TensorStructInfo((3,), "float32"))
    assert (x == x) is True  # weak dictionaries ask so
    assert (x == "x") is False and x in {x: 1} and hash(x) == hash(x)


def test_tensors_that_are_made():
    def forward(x):
        return x + F.zeros(3, 4, dtype="float64") + F.ones((3, 4), dtype="float64") + F.full((4,), 2.5, "float64")

    np.testing.assert_allclose(nn.Lambda(forward)(X).numpy(), X + 3.5)
    np.testing.assert_array_equal(nn.Lambda(lambda x: F.arange(4) + x)(np.zeros(4, "int64")).numpy(), np.arange(4))


def test_mistakes():
    with pytest.raises(ArgumentError, match=r"the sizes \[1, 2\] add up to 3, the axis has 4"):
        nn.Lambda(lambda x: F.split(x, [1, 2], 1))(X)
    with pytest.raises(ArgumentError, match="whose size is known"):
        nn.Lambda(lambda x: F.split(x, 2)).export(X)
    with pytest.raises(NoAttribute, match=r"pullback\.nn\.functional has no 'conv9d'"):
        F.conv9d  # noqa: B018
