"""Recursive functions in native code: what they compute, what stops them, and the memory that they take."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

import pullback
from pullback.codegen import compile_object, emit_library
from pullback.driver.pipeline import lower_function, plan_function, prepare
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.node import structural_equal
from pullback.relax.interpreter import evaluate
from pullback.relax.recursion import MAX_DEPTH
from pullback.relax.transform import Gradient
from pullback.relax.transform.memory.recursion import STACK_BYTES
from pullback.relax.transform.verify_plan import PlanError, verify_plan
from pullback.runtime import allocated_bytes, get_num_threads, peak_bytes, set_num_threads
from pullback.script import from_source
from pullback.script import ir as I
from pullback.script import relax as R
from pullback.target import Target
from pullback.tir import interpreter as tir_interpreter
from tests.relax.recursive_programs import PROGRAMS


@I.ir_module
class Sines:
    """So many sines of one another; of the gradient, a box for each."""

    @R.function
    def f(x: R.Tensor((3,), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((3,), "float64"):
        if k > 0:
            y = R.sin(Sines.f(x * R.const(0.999, "float64"), k - 1)) + x
        else:
            y = x
        return y

    @R.function
    def main(x: R.Tensor((3,), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        return R.sum(Sines.f(x, k))


@I.ir_module
class Network:
    """A tree of products of matrices that are large enough to be divided among threads."""

    @R.function
    def main(x: R.Tensor((64, 96), "float32"), w: R.Tensor((96, 96), "float32"), n: R.Tensor((), "int64")) -> R.Tensor(
        (), "float32"
    ):
        def f(k: R.Tensor((), "int64"), x: R.Tensor((64, 96), "float32")) -> R.Tensor((64, 96), "float32"):
            if k > 0:
                a = f(k - 1, R.tanh(R.matmul(x, w)))
                b = f(k - 2, x * 0.5)
                y = R.tanh(R.matmul(a + b, w)) + x
            else:
                y = R.nn.softmax(x)
            return y

        return R.mean(f(n, x))


@I.ir_module
class Table:
    """Constants in the function, in a branch and in a loop of it, one of them twice."""

    @R.function
    def main(x: R.Tensor((4,), "float32"), n: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
        def f(k: R.Tensor((), "int64"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            y = R.matmul(x, R.const(np.arange(16, dtype="float32").reshape(4, 4) * 0.05))
            if k > 0:
                z = y * R.const([0.1, 0.2, 0.3, 0.4], "float32")
                for _ in R.range(2):
                    z = R.tanh(z + f(k - 1, z) * R.const([1.0, 2.0, 3.0, 4.0], "float32"))
                y = z + f(k - 2, y) + R.matmul(z, R.const(np.arange(16, dtype="float32").reshape(4, 4) * 0.05))
            return y

        return f(n, x)


def adjoint(name: str) -> IRModule:
    program = PROGRAMS[name]
    return Gradient("main", require_grads=program.active)(program.module)


def numpy(value):
    return tuple(map(numpy, value)) if isinstance(value, (tuple, list)) else np.array(value.numpy())


def flat(value) -> list:
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, (tuple, list)) else [value]


def run(module: IRModule, name: str, arguments) -> list[np.ndarray]:
    return flat(numpy(pullback.compile(module).function(name)(*arguments)))


def equal(found, wanted) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


# -- what they compute


@pytest.mark.parametrize("name", PROGRAMS)
def test_poisoned(name, monkeypatch):
    plain = run(adjoint(name), "main_adjoint", PROGRAMS[name].given)
    monkeypatch.setenv("PULLBACK_POISON", "1")
    equal(run(adjoint(name), "main_adjoint", PROGRAMS[name].given), plain)


def test_any_number_of_threads():
    module = Gradient("main", require_grads=["x", "w"])(Network)
    rng = np.random.default_rng(0)
    given = [rng.normal(size=s).astype("float32") * 0.1 for s in ((64, 96), (96, 96))] + [np.array(5)]
    before, results = get_num_threads(), []
    native = pullback.compile(module).function("main_adjoint")
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            results.append(flat(numpy(native(*given))))
    finally:
        set_num_threads(before)
    for other in results[1:]:
        equal(other, results[0])
    for mine, wanted in zip(results[0], flat(evaluate(module, "main_adjoint", given)), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_host_functions_are_interpreted(name):
    """The loop IR's interpreter runs the host functions, and gives what native code does; the plans are proven with all
    that kernels do in place."""
    module, target = adjoint(name), Target("llvm")
    lowered, donate = lower_function(prepare(module), "main_adjoint", {}, target)
    plan = plan_function(prepare(module), "main_adjoint", {}, target)
    verify_plan(plan, lowered["main_adjoint"], lowered, donate, deep=True)
    given = [*PROGRAMS[name].given, *plan.constants]
    fresh = [np.full(b.shape, 77).astype(b.dtype) for b in plan.host.buffers[len(given) :]]
    assert tir_interpreter.run(plan.host, [*given, *fresh], plan.functions) == 0
    wanted = flat(evaluate(module, "main_adjoint", PROGRAMS[name].given))
    for a, b in zip(fresh, wanted, strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-9, atol=1e-11)


def test_constants():
    x, n = np.array([0.3, -0.1, 0.2, 0.7], "float32"), np.array(4)

    def f(k, x):
        table = np.arange(16).reshape(4, 4) * 0.05
        y = x @ table
        if k <= 0:
            return y
        z = y * [0.1, 0.2, 0.3, 0.4]
        for _ in range(2):
            z = np.tanh(z + f(k - 1, z) * [1.0, 2.0, 3.0, 4.0])
        return z + f(k - 2, y) + z @ table

    (found,) = run(Table, "main", [x, n])
    np.testing.assert_allclose(found, f(4, x.astype("float64")), rtol=1e-5)
    plan = plan_function(prepare(Table), "main", {}, Target("llvm"))
    (recursion,) = plan.controls.values()
    assert len({c.tobytes() for c in recursion.constants}) == len(recursion.constants) >= 3


def test_libraries_of_several_functions():
    """Host functions that functions of a library call are theirs alone, though all have the same names."""
    target = Target("llvm")
    plans = [plan_function(prepare(adjoint(n)), "main_adjoint", {}, target) for n in ("factorial", "tree")]
    hosts = {f"f__{k}": (p.host, p.kernels, p.inner) for k, p in enumerate(plans)}
    assert len(compile_object(emit_library(hosts, target), target)) > 1000


def test_profiles():
    """What a recursive function takes depends on values."""
    report = pullback.compile(PROGRAMS["fibonacci"].module)["main"].profile(*PROGRAMS["fibonacci"].given)
    assert [k.flops for k in report.calls if "recurse" in k.name] == [None]


def test_host_functions_are_printed():
    plan = plan_function(prepare(PROGRAMS["factorial"].module), "main", {}, Target("llvm"))
    text = plan.inner["recurse_1"].script()
    assert "T.recur(" in text
    assert '"recurse_1_function", operand, result, heap, heap=heap, nbytes=' in text
    assert structural_equal(from_source(text), plan.inner["recurse_1"])


# -- what stops them


def test_calls_inside_of_one_another():
    """As many as are allowed; one more is a status, and the process goes on."""
    native = pullback.compile(Gradient("main", require_grads=["x"])(Sines)).function("main_adjoint")
    x = np.array([0.1, 0.2, 0.3])

    def python(k):
        y = x * 0.999**k
        for j in reversed(range(k)):
            y = np.sin(y) + x * 0.999**j
        return y.sum()

    native(x, np.array(1))
    held = allocated_bytes()  # with the function's own arena
    np.testing.assert_allclose(native(x, np.array(MAX_DEPTH - 1))[0].numpy(), python(MAX_DEPTH - 1))
    for k in (MAX_DEPTH, 10**12):
        with pytest.raises(
            ArgumentError, match=f"the recursion of f did not end within max_depth={MAX_DEPTH}"
        ) as caught:
            native(x, np.array(k))
        assert "test_recursion_native.py" in str(caught.value)
        assert "R.sum(Sines.f(x, k))" in str(caught.value)
    np.testing.assert_allclose(native(x, np.array(10))[0].numpy(), python(10))
    assert allocated_bytes() == held


def test_calls_one_after_another():
    """Far more than may be inside of one another."""
    program = PROGRAMS["fibonacci"]
    x, n = program.given[0], np.array(18)
    (found,) = run(program.module, "main", [x, n])
    np.testing.assert_allclose(found, program.function(x, 18), rtol=1e-12)


def test_memory_is_given_back():
    """Whatever the depth was, whether boxes were made or not, and also when a call failed."""
    for module, name in ((Sines, "main"), (Gradient("main", require_grads=["x"])(Sines), "main_adjoint")):
        native = pullback.compile(module).function(name)
        native(np.ones(3), np.array(0))
        held = allocated_bytes()  # with the function's own arena
        for k in (0, 1, 700, MAX_DEPTH + 1):
            try:
                native(np.ones(3), np.array(k))
            except ArgumentError:
                assert k == MAX_DEPTH + 1
            assert allocated_bytes() == held


@I.ir_module
class Halves:
    """Twice as many calls with each level, and two large values in each of them."""

    @R.function
    def main(x: R.Tensor((65536,), "float64"), k: R.Tensor((), "int64")) -> R.Tensor((), "float64"):
        def f(k: R.Tensor((), "int64"), x: R.Tensor((65536,), "float64")) -> R.Tensor((65536,), "float64"):
            if k > 0:
                a = f(k - 1, x)
                y = a + f(k - 1, a) * R.const(0.5, "float64")
            else:
                y = x * R.const(0.5, "float64")
            return y

        return R.sum(f(k, x))


def test_memory_grows_with_the_depth_alone():
    """Of 511 calls with a MiB each no more than ten are there at a time."""
    native = pullback.compile(Halves).function("main")
    x = np.ones(65536)
    native(x, np.array(0))
    before = peak_bytes()
    (found,) = flat(numpy(native(x, np.array(8))))

    def f(k, x):
        return f(k - 1, x) + f(k - 1, f(k - 1, x)) * 0.5 if k > 0 else x * 0.5

    np.testing.assert_allclose(found, 65536 * f(8, 1.0))
    assert peak_bytes() <= max(before, allocated_bytes() + (40 << 20))


@pytest.mark.parametrize("most", [1, 7])
def test_a_depth_of_the_users(most):
    module = PROGRAMS["factorial"].module.copy()
    module["factorial"] = module["factorial"].with_attrs({"max_depth": most})
    (found,) = run(module, "main", [np.array(most - 0.5)])
    np.testing.assert_allclose(found, PROGRAMS["factorial"].function(most - 0.5))
    with pytest.raises(ArgumentError, match=f"max_depth={most} calls"):
        run(module, "main", [np.array(most + 0.5)])


def test_more_calls_than_the_stack_holds_are_refused():
    module = PROGRAMS["tree"].module
    function = PROGRAMS["factorial"].module.copy()
    function["factorial"] = function["factorial"].with_attrs({"max_depth": 10**6})
    with pytest.raises(
        UserError, match="max_depth=1000000 calls of factorial inside of one another may take"
    ) as caught:
        pullback.compile(function).function("main")(np.array(1.0))
    assert f"{STACK_BYTES >> 10} KiB are allowed" in str(caught.value)
    assert run(module, "main", PROGRAMS["tree"].given)


def test_as_many_calls_as_are_allowed_fit_the_stack():
    """On a stack that has just what they may take, of a function whose calls hand on many values."""
    module = adjoint("higher")
    plan = plan_function(prepare(module), "main_adjoint", {}, Target("llvm"))
    recursions = [c for c in plan.controls.values() if hasattr(c, "most")]
    most = max(c.most * c.stack_bytes(c.whole, set()) for c in recursions)
    native, found = pullback.compile(module).function("main_adjoint"), []
    x, a, _ = PROGRAMS["higher"].given
    deepest = min(c.most for c in recursions) - 1
    native(x, a, np.array(1))

    def call() -> None:
        found.append(native(x * 1e-3, a, np.array(deepest)))

    size = threading.stack_size(max(most + (256 << 10) & ~4095, 1 << 18))
    try:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)
    assert len(found) == 1


# -- what the verifier finds


def planned():
    target = Target("llvm")
    lowered, donate = lower_function(prepare(Table), "main", {}, target)
    return plan_function(prepare(Table), "main", {}, target), lowered["main"], lowered, donate


def changed(**parts):
    """The driver with other parts of its statement."""

    def change(plan, recursion):
        recursion.whole = replace(recursion.whole, body=replace(recursion.whole.body, **parts))
        plan.inner[recursion.name] = recursion.whole

    return change


def swapped(first, second):
    def change(plan, recursion):
        buffers = list(recursion.whole.body.buffers)
        buffers[first], buffers[second] = buffers[second], buffers[first]
        changed(buffers=tuple(buffers))(plan, recursion)

    return change


def other_driver(plan, recursion):
    """The function's calls of itself run something else."""
    other = replace(recursion.whole)
    for inner in recursion.plan.controls.values():
        for own in inner.plans.values():
            own.inner[recursion.name] = other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(nbytes=0), "the function has too little memory"),
        (changed(most=10**9), "it makes 1000000000 calls"),
        (changed(too_deep=77), "it ends for another reason"),
        (changed(name="recurse_1"), "it does not run the function"),
        (swapped(0, 1), "the function gets other operands"),
        (swapped(2, 3), "the function gets other constants"),
        (swapped(2, -2), "the function gets other constants"),
        (other_driver, "it is not what runs f"),
    ],
)
def test_drivers_that_are_wrong(change, message):
    plan, function, module, donate = planned()
    verify_plan(plan, function, module, donate)
    (recursion,) = plan.controls.values()
    change(plan, recursion)
    with pytest.raises(PlanError, match=message):
        verify_plan(plan, function, module, donate)
