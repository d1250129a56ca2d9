"""Forward mode: tangents of all ops and of loops against numeric differences, and what cannot be had."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import pullback
from pullback.ir.errors import DifferentiationError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import assert_structural_equal
from pullback.ir.op import Op
from pullback.relax import BlockBuilder, Function, Tuple, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.control import loop
from pullback.relax.interpreter import evaluate
from pullback.relax.op import register_op
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform import JVP, DeadCodeElimination, Gradient, LegalizeOps
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.script import tir as T
from tests.relax.op.backends import call_of, to_numpy
from tests.relax.op.test_gradients import float_cases, outputs
from tests.relax.test_control import CASES, flat, half
from tests.samples import all_ops

STEP = 1e-5
CHOSEN_OTHERWISE = ("grad.no_grad",)  # their tangents are zeros, whatever they compute


def build(params, body) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(body(*params))
    return builder.get()


def tensor(name: str, *shape: int, dtype: str = "float64") -> Var:
    return Var(name, TensorStructInfo(shape, dtype))


def moved(values, directions, step):
    left = iter(directions)
    return [v + step * next(left) if v.dtype == np.float64 else v for v in values]


def numeric(module: IRModule, values, directions, name: str = "main"):
    """Derivatives of all results along the directions: central differences of fourth order."""
    at = {k: flat(evaluate(module, name, moved(values, directions, k * STEP))) for k in (-2, -1, 1, 2)}
    groups = zip(*(at[k] for k in (-2, -1, 1, 2)), strict=True)
    return [(np.asarray(a) - 8.0 * b + 8.0 * c - d) / (12 * STEP) for a, b, c, d in groups]


def assert_tangents(module: IRModule, values, seed: int = 0) -> IRModule:
    """The module with ``main_jvp``, whose tangents are the numeric ones and whose values are those of ``main``."""
    rng = np.random.default_rng(seed)
    directions = [rng.standard_normal(v.shape) for v in values if v.dtype == np.float64]
    result = JVP("main")(module)
    check_well_formed(result)
    got, tangents = evaluate(result, "main_jvp", [*values, *directions])
    for found, expected in zip(flat(got), flat(evaluate(module, "main", values)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for tangent, expected in zip(flat(tangents), numeric(module, values, directions), strict=True):
        scale = 1 + np.abs(expected).max(initial=0)
        np.testing.assert_allclose(tangent, expected, rtol=1e-6, atol=1e-6 * scale)
    return result


@pytest.mark.allowance(20)
@pytest.mark.parametrize("op", [op for op in all_ops() if float_cases(op)], ids=lambda op: op.short)
def test_tangents_of_all_ops(op: Op) -> None:
    """A rule has an op's forward mode in it; nothing is left of what it computes of an adjoint."""
    if op.short in CHOSEN_OTHERWISE:
        pytest.skip("its tangent is zero by choice")
    for case in float_cases(op):
        params, call = call_of(case)
        if not outputs(call):
            continue
        module = build(params, lambda *_, call=call: Tuple(tuple(outputs(call))))
        result = assert_tangents(module, case.args, zlib.crc32(case.id.encode()))
        whole = DeadCodeElimination()(result)["main_jvp"]
        assert len(list(whole.bindings)) == len(list(result["main_jvp"].bindings)), case.id


def test_the_text():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32")):
            with R.dataflow():
                h = R.matmul(x, w)
                y = R.tanh(h)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main_jvp(
            x: R.Tensor((4, 3), "float32"), w: R.Tensor((3, 2), "float32"), w_tangent: R.Tensor((3, 2), "float32")
        ):
            with R.dataflow():
                h = R.matmul(x, w)
                h_tangent = R.matmul(x, w_tangent)
                y = R.tanh(h)
                lv = R.multiply(y, y)
                lv1 = R.subtract(R.const(1.0, "float32"), lv)
                y_tangent = R.multiply(h_tangent, lv1)
                y_1 = y
                y_tangent_1 = y_tangent
                R.output(y_1, y_tangent_1)
            return (y_1, y_tangent_1)

    found = JVP("main", "w")(Module)
    assert_structural_equal(found["main_jvp"], Expected["main_jvp"])


def test_native_code_agrees_and_a_mean_keeps_its_precision():
    params = [tensor("x", 5, 4, dtype="float32"), tensor("w", 4, 3, dtype="float32")]
    module = JVP("main")(build(params, lambda x, w: R.mean(R.nn.log_softmax(R.nn.gelu(x @ w)))))
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(p.struct_info.shape).astype("float32") for p in (*params, *params)]
    native = to_numpy(pullback.compile(module).function("main_jvp")(*values))
    for found, expected in zip(native, evaluate(module, "main_jvp", values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# -- results and parameters


def test_what_does_not_move_has_zero_tangents_and_integers_have_zeros():
    module = build(
        [tensor("x", 3), tensor("k", 3, dtype="int64")], lambda x, k: (R.argmax(x, axis=0), R.stop_gradient(x), k, x)
    )
    values = [np.array([0.5, 2.0, 1.0]), np.arange(3), np.ones(3)]
    _, tangents = evaluate(JVP("main")(module), "main_jvp", values)
    assert [t.dtype.name for t in tangents] == ["int64", "float64", "int64", "float64"]
    for tangent in tangents[:3]:
        assert not tangent.any()
    np.testing.assert_array_equal(tangents[3], np.ones(3))


def test_tuples_have_tuples_of_tangents():
    @I.ir_module
    class Module:
        @R.function
        def main(
            p: R.Tuple(R.Tensor((2,), "float64"), R.Tuple(R.Tensor((2,), "float64"))), x: R.Tensor((2,), "float64")
        ):
            y = p[0] * p[1][0] * x
            return (y, (p[0],))

    module = JVP("main", "p")(Module)
    a, b, x = np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([0.5, 7.0])
    _, tangents = evaluate(module, "main_jvp", [(a, (b,)), x, (np.ones(2), (2 * np.ones(2),))])
    np.testing.assert_allclose(tangents[0], (b + 2 * a) * x)
    np.testing.assert_array_equal(tangents[1][0], np.ones(2))


@pytest.mark.parametrize("value", [0.0, -1.0, 2.0])
def test_what_was_not_taken_does_not_move(value):
    """A zero of a value that is not taken meets an infinite derivative, before or after the choice."""

    def body(x):
        before = R.where(x > half(0.0), R.log(x), x)
        after = R.sqrt(R.where(x > half(0.0), x, half(0.0)))
        return (before, after)

    module = JVP("main")(build([tensor("x")], body))
    _, (before, after) = evaluate(module, "main_jvp", [np.array(value), np.array(1.0)])
    np.testing.assert_allclose(before, 1 / value if value > 0 else 1.0)
    np.testing.assert_allclose(after, 0.5 / np.sqrt(value) if value > 0 else 0.0)


def test_calls_of_other_functions_and_symbolic_sizes():
    @I.ir_module
    class Module:
        @R.function
        def twice(x: R.Tensor(("n",), "float64")) -> R.Tensor(("n",), "float64"):
            return x * R.const(2.0, "float64")

        @R.function
        def main(x: R.Tensor(("m",), "float64")) -> R.Tensor((), "float64"):
            cls = Module
            y = cls.twice(x)
            return R.sum(R.exp(y))

    module = JVP("main")(Module)
    x, v = np.array([0.1, 0.2, 0.3]), np.array([1.0, 0.0, 2.0])
    for target in ("debug", "llvm"):
        value, tangent = pullback.compile(module, target).function("main_jvp")(x, v)
        np.testing.assert_allclose(value.numpy(), np.exp(2 * x).sum())
        np.testing.assert_allclose(tangent.numpy(), (2 * np.exp(2 * x) * v).sum())


# -- second order


def test_the_tangent_of_a_gradient_is_the_gradient_of_a_tangent():
    """Hessian times vector, forward over reverse and reverse over forward."""
    x, w = tensor("x", 4, 3), tensor("w", 3)

    def loss(x, w):
        return R.logsumexp(R.tanh(x @ w) * R.square(x @ w))

    rng = np.random.default_rng(4)
    values = [rng.standard_normal((4, 3)), rng.standard_normal(3)]
    vector = rng.standard_normal(3)
    module = build([x, w], loss)
    forward = JVP("main_adjoint", "w")(Gradient("main", "w")(module))
    _, (_, (product,)) = evaluate(forward, "main_adjoint_jvp", [*values, vector])

    inner = JVP("main", "w")(module)
    reverse = Gradient("main_jvp", "w", target_index=1)(inner)
    _, (other,) = evaluate(reverse, "main_jvp_adjoint", [*values, vector])
    np.testing.assert_allclose(product, other, rtol=1e-10)

    def gradient(weights):
        return evaluate(forward, "main_adjoint", [values[0], weights])[1][0]

    expected = (gradient(values[1] + STEP * vector) - gradient(values[1] - STEP * vector)) / (2 * STEP)
    np.testing.assert_allclose(product, expected, rtol=1e-6)


# -- kernels


@I.ir_module
class Kernels:
    @T.prim_func
    def cube(x: T.Buffer((4,), "float64"), y: T.Buffer((4,), "float64")):
        for i in range(4):
            y[i] = x[i] * x[i] * x[i]

    @R.function
    def main(x: R.Tensor((4,), "float64")) -> R.Tensor((4,), "float64"):
        cls = Kernels
        y = R.call_tir(cls.cube, (R.sin(x),), R.Tensor((4,), "float64"))
        return y


def test_kernels_by_the_adjoint_of_their_adjoint():
    x, v = np.linspace(-1, 2, 4), np.array([1.0, -2.0, 0.5, 3.0])
    module = JVP("main")(Kernels)
    for target in ("debug", "llvm"):
        _, tangent = pullback.compile(module, target).function("main_jvp")(x, v)
        np.testing.assert_allclose(tangent.numpy(), 3 * np.sin(x) ** 2 * np.cos(x) * v, rtol=1e-9)


def test_a_legalised_op_has_the_derivative_of_the_op():
    module = build([tensor("x", 3)], lambda x: R.exp(x) * x)
    x, v = np.array([0.1, 0.2, 0.3]), np.ones(3)
    for given in (module, LegalizeOps()(module)):
        _, tangent = evaluate(JVP("main")(given), "main_jvp", [x, v])
        np.testing.assert_allclose(tangent, np.exp(x) * (x + 1))


def test_what_has_no_derivative_is_listed_with_its_places():
    @I.ir_module
    class Module:
        @T.prim_func
        def ragged(x: T.Buffer((4,), "float64"), n: T.Buffer((1,), "int64"), y: T.Buffer((1,), "float64")):
            y[0] = T.float64(0)
            for i in range(n[0]):
                y[0] = y[0] * x[i] + x[i] * y[0] * y[0]

        @R.function
        def main(x: R.Tensor((4,), "float64"), n: R.Tensor((1,), "int64")):
            cls = Module
            a = R.call_tir(cls.ragged, (x, n), R.Tensor((1,), "float64"))
            b = R.call_tir(cls.ragged, (x * x, n), R.Tensor((1,), "float64"))
            return a + b

    with pytest.raises(DifferentiationError) as caught:
        JVP("main")(Module)
    assert caught.value.message.startswith("these ops have no derivative:")
    assert caught.value.message.count("call_tir at") == 2


def test_errors():
    module = build([tensor("x", 3), tensor("k", dtype="int64")], lambda x, k: x)
    with pytest.raises(DifferentiationError, match="k of main cannot be taken"):
        JVP("main", "k")(module)
    with pytest.raises(DifferentiationError, match="z is not a parameter of main"):
        JVP("main", ["z"])(module)
    with pytest.raises(DifferentiationError, match="kernel of the loop IR"):
        JVP("cube")(Kernels)
    with pytest.raises(UserError, match="draws random numbers"):
        JVP("main")(build([tensor("x", 3)], lambda x: R.nn.dropout(x)))


def test_an_op_of_the_users_own():
    name = "own.jvp_test_cube"
    if Op.find(f"relax.{name}") is None:

        @register_op(name, samples=[(3,)])
        def cube(x):
            """x³."""
            return pullback.te.compute(x.shape, lambda *i: x[i] * x[i] * x[i])

    try:
        module = JVP("main")(build([tensor("x", 3)], lambda x: Op.get(name)(x)))
        x, v = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.5, -1.0])
        np.testing.assert_allclose(evaluate(module, "main_jvp", [x, v])[1], 3 * x * x * v)
    finally:
        del Op.registry[f"relax.{name}"]


# -- control flow


@pytest.mark.parametrize("a", [0.35, 1.7, 4.0])
@pytest.mark.parametrize("name", CASES)
def test_loops_and_branches(name, a):
    module = build([tensor("a")], CASES[name][0])
    assert_tangents(module, [np.array(a)])


def region(body, *infos) -> Function:
    params = [Var(f"p{k}", i) for k, i in enumerate(infos)]
    builder = BlockBuilder()
    builder.begin([p.name for p in params])
    return Function(tuple(params), builder.finish(body(*params)))


SCALAR, STEP_INFO = TensorStructInfo((), "float64"), TensorStructInfo((), "int64")


@pytest.mark.parametrize("reverse", [False, True])
def test_a_loop_with_everything(reverse):
    """Carries that move from the beginning, that come to move, that do not; rows, invariants, ys of ints."""

    def step(k, c, d, n, x, w):
        number = R.astype(k, "float64")
        return Tuple((Tuple((c * w + x, d + c, n + k)), Tuple((d * number, n))))

    body = region(step, STEP_INFO, SCALAR, SCALAR, STEP_INFO, SCALAR, SCALAR)
    params = [tensor("count", dtype="int64"), tensor("c"), tensor("x", 5), tensor("w")]

    def main(count, c, x, w):
        return loop(count, (c, half(0.0), R.const(0)), (x,), (w,), body, None, 5, reverse)

    values = [np.array(3), np.array(0.7), np.linspace(-1, 1, 5), np.array(1.3)]
    result = assert_tangents(build(params, main), values)
    (looped,) = [b.value for b in result["main_jvp"].bindings if getattr(b.value, "op", None) is Op.get("loop")]
    assert len(looped.args[1].fields) == 5  # the count does not move: three carries and two tangents
    only = JVP("main", "w")(build(params, main))
    check_well_formed(only)
    _, tangents = evaluate(only, "main_jvp", [*values, np.array(1.0)])
    directions = [np.zeros(()), np.zeros(5), np.ones(())]
    for found, expected in zip(flat(tangents), numeric(build(params, main), values, directions), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_a_condition_that_moves_chooses_and_a_loop_ends_as_it_did():
    def main(a):
        (x,) = R.while_loop(lambda x: x < half(10.0), lambda x: (x * a + half(1.0),), (a,))
        return R.cond(x > half(12.0), lambda: x * a, lambda: a)

    for a in (1.5, 2.0, 2.9):
        assert_tangents(build([tensor("a")], main), [np.array(a)])
