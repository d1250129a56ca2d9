"""SimplifyLoops and HoistInvariants: what goes out of loops, and that they mean what they meant."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.module import IRModule
from pullback.relax import Call, Function
from pullback.relax.analysis import check_well_formed
from pullback.relax.control import BRANCH, LOOP
from pullback.relax.interpreter import evaluate
from pullback.relax.regions import regions
from pullback.relax.transform import CanonicalizeBindings, FoldConstant, InlineFunctions
from pullback.relax.transform.hoist_invariants import HoistInvariants
from pullback.relax.transform.simplify_loops import SimplifyLoops
from pullback.script import relax as R
from tests.driver.test_control_native import BOOL, F32, I64, PROGRAMS, as_tuples, const, data, program, tensor
from tests.relax.test_control import build, flat


def closed(body, *params) -> IRModule:
    module = build(list(params), lambda *values: as_tuples(body(*values)))
    return CanonicalizeBindings()(InlineFunctions()(module))


def simplified(body, *params) -> IRModule:
    """The module without what loops do not need; it means the same."""
    before = closed(body, *params)
    after = SimplifyLoops()(HoistInvariants()(SimplifyLoops()(before)))
    same_meaning(before, after, data(*params))
    return after


def same_meaning(before: IRModule, after: IRModule, arguments: list[np.ndarray]) -> None:
    check_well_formed(after)
    wanted, found = (flat(evaluate(m, "main", arguments)) for m in (before, after))
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def calls(function: Function, op) -> list[Call]:
    return [b.value for b in function.bindings if isinstance(b.value, Call) and b.value.op is op]


def only(module: IRModule, op=LOOP) -> Call:
    (found,) = calls(module["main"], op)
    return found


def counts(call: Call) -> tuple[int, ...]:
    """Of a loop: carries, xs, invariants and ys."""
    carries, xs, invariants = (len(a.fields) for a in call.args[1:])
    return carries, xs, invariants, len(call.struct_info.fields[1].fields)


def ops(function: Function) -> list[str]:
    return [b.value.op.short for b in function.bindings if isinstance(b.value, Call)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_the_same(name):
    module, arguments = program(name)
    before = CanonicalizeBindings()(InlineFunctions()(module))
    after = before
    for _ in range(2):
        after = SimplifyLoops()(HoistInvariants()(SimplifyLoops()(after)))
    same_meaning(before, after, arguments)


A, X = tensor("a", 3), tensor("x", 5, 3)


def test_a_carry_that_stays_is_an_invariant():
    module = simplified(lambda a: R.fori_loop(4, lambda i, t, u: (t + u, u), (a, R.exp(a))), A)
    assert counts(only(module)) == (1, 0, 1, 0)


def test_carries_that_nobody_needs_go():
    """One that only itself reads; and what only that needs. What another carry reads stays."""

    def body(t, u, v, w, r):
        return (t + u, u * const(0.5), v + w, w + r), (R.exp(r),)

    module = simplified(lambda a, x: R.scan(body, (a, a, a, a), (x,))[0][0], A, X)
    assert counts(only(module)) == (2, 0, 0, 0)


def test_what_the_condition_reads_stays():
    def loop(a):
        return R.while_loop(lambda t, u: R.sum(u) < const(5.0), lambda t, u: (t + a, u + const(1.0)),
                            (a, const(np.zeros(3))))[0]  # fmt: skip

    assert counts(only(simplified(loop, A))) == (2, 0, 1, 0)


def test_ys_that_nobody_reads_go():
    def loop(a, x):
        (last,), ys = R.scan(lambda t, r: ((t + r,), (t, r, t * r, t)), (a,), (x,))
        return last, ys[1], ys[2], ys[3]

    module = simplified(loop, A, X)
    assert counts(only(module)) == (1, 1, 0, 2)  # ys[1] is x


def test_constants_go_inside():
    table = const(np.arange(3.0))

    def body(a):
        return R.fori_loop(2, lambda i, t, u: (t * u, u), (a, table))[0]

    assert counts(only(simplified(body, A))) == (1, 0, 0, 0)


@pytest.mark.parametrize("length", [0, 1])
def test_loops_of_few_steps_are_none(length):
    def loop(a):
        (t,), (ys,) = R.scan(lambda t: ((t * a,), (t + a,)), (a,), (), length=length)
        return t, ys

    module = simplified(loop, A)
    assert not calls(module["main"], LOOP)


def test_one_row():
    module = simplified(lambda a, x: R.scan(lambda t, r: ((t * r,), (t + r,)), (a,), (x,), reverse=True), A,
                        tensor("x", 1, 3))  # fmt: skip
    assert not calls(module["main"], LOOP)


def test_counts_that_are_known():
    def loop(a):
        return R.fori_loop(R.const(3, I64) + R.const(0, I64), lambda i, t: (t + a,), (a,), max_steps=7)

    module = SimplifyLoops()(FoldConstant()(closed(loop, A)))
    call = only(module)
    assert call.attrs["length"] == 3 and counts(call) == (1, 0, 1, 0)
    same_meaning(closed(loop, A), module, data(A))


def test_branches():
    b = tensor("b", 3)

    def body(a, b):
        first = R.cond(R.sum(a) > const(0.0), lambda: (a, a + b, R.exp(a)), lambda: (a, a * b, b))
        return first[0], first[1]

    call = only(simplified(body, A, b), BRANCH)
    assert len(call.struct_info.fields) == 1 and len(call.args[1].fields) == 2


@pytest.mark.parametrize("value", [True, False])
def test_branches_on_constants(value):
    module = closed(lambda a: R.cond(R.all(R.const([True, value], BOOL)), lambda: R.exp(a), lambda: R.sin(a)), A)
    found = SimplifyLoops()(FoldConstant()(module))
    assert ops(found["main"]) == ["exp" if value else "sin"]


# -- hoisting


def in_body(module: IRModule) -> list[str]:
    ((_, body), *_) = regions(only(module))
    return ops(body)


def test_work_on_invariants_is_done_once():
    w = tensor("w", 3, 3)

    def loop(a, w):
        return R.fori_loop(4, lambda i, t: (t @ R.exp(w * const(0.1)) + R.sum(w, axis=[0]),), (a,))

    module = simplified(loop, A, w)
    assert in_body(module) == ["matmul", "add"]
    assert counts(only(module)) == (1, 0, 2, 0)


def test_nothing_dead_is_left():
    """What only hoisted work reads goes with it."""
    w = tensor("w", 3, 3)
    module = closed(lambda a, w: R.fori_loop(4, lambda i, t: (t + R.exp(R.sum(w, axis=[0])),), (a,)), A, w)
    assert in_body(HoistInvariants()(module)) == ["add"]


def test_out_of_two_loops():
    w = tensor("w", 3, 3)

    def loop(a, w):
        def inner(i, t):
            return (t + R.sum(R.exp(w), axis=[0]),)

        return R.fori_loop(3, lambda i, t: (R.fori_loop(2, inner, (t,))[0] * const(0.5),), (a,))

    module = simplified(loop, A, w)
    assert "exp" in ops(module["main"]) and "sum" in ops(module["main"])


def test_what_costs_nothing_stays():
    """A view and a transposition are read where they are; an expansion would take memory."""
    w = tensor("w", 64, 64)

    def loop(w):
        def body(i, t):
            wide = R.broadcast_to(R.reshape(R.sum(w), (1, 1)), (64, 64))
            return (t @ R.permute_dims(w) + wide,)

        return R.fori_loop(3, body, (w,))

    module = simplified(loop, w)
    assert sorted(in_body(module)) == ["add", "broadcast_to", "matmul", "permute_dims", "reshape"]
    assert "sum" in ops(module["main"])


def test_what_may_fail_stays():
    at = tensor("at", 2, dtype=I64)
    n = tensor("n", dtype=I64)

    def loop(n, a, at):
        return R.fori_loop(n, lambda i, t: (t + R.sum(R.take(a, at, axis=0)),), (a,))

    module = closed(loop, n, A, at)
    found = SimplifyLoops()(HoistInvariants()(module))
    assert "take" in in_body(found)
    arguments = [np.array(0), np.zeros(3, F32), np.array([5, 9])]  # no step, no failure
    same_meaning(module, found, arguments)


def test_out_of_a_condition():
    def loop(a):
        return R.while_loop(lambda t: R.sum(t) < R.max(R.exp(a)), lambda t: (t + R.abs(a) + const(0.1),), (a,))

    module = simplified(loop, A)
    call = only(module)
    condition = call.attrs["condition"]
    assert "exp" not in ops(condition) and "exp" in ops(module["main"]) and "abs" in ops(module["main"])
