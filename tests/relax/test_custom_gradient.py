"""R.custom_gradient: a function with an adjoint that the user gives, in every mode of differentiation."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.relax import BlockBuilder, Call
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.transform import (
    JVP,
    CanonicalizeBindings,
    DeadCodeElimination,
    Gradient,
    InlineCustomGradients,
    InlineFunctions,
    VMap,
)
from pullback.script import ir as I
from pullback.script import relax as R
from tests.relax.test_control import flat, half
from tests.relax.transform.test_jvp import build, tensor

X = np.array([0.2, 1.7, 3.0])


def straight_through(x):
    """round(x), whose derivative is said to be 3."""
    return R.custom_gradient(lambda x: R.round(x), lambda x, dy: dy * half(3.0), (x,))


def cubed(x, w):
    """x³·w, and 2·w; the adjoint is the true one, but that it is ten times too large."""

    def function(x, w):
        return (x * x * x * w, w * half(2.0))

    def adjoint(x, w, dy, dz):
        return (half(30.0) * dy * x * x * w, half(10.0) * (R.sum(dy * x * x * x) + R.sum(dz) * half(2.0)))

    return R.custom_gradient(function, adjoint, (x, w))


@I.ir_module
class Module:
    @R.function
    def f(x: R.Tensor((3,), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((3,), "float64"):
        return R.power(x, R.astype(k, "float64"))

    @R.function
    def f_adjoint(x: R.Tensor((3,), "float64"), k: R.Tensor((), "int64"), dy: R.Tensor((3,), "float64")) -> R.Tensor(
        (3,), "float64"
    ):
        return dy * x * R.astype(k, "float64")

    @R.function
    def main(x: R.Tensor((3,), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        cls = Module
        y = R.custom_gradient(cls.f, cls.f_adjoint, (x, k))
        return R.sum(y)


def test_what_it_computes_and_its_closed_form():
    module = build([tensor("x", 3)], straight_through)
    check_well_formed(module)
    closed = InlineFunctions()(module)
    check_well_formed(closed)
    for given in (module, closed, InlineCustomGradients()(closed), DeadCodeElimination()(module)):
        np.testing.assert_array_equal(evaluate(given, "main", [X]), np.round(X))
    np.testing.assert_array_equal(pullback.compile(module).function("main")(X).numpy(), np.round(X))
    left = [b.value for b in InlineCustomGradients()(closed)["main"].bindings if isinstance(b.value, Call)]
    assert [c.op.short for c in left] == ["round"]


@pytest.mark.parametrize("target", ["llvm", "debug"])
def test_the_gradient_is_what_the_user_says(target):
    module = Gradient("main")(build([tensor("x", 3)], lambda x: R.sum(straight_through(R.sin(x)) * x)))
    check_well_formed(module)
    _, (dx,) = pullback.compile(module, target).function("main_adjoint")(X)
    np.testing.assert_allclose(dx.numpy(), np.round(np.sin(X)) + 3 * X * np.cos(X))


def test_functions_of_the_module_and_an_operand_without_floats():
    for given in (Module, InlineFunctions()(Module)):
        module = Gradient("main", "x")(given)
        value, (dx,) = evaluate(module, "main_adjoint", [X, np.array(3)])
        np.testing.assert_allclose(value, (X**3).sum())
        np.testing.assert_allclose(dx, X * 3)
        _, tangent = evaluate(JVP("main")(given), "main_jvp", [X, np.array(3), np.ones(3)])
        np.testing.assert_allclose(tangent, (X * 3).sum())


def test_several_operands_and_results():
    def main(x, w):
        y, z = cubed(x, w)
        return R.sum(y) + z

    module = Gradient("main")(build([tensor("x", 3), tensor("w")], main))
    w = np.array(0.7)
    value, (dx, dw) = evaluate(module, "main_adjoint", [X, w])
    np.testing.assert_allclose(value, (X**3 * w).sum() + 2 * w)
    np.testing.assert_allclose(dx, 30 * X**2 * w)
    np.testing.assert_allclose(dw, 10 * ((X**3).sum() + 2))


def test_second_order_differentiates_the_adjoint():
    module = Gradient("main", "x")(build([tensor("x", 3), tensor("w")], lambda x, w: R.sum(cubed(x, w)[0])))
    w, v = np.array(0.7), np.array([1.0, -1.0, 2.0])
    _, (_, (forward,)) = evaluate(JVP("main_adjoint", "x")(module), "main_adjoint_jvp", [X, w, v])
    np.testing.assert_allclose(forward, 60 * X * w * v)
    builder = BlockBuilder(module)
    params = [tensor("x", 3), tensor("w")]
    with builder.function("second", params):
        (dx,) = builder.emit(module.get_global_var("main_adjoint")(*params))[1]
        builder.emit_func_output(R.sum(dx * R.const(v)))
    _, (reverse,) = evaluate(Gradient("second", "x")(builder.get()), "second_adjoint", [X, w])
    np.testing.assert_allclose(reverse, 60 * X * w * v)


def test_a_tangent_is_the_transpose_of_the_adjoint():
    module = JVP("main")(build([tensor("x", 3), tensor("w")], lambda x, w: cubed(x, w)))
    w, dx, dw = np.array(0.7), np.array([1.0, -1.0, 2.0]), np.array(0.3)
    _, (dy, dz) = evaluate(module, "main_jvp", [X, w, dx, dw])
    np.testing.assert_allclose(dy, 10 * (3 * X**2 * w * dx + X**3 * dw))
    np.testing.assert_allclose(dz, 10 * 2 * dw)


@pytest.mark.parametrize("mask", [(0, None), (None, 0), (0, 0)])
def test_over_a_batch(mask):
    """The adjoint is over the batch, too: what elements have in common gets the sum."""
    module = build([tensor("x", 3), tensor("w")], lambda x, w: R.sum(cubed(x, w)[0]))
    rng = np.random.default_rng(0)
    xs, ws = rng.standard_normal((4, 3)), rng.standard_normal(4)
    values = [v if axis == 0 else v[0] for v, axis in zip((xs, ws), mask, strict=True)]
    whole = VMap("main", in_axes=mask, axis_size=4)(module)
    check_well_formed(whole)
    builder = BlockBuilder(whole)
    params = [tensor("x", *values[0].shape), tensor("w", *values[1].shape)]
    with builder.function("summed", params):
        builder.emit_func_output(R.sum(builder.emit(whole.get_global_var("main_vmap")(*params))))
    _, (dx, dw) = evaluate(Gradient("summed")(builder.get()), "summed_adjoint", values)
    x, w = (np.broadcast_to(v, s) for v, s in zip(values, ((4, 3), (4,)), strict=True))
    every_x, every_w = 30 * x**2 * w[:, None], 10 * (x**3).sum(axis=1)
    np.testing.assert_allclose(dx, every_x if mask[0] == 0 else every_x.sum(axis=0))
    np.testing.assert_allclose(dw, every_w if mask[1] == 0 else every_w.sum())


def test_in_a_loop_along_a_direction():
    def main(x):
        return R.fori_loop(3, lambda i, y: (straight_through(y) * half(0.5) + x,), (x,))[0]

    module = JVP("main")(build([tensor("x", 3)], main))
    check_well_formed(module)
    y, dy = X, np.ones(3)
    for _ in range(3):
        y, dy = np.round(y) * 0.5 + X, 3 * dy * 0.5 + 1
    value, tangent = evaluate(module, "main_jvp", [X, np.ones(3)])
    np.testing.assert_allclose(value, y)
    np.testing.assert_allclose(tangent, dy)


def test_the_function_is_not_differentiated():
    """What has no gradient may be in it; and what only the adjoint needs is not computed without it."""
    module = Gradient("main")(build([tensor("x", 3)], lambda x: R.sum(R.custom_gradient(
        lambda x: R.astype(R.argsort(x), "float64"), lambda x, dy: dy + x, (x,)))))  # fmt: skip
    _, (dx,) = evaluate(CanonicalizeBindings()(module), "main_adjoint", [X])
    np.testing.assert_allclose(dx, 1 + X)


def test_errors():
    x = tensor("x", 3)
    with pytest.raises(ShapeError, match="argument 1 of adjoint is declared") as caught:
        Call(R.custom_gradient(lambda x: x, lambda x, dy: dy, (x,)).op, (
            *_functions(lambda x: x, [x], lambda x, dy: dy, [x, tensor("dy", 4)]), R.tuple(x)))  # fmt: skip
    assert "gets" in caught.value.message
    with pytest.raises(ShapeError, match=r"adjoint must give .*3.*, and gives .*\(\)"):
        R.custom_gradient(lambda x: x, lambda x, dy: R.sum(dy), (x,))
    with pytest.raises(ShapeError, match="adjoint must give"):
        R.custom_gradient(lambda x, y: x, lambda x, y, dy: dy, (x, x))
    with pytest.raises(ArgumentError, match="are tuples of graph values"):
        R.custom_gradient(lambda x: x, lambda x, dy: dy, x)
    with pytest.raises(UserError, match="results of function must be tensors"):
        R.custom_gradient(lambda x: ((x,), x), lambda x, dy: dy, (x,))
    around = build([tensor("x", 3), tensor("z", 3)], lambda x, z: R.custom_gradient(
        lambda x: x * z, lambda x, dy: dy, (x,)))  # fmt: skip
    with pytest.raises(UserError, match="function reads z, which is around it") as caught:
        InlineFunctions()(around)
    assert caught.value.hint == "make it an operand"


def _functions(function, params, adjoint, seeds):
    return (build(params, function)["main"], build([tensor(p.name, *p.shape) for p in seeds], adjoint)["main"])


def test_stop_gradient():
    module = build([tensor("x", 3)], lambda x: R.sum(R.stop_gradient(x * x) * x))
    _, (dx,) = evaluate(Gradient("main")(module), "main_adjoint", [X])
    np.testing.assert_allclose(dx, X * X)
    _, tangent = evaluate(JVP("main")(module), "main_jvp", [X, np.ones(3)])
    np.testing.assert_allclose(tangent, (X * X).sum())
    (per_element,) = flat((evaluate(VMap("main")(module), "main_vmap", [np.stack([X, 2 * X])]),))
    np.testing.assert_allclose(per_element, [(X**3).sum(), 8 * (X**3).sum()])
