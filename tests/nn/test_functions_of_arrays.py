"""Functions of ``nn.functional`` called on arrays, outside of a model."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pullback import nd, nn
from pullback.ir.errors import ShapeError
from pullback.nn import functional as F
from pullback.relax.expr import Expr

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_they_compute():
    exact = np.exp(X.astype(float)) / np.exp(X.astype(float)).sum(1, keepdims=True)
    for given in (X, nd.array(X)):
        np.testing.assert_allclose(F.softmax(given, dim=1).numpy(), exact, rtol=1e-6)
    np.testing.assert_array_equal(F.cat([X, X[:1]], dim=0).numpy(), np.concatenate([X, X[:1]]))
    np.testing.assert_array_equal(F.one_hot(np.array([2, 0]), 3).numpy(), np.eye(3)[[2, 0]])
    np.testing.assert_allclose(F.linear(X, weight=X).numpy(), X @ X.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(F.exp(X.astype(float)).numpy(), np.exp(X.astype(float)), rtol=1e-15)
    first, second = F.split(X, 2, dim=1)
    np.testing.assert_array_equal(second.numpy(), X[:, 2:])
    np.testing.assert_array_equal(first.numpy(), X[:, :2])
    np.testing.assert_array_equal(F.dropout(X, 0.5).numpy(), X)


def test_in_models_they_are_part_of_the_program():
    class Shifted(nn.Module):
        def forward(self, x):
            shift = F.softmax(X[:1], dim=1)
            assert isinstance(shift, Expr)
            return x + shift

    np.testing.assert_allclose(Shifted()(X).numpy(), X + F.softmax(X[:1], dim=1).numpy(), rtol=1e-6)


def test_what_does_not_fit_is_told_with_the_line():
    with pytest.raises(ShapeError) as caught:
        F.linear(X, np.zeros((2, 3), "float32"))
    assert caught.value.span is not None and caught.value.span.file == __file__


def test_they_pickle():
    for function in (F.relu, F.exp):
        assert pickle.loads(pickle.dumps(function)) is function
