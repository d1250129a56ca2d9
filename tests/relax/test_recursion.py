"""Recursive functions in their closed form: tail calls are loops, others ``recurse``."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.node import structural_equal
from pullback.relax import BlockBuilder, Function, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.block_builder import current_builder
from pullback.relax.control import LOOP
from pullback.relax.expr import Call, VarBinding
from pullback.relax.interpreter import evaluate
from pullback.relax.mutator import ExprMutator, copy_with_new_vars
from pullback.relax.recursion import RECURSE, own_calls
from pullback.relax.regions import is_closed, regions
from pullback.relax.struct_info import FuncStructInfo, TensorStructInfo
from pullback.relax.transform import AddRandomState, CanonicalizeBindings
from pullback.relax.transform.inline_functions import inline_calls
from pullback.relax.transform.simplify_loops import SimplifyLoops
from pullback.script import from_source
from pullback.script import relax as R
from tests.relax.recursive_programs import PROGRAMS

F, N = TensorStructInfo((), "float64"), TensorStructInfo((), "int64")


def one(value=1.0):
    return R.const(value, "float64")


def add(builder, name, params, body, attrs=None):
    """A function of the module whose result is what ``body`` gives."""
    with builder.function(name, params):
        builder.emit_func_output(builder.emit(body(*params)))
    if attrs:
        builder.module[name] = builder.module[name].with_attrs(attrs)


def named(name, params, ret):
    return GlobalVar(name, FuncStructInfo(tuple(params), ret))


def same_closed(module, *arguments):
    """The result of ``main``, the same as written and in the closed form."""
    check_well_formed(module)
    closed = inline_calls(module["main"], module)
    assert is_closed(closed)
    whole = IRModule({"main": closed})
    check_well_formed(whole)
    wanted = evaluate(module, "main", list(arguments))
    np.testing.assert_array_equal(evaluate(whole, "main", list(arguments)), wanted)
    assert any(getattr(b.value, "op", None) is LOOP for b in closed.bindings if not isinstance(b.value, Var))
    return wanted


def power(attrs=None):
    """power(x, n, a) = a·xⁿ, half of it in another function."""
    builder = BlockBuilder()
    whole, odd = (named(n, (F, N, F), F) for n in ("power", "odd"))
    add(
        builder, "power", [Var("x", F), Var("n", N), Var("a", F)],
        lambda x, n, a: R.cond(n > 0, lambda: odd(x, n, a), lambda: a), attrs,
    )  # fmt: skip
    add(
        builder, "odd", [Var("x", F), Var("n", N), Var("a", F)],
        lambda x, n, a: R.cond(
            R.equal(R.mod(n, 2), 1), lambda: whole(x * x, n // 2, a * x), lambda: whole(x * x, n // 2, a)
        ),
    )  # fmt: skip
    add(builder, "main", [Var("x", F), Var("n", N)], lambda x, n: whole(x, n, one()))
    return builder.get()


@pytest.mark.parametrize("n", [0, 1, 2, 13, 40])
def test_two_functions_that_call_each_other(n):
    found = same_closed(power(), np.array(1.1), np.array(n))
    np.testing.assert_allclose(found, 1.1**n, rtol=1e-12)


def test_a_bound_on_the_steps():
    module = power({"max_steps": 5})
    same_closed(module, np.array(1.1), np.array(15))
    closed = IRModule({"main": inline_calls(module["main"], module)})
    with pytest.raises(ArgumentError, match="max_steps=5"):
        evaluate(closed, "main", [np.array(1.1), np.array(2**20)])


def test_a_function_inside_that_calls_itself():
    """It reads what surrounds it."""
    builder = BlockBuilder()
    x, t = Var("x", F), Var("t", F)
    with builder.function("main", [x]):
        itself = Var("grow", FuncStructInfo((F,), F))
        body = builder.traced(lambda: R.cond(t < one(10.0), lambda: itself(t * x), lambda: t + x), ())
        builder.emit_binding(VarBinding(itself, Function((t,), body.body)))
        builder.emit_func_output(builder.emit(itself(x)))
    assert same_closed(builder.get(), np.array(3.0)) == 30.0


def test_functions_are_handed_on():
    """A recursive function may take a function, which stays the same."""
    builder = BlockBuilder()
    kind = FuncStructInfo((F,), F)
    times = named("times", (kind, N, F), F)
    add(
        builder, "times", [Var("f", kind), Var("n", N), Var("x", F)],
        lambda f, n, x: R.cond(n > 0, lambda: times(f, n - 1, f(x)), lambda: x),
    )  # fmt: skip
    add(builder, "double", [Var("x", F)], lambda x: x * one(2.0))
    add(builder, "main", [Var("x", F)], lambda x: times(named("double", (F,), F), R.const(5), x))
    assert same_closed(builder.get(), np.array(3.0)) == 96.0


def test_types_that_change_are_refused():
    builder = BlockBuilder()
    kind = TensorStructInfo((2,), "float64")
    grow = named("grow", (kind,), F)
    add(
        builder, "grow", [Var("x", kind)],
        lambda x: R.cond(R.sum(x) > one(), lambda: R.sum(x), lambda: grow(R.concat([x, x], axis=0)[:2] * 2.0)),
    )  # fmt: skip
    add(builder, "main", [Var("x", kind)], lambda x: grow(x))
    same_closed(builder.get(), np.ones(2) / 10)
    builder = BlockBuilder()
    n = R.Tensor(("n",), "float64")
    grow = named("grow", (n,), F)
    add(
        builder, "grow", [Var("x", n)],
        lambda x: R.cond(R.sum(x) > one(), lambda: R.sum(x), lambda: grow(R.concat([x, x], axis=0))),
    )  # fmt: skip
    add(builder, "main", [Var("x", kind)], lambda x: grow(x))
    with pytest.raises(ShapeError, match="calls itself with arguments of other types"):
        inline_calls(builder.get()["main"], builder.get())


def test_recursion_without_end():
    builder = BlockBuilder()
    forever = named("forever", (F,), F)
    add(builder, "forever", [Var("x", F)], lambda x: forever(x * one(2.0)))
    module = builder.get()
    with pytest.raises(UserError, match="forever calls itself without end"):
        inline_calls(module["forever"], module)


# -- recursion that is no loop


def closed_module(module):
    """``main`` in the closed form."""
    whole = IRModule({"main": inline_calls(module["main"], module)})
    assert is_closed(whole["main"])
    check_well_formed(whole)
    return whole


def recursions(function):
    """The calls of ``recurse`` in a closed function, and how many calls of itself each has."""
    found = []
    for binding in function.bindings:
        value = binding.value
        if getattr(value, "op", None) is RECURSE:
            found.append((value.attrs["label"], len(list(own_calls(value.attrs["function"], value.attrs["label"])))))
        for _, region in regions(value):
            found += recursions(region)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_recursion(name):
    """As written, closed, and printed and read again, against Python."""
    program = PROGRAMS[name]
    check_well_formed(program.module)
    wanted = program.function(*program.arguments)
    closed = closed_module(program.module)
    assert recursions(closed["main"])
    again = from_source(closed.script())
    assert structural_equal(again, closed)
    for module in (program.module, closed, again, SimplifyLoops()(CanonicalizeBindings()(closed))):
        np.testing.assert_allclose(evaluate(module, "main", program.given), wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["tree", "loops", "higher", "tuples"])
def test_functions_inside_are_copied_with_their_calls(name):
    program = PROGRAMS[name]
    for function in (ExprMutator().function, copy_with_new_vars):
        copy = IRModule({"main": function(program.module["main"])})
        check_well_formed(copy)
        np.testing.assert_array_equal(
            evaluate(copy, "main", program.given), evaluate(program.module, "main", program.given)
        )


def test_functions_that_call_one_another_are_one_recursion():
    """The second is inlined in the first, and a recursion inside where it calls itself besides."""
    closed = closed_module(PROGRAMS["mutual"].module)
    assert recursions(closed["main"]) == [("even", 2), ("odd", 1), ("odd", 3)]


def test_an_entry_that_calls_itself_is_one_recursion():
    module = PROGRAMS["fibonacci"].module
    assert recursions(inline_calls(module["fibonacci"], module)) == [("fibonacci", 2)]


def test_what_nobody_needs_is_left_out():
    """A result that no call reads, and an operand that all only hand on; a constant that they hand on is in the
    function."""

    def first_call(module):
        (call,) = (b.value for b in module["main"].bindings if isinstance(b.value, Call) and b.value.op is RECURSE)
        return call

    def simplified(module):
        whole = SimplifyLoops()(CanonicalizeBindings()(closed_module(module)))
        check_well_formed(whole)
        return whole, first_call(whole)

    program = PROGRAMS["tuples"]
    before = first_call(closed_module(program.module))
    whole, after = simplified(program.module)
    assert [len(c.args[0].fields) for c in (before, after)] == [3, 2]
    assert [len(c.struct_info.fields) for c in (before, after)] == [3, 2]
    assert all(len(c.args[0].fields) == 2 for c in own_calls(after.attrs["function"], after.attrs["label"]))
    np.testing.assert_allclose(evaluate(whole, "main", program.given), program.function(*program.arguments))

    builder = BlockBuilder()
    power = named("power", (F, N, F), F)
    add(
        builder, "power", [Var("x", F), Var("n", N), Var("factor", F)],
        lambda x, n, factor: R.cond(n > 0, lambda: power(x, n - 1, factor) * x * factor, lambda: factor),
    )  # fmt: skip
    add(builder, "main", [Var("x", F), Var("n", N)], lambda x, n: power(x, n, one(2.0)))
    whole, call = simplified(builder.get())
    assert [p.name for p in call.attrs["function"].params] == ["x", "n"]
    assert evaluate(whole, "main", [np.array(1.5), np.array(3)]) == 1.5**3 * 2.0**4


def test_a_tail_call_among_others_is_no_loop():
    builder = BlockBuilder()
    f = named("f", (N, F), F)
    add(
        builder, "f", [Var("n", N), Var("x", F)],
        lambda n, x: R.cond(
            n > 0,
            lambda: R.cond(R.equal(R.mod(n, 2), 1), lambda: f(n - 1, x * x), lambda: f(n - 1, x) + one()),
            lambda: x,
        ),
    )  # fmt: skip
    add(builder, "main", [Var("n", N), Var("x", F)], lambda n, x: f(n, x))
    closed = closed_module(builder.get())
    assert recursions(closed["main"]) == [("f", 2)]
    assert evaluate(closed, "main", [np.array(4), np.array(1.5)]) == (1.5**2) ** 2 + 2.0


def test_a_tail_call_of_another_recursive_function():
    """It is no part of the loop."""
    builder = BlockBuilder()
    count, whole = named("count", (N, F), F), named("whole", (N, F), F)
    add(
        builder, "count", [Var("n", N), Var("x", F)],
        lambda n, x: R.cond(n > 0, lambda: count(n - 1, x * one(2.0)), lambda: x),
    )  # fmt: skip
    add(
        builder, "whole", [Var("n", N), Var("x", F)],
        lambda n, x: R.cond(n > 3, lambda: whole(n - 1, x + one()), lambda: count(n, x)),
    )  # fmt: skip
    add(builder, "main", [Var("n", N), Var("x", F)], lambda n, x: whole(n, x))
    assert same_closed(builder.get(), np.array(5), np.array(1.0)) == 3.0 * 8


def test_a_function_that_is_called_by_one_that_it_was_given_to():
    """``rec`` is handed to ``twice``, which calls it: that is recursion, too."""
    builder = BlockBuilder()
    kind = FuncStructInfo((N,), F)
    twice, rec = named("twice", (kind, N), F), named("rec", (N,), F)
    add(builder, "twice", [Var("f", kind), Var("n", N)], lambda f, n: f(n) + f(n) * one(0.5))
    add(builder, "rec", [Var("n", N)], lambda n: R.cond(n > 0, lambda: twice(rec, n - 1), lambda: one()))
    add(builder, "main", [Var("n", N)], lambda n: rec(n))
    closed = closed_module(builder.get())
    assert evaluate(closed, "main", [np.array(5)]) == evaluate(builder.get(), "main", [np.array(5)]) == 1.5**5


def test_nested_calls_of_a_function_that_takes_functions():
    """Not recursion: each call has another function."""
    builder = BlockBuilder()
    kind = FuncStructInfo((F,), F)
    twice = named("twice", (kind, F), F)
    add(builder, "twice", [Var("f", kind), Var("x", F)], lambda f, x: f(f(x)))
    inner = builder.get()
    builder = BlockBuilder(inner)
    x = Var("x", F)
    with builder.function("main", [x]):
        p, q = Var("p", F), Var("q", F)
        add_one = builder.emit(builder.traced(lambda p: p + one(), [p]))
        more = builder.emit(builder.traced(lambda q: twice(add_one, q) * one(2.0), [q]))
        builder.emit_func_output(builder.emit(twice(more, x)))
    closed = closed_module(builder.get())
    assert not recursions(closed["main"])
    assert evaluate(closed, "main", [np.array(1.0)]) == ((1.0 + 2) * 2 + 2) * 2


def test_another_function_is_refused():
    builder = BlockBuilder()
    kind = FuncStructInfo((F,), F)
    f = named("f", (kind, N), F)
    add(
        builder, "f", [Var("g", kind), Var("n", N)],
        lambda g, n: R.cond(n > 0, lambda: f(named("double", (F,), F), n - 1) * one(), lambda: g(one())),
    )  # fmt: skip
    for name, factor in (("double", 2.0), ("treble", 3.0)):
        add(builder, name, [Var("x", F)], lambda x, factor=factor: x * one(factor))
    add(builder, "main", [Var("n", N)], lambda n: f(named("treble", (F,), F), n))
    with pytest.raises(UserError, match="f calls itself with another function"):
        inline_calls(builder.get()["main"], builder.get())


def test_arguments_of_other_types_are_refused():
    builder = BlockBuilder()
    n = R.Tensor(("n",), "float64")
    grow = named("grow", (n,), F)
    add(
        builder, "grow", [Var("x", n)],
        lambda x: R.cond(
            R.sum(x) > one(), lambda: R.sum(x), lambda: grow(R.concat([x, x], axis=0)) * one(2.0)
        ),
    )  # fmt: skip
    add(builder, "main", [Var("x", TensorStructInfo((2,), "float64"))], lambda x: grow(x))
    with pytest.raises(ShapeError, match="calls itself with arguments of other types: Tensor\\(\\(2,\\)"):
        inline_calls(builder.get()["main"], builder.get())


def test_recursion_without_end_that_is_no_loop():
    builder = BlockBuilder()
    forever = named("forever", (F,), F)
    add(
        builder, "forever", [Var("x", F)],
        lambda x: R.cond(x > one(), lambda: forever(x * one(2.0)) + one(), lambda: forever(x) * one(2.0)),
    )  # fmt: skip
    with pytest.raises(UserError, match="forever calls itself without end"):
        inline_calls(builder.get()["forever"], builder.get())


@pytest.mark.parametrize("given", [0, -3, 2.5, True, "many"])
def test_a_depth_that_is_none(given):
    module = PROGRAMS["factorial"].module.copy()
    module["factorial"] = module["factorial"].with_attrs({"max_depth": given})
    with pytest.raises(ArgumentError, match="factorial: max_depth must be a whole number, at least 1"):
        inline_calls(module["main"], module)


def test_too_many_calls():
    module = PROGRAMS["factorial"].module.copy()
    module["factorial"] = module["factorial"].with_attrs({"max_depth": 10})
    closed = closed_module(module)
    np.testing.assert_allclose(evaluate(closed, "main", [np.array(9.5)]), PROGRAMS["factorial"].function(9.5))
    with pytest.raises(ArgumentError, match="the recursion of factorial did not end within max_depth=10 calls"):
        evaluate(closed, "main", [np.array(11.5)])
    endless = closed_module(PROGRAMS["factorial"].module)
    with pytest.raises(ArgumentError, match="max_depth=1000"):
        evaluate(endless, "main", [np.array(np.inf)])


# -- the closed form by itself


def with_call(label, operand, result):
    """A module that was written by hand, in which ``call_self`` takes and gives these types."""
    return from_source(f"""
from pullback.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((), "float64"), v: R.Tensor((2,), "float64")) -> R.Tensor((), "float64"):
        @R.region
        def function(x: R.Tensor((), "float64"), v: R.Tensor((2,), "float64")) -> R.Tuple(R.Tensor((), "float64")):
            y = R.call_self((x, {operand}), "{label}", ({result},))
            z = R.sum(y[0])
            return (z,)
        y = R.recurse((x, v), function=function, label="f")
        z = y[0]
        return z
""")


def test_calls_of_itself_have_its_types():
    check_well_formed(with_call("f", "v", 'R.Tensor((), "float64")'))
    with pytest.raises(UserError, match="call_self: no function around it has the label 'g'"):
        check_well_formed(with_call("g", "v", 'R.Tensor((), "float64")'))
    with pytest.raises(ShapeError, match="call_self: f takes Tuple"):
        check_well_formed(with_call("f", "x", 'R.Tensor((), "float64")'))
    with pytest.raises(ShapeError, match="call_self: f gives Tuple"):
        check_well_formed(with_call("f", "v", 'R.Tensor((2,), "float64")'))


def test_calls_in_a_branch_that_draws_nothing_itself():
    """The function draws before it, so its calls take a state there, too."""
    builder = BlockBuilder()
    kind = TensorStructInfo((64,), "float32")
    f = named("f", (N, kind), kind)

    def body(n, x):
        drawn = current_builder().emit(R.nn.dropout(x)[0])
        return R.cond(n > 0, lambda: f(n - 1, x) * R.const(4.0) + drawn, lambda: drawn)

    add(builder, "f", [Var("n", N), Var("x", kind)], body)
    add(builder, "main", [Var("n", N), Var("x", kind)], lambda n, x: f(n, x))
    module = AddRandomState()(builder.get())
    check_well_formed(module)
    found = evaluate(module, "main", [np.array(1), np.ones(64, np.float32), np.array([3, 4], np.uint64)])
    assert {*np.unique(found)} == {0.0, 2.0, 8.0, 10.0}  # 4·a + b, where a and b are 0 or 2 by themselves


def test_random_numbers_of_each_call():
    """No two calls draw the same."""

    builder = BlockBuilder()
    kind = TensorStructInfo((64,), "float32")
    f = named("f", (N, kind), kind)
    add(
        builder, "f", [Var("n", N), Var("x", kind)],
        lambda n, x: R.cond(n > 0, lambda: f(n - 1, x) * R.const(2.0) + f(n - 1, x) + R.nn.dropout(x)[0], lambda: x),
    )  # fmt: skip
    add(builder, "main", [Var("n", N), Var("x", kind)], lambda n, x: f(n, x))
    module = AddRandomState()(builder.get())
    check_well_formed(module)
    x, state = np.ones(64, np.float32), np.array([3, 4], np.uint64)
    found = evaluate(module, "main", [np.array(2), x, state])
    assert {*np.unique(found)} <= {9.0 + 2 * a + b + c for a in (0, 2) for b in (0, 2) for c in (0, 2)}
    assert len(np.unique(found)) > 3
    np.testing.assert_array_equal(evaluate(module, "main", [np.array(2), x, state]), found)
    native = pullback.compile(module).function("main")
    np.testing.assert_array_equal(native(np.array(2), x, state).numpy(), found)
