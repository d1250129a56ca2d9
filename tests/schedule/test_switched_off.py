"""A schedule that is switched off declines, and its groups are computed by others: slower, but the same."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.script import ir as I
from pullback.script import relax as R


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((9, 20), "float32"), w: R.Tensor((20, 33), "float32")):
        with R.dataflow():
            y = R.nn.softmax(R.nn.relu(R.matmul(x, w)))
            R.output(y)
        return y


X, W = (np.random.default_rng(0).standard_normal(shape, dtype="float32") for shape in ((9, 20), (20, 33)))


def kernels(monkeypatch: pytest.MonkeyPatch, without: str) -> tuple[np.ndarray, list[str]]:
    monkeypatch.setenv("PULLBACK_WITHOUT", without)
    function = pullback.compile(Module).function("main")
    return function(X, W).numpy(), list(function.native().layout.steps)


def test_results_are_the_same(monkeypatch):
    expected, steps = kernels(monkeypatch, "")
    for name in ("Elementwise", "Contraction", "Reduction", "Contraction,Elementwise,Reduction"):
        result, _ = kernels(monkeypatch, name)
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    _, without = kernels(monkeypatch, "Contraction")
    assert "fused_matmul_relu" in steps and "fused_matmul_relu" not in without
