"""Dampening in the first step: PyTorch's rule, and the reference's, under their names."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax
from pullback.ir import IRModule
from pullback.relax.training import optimizer as training
from pullback.script import relax as R

P, G = np.array([1.0, -2.0, 0.5], "float32"), np.array([0.3, 0.1, -0.7], "float32")


def steps(optimizer, count: int, target: str = "llvm") -> np.ndarray:
    """The parameter after so many steps with one gradient."""
    optimizer.init([relax.Var("p", R.Tensor((3,)))])
    module = IRModule({"update": optimizer.get_function()})
    update = pullback.compile(module, target).function("update")
    params, states = (P,), tuple(optimizer.state)
    for _ in range(count):
        params, states = update(params, (G,), states)
    return params[0].numpy()


def expected(count: int, momentum: float, dampening: float, decay: float, nesterov: bool, whole: bool) -> np.ndarray:
    p, v = P.astype("float64"), np.zeros(3)
    for k in range(count):
        g = G + decay * p
        v = g if whole and (k == 0 or momentum == 0) else momentum * v + (1 - dampening) * g
        p = p - 0.1 * (g + momentum * v if nesterov else v)
    return p


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize(
    ("momentum", "dampening", "decay", "nesterov"),
    [
        (0.9, 0.3, 0.0, False),
        (0.9, 0.3, 0.1, True),
        (0.9, 0.0, 0.0, False),
        (0.0, 0.4, 0.0, False),
        (0.5, 1.0, 0, False),
    ],
)
def test_first_steps(momentum, dampening, decay, nesterov, target):
    for module, whole in ((relax.optimizer, False), (training, True)):
        for count in (1, 2, 3):
            optimizer = module.MomentumSGD(0.1, momentum, dampening, decay, nesterov)
            wanted = expected(count, momentum, dampening, decay, nesterov, whole)
            np.testing.assert_allclose(steps(optimizer, count, target), wanted, rtol=1e-5, err_msg=f"{count} {whole}")


def test_names():
    from pullback.relax.optimizer import SGD, MomentumSGD

    assert relax.optimizer.MomentumSGD is MomentumSGD and MomentumSGD is not training.MomentumSGD
    assert issubclass(MomentumSGD, training.MomentumSGD)
    assert SGD is training.SGD and relax.optimizer.Adam is training.Adam
    assert MomentumSGD(0.1, 0.9).name == "MomentumSGD"
    assert "torch" in training.MomentumSGD.__doc__ and "PyTorch" in MomentumSGD.__doc__
    assert isinstance(pullback.optim.SGD(0.1, 0.9), training.MomentumSGD)
    assert not isinstance(pullback.optim.SGD(0.1, 0.9), MomentumSGD)


def test_dampening_that_changes():
    optimizer = relax.optimizer.MomentumSGD(0.1, 0.9, relax.optimizer.RunTime(0.25))
    np.testing.assert_allclose(steps(optimizer, 1)[:3], P - 0.1 * 0.75 * G, rtol=1e-6)
