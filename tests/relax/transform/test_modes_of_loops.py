"""Loops and branches in more than one mode of differentiation, natively too: gradients of batches, batches of
gradients, tangents of gradients."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import pullback
from pullback.ir.module import IRModule
from pullback.ir.node import assert_structural_equal
from pullback.relax import BlockBuilder
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.transform import JVP, Gradient, InlineFunctions, VMap
from pullback.script import from_source
from pullback.script import relax as R
from tests.relax.test_control import CASES, flat, half
from tests.relax.test_custom_gradient import cubed, straight_through
from tests.relax.transform import test_unbounded_gradient as unbounded
from tests.relax.transform.test_jvp import STEP, build, tensor

STARTS = np.array([0.35, 1.7, 4.0, 0.9])


def newton(a, most=40):
    """As in CASES, with a greatest number of steps: the gradient keeps the iterates."""
    condition, body = lambda x: R.abs(x * x - a) > half(1e-9), lambda x: ((x + a / x) * half(),)
    return R.while_loop(condition, body, (a,), max_steps=most)[0]


def grown(a, most=30):
    """A while in an if in a for, with a greatest number of steps."""

    def body(i, t):
        def grow():
            step = lambda u: (u * half() + a + half(2.0),)  # noqa: E731
            return R.while_loop(lambda u: u < half(3.0), step, (t,), max_steps=most)[0]

        return (R.cond(t > half(3.0), lambda: R.sin(t) - a, grow) * a,)

    return R.fori_loop(3, body, (a,))[0]


def chosen(a):
    x, y = CASES["if"][0](a)
    return x * y


def scanned(a):
    total, seen = CASES["scan"][0](a)
    return total * R.sum(seen)


BODIES = {"newton": newton, "grown": grown, "if": chosen, "scan": scanned}
BODIES |= {
    "newton without end": partial(newton, most=None), "grown without end": partial(grown, most=None),
    "in a scan": unbounded.in_scan, "in both branches": unbounded.in_both_branches, "in a while": unbounded.in_while,
}  # fmt: skip
MODES = pytest.mark.parametrize("name", BODIES)


def leaves(value):
    """The tensors of what a compiled function gives."""
    return [v for part in value for v in leaves(part)] if isinstance(value, tuple) else [value]


def native(module: IRModule, name: str, *values):
    return [v.numpy() for v in leaves(pullback.compile(module).function(name)(*values))]


def singles(module: IRModule):
    """The gradient at each start."""
    return [flat(evaluate(module, "main_adjoint", [np.array(a)]))[1] for a in STARTS]


@MODES
def test_a_batch_of_gradients(name):
    gradient = Gradient("main")(build([tensor("a")], BODIES[name]))
    whole = VMap("main_adjoint", axis_size=4)(gradient)
    check_well_formed(whole)
    expected = singles(gradient)
    np.testing.assert_allclose(flat(evaluate(whole, "main_adjoint_vmap", [STARTS]))[1], expected, rtol=1e-9)
    np.testing.assert_allclose(native(whole, "main_adjoint_vmap", STARTS)[1], expected, rtol=1e-9)


@MODES
def test_the_gradient_of_a_batch(name):
    module = build([tensor("a")], BODIES[name])
    builder = BlockBuilder(VMap("main", axis_size=4)(module))
    params = [tensor("a", 4)]
    with builder.function("summed", params):
        builder.emit_func_output(R.sum(builder.emit(builder.module.get_global_var("main_vmap")(*params))))
    gradient = Gradient("summed")(builder.get())
    expected = singles(Gradient("main")(module))
    np.testing.assert_allclose(flat(evaluate(gradient, "summed_adjoint", [STARTS]))[1], expected, rtol=1e-9)
    np.testing.assert_allclose(native(gradient, "summed_adjoint", STARTS)[1], expected, rtol=1e-9)


@MODES
def test_the_tangent_of_a_gradient(name):
    gradient = Gradient("main")(build([tensor("a")], BODIES[name]))
    module = JVP("main_adjoint")(gradient)
    check_well_formed(module)
    for a in STARTS[1:]:
        found = flat(evaluate(module, "main_adjoint_jvp", [np.array(a), np.array(1.0)]))[-1]
        ends = [flat(evaluate(gradient, "main_adjoint", [np.array(a + s)]))[1] for s in (STEP, -STEP)]
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(native(module, "main_adjoint_jvp", np.array(a), np.array(1.0))[-1], found, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_tangents_and_batches_run_natively_and_can_be_read(name):
    module = build([tensor("a")], CASES[name][0])
    tangent, whole = JVP("main")(module), VMap("main", axis_size=4)(module)
    for result, key, values in (
        (tangent, "main_jvp", [np.array(1.7), np.array(1.3)]),
        (whole, "main_vmap", [STARTS]),
    ):
        for found, expected in zip(native(result, key, *values), flat(evaluate(result, key, values)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9)
        assert_structural_equal(from_source(str(result)), result)


def test_a_gradient_of_the_users_in_a_loop():
    def main(x):
        return R.sum(R.fori_loop(3, lambda i, y: (straight_through(y) * half() + x,), (x,))[0])

    module = Gradient("main")(build([tensor("x", 3)], main))
    x = np.array([0.2, 1.7, 3.0])
    expected = np.full(3, 1.5**3 + 1.5**2 + 1.5 + 1)
    np.testing.assert_allclose(flat(evaluate(module, "main_adjoint", [x]))[1], expected)
    np.testing.assert_allclose(native(module, "main_adjoint", x)[1], expected)
    closed = InlineFunctions()(build([tensor("x", 3), tensor("w")], cubed))
    assert_structural_equal(from_source(str(closed)), closed)
