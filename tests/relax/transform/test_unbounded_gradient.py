"""Gradients of loops whose number of steps only running tells, without `max_steps`: first and second order, tangents,
by the interpreter and natively."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir.errors import DifferentiationError, InternalError
from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.interpreter import evaluate
from pullback.relax.transform import JVP, CanonicalizeBindings, EliminateCommonSubexpr, Gradient, LegalizeOps, Simplify
from pullback.relax.transform.simplify_loops import SimplifyLoops
from pullback.script import relax as R
from tests.helpers import round_trip
from tests.relax.test_control import flat
from tests.relax.transform.test_control_gradient import build, check, gradient, loops, number, ops, tensor

STEP = 1e-6


def newton(a, **options):
    body = lambda x: ((x + a / x) * number(0.5),)  # noqa: E731
    return R.while_loop(lambda x: R.abs(x * x - a) > number(1e-9), body, (a + number(1.0),), **options)[0]


def counted(a, **options):
    """A count that the data gives; no step for a < 0.5."""
    steps = R.astype(a * number(2.0), "int64")
    return R.fori_loop(steps, lambda i, p: (R.sin(p * a + R.astype(i, "float64")),), (a,), **options)[0]


def adaptive(a, **options):
    """The decay dy/dt = -a·y until t = 1 by Heun's method: steps that err too much are halved."""

    def step(t, y, h):
        slow = y - h * a * y
        fast = y - h * number(0.5) * (a * y + a * slow)
        accepted = R.abs(fast - slow) < number(0.01)
        return R.cond(
            accepted,
            lambda: (t + h, fast, R.minimum(h * number(1.5), number(1.0) - t - h)),
            lambda: (t, y, h * number(0.5)),
        )

    begin = (number(0.0), R.exp(a * number(0.1)), number(0.5))
    return R.while_loop(lambda t, y, h: t < number(1.0 - 1e-9), step, begin, **options)[1]


def in_fori(a, **options):
    def body(i, t):
        return (R.tanh(grown(t, a, **options) * a) + number(0.4),)

    return R.fori_loop(3, body, (R.tanh(a),))[0]


def grown(t, a, **options):
    """Until it is 3; a step may also double it."""

    def grow(u):
        more = u * number(0.1) + R.sqrt(a) * number(0.5)
        return (R.cond(u < number(1.0), lambda: u * number(2.0) + more * more, lambda: u + more),)

    return R.while_loop(lambda u: u < number(3.0), grow, (t * t,), **options)[0]


def in_while(a, **options):
    """Each step of the outer loop takes another number of steps of the inner one."""

    def body(t, n):
        u = R.while_loop(lambda u: u < R.astype(n, "float64"), lambda u: (u + R.sqrt(u * a + number(0.3)),), (t,))[0]
        return (R.sin(u) + t * number(0.9), n + R.const(1, "int64"))

    begin = (R.tanh(a) * number(0.3), R.const(1, "int64"))
    return R.while_loop(lambda t, n: n < R.const(5, "int64"), body, begin, **options)[0]


def in_branch(a, **options):
    t = R.sin(a)
    return R.cond(a > number(1.0), lambda: grown(t, a, **options) * a, lambda: counted(a * a, **options) + t)


def in_both_branches(a, **options):
    """Of a loop; the boxes of the branch that is not taken are null."""

    def body(i, t):
        even = R.mod(i, R.const(2, "int64"))
        return (
            R.cond(
                R.equal(even, R.const(0, "int64")),
                lambda: R.tanh(grown(t, a, **options)),
                lambda: newton(t * t + a, **options) * number(0.3),
            ),
        )

    return R.fori_loop(4, body, (R.tanh(a),))[0]


def in_scan(a, **options):
    """Ys, and the other way round."""

    def body(h, x):
        u = grown(R.tanh(h * x), a, **options)
        return (R.sin(u) * a,), (u, h * x)

    rows = R.const(np.linspace(0.2, 0.9, 4)) * a
    (h,), (u, v) = R.scan(body, (a,), (rows,), reverse=True)
    return h + R.sum(R.sin(u) * v)


def in_scan_in_while(a, **options):
    def outer(t, n):
        def inner(h, x):
            return (R.tanh(grown(h * x, a, **options)),), (h,)

        rows = R.const(np.array([0.3, 0.6])) * t
        (h,), (seen,) = R.scan(inner, (t,), (rows,))
        return (h * number(0.5) + R.sum(seen) * number(0.2), n + R.const(1, "int64"))

    begin = (R.tanh(a), R.const(0, "int64"))
    return R.while_loop(lambda t, n: n < R.astype(a * number(2.0), "int64"), outer, begin, **options)[0]


def two_after_another(a, **options):
    """What the first one gives, the second one reads in each step."""
    b = grown(R.tanh(a), a, **options)
    return R.while_loop(lambda u: u < number(9.0), lambda u: (u * b * number(0.5) + a,), (R.tanh(b),), **options)[0]


def vectors(a, **options):
    """Carries of several shapes and dtypes, and one that does not move."""

    def body(x, m, n, flag):
        y = R.tanh(R.matmul(m, x) + R.where(flag, x, x * number(0.5)))
        return (y, m * number(0.9), n + R.const(1, "int32"), R.logical_not(flag))

    x = R.const(np.array([0.3, -0.7, 1.1])) * a
    m = R.const(np.array([[0.2, 0.5, -0.3], [0.1, -0.4, 0.8], [0.7, 0.3, 0.2]])) * R.sin(a)
    begin = (x, m, R.const(0, "int32"), a > number(1.0))
    found = R.while_loop(lambda x, m, n, flag: R.sum(x * x) > number(0.05), body, begin, **options)
    return R.sum(found[0] * R.const(np.array([1.0, 2.0, 3.0]))) + R.sum(found[1])


PROGRAMS = [
    newton, counted, adaptive, in_fori, in_while, in_branch, in_both_branches, in_scan, in_scan_in_while,
    two_after_another, vectors,
]  # fmt: skip
STARTS = [0.3, 1.3, 2.7]
each = pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)


def program(function, **options) -> IRModule:
    return build([tensor("a")], lambda a: function(a, **options))


def native(module: IRModule, name: str, *values):
    return [np.array(v.numpy()) for v in flat(pullback.compile(module).function(name)(*values))]


def twice(module: IRModule) -> IRModule:
    """``slope_adjoint`` is the gradient of the sine of ``main``'s gradient."""
    builder, params = BlockBuilder(gradient(module)), [tensor("a")]
    with builder.function("slope", params):
        _, found = builder.emit(builder.module.get_global_var("main_adjoint")(*params))
        builder.emit_func_output(builder.emit(R.sin(builder.emit(found[0]))))
    result = Gradient("slope", "a")(builder.get())
    check_well_formed(result)
    return result


@each
@pytest.mark.parametrize("a", STARTS)
def test_against_differences(function, a):
    module = program(function)
    (expected,) = check(module, [a], ["a"])
    found = native(gradient(module), "main_adjoint", np.array(a))
    np.testing.assert_allclose(found[0], evaluate(module, "main", [np.array(a)]), rtol=1e-12)
    np.testing.assert_allclose(found[1], expected, rtol=1e-9, atol=1e-12)


@each
def test_the_same_as_with_a_greatest_number_of_steps(function):
    open_ended, limited = (gradient(program(function, **options)) for options in ({}, {"max_steps": 50}))
    for a in STARTS:
        expected = flat(evaluate(limited, "main_adjoint", [np.array(a)]))
        np.testing.assert_allclose(
            flat(evaluate(open_ended, "main_adjoint", [np.array(a)])), expected, rtol=1e-12, atol=1e-12
        )


@each
@pytest.mark.parametrize("size", [1, 2, 7])
def test_segments(function, size):
    plain, cut = gradient(program(function)), gradient(program(function, checkpoint_every=size))
    for a in STARTS:
        expected = flat(evaluate(plain, "main_adjoint", [np.array(a)]))
        for found in (flat(evaluate(cut, "main_adjoint", [np.array(a)])), native(cut, "main_adjoint", np.array(a))):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@each
def test_the_second_derivative(function):
    module = twice(program(function))
    for a in STARTS:
        value, found = flat(evaluate(module, "slope_adjoint", [np.array(a)]))
        ends = [evaluate(module, "slope", [np.array(a + s)]) for s in (STEP, -STEP)]
        np.testing.assert_allclose(found, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-6)
        again = native(module, "slope_adjoint", np.array(a))
        np.testing.assert_allclose(again, [value, found], rtol=1e-8, atol=1e-11)


@each
def test_tangents_of_gradients(function):
    """Forward over reverse is reverse over reverse."""
    module = program(function)
    forward, reverse = JVP("main_adjoint")(gradient(module)), twice(module)
    check_well_formed(forward)
    for a in STARTS:
        _, slope, _, tangent = flat(evaluate(forward, "main_adjoint_jvp", [np.array(a), np.array(1.0)]))
        _, second = flat(evaluate(reverse, "slope_adjoint", [np.array(a)]))
        np.testing.assert_allclose(np.cos(slope) * tangent, second, rtol=1e-9, atol=1e-12)
        again = native(forward, "main_adjoint_jvp", np.array(a), np.array(1.0))
        np.testing.assert_allclose(again[3], tangent, rtol=1e-8, atol=1e-11)


def test_the_third_derivative():
    """Of the root: x = √a."""
    module, name = program(newton), "main"
    for order in range(3):
        module = Gradient(name, "a")(module)
        a, builder = tensor("a"), BlockBuilder(module)
        with builder.function(f"d{order}", [a]):
            _, found = builder.emit(builder.module.get_global_var(f"{name}_adjoint")(a))
            builder.emit_func_output(builder.emit(found[0]))
        module, name = builder.get(), f"d{order}"
    expected = [0.5 * 2.3**-0.5, -0.25 * 2.3**-1.5, 0.375 * 2.3**-2.5]
    for order, wanted in enumerate(expected):
        np.testing.assert_allclose(evaluate(module, f"d{order}", [np.array(2.3)]), wanted, rtol=1e-6)
        np.testing.assert_allclose(native(module, f"d{order}", np.array(2.3))[0], wanted, rtol=1e-6)


def test_against_pytorch():
    torch = pytest.importorskip("torch")

    def main(x, w):
        body = lambda y, n: (R.tanh(R.matmul(y, w)) + x, n + R.const(1, "int64"))  # noqa: E731
        y, n = R.while_loop(lambda y, n: R.max(y) < number(2.5), body, (x, R.const(0, "int64")))
        return R.sum(y * y) * R.astype(n, "float64")

    rng = np.random.default_rng(3)
    x, w = np.abs(rng.normal(size=(2, 3))) * 0.9, rng.normal(size=(3, 3))
    tx, tw = (torch.tensor(v, requires_grad=True) for v in (x, w))
    y, n = tx, 0
    while y.max() < 2.5:
        y, n = torch.tanh(y @ tw) + tx, n + 1
    (y * y).sum().mul(n).backward()
    assert n > 0
    module = gradient(build([tensor("x", 2, 3), tensor("w", 3, 3)], main))
    for found in (flat(evaluate(module, "main_adjoint", [x, w])), native(module, "main_adjoint", x, w)):
        np.testing.assert_allclose(found[1], tx.grad.numpy(), rtol=1e-10)
        np.testing.assert_allclose(found[2], tw.grad.numpy(), rtol=1e-10)


# -- what is made


def test_one_box_a_step_with_what_the_adjoint_reads():
    adjoint = gradient(program(newton))["main_adjoint"]
    forward, backward = loops(adjoint)
    assert [c.struct_info.dtype for c in forward.args[1].fields] == ["float64", "handle"]
    assert backward.attrs["reverse"] and backward.attrs["condition"] is None and backward.attrs["length"] is None
    assert ops(adjoint).count("box") == ops(adjoint).count("unbox") == 1


def test_nothing_is_boxed_where_nothing_is_read():
    """What is linear in the carries reads none of them."""
    module = build([tensor("a")], lambda a: R.while_loop(lambda t, n: n < R.const(5, "int64"),
                   lambda t, n: (t * number(0.5), n + R.const(1, "int64")), (a, R.const(0, "int64")))[0])  # fmt: skip
    adjoint = gradient(module)
    assert "box" not in ops(adjoint["main_adjoint"])
    check(module, [1.3], ["a"])


@each
def test_they_are_printed_and_read(function):
    round_trip(IRModule({"main_adjoint": gradient(program(function))["main_adjoint"]}))


def test_passes_keep_what_they_mean():
    module = twice(program(in_both_branches))
    expected = flat(evaluate(module, "slope_adjoint", [np.array(1.3)]))
    for passed in (CanonicalizeBindings(), Simplify(), SimplifyLoops(), LegalizeOps()):
        module = passed(module)
        check_well_formed(module)
        np.testing.assert_allclose(flat(evaluate(module, "slope_adjoint", [np.array(1.3)])), expected, rtol=1e-9)


def test_equal_loops_are_not_merged_before_they_are_differentiated_again():
    """Their boxes are unboxed by two adjoints, and adjoints of boxes cannot be added up."""

    def main(a):
        one, other = (R.while_loop(lambda x: x < number(5.0), lambda x: (x * x + a,), (a * number(0.9),))[0]
                      for _ in range(2))  # fmt: skip
        return R.sin(one) * R.exp(other * number(0.1))

    module = gradient(build([tensor("a")], main))
    merged = EliminateCommonSubexpr()(CanonicalizeBindings()(IRModule({"main_adjoint": module["main_adjoint"]})))
    assert ops(merged["main_adjoint"]).count("box") == 2
    found = []
    for each in (module, merged):
        builder, a = BlockBuilder(each), tensor("a")
        with builder.function("slope", [a]):
            _, slopes = builder.emit(builder.module.get_global_var("main_adjoint")(a))
            builder.emit_func_output(builder.emit(slopes[0]))
        second = Gradient("slope", "a")(builder.get())
        found.append(flat(evaluate(second, "slope_adjoint", [np.array(1.1)])))
        np.testing.assert_allclose(native(second, "slope_adjoint", np.array(1.1)), found[-1], rtol=1e-9)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


def test_symbolic_sizes():
    from pullback.tir.expr import Var as SizeVar

    n = SizeVar("n", "int64")

    def main(x):
        return R.sum(R.while_loop(lambda y: R.sum(y * y) > number(0.3), lambda y: (R.sin(y) * x,), (x,))[0])

    module = gradient(build([tensor("x", n)], main))
    second = Gradient("slope", "x")(_sum_of_gradient(module, tensor("x", n)))
    for size in (1, 4):
        x = np.linspace(0.4, 0.95, size)
        expected = flat(evaluate(module, "main_adjoint", [x]))
        for found, wanted in zip(native(module, "main_adjoint", x), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-10)
        expected = flat(evaluate(second, "slope_adjoint", [x]))
        for found, wanted in zip(native(second, "slope_adjoint", x), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


def _sum_of_gradient(module: IRModule, param: Var) -> IRModule:
    builder = BlockBuilder(module)
    with builder.function("slope", [param]):
        _, found = builder.emit(builder.module.get_global_var("main_adjoint")(param))
        builder.emit_func_output(builder.emit(R.sum(R.sin(builder.emit(found[0])))))
    return builder.get()


# -- errors


def test_a_root_of_an_unknown_number_is_refused():
    with pytest.raises(DifferentiationError, match=r"(?s)square root of the number of steps, which only running.*max_"):
        gradient(program(newton, checkpoint_every=True))


def test_adjoints_of_handles_are_not_added_up():
    def main(a):
        handle = R.box([R.sin(a)])
        info = (R.Tensor((), "float64"),)
        return R.unbox(handle, info)[0] * R.unbox(handle, info)[0]

    with pytest.raises(InternalError, match="unboxed twice"):
        gradient(build([tensor("a")], main))
