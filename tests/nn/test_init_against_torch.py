"""Initial values beside those of torch.nn.init: moments, extremes, and structure."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pullback import nn
from pullback.nn import init

SHAPES = [(40, 60), (60, 40), (16, 8, 3, 3), (20, 30, 5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("uniform_", {}), ("uniform_", {"a": -0.5, "b": 2.0}), ("normal_", {"mean": 1.0, "std": 0.2}),
        ("trunc_normal_", {}), ("trunc_normal_", {"mean": 0.5, "std": 2.0, "a": -1.0, "b": 0.0}),
        ("trunc_normal_", {"std": 0.02}), ("xavier_uniform_", {}), ("xavier_uniform_", {"gain": 3.0}),
        ("xavier_normal_", {}), ("xavier_normal_", {"gain": 0.5}), ("kaiming_uniform_", {}),
        ("kaiming_uniform_", {"a": 0.5, "mode": "fan_out"}), ("kaiming_uniform_", {"nonlinearity": "tanh"}),
        ("kaiming_normal_", {}), ("kaiming_normal_", {"a": 0.3, "mode": "fan_out"}),
        ("kaiming_normal_", {"nonlinearity": "relu"}), ("orthogonal_", {}), ("orthogonal_", {"gain": 2.0}),
    ],
)  # fmt: skip
def test_distribution(name, options, shape):
    torch.manual_seed(0)
    mine, others = [], []
    for seed in range(6):
        parameter = getattr(init, name)(nn.Parameter(shape), **options, generator=np.random.default_rng(seed))
        mine.append(parameter.numpy().astype(float))
        others.append(getattr(torch.nn.init, name)(torch.empty(shape, dtype=torch.float64), **options).numpy())
    found, expected = np.stack(mine), np.stack(others)
    slack = 8 * expected.std() / math.sqrt(expected.size)
    assert abs(found.mean() - expected.mean()) < slack
    assert abs(found.std() - expected.std()) < slack
    quantiles = [0.02, 0.25, 0.75, 0.98]
    np.testing.assert_allclose(np.quantile(found, quantiles), np.quantile(expected, quantiles), atol=2 * slack)
    if name in ("uniform_", "xavier_uniform_", "kaiming_uniform_") or options.get("b") == 0.0:
        assert found.min() >= expected.min() - slack
        assert found.max() <= expected.max() + slack


@pytest.mark.parametrize("shape", SHAPES)
def test_orthogonal(shape):
    matrix = init.orthogonal_(nn.Parameter(shape, dtype="float64"), gain=2.0).numpy().reshape(shape[0], -1)
    product = matrix @ matrix.T if shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


@pytest.mark.parametrize(("shape", "sparsity"), [((10, 6), 0.25), ((7, 9), 0.5), ((5, 3), 1.0), ((5, 3), 0.0)])
def test_sparse(shape, sparsity):
    """As many zeros in each column as PyTorch's, elsewhere its distribution."""
    ours = init.sparse_(nn.Parameter(shape), sparsity, std=0.3).numpy()
    theirs = torch.nn.init.sparse_(torch.empty(shape), sparsity, std=0.3).numpy()
    np.testing.assert_array_equal((ours == 0).sum(0), (theirs == 0).sum(0))
    many = np.concatenate([init.Sparse(0.5, 0.3)(np.random.default_rng(s), (20, 30)).ravel() for s in range(5)])
    assert abs(many[many != 0].std() - 0.3) < 0.03
    assert (init.Sparse(0.5)(np.random.default_rng(0), (9, 4)) == 0).any(1).sum() > 5  # not the same rows for all


@pytest.mark.parametrize(
    ("shape", "groups"), [((6, 4, 3), 1), ((4, 6, 3, 3), 2), ((6, 2, 3, 2, 1), 3), ((6, 5, 4), 2), ((3, 3, 1, 1), 1)]
)
def test_dirac(shape, groups):
    expected = torch.nn.init.dirac_(torch.empty(shape), groups).numpy()
    np.testing.assert_array_equal(init.dirac_(nn.Parameter(shape), groups).numpy(), expected)


def test_constants():
    for name, args in (("ones_", ()), ("zeros_", ()), ("eye_", ()), ("constant_", (0.3,))):
        expected = getattr(torch.nn.init, name)(torch.empty(3, 5), *args).numpy()
        np.testing.assert_array_equal(getattr(init, name)(nn.Parameter((3, 5)), *args).numpy(), expected)


@pytest.mark.parametrize(
    ("name", "param"),
    [("linear", None), ("conv2d", None), ("conv_transpose3d", None), ("sigmoid", None), ("tanh", None), ("relu", None),
     ("selu", None), ("leaky_relu", None), ("leaky_relu", 0.3), ("leaky_relu", 0)],
)  # fmt: skip
def test_gain(name, param):
    assert init.calculate_gain(name, param) == pytest.approx(torch.nn.init.calculate_gain(name, param), rel=1e-12)
