"""Derivatives of recursive functions: against numeric differences of what Python computes, and of one another."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir.errors import DifferentiationError
from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.block_builder import current_builder
from pullback.relax.boxes import BOX
from pullback.relax.expr import VarBinding
from pullback.relax.interpreter import evaluate
from pullback.relax.recursion import RECURSE
from pullback.relax.regions import regions
from pullback.relax.struct_info import FuncStructInfo, TensorStructInfo
from pullback.relax.transform import JVP, Gradient, VMap
from pullback.relax.transform.inline_functions import inline_calls
from pullback.script import ir as I
from pullback.script import relax as R
from tests.relax.recursive_programs import PROGRAMS, Program
from tests.relax.transform.test_control_gradient import with_kernel

COUNT = TensorStructInfo((), "int64")
X = np.array([0.3, -0.8, 0.5, 1.1])
STEP = 1e-6
every = pytest.mark.parametrize("name", PROGRAMS)


def differences(function, arguments: list[np.ndarray], number: int) -> np.ndarray:
    """The derivative with respect to each element of an argument, by central differences."""
    result = np.zeros_like(arguments[number])
    for index in np.ndindex(result.shape):
        ends = []
        for sign in (1, -1):
            moved = [np.array(a) for a in arguments]
            moved[number][index] += sign * STEP
            ends.append(float(function(*moved)))
        result[index] = (ends[0] - ends[1]) / (2 * STEP)
    return result


def python(program: Program):
    """The program's Python function, of arrays."""
    return lambda *given: program.function(*(g if g.shape else g.item() for g in map(np.asarray, given)))


def run(module: IRModule, name: str, arguments: list[np.ndarray], native: bool):
    if not native:
        return evaluate(module, name, arguments)
    return numpy(pullback.compile(module).function(name)(*arguments))


def numpy(value):
    return tuple(map(numpy, value)) if isinstance(value, (tuple, list)) else np.array(value.numpy())


@every
@pytest.mark.parametrize("native", [False, True])
def test_gradients(name, native):
    program = PROGRAMS[name]
    adjoint = Gradient("main", require_grads=program.active)(program.module)
    check_well_formed(adjoint)
    value, gradients = run(adjoint, "main_adjoint", program.given, native)
    np.testing.assert_allclose(value, python(program)(*program.given), rtol=1e-12)
    for k, found in enumerate(gradients):
        np.testing.assert_allclose(found, differences(python(program), program.given, k), rtol=1e-6, atol=1e-8)


def slope(program: Program) -> IRModule:
    """A module with ``slope``, which is the sum of sines of the gradient."""
    adjoint = Gradient("main", require_grads=program.active)(program.module)
    builder = BlockBuilder(adjoint)
    params = [Var(p.name, p.struct_info) for p in adjoint["main_adjoint"].params]
    with builder.function("slope", params):
        whole = builder.emit(builder.module.get_global_var("main_adjoint")(*params))
        parts = [builder.emit(R.sum(R.sin(whole[1][k]))) for k in range(len(program.active))]
        total = parts[0]
        for part in parts[1:]:
            total = builder.emit(total + part)
        builder.emit_func_output(total)
    return builder.get()


@every
@pytest.mark.parametrize("native", [False, True])
def test_second_order(name, native):
    program = PROGRAMS[name]
    first = slope(program)
    twice = Gradient("slope", require_grads=program.active)(first)
    check_well_formed(twice)
    _, gradients = run(twice, "slope_adjoint", program.given, native)

    def sines(*arguments):
        return sum(np.sin(differences(python(program), list(arguments), k)).sum() for k in range(len(gradients)))

    def exact(*arguments):
        return evaluate(first, "slope", list(arguments))

    np.testing.assert_allclose(exact(*program.given), sines(*program.given), rtol=1e-5, atol=1e-6)
    for k, found in enumerate(gradients):
        np.testing.assert_allclose(found, differences(exact, program.given, k), rtol=1e-5, atol=1e-7)


@every
@pytest.mark.parametrize("native", [False, True])
def test_tangents(name, native):
    """Forward mode against reverse mode."""
    program = PROGRAMS[name]
    rng = np.random.default_rng(3)
    module = Gradient("main", require_grads=program.active)(JVP("main", params=program.active)(program.module))
    check_well_formed(module)
    directions = [rng.normal(size=a.shape) for a in program.given[: len(program.active)]]
    value, tangent = run(module, "main_jvp", [*program.given, *directions], native)
    np.testing.assert_allclose(value, python(program)(*program.given), rtol=1e-12)
    _, gradients = evaluate(module, "main_adjoint", program.given)
    wanted = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(tangent, wanted, rtol=1e-10)


@pytest.mark.parametrize("name", ["factorial", "fibonacci", "tree", "higher"])
def test_tangents_of_gradients(name):
    """Forward over reverse: a row of the Hessian, against differences of gradients."""
    program = PROGRAMS[name]
    adjoint = Gradient("main", require_grads=program.active)(program.module)
    module = JVP("main_adjoint", params=program.active)(adjoint)
    rng = np.random.default_rng(3)
    directions = [rng.normal(size=a.shape) for a in program.given[: len(program.active)]]
    found = run(module, "main_adjoint_jvp", [*program.given, *directions], True)[1][1]

    def gradient(step: float):
        moved = [a + step * d for a, d in zip(program.given, directions, strict=False)]
        return evaluate(adjoint, "main_adjoint", [*moved, *program.given[len(moved) :]])[1]

    for mine, ahead, behind in zip(found, gradient(STEP), gradient(-STEP), strict=True):
        np.testing.assert_allclose(mine, (ahead - behind) / (2 * STEP), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["factorial", "fibonacci", "mutual", "loops", "higher"])
@pytest.mark.parametrize("native", [False, True])
def test_batches(name, native):
    """Elements that end at different depths, and such that do not."""
    program = PROGRAMS[name]
    rng = np.random.default_rng(5)
    given = program.given
    axes = tuple(0 for _ in given)
    several = [
        np.stack([a + (rng.normal(size=a.shape) if a.dtype == float else k % 3) for k in range(4)]) for a in given
    ]
    module = VMap("main", axes)(program.module)
    check_well_formed(module)
    wanted = [python(program)(*(s[k] for s in several)) for k in range(4)]
    np.testing.assert_allclose(run(module, "main_vmap", several, native), wanted, rtol=1e-10)
    if given[-1].dtype == np.int64:  # the same depth for all
        module = VMap("main", (*axes[:-1], None))(program.module)
        wanted = [python(program)(*(s[k] for s in several[:-1]), given[-1]) for k in range(4)]
        found = run(module, "main_vmap", [*several[:-1], given[-1]], native)
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


@I.ir_module
class Once:
    """Calls that would not end for an element that does not make them: in a loop of no step, and in a branch."""

    @R.function
    def main(x: R.Tensor((), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        def f(x: R.Tensor((), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
            y = x
            n = k
            while R.not_equal(n, 0):
                y = y * f(x + R.const(1.0, "float64"), k - 1)
                n = R.const(0)
            return y

        if k > 0:
            z = f(x, k) - x
        else:
            z = x
        total = z
        for _ in R.range(k, max_steps=10):
            total = total + f(x, k)
        return total


def once(x, k):
    def f(x, k):
        return x * f(x + 1.0, k - 1) if k != 0 else x

    return (f(x, k) - x if k > 0 else x) + max(0, k) * f(x, abs(k))


@pytest.mark.parametrize("native", [False, True])
def test_elements_that_do_not_call(native):
    module = VMap("main", (0, 0))(Once)
    check_well_formed(module)
    xs, counts = np.array([0.5, 1.5, 2.5, 3.5]), np.array([2, -1, 0, 3])
    wanted = [once(x, k) for x, k in zip(xs, counts, strict=True)]
    np.testing.assert_allclose(run(module, "main_vmap", [xs, counts], native), wanted, rtol=1e-12)


def test_gradients_of_batches():
    program = PROGRAMS["fibonacci"]
    module = VMap("main", (0, 0))(program.module)
    builder = BlockBuilder(module)
    params = [Var(p.name, p.struct_info) for p in module["main_vmap"].params]
    with builder.function("total", params):
        builder.emit_func_output(builder.emit(R.sum(builder.module.get_global_var("main_vmap")(*params))))
    adjoint = Gradient("total", require_grads=["x"])(builder.get())
    xs, counts = np.random.default_rng(0).normal(size=(4, 2)), np.array([1, 5, 0, 3])
    _, (found,) = run(adjoint, "total_adjoint", [xs, counts], True)
    for x, n, mine in zip(xs, counts, found, strict=True):
        np.testing.assert_allclose(mine, differences(python(program), [x, n], 0), rtol=1e-6, atol=1e-8)


@I.ir_module
class Symbolic:
    """Sizes that are known when it runs, of a function inside and of one that is called with two of them."""

    @R.function
    def g(x: R.Tensor(("m",), "float64"), k: R.Tensor((), "int64")) -> R.Tensor(("m",), "float64"):
        if k > 0:
            y = R.sin(Symbolic.g(x * x, k - 1)) + x
        else:
            y = x
        return y

    @R.function
    def main(x: R.Tensor(("n",), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        def f(k: R.Tensor((), "int64"), x: R.Tensor(("n",), "float64")) -> R.Tensor(("n",), "float64"):
            if k > 0:
                y = R.tanh(f(k - 1, x) * x) + Symbolic.g(x, k)
            else:
                y = x
            return y

        return R.sum(f(k, x)) + R.sum(Symbolic.g(R.concat([x, x], axis=0), k))


def symbolic(x, k):
    def g(x, k):
        return np.sin(g(x * x, k - 1)) + x if k > 0 else x

    def f(k, x):
        return np.tanh(f(k - 1, x) * x) + g(x, k) if k > 0 else x

    return f(k, x).sum() + g(np.concatenate([x, x]), k).sum()


def test_symbolic_sizes():
    adjoint = Gradient("main", require_grads=["x"])(Symbolic)
    check_well_formed(adjoint)
    native = pullback.compile(adjoint).function("main_adjoint")
    for size in (2, 3, 2):
        given = [np.linspace(0.1, 0.9, size), np.array(3)]
        value, (found,) = numpy(native(*given))
        np.testing.assert_allclose(value, symbolic(*given), rtol=1e-12)
        np.testing.assert_allclose(found, differences(symbolic, given, 0), rtol=1e-6)


@I.ir_module
class Named:
    """A function inside has the name of that around it."""

    @R.function
    def f(x: R.Tensor((), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        def f(x: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
            if n > 0:
                y = x * f(R.sin(x), n - 1)
            else:
                y = x
            return y

        if k > 0:
            z = f(x, k) + Named.f(x * R.const(0.9, "float64"), k - 1)
        else:
            z = x
        return z


def test_functions_of_one_name():
    """Inside of one another; then the adjoint, which has both, in a third one of that name."""

    def f(x, k):
        def inner(x, n):
            return x * inner(np.sin(x), n - 1) if n > 0 else x

        return inner(x, k) + f(x * 0.9, k - 1) if k > 0 else x

    adjoint = Gradient("f", require_grads=["x"])(Named)
    check_well_formed(adjoint)
    given = [np.array(0.7), np.array(3)]
    value, (slope,) = run(adjoint, "f_adjoint", given, True)
    np.testing.assert_allclose(value, f(*given), rtol=1e-12)
    np.testing.assert_allclose(slope, differences(f, given, 0), rtol=1e-6)

    builder = BlockBuilder(adjoint)
    params = [Var(p.name, p.struct_info) for p in adjoint["f_adjoint"].params]
    infos = [p.struct_info for p in params]
    with builder.function("main", params):
        inner, factor = builder.module.get_global_var("f_adjoint"), R.const(0.9, "float64")
        f_of_slopes = R.recursive(
            lambda f, x, k: R.cond(k > 0, lambda: inner(x, k)[1][0] * f(x * factor, k - 1), lambda: x), infos, infos[0]
        )
        builder.emit_func_output(builder.emit(f_of_slopes(*params)))
    module = builder.get()
    twice = Gradient("main", require_grads=["x"])(module)
    check_well_formed(twice)
    _, (found,) = run(twice, "main_adjoint", given, True)
    wanted = differences(lambda *given: evaluate(module, "main", list(given)), given, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# -- what is kept


def boxes(function) -> list[list[str]]:
    """The types of what each box of a closed function holds."""
    found = []
    for binding in function.bindings:
        value = binding.value
        if getattr(value, "op", None) is BOX:
            found.append(sorted(str(a.struct_info) for a in value.args))
        for _, region in regions(value):
            found += boxes(region)
    return found


def test_what_all_calls_hand_on_is_not_kept():
    """The weights are read by each call of the adjoint, and are in no box."""
    program = PROGRAMS["tree"]
    closed = inline_calls(Gradient("main", require_grads=program.active)(program.module)["main_adjoint"], IRModule())
    found = [info for box in boxes(closed) for info in box]
    assert found
    assert "Tensor((3, 3), float64)" not in found
    assert "Tensor((7, 3), float64)" not in found


def test_without_what_moves_there_is_no_adjoint():
    """The gradient with respect to what the recursion does not read."""

    @I.ir_module
    class Beside:
        @R.function
        def main(x: R.Tensor((), "float64"), w: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor(
            (), "float64"
        ):
            def f(k: R.Tensor((), "int64"), x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
                if k > 0:
                    y = x * f(k - 1, x)
                else:
                    y = x
                return y

            return f(n, x) * w

    adjoint = Gradient("main", require_grads=["w"])(Beside)
    closed = inline_calls(adjoint["main_adjoint"], adjoint)
    assert not boxes(closed)
    assert sum(getattr(b.value, "op", None) is RECURSE for b in closed.bindings) == 1
    _, (found,) = evaluate(adjoint, "main_adjoint", [np.array(1.5), np.array(2.0), np.array(3)])
    assert found == 1.5**4


def test_values_that_were_not_taken():
    """Zeros that stand for a call that was not made meet no infinite derivative."""

    @I.ir_module
    class Root:
        @R.function
        def main(x: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
            def f(k: R.Tensor((), "int64"), x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
                if k > 0:
                    a = f(k - 1, x)
                    y = R.where(a > R.const(0.0, "float64"), R.sqrt(a), a)
                else:
                    y = x
                return y

            return f(n, x)

    @I.ir_module
    class Chosen:
        """The whole was not taken."""

        @R.function
        def main(x: R.Tensor((), "float64"), n: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
            def f(k: R.Tensor((), "int64"), x: R.Tensor((), "float64")) -> R.Tensor((), "float64"):
                if k > 0:
                    y = R.sqrt(f(k - 1, x))
                else:
                    y = x
                return y

            return R.where(x > R.const(0.0, "float64"), f(n, x), x)

    for module in (Root, Chosen):
        adjoint = Gradient("main", require_grads=["x"])(module)
        for native in (False, True):
            for x, wanted in ((0.0, 1.0), (4.0, 0.25 * 2**-0.5 / 2)):
                _, (found,) = run(adjoint, "main_adjoint", [np.array(x), np.array(2)], native)
                np.testing.assert_allclose(found, wanted)


def test_ops_without_gradient_are_listed():
    """Those in the recursive function where something moves, once for all calls."""

    def body(kernel, x, c):
        one = R.const(1, "int64")
        itself = Var("f", FuncStructInfo((COUNT, x.struct_info), x.struct_info))
        call = lambda n, x: R.cond(n < one, lambda: x + kernel(c), lambda: kernel(itself(n - one, x)) * x)  # noqa: E731
        builder, params = current_builder(), [Var("n", COUNT), Var("y", x.struct_info)]
        builder.emit_binding(VarBinding(itself, builder.traced(call, params)))
        return R.sum(itself(R.const(3, "int64"), x))

    with pytest.raises(DifferentiationError, match="these ops have no gradient") as caught:
        Gradient("main", require_grads=["x"])(with_kernel("twice", body))
    assert len([line for line in str(caught.value).splitlines() if line.startswith("  call_tir")]) == 1
    value, gradients = run(
        Gradient("main", require_grads=["x"])(with_kernel("square", body)), "main_adjoint", [X, X[::-1].copy()], True
    )
    square = lambda x: x * x  # noqa: E731

    def python(n, x, c):
        return x + square(c) if n < 1 else square(python(n - 1, x, c)) * x

    np.testing.assert_allclose(value, python(3, X, X[::-1]).sum(), rtol=1e-12)
    wanted = differences(lambda x: python(3, x, X[::-1]).sum(), [X], 0)
    np.testing.assert_allclose(gradients[0], wanted, rtol=1e-6)
