"""topi: tensor expressions of ops, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relax, te, topi
from pullback.ir import NoAttribute, UserError
from pullback.te.interpreter import evaluate

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((4, 2))
CASES = {
    "add": (lambda a, b: topi.add(a, a), A + A),
    "a number": (lambda a, b: topi.multiply(a, 2.0), A * 2),
    "matmul": (lambda a, b: topi.matmul(a, b), A @ B),
    "sum": (lambda a, b: topi.sum(a, axis=1), A.sum(1)),
    "transpose": (lambda a, b: topi.transpose(a), A.T),
    "nn": (lambda a, b: topi.nn.relu(topi.matmul(a, b)), np.maximum(A @ B, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    expression, wanted = CASES[name]
    a, b = te.placeholder(A.shape, "float64", "a"), te.placeholder(B.shape, "float64", "b")
    np.testing.assert_allclose(evaluate([expression(a, b)], {a: A, b: B})[0], wanted, rtol=1e-12)


def test_in_a_function():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((3, 4), "float64"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(builder.call_te(topi.nn.relu, x)))
    found = pullback.compile(builder.get()).function("main")(A)
    np.testing.assert_allclose(found.numpy(), np.maximum(A, 0))


def test_names_that_there_are_not():
    with pytest.raises(NoAttribute, match="topi has no softmaxx"):
        topi.softmaxx  # noqa: B018
    with pytest.raises(UserError, match=r"topi\.add takes te tensors"):
        topi.add(1.0, 2.0)


def test_modules_under_the_reference_s_names():
    from pullback.runtime.relax_vm import VirtualMachine
    from pullback.testing.utils import check_numerical_grads

    from pullback.error import TVMError

    assert TVMError is pullback.TVMError and VirtualMachine is pullback.VirtualMachine
    assert check_numerical_grads is pullback.testing.check_numerical_grads
