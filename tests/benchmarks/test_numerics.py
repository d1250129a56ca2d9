"""The kernels of the benchmark ``loops``: values against NumPy, gradients against numeric differences of NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from benchmarks.numerics import KERNELS
from benchmarks.numerics.kernel import slope
from pullback.relax.interpreter import evaluate
from pullback.relax.transform.gradient import Gradient


def along(gradients: dict[str, np.ndarray], ways: dict[str, np.ndarray]) -> float:
    return sum(float((gradients[name] * way).sum()) for name, way in ways.items())


@pytest.mark.parametrize("name", KERNELS)
def test_value(name: str) -> None:
    kernel = KERNELS[name]
    inputs = kernel.inputs("tiny")
    value = evaluate(kernel.form("pullback", "tiny"), "main", list(inputs.values()))
    np.testing.assert_allclose(value, kernel.reference("tiny", inputs), rtol=1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_gradient(name: str) -> None:
    kernel = KERNELS[name]
    inputs = kernel.inputs("tiny")
    module = Gradient("main", list(kernel.wrt))(kernel.form("pullback", "tiny"))
    rng = np.random.default_rng(7)
    ways = {n: rng.standard_normal(inputs[n].shape) for n in kernel.wrt}
    expected = slope(kernel, "tiny", inputs, ways)
    interpreted, adjoints = evaluate(module, "main_adjoint", list(inputs.values()))
    gradients = dict(zip(kernel.wrt, adjoints, strict=True))
    np.testing.assert_allclose(along(gradients, ways), expected, rtol=1e-8)
    value, native = pullback.compile(module)["main_adjoint"](*inputs.values())
    np.testing.assert_allclose(value.numpy(), interpreted, rtol=1e-12)
    for n, gradient in zip(kernel.wrt, native, strict=True):
        np.testing.assert_allclose(gradient.numpy(), gradients[n], rtol=1e-10, atol=1e-12)
