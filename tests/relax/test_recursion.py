"""Recursive functions: tail calls are loops."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.module import GlobalVar, IRModule
from pullback.relax import BlockBuilder, Function, Var
from pullback.relax.analysis import check_well_formed
from pullback.relax.control import LOOP
from pullback.relax.expr import VarBinding
from pullback.relax.interpreter import evaluate
from pullback.relax.regions import is_closed
from pullback.relax.struct_info import FuncStructInfo, TensorStructInfo
from pullback.relax.transform.inline_functions import inline_calls
from pullback.script import relax as R

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
