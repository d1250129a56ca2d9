"""Ops and gradients that users add, as they would write them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import pullback
from pullback import te, tir
from pullback.ir.errors import ArgumentError, DifferentiationError, NameNotFound, UserError
from pullback.ir.op import Op
from pullback.relax import op
from pullback.relax.interpreter import evaluate
from pullback.relax.op import register_gradient, register_op
from pullback.relax.training.utils import register_te_gradient
from pullback.relax.transform import Gradient
from pullback.script import from_source
from tests.helpers import round_trip
from tests.relax.op import test_gradients, test_values


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test registers is gone after it, and what a page of the documentation registered does not matter."""
    known = dict(Op.registry)
    for name in [name for name in known if name.startswith("relax.own.")]:
        del Op.registry[name]
    rules = {name: found.gradient for name, found in known.items()}
    yield
    Op.registry.clear()
    Op.registry.update(known)
    for name, rule in rules.items():
        object.__setattr__(known[name], "gradient", rule)


def test_an_op_in_ten_lines() -> None:
    @register_op("own.swish", samples=[(4, 5), (0, 3)])
    def swish(x, *, beta=1.0):
        """x / (1 + exp(-beta·x))."""
        return te.compute(x.shape, lambda *i: x[i] / (tir.call("exp", x[i] * -beta) + 1.0))

    assert swish.short == "own.swish" and "beta=1.0" in swish.__doc__
    for backend in ("te", "interpreter", "legalized", "native", "raised"):
        test_values.test_backend_agrees_with_the_meaning(swish, backend)
    test_gradients.test_first_and_second_derivatives(swish)

    module = from_source("""
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float64")):
        y = R.own.swish(x, beta=2.0)
        z = R.sum(y)
        return z
""")
    round_trip(module)
    x = np.random.default_rng(0).standard_normal((3, 4))
    s = 1 / (1 + np.exp(-2 * x))
    for target in ("llvm", "debug"):
        loss, (dx,) = pullback.compile(Gradient("main")(module), target)["main_adjoint"](x)
        np.testing.assert_allclose(loss.numpy(), (x * s).sum(), rtol=1e-12)
        np.testing.assert_allclose(dx.numpy(), s + 2 * x * s * (1 - s), rtol=1e-12)


def test_an_op_with_a_rule_and_several_results() -> None:
    @register_op(
        "own.sum_and_difference",
        gradient=lambda dy, y, a, b: (dy[0] + dy[1], dy[0] - dy[1]),
        samples=[op.sample.sample((3,), (3,))],
    )
    def both(a, b):
        return (
            te.compute(a.shape, lambda *i: a[i] + b[i]),
            te.compute(a.shape, lambda *i: a[i] - b[i]),
        )

    for backend in ("interpreter", "native"):
        test_values.test_backend_agrees_with_the_meaning(both, backend)
    test_gradients.test_first_and_second_derivatives(both)


def test_what_is_no_op() -> None:
    with pytest.raises(ArgumentError, match="there is an op exp already"):
        register_op("exp")(lambda x: x)
    with pytest.raises(ArgumentError, match=r"must name its arguments, \*xs names none"):
        register_op("own.any")(lambda *xs: xs[0])
    nothing = register_op("own.nothing")(lambda x: None)
    with pytest.raises(UserError, match=r"own.nothing must return a tensor expression .* it returned None"):
        nothing(pullback.relax.Var("x", pullback.relax.TensorStructInfo((2,), "float32")))


SUM_OF_EXP = """
from pullback.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32")):
        z = R.sum(R.exp(x))
        return z
"""


def test_another_gradient_for_an_op() -> None:
    x = np.zeros(3, np.float32)
    register_gradient("exp", lambda dy, y, x: (dy * 7.0,))
    module = Gradient("main")(from_source(SUM_OF_EXP))
    np.testing.assert_array_equal(evaluate(module, "main_adjoint", [x])[1][0], np.full(3, 7, np.float32))
    with pytest.raises(NameNotFound, match="there is no operator 'expp'"):
        register_gradient("expp", lambda dy, y, x: (dy,))


WITH_GRAD = """
from pullback.script import ir as I, relax as R, tir as T
@I.ir_module
class Module:
    @T.prim_func
    def scale(x: T.Buffer((3,), "float32"), w: T.Buffer((3,), "float32"), y: T.Buffer((3,), "float32")):
        for i in range(3):
            y[i] = x[i] * w[i]
    @R.function
    def main(x: R.Tensor((3,), "float32"), w: R.Tensor((3,), "float32")):
        cls = Module
        y = R.call_tir_with_grad(cls.scale, (x, w), out_sinfo=R.Tensor((3,), "float32"), te_grad_name="scale_grad",
                                 te_grad_kwargs={"times": 10.0})
        z = R.sum(y)
        return z
"""


def test_a_kernel_with_a_gradient_of_its_own() -> None:
    @register_te_gradient("scale_grad")
    def scale_grad(output_grad, x, w, times):
        return [
            te.compute(x.shape, lambda i: output_grad[i] * w[i] * times),
            te.compute(x.shape, lambda i: output_grad[i] * x[i]),
        ]

    module = from_source(WITH_GRAD)
    round_trip(module)
    x, w = np.arange(3, dtype=np.float32), np.full(3, 2, np.float32)
    for target in ("llvm", "debug"):
        _, (dx, dw) = pullback.compile(Gradient("main")(module), target)["main_adjoint"](x, w)
        np.testing.assert_array_equal(dx.numpy(), w * 10)
        np.testing.assert_array_equal(dw.numpy(), x)

    register_te_gradient("scale_grad", lambda output_grad, x, w, times: [x])
    with pytest.raises(DifferentiationError, match="the gradient scale_grad must give"):
        Gradient("main")(module)


def test_a_gradient_that_nobody_registered() -> None:
    source = WITH_GRAD.replace('"scale_grad"', '"scale_gradd"')
    with pytest.raises(NameNotFound, match="there is no gradient 'scale_gradd'"):
        Gradient("main")(from_source(source))
