"""``require_grads`` may name variables inside of the function, and mistakes are raised where the pass is applied."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir import DifferentiationError, NameNotFound
from pullback.relax.transform import Gradient
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T


@I.ir_module
class Module:
    @T.prim_func
    def kernel(A: T.Buffer((3,), "float32"), B: T.Buffer((3,), "float32")):
        for i in range(3):
            B[i] = A[i]

    @R.function
    def main(x: R.Tensor((3,), "float32"), w: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.floor(a)
            c = R.nn.gelu(a)
            d = R.multiply(c, w)
            R.output(d, b)
        with R.dataflow():
            e = R.sum(R.multiply(d, d))
            k = R.argmax(d)  # noqa: F841
            t = (d, e)  # noqa: F841
            R.output(e)
        return e

    @R.function
    def other(y: R.Tensor((3,), "float32")):
        z = R.exp(y)
        return R.sum(z)


X, W = np.array([-0.5, 0.3, 0.8], "float32"), np.array([1.5, -2.0, 0.5], "float32")
VARS = {b.var.name: b.var for b in Module["main"].bindings}


def gelu(a: np.ndarray) -> np.ndarray:
    from math import erf

    return a * 0.5 * (1 + np.vectorize(erf)(a / np.sqrt(2)))


def numeric(f, at: np.ndarray) -> np.ndarray:
    at, step = at.astype("float64"), 1e-6
    return np.array([(f(at + step * e) - f(at - step * e)) / (2 * step) for e in np.eye(len(at))])


A = np.exp(X.astype("float64"))
LOSS = {
    "x": lambda x: np.sum((gelu(np.exp(x)) * W) ** 2),
    "w": lambda w: np.sum((gelu(A) * w) ** 2),
    "a": lambda a: np.sum((gelu(a) * W) ** 2),
    "c": lambda c: np.sum((c * W) ** 2),
    "d": lambda d: np.sum(d**2),
}
AT = {"x": X, "w": W, "a": A, "c": gelu(A), "d": gelu(A) * W}


@pytest.mark.parametrize("target", ["debug", "llvm"])
@pytest.mark.parametrize(
    "names", [["a"], ["c"], ["d"], ["d", "x"], ["x", "c", "w", "a", "d"], ["w", "x"]], ids=lambda n: ",".join(n)
)
@pytest.mark.parametrize("by_name", [True, False])
def test_values(names, by_name, target):
    params = {p.name: p for p in Module["main"].params}
    wanted = names if by_name else [params[n] if n in params else VARS[n] for n in names]
    module = Gradient("main", require_grads=wanted)(Module)
    value, adjoints = pullback.compile(module, target).function("main_adjoint")(X, W)
    assert len(adjoints) == len(names)
    np.testing.assert_allclose(value.numpy(), LOSS["x"](X.astype("float64")), rtol=1e-5)
    for name, adjoint in zip(names, adjoints, strict=True):
        np.testing.assert_allclose(adjoint.numpy(), numeric(LOSS[name], AT[name]), rtol=1e-4, err_msg=name)


def test_nothing_is_computed_that_is_not_wanted():
    adjoint = Gradient("main", require_grads="d")(Module)["main_adjoint"]
    names = [b.var.name for b in adjoint.bindings]
    assert not any(name.startswith(("a_adjoint", "c_adjoint", "x_adjoint", "w_adjoint")) for name in names)
    assert not any(name.endswith("_value") for name in names)
    assert "d_adjoint_out" in names


def test_what_needs_no_gradient_may_have_none():
    """The floor that leads to b has a gradient of zero; one variable of it is differentiated all the same."""
    _, (db,) = pullback.compile(Gradient("main", require_grads="b")(Module)).function("main_adjoint")(X, W)
    np.testing.assert_array_equal(db.numpy(), np.zeros(3))


@pytest.mark.parametrize(
    ("name", "required", "error", "message"),
    [
        ("main1", None, NameNotFound, "no function 'main1'"),
        ("kernel", None, DifferentiationError, "kernel of the loop IR"),
        ("main", Module["other"].params[0], DifferentiationError, "y is not a parameter of main"),
        ("main", next(iter(Module["other"].bindings)).var, DifferentiationError, "z is not a parameter of main"),
        ("main", "nothing", DifferentiationError, "nothing is not a parameter"),
        ("main", ["d", "d"], DifferentiationError, "with respect to d is required twice"),
        ("main", "k", DifferentiationError, "with respect to k of main cannot be taken"),
        ("main", "t", DifferentiationError, "with respect to t of main cannot be taken"),
    ],
)
def test_mistakes_are_raised_when_the_pass_is_applied(name, required, error, message):
    gradient = Gradient(name, require_grads=required)
    with pytest.raises(error, match=message) as caught:
        gradient(Module)
    assert caught.value.hint
    assert isinstance(caught.value, pullback.TVMError)
    assert name != "main1" or isinstance(caught.value, ValueError)
