"""Branches and loops in native code: what they compute, what stops them, and the memory that they take."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.codegen import compile_object, emit_library
from pullback.driver.pipeline import lower_function, plan_function, prepare
from pullback.ir.errors import ArgumentError
from pullback.ir.module import IRModule
from pullback.ir.node import Span, span_scope
from pullback.relax import Function, Var
from pullback.relax.interpreter import evaluate
from pullback.relax.struct_info import TensorStructInfo
from pullback.relax.transform.verify_plan import verify_plan
from pullback.runtime import get_num_threads, set_num_threads
from pullback.script import relax as R
from pullback.target import Target
from pullback.tir import interpreter as tir_interpreter
from tests.relax.test_control import CASES, build, flat, half, scalar

F32, F64, I64, BOOL = "float32", "float64", "int64", "bool"


def tensor(name: str, *shape: int, dtype: str = F32) -> Var:
    return Var(name, TensorStructInfo(shape, dtype))


def const(value, dtype: str = F32):
    return R.const(np.asarray(value, dtype))


def data(*params: Var) -> list[np.ndarray]:
    """Made-up values for parameters, the same each time."""
    rng = np.random.default_rng(7)
    made = []
    for p in params:
        if p.dtype == BOOL:
            made.append(rng.integers(0, 2, p.shape).astype(bool))
        elif "int" in p.dtype:
            made.append(rng.integers(1, 6, p.shape).astype(p.dtype))
        else:
            made.append(rng.standard_normal(p.shape).astype(p.dtype))
    return made


# -- programs: their parameters, and what they compute of them


def swapped(a, b):
    return R.fori_loop(5, lambda i, x, y: (y, x), (a, b))


def rotated(a, b):
    return R.fori_loop(4, lambda i, x, y, z: (y, z, x + y), (a, b, a))


def unchanged(a, b):
    return R.fori_loop(4, lambda i, x, y: (x, y + x), (a, b))


def one_for_two(a):
    return R.fori_loop(3, lambda i, x, y: ((s := x + y), s), (a, a))


def seen(a, x):
    """Ys of the old carry, of the new one, of the row, of a constant, of an invariant, and twice the same."""

    def body(t, r):
        new = t * const(0.5) + r
        return (new,), (t, new, r, const([1.0, 2.0]), a, new, new + r)

    return R.scan(body, (a,), (x,))


def reversed_sum(a, x, y):
    def body(t, u, r, s):
        new = R.tanh(t + r)
        return (new, u + s), (R.sum(new) * u, u)

    return R.scan(body, (a, const(np.zeros(4))), (x, y), reverse=True)


def no_steps(a, x):
    return R.scan(lambda t, r: ((t + r,), (t,)), (a,), (x,))


def counted(n, a):
    return R.fori_loop(n, lambda i, t: (t + R.astype(i, F32),), (a,), max_steps=6)


def counted_without_limit(n, a):
    return R.fori_loop(n, lambda i, t, u: (t + R.astype(i, F32), u + const(1, I64)), (a, n))


def unlimited(a):
    return R.while_loop(lambda x, n: R.max(x) < const(100.0), lambda x, n: (x * const(1.5), n + const(1, I64)),
                        (R.abs(a) + const(0.1), const(0, I64)))  # fmt: skip


def gcd(a, b):
    return R.while_loop(lambda x, y: R.not_equal(y, const(0, I64)), lambda x, y: (y, R.mod(x, y)), (a, b))


def flags(f, x):
    def body(i, g, n):
        h = R.logical_xor(g, R.logical_not(R.greater(x, R.astype(i, F32) * const(0.1))))
        return (h, n + R.astype(h, I64))

    return R.fori_loop(7, body, (f, const(np.zeros(9), I64)))


def network(x, h, w, u, b):
    """A recurrent network: products, a bias, a nonlinearity; the final state and all states."""

    def body(s, row):
        new = R.tanh((R.matmul(row, w) + R.matmul(s, u)) * const(0.2) + b)
        return (new,), (new,)

    return R.scan(body, (h,), (x,))


def powers(a, m):
    """A carry that no kernel can overwrite in place, and one that is transposed."""
    return R.fori_loop(3, lambda i, p, q: (R.matmul(p, m), R.permute_dims(q) + p), (a, a))


def with_constants(a):
    table = const(np.arange(6.0).reshape(2, 3))
    other = const(np.arange(6.0)[::-1].reshape(2, 3))

    def body(i, t):
        return (R.cond(R.sum(t) > const(3.0), lambda: t - table, lambda: R.matmul(t, R.permute_dims(table)) @ other),)

    return R.fori_loop(4, body, (a,))


def operands_and_constants(a, b):
    """Branches that give their operands, constants, and one value twice."""
    total = R.sum(a)
    first = R.cond(total > const(0.0), lambda: (a, b, const([1.0, 2.0]), a), lambda: (b, a, const([3.0, 4.0]), b * b))
    return (*first, R.cond(total < const(100.0), lambda: a, lambda: b))


def views(a):
    def body(i, t):
        return (R.reshape(R.reshape(t, (6,)) + R.reshape(const(np.arange(6.0)), (6,)), (2, 3)),)

    (t,) = R.fori_loop(3, body, (R.reshape(a, (2, 3)),))
    return R.reshape(t, (3, 2))


def in_a_branch(a, x):
    def many():
        (t,), (rows,) = R.scan(lambda t, r: ((t + r,), (t * r,)), (a,), (x,))
        return (t, rows)

    return R.cond(R.sum(a) > const(0.0), many, lambda: (a * a, x))


def in_a_loop(a, x):
    """A scan, a while and a branch in a scan."""

    def outer(t, r):
        (inner,), (rows,) = R.scan(lambda u, q: ((u * const(0.9) + q * r,), (u,)), (t,), (x,), reverse=True)
        (grown,) = R.while_loop(lambda v: R.sum(R.abs(v)) < const(9.0), lambda v: (v * const(2.0) + const(0.1),),
                                (inner,))  # fmt: skip
        new = R.cond(R.sum(grown) > const(0.0), lambda: grown - inner, lambda: R.exp(inner * const(0.01)))
        return (new * const(0.25),), (rows, grown)

    return R.scan(outer, (a,), (x,))


def no_carries(x):
    return R.scan(lambda r: ((), (R.exp(r), R.sum(r))), (), (x,))


def numbers_alone():
    return R.scan(lambda t: ((t + const(2.0),), (t,)), (const(1.0),), (), length=5)


def loops_in_line(a):
    (t,) = R.fori_loop(3, lambda i, t: (t + a,), (a,))
    (u,) = R.fori_loop(2, lambda i, u: (u * t,), (t,))
    return (t, u, R.fori_loop(2, lambda i, v: (v * t,), (u,))[0])


def large(a, b):
    """Carries of more than a page, of which each step reads both after it has one of them."""
    return R.fori_loop(3, lambda i, x, y: (R.sin(x) + y, x * const(0.5)), (a, b))


def turns(steps):
    """A large carry that is multiplied by a matrix, beside a small one and ys."""

    def body(a, m):
        def step(p, q):
            new = R.matmul(R.permute_dims(p), m) * const(0.12)
            return (new, q + R.sum(new, axis=[0])), (R.sum(p), q)

        return R.scan(step, (a, const(np.zeros(40))), (), length=steps, reverse=steps % 3 == 0)

    return body


def turns_counted(a, m):
    """As many steps as there are positive numbers on the diagonal, and none; two of the carries change places."""
    n = R.sum(R.astype(R.diagonal(a) > const(0.0), I64))

    def body(i, p, q, u):
        return (q, R.matmul(R.permute_dims(p), m) * const(0.12), u + R.astype(i, F32))

    none = R.fori_loop(n - n, body, (a, m, const(0.0)))
    return (*R.fori_loop(n, body, (a, m, const(0.0))), *none)


def turns_until(a, m):
    def step(p, q):
        return (R.matmul(R.permute_dims(p), m) * const(0.12), q + const(1.0))

    def until(most):
        return R.while_loop(lambda p, q: R.sum(q) < const(most), step, (a, const(0.0)), max_steps=9)

    return tuple(until(most) for most in (-1.0, 0.5, 1.5, 4.5, 8.5))


def begun(a, n):
    """Carries that begin as values which die there: they lie where these do."""
    (t,) = R.fori_loop(3, lambda i, t: (t * const(0.5) + const(1.0),), (R.exp(a),))
    (u,) = R.fori_loop(n, lambda i, u: (R.permute_dims(u) + const(1.0),), (R.sin(t),), max_steps=9)
    (v,) = R.fori_loop(3, lambda i, v: (R.permute_dims(v) + const(1.0),), (R.cos(u),))
    return R.sum(v), R.fori_loop(n, lambda i, t: (t * const(0.5),), (v + u,))[0]


def picked(a, at):
    return R.scan(lambda t, k: ((t + R.take(a, k, axis=0, mode="clip"),), ()), (const(np.zeros(3)),), (at,))


N = scalar("n", I64)
PROGRAMS = {
    "swapped": (swapped, [tensor("a", 3), tensor("b", 3)]),
    "rotated": (rotated, [tensor("a", 5, dtype=F64), tensor("b", 5, dtype=F64)]),
    "unchanged": (unchanged, [tensor("a", 3), tensor("b", 3)]),
    "one for two": (one_for_two, [tensor("a", 4)]),
    "seen": (seen, [tensor("a", 2), tensor("x", 5, 2)]),
    "reversed": (reversed_sum, [tensor("a", 3), tensor("x", 6, 3), tensor("y", 6, 4)]),
    "no steps": (no_steps, [tensor("a", 3), tensor("x", 0, 3)]),
    "empty": (no_steps, [tensor("a", 0), tensor("x", 4, 0)]),
    "unlimited": (unlimited, [tensor("a", 8)]),
    "gcd": (gcd, [scalar("a", I64), scalar("b", I64)]),
    "flags": (flags, [tensor("f", 9, dtype=BOOL), tensor("x", 9)]),
    "network": (network, [tensor("x", 7, 3, 5), tensor("h", 3, 16), tensor("w", 5, 16), tensor("u", 16, 16),
                          tensor("b", 16)]),
    "powers": (powers, [tensor("a", 24, 24), tensor("m", 24, 24)]),
    "constants": (with_constants, [tensor("a", 2, 3)]),
    "operands": (operands_and_constants, [tensor("a", 3), tensor("b", 3)]),
    "views": (views, [tensor("a", 6)]),
    "in a branch": (in_a_branch, [tensor("a", 3), tensor("x", 4, 3)]),
    "in a loop": (in_a_loop, [tensor("a", 3), tensor("x", 4, 3)]),
    "no carries": (no_carries, [tensor("x", 4, 3)]),
    "numbers alone": (numbers_alone, []),
    "in line": (loops_in_line, [tensor("a", 3)]),
    "large": (large, [tensor("a", 40, 60), tensor("b", 40, 60)]),
    "turns, even": (turns(2), [tensor("a", 40, 40), tensor("m", 40, 40)]),
    "turns, odd": (turns(5), [tensor("a", 40, 40), tensor("m", 40, 40)]),
    "turns, long": (turns(41), [tensor("a", 40, 40), tensor("m", 40, 40)]),
    "turns, long and reversed": (turns(42), [tensor("a", 40, 40), tensor("m", 40, 40)]),
    "turns, counted": (turns_counted, [tensor("a", 40, 40), tensor("m", 40, 40)]),
    "turns, until": (turns_until, [tensor("a", 40, 40), tensor("m", 40, 40)]),
    "begun": (begun, [tensor("a", 40, 40), N]),
    "picked": (picked, [tensor("a", 5, 3), tensor("at", 6, dtype=I64)]),
}  # fmt: skip


def program(name: str) -> tuple[IRModule, list[np.ndarray]]:
    body, params = PROGRAMS[name]
    return build(params, lambda *values: as_tuples(body(*values))), data(*params)


def as_tuples(value):
    return value if not isinstance(value, tuple) else pullback.relax.Tuple(tuple(map(as_tuples, value)))


def run(module: IRModule, arguments: list[np.ndarray], target: str = "llvm") -> list[np.ndarray]:
    found = pullback.compile(module, target=target)["main"](*arguments)
    return [np.array(t.numpy()) for t in flat(found)]


def check(module: IRModule, arguments: list[np.ndarray], rtol: float = 1e-5) -> list[np.ndarray]:
    """Native code gives what the interpreter gives."""
    wanted = flat(evaluate(module, "main", arguments))
    found = run(module, arguments)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-5)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    check(*program(name))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", ["constants", "operands", "in a branch", "in a loop"])
def test_both_branches(name, sign):
    module, arguments = program(name)
    check(module, [sign * np.abs(arguments[0]), *arguments[1:]])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("a", [0.3, 1.7, 4.0])
def test_scalars(name, a):
    build_it, plain = CASES[name]
    found = run(build([scalar("a")], build_it), [np.array(a)])
    for one, value in zip(found, flat(plain(a)), strict=True):
        np.testing.assert_allclose(one, value, rtol=1e-12)


@pytest.mark.parametrize("n", [-3, 0, 1, 4, 6])
def test_counts_at_run_time(n):
    params = [N, tensor("a", 3)]
    arguments = [np.array(n), data(*params)[1]]
    check(build(params, counted), arguments)
    check(build(params, counted_without_limit), arguments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_poisoned(name, monkeypatch):
    """Dead memory, that of regions too, is filled with NaN between kernels: nothing reads it."""
    module, arguments = program(name)
    plain = run(module, arguments)
    monkeypatch.setenv("PULLBACK_POISON", "1")
    for a, b in zip(run(module, arguments), plain, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["network", "powers", "in a loop", "large"])
def test_any_number_of_threads(name):
    module, arguments = program(name)
    before, results = get_num_threads(), []
    try:
        for count in (1, 2, 3):
            set_num_threads(count)
            results.append(run(module, arguments))
    finally:
        set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(other, results[0], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_host_functions_are_interpreted(name):
    """The loop IR's interpreter runs the host function, its drivers and its regions, and gives what native code does;
    the plans are proven with all that kernels do in place."""
    module, arguments = program(name)
    lowered, donate = lower_function(prepare(module), "main", {}, Target("llvm"))
    plan = plan_function(prepare(module), "main", {}, Target("llvm"))
    verify_plan(plan, lowered["main"], lowered, donate, deep=True)
    if "long" in name:
        return  # of matrices, it takes half a minute
    given = [*arguments, *plan.constants]
    fresh = [np.full(b.shape, 77).astype(b.dtype) for b in plan.host.buffers[len(given) :]]
    assert tir_interpreter.run(plan.host, [*given, *fresh], plan.functions) == 0
    for a, b in zip(fresh, flat(evaluate(module, "main", arguments)), strict=True):
        np.testing.assert_allclose(a.reshape(b.shape), b, rtol=1e-5, atol=1e-5)


# -- what stops a loop


def test_too_many_steps():
    module = build([scalar("a", F32)], lambda a: R.while_loop(lambda t: t < a, lambda t: (t + const(1.0),),
                                                             (const(0.0),), max_steps=4))  # fmt: skip
    assert run(module, [np.float32(4.0)]) == [4.0]
    with pytest.raises(ArgumentError, match=r"main: the loop did not end within max_steps=4"):
        run(module, [np.float32(5.0)])


def test_too_large_a_count():
    module = build([N, tensor("a", 3)], counted)
    with pytest.raises(ArgumentError, match="the loop did not end within max_steps=6"):
        run(module, [np.array(7), np.zeros(3, F32)])


def looked_up(a, at):
    """A check in the body of a loop, and one in a loop in a branch of it; two checks have two messages."""

    def body(t, k):
        inner = R.cond(t[0] > const(-1.0),
                       lambda: R.fori_loop(2, lambda i, u: (u + R.take(a, k + i, axis=0),), (t,))[0],
                       lambda: t)  # fmt: skip
        return (inner,), (R.take(a, k, axis=0),)

    return R.scan(body, (const(np.zeros(3)),), (at,))


def test_checks_in_regions():
    params = [tensor("a", 5, 3), tensor("at", 4, dtype=I64)]
    module = build(params, looked_up)
    table = np.abs(data(*params)[0])
    check(module, [table, np.array([0, 3, 2, 1])])
    for wrong in ([0, 1, 4, 0], [0, 1, 2, -7], [9, 0, 0, 0]):
        with pytest.raises(ArgumentError, match="take"):
            run(module, [table, np.array(wrong)])


def donating(params: list[Var], body, *numbers: int) -> IRModule:
    module = build(params, lambda *values: as_tuples(body(*values)))
    return IRModule({"main": module["main"].with_attr("donate", numbers)})


def test_a_failed_call_changes_nothing():
    """A donated input keeps its value where a loop fails, though the loop's result was to replace it."""
    params = [tensor("w", 5, 3), tensor("at", 4, dtype=I64)]

    def body(w, at):
        (new,), _ = R.scan(lambda t, k: ((t + R.take(w, k, axis=0),), ()), (w,), (at,))
        return R.sum(new), new

    module = donating(params, body, 0)
    table = data(*params)[0]
    function = pullback.compile(module, target="llvm")["main"]
    given = [pullback.tensor(table, copy=True), pullback.tensor(np.array([0, 1, 9, 2]))]
    call = function.bind(given)
    with pytest.raises(ArgumentError, match="take"):
        call()
    np.testing.assert_array_equal(given[0].numpy(), table)
    given[1].copyfrom(np.array([0, 1, 3, 2]))
    call()
    wanted = flat(evaluate(module, "main", [table, np.array([0, 1, 3, 2])]))
    np.testing.assert_allclose(given[0].numpy(), wanted[1], rtol=1e-5)


def test_donated_inputs_are_updated_where_they_are():
    """Steps of gradient descent in a loop, on weights that the function donates: no copy of them is made."""
    params = [tensor("w", 40, 60), tensor("m", 40, 60), tensor("g", 7, 40, 60)]

    def body(w, m, g):
        def step(w, m, g):
            new_m = m * const(0.9) + g
            return (w - new_m * const(0.1), new_m), (R.sum(w),)

        (new_w, new_m), (sums,) = R.scan(step, (w, m), (g,))
        return sums, new_w, new_m

    module, arguments = donating(params, body, 0, 1), data(*params)
    plan = plan_function(prepare(module), "main", {}, Target("llvm"))
    assert not any(s.startswith("copy") for s in plan.kernels)
    check(module, arguments)


# -- memory


def test_memory_does_not_grow_with_the_steps():
    def arena(count: int) -> int:
        module = build([tensor("a", 64, 64)], lambda a: R.fori_loop(count, lambda i, t: (R.tanh(t @ a) @ a,), (a,)))
        return plan_function(prepare(module), "main", {}, Target("llvm")).arena_bytes

    assert arena(3) == arena(1000)


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_carries_begin_where_a_value_dies(n):
    module, arguments = program("begun")
    plan = plan_function(prepare(module), "main", {}, Target("llvm"))
    assert sum("in_place_0" in name for name in plan.inner) == 4
    check(module, [arguments[0], np.array(n)])


@pytest.mark.parametrize("name", ["turns, odd", "turns, long"])
def test_large_carries_take_turns(name):
    """They are not copied in the loop: once before it, where they began."""
    module, _ = program(name)
    plan = plan_function(prepare(module), "main", {}, Target("llvm"))
    (control,) = plan.controls.values()
    assert control.swapped == [0]
    assert not [s for s in control.plans["body"].steps if s.startswith("copy_float32_40x40")]


def test_rows_are_not_copied():
    module, _ = program("seen")
    plan = plan_function(prepare(module), "main", {}, Target("llvm"))
    assert plan.arena_bytes < 1024


LIBRARIES = {
    "here": "llvm",
    "wasm": "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd128",
    "microcontroller": "llvm -mtriple=thumbv7em-none-eabi -mcpu=cortex-m7",
}


@pytest.mark.parametrize("machine", LIBRARIES)
def test_libraries_of_several_functions(machine):
    """Host functions that functions of a library call are theirs alone, though all have the same names."""
    target = Target(LIBRARIES[machine])
    plans = [plan_function(prepare(program(n)[0]), "main", {}, target) for n in ("in a loop", "network", "unlimited")]
    hosts = {f"f__{k}": (p.host, p.kernels, p.inner) for k, p in enumerate(plans)}
    assert len(compile_object(emit_library(hosts, target), target)) > 1000


@pytest.mark.parametrize("line", [3, 30])
def test_the_message_shows_the_place(line):
    """Of this loop, not of one that was compiled before and does the same."""

    def body(a):
        with span_scope(Span("model.py", line, 4, 9, "    (y,) = while_loop(…)")):
            return R.while_loop(lambda t: t < a, lambda t: (t + const(1.0),), (const(0.0),), max_steps=2)

    with pytest.raises(ArgumentError) as caught:
        run(build([scalar("a", F32)], body), [np.float32(5.0)])
    assert f"model.py:{line}:5" in str(caught.value) and "while_loop(…)" in str(caught.value)


def test_profiles():
    module, arguments = program("network")
    report = pullback.compile(module, target="llvm")["main"].profile(*arguments)
    (kernel,) = (k for k in report.calls if "loop" in k.name)
    products = 7 * 3 * 16 * (5 + 16)
    assert 2 * products <= kernel.flops <= 3 * products
    module, arguments = program("unlimited")
    report = pullback.compile(module, target="llvm")["main"].profile(*arguments)
    assert [k.flops for k in report.calls if "loop" in k.name] == [None]


def test_functions_without_loops_have_no_inner_functions():
    module = build([tensor("a", 4)], lambda a: R.exp(a))
    plan = plan_function(prepare(module), "main", {}, Target("llvm"))
    assert plan.inner == {} and plan.controls == {}
    assert isinstance(module["main"], Function)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_count_and_a_condition_that_are_views(n):
    """Scalars of other tensors' memory: an element of a tensor of one."""

    def body(t, counts, flags):
        count, flag = R.reshape(counts, ()), R.reshape(flags, ())
        (t,) = R.fori_loop(count, lambda i, t: (t * half(2.0),), (t,), max_steps=3)
        return R.cond(flag, lambda: t + half(1.0), lambda: t)

    infos = {"counts": TensorStructInfo((1,), "int64"), "flags": TensorStructInfo((1, 1), "bool")}
    params = [scalar("t"), *(Var(name, info) for name, info in infos.items())]
    for flag in (True, False):
        (found,) = run(build(params, body), [np.array(1.5), np.array([n]), np.array([[flag]])])
        assert found == 1.5 * 2**n + flag
