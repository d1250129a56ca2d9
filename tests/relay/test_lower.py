"""Lowering: which program of the graph IR a function of relay becomes."""

from __future__ import annotations

import numpy as np
import pytest

import pullback
from pullback import relay
from pullback.ir import IRModule
from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.interpreter import evaluate
from pullback.relay.evaluate.straight import evaluator
from pullback.relay.expr import call_op
from pullback.relay.lower import NotDataflow, lower
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType
from pullback.script import ir as I
from pullback.script import relax as R
from tests.relay.programs import CASES, COUNT, W, X, matrix, references


@pytest.mark.parametrize("case", [c for c in CASES if c.native], ids=str)
def test_the_interpreter_of_the_graph_ir_gives_the_same(case):
    result = evaluate(lower(case.make()), "main", [np.asarray(a) for a in case.arguments])
    expected = case.expected(*[np.asarray(a, "float64") for a in case.arguments])
    for one, other in zip(flat(result), flat(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", [c for c in CASES if c.native], ids=str)
def test_straight_code_takes_a_shorter_way(case):
    """The evaluator's own interpreter of straight code; with branches and functions it is the graph IR's."""
    result = evaluator(lower(case.make()))([np.asarray(a) for a in case.arguments])
    expected = case.expected(*[np.asarray(a, "float64") for a in case.arguments])
    for one, other in zip(flat(result), flat(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def flat(value):
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, tuple) else [value]


def test_references_are_gone():
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((2, 3), "float32")):
            new = R.add(x, x)
            product = R.multiply(x, w)
            return product, new

    pullback.ir.assert_structural_equal(lower(references()), Expected)


def test_a_branch_is_one_of_the_graph_ir():
    @I.ir_module
    class Expected:
        @R.function
        def main(b: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")):
            if b:  # noqa: SIM108
                y = R.exp(x)
            else:
                y = R.negative(x)
            return y

    b, x = relay.var("b", TensorType((), "bool")), matrix("x")
    pullback.ir.assert_structural_equal(lower(relay.Function([b, x], relay.If(b, relay.exp(x), -x))), Expected)


def test_names_of_parameters_are_kept():
    x, y = relay.var("input.1", shape=(2,)), relay.var("0.weight", shape=(2,))
    main = lower(relay.Function([x, y], x * y))["main"]
    assert [p.name for p in main.params] == ["input.1", "0.weight"]


def test_sizes_that_are_not_known_are_apart():
    x, y = relay.var("x", TensorType((AnySize(),))), relay.var("y", TensorType((AnySize(),)))
    module = lower(relay.Function([x, y], relay.Tuple([relay.exp(x), relay.exp(y)])))
    result = pullback.compile(module)["main"](np.zeros(2, "float32"), np.zeros(3, "float32"))
    assert [r.shape for r in result] == [(2,), (3,)]


def test_a_condition_that_is_known_is_decided():
    x = matrix("x")
    condition = call_op("less", relay.const(1), relay.const(2))
    module = lower(relay.Function([x], relay.If(condition, x, relay.exp(x))))
    assert not list(module["main"].bindings)


def test_functions_that_are_passed_are_inlined():
    x, f, v = matrix("x"), relay.var("f"), matrix("v")
    again = relay.var("again")
    twice = relay.Function([again, v], again(again(v)))
    u = matrix("u")
    program = relay.Let(f, relay.Function([u], u * x), twice(f, x))
    module = lower(relay.Function([x], program))
    assert [b.value.op.short for b in module["main"].bindings] == ["multiply", "multiply"]


def test_functions_of_the_module_are_inlined_and_its_recursions_kept():
    module = IRModule()
    n, k = relay.var("n", COUNT), relay.var("k", COUNT)
    countdown = relay.GlobalVar("countdown")
    less = call_op("less", k, relay.const(1))
    module["countdown"] = relay.Function([k], relay.If(less, k, countdown(k - relay.const(2))), COUNT)
    module["twice"] = relay.Function([n], countdown(n) + countdown(n + relay.const(1)))
    compiled = pullback.compile(lower(module, "twice"))["main"]
    assert compiled(np.int32(7)).item() == -1 + 0  # 7 ends at -1, 8 at 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: relay.Function([], x), "closure: the result is a function, no tensor"),
        (lambda x: relay.RefCreate(x), "reference: the result is a reference, no tensor"),
        (lambda x: relay.Tuple([x, relay.RefCreate(x)]), "reference: the result is a reference"),
    ],
)
def test_what_has_no_form_in_the_graph_ir(make, message):
    x = matrix("x")
    with pytest.raises(NotDataflow, match=message):
        lower(relay.Function([x], make(x)))


def test_a_reference_that_a_recursion_writes_to():
    n, k, cell, loop = relay.var("n", COUNT), relay.var("k", COUNT), relay.var("cell"), relay.var("loop")
    write = relay.RefWrite(cell, relay.RefRead(cell) + k)
    again = relay.Let(relay.var("_"), write, loop(k - relay.const(1)))
    body = relay.If(call_op("less", k, relay.const(1)), k, again)
    program = relay.Let(loop, relay.Function([k], body, COUNT), loop(n))
    program = relay.Let(relay.var("_"), program, relay.RefRead(cell))
    program = relay.Function([n], relay.Let(cell, relay.RefCreate(relay.const(0)), program))
    with pytest.raises(NotDataflow, match="reference: a function that calls itself writes to one"):
        lower(program)
    assert relay.create_executor("vm").evaluate(program)(np.int32(4)).item() == 10


def test_what_is_done_in_a_branch_and_needed_after_it():
    b, x, cell = relay.var("b", TensorType((), "bool")), matrix("x"), relay.var("cell")
    read = relay.RefRead(cell) + x
    program = relay.Let(cell, relay.RefCreate(x), relay.If(b, read, x) + read)
    with pytest.raises(NotDataflow, match="reference: what a branch has done with one is needed outside"):
        lower(relay.Function([b, x], program))


def test_mistakes():
    with pytest.raises(ArgumentError, match="a function of relay is lowered, not Constant"):
        lower(relay.const(1.0))
    x = relay.var("x")
    with pytest.raises(UserError, match="the type of parameter %x is not known"):
        lower(relay.Function([x], x))
    x, y = matrix("x"), relay.var("y", shape=(5,))
    with pytest.raises(UserError, match="add"):
        lower(relay.Function([x, y], x + y))


def test_tuples_are_parameters_and_results():
    pair = relay.var("pair", TupleType([TensorType((2, 3)), TupleType([TensorType((2, 3))])]))
    inner = relay.TupleGetItem(relay.TupleGetItem(pair, 1), 0)
    module = lower(relay.Function([pair], relay.Tuple([relay.TupleGetItem(pair, 0) + inner, pair])))
    total, (first, (second,)) = pullback.compile(module)["main"]((X, (W,)))
    np.testing.assert_array_equal(total.numpy(), X + W)
    np.testing.assert_array_equal(first.numpy(), X)
    np.testing.assert_array_equal(second.numpy(), W)


def test_programs_that_are_nested_deeply():
    x = relay.var("x", shape=(2,))
    body = x
    for k in range(2000):
        name = relay.var(f"y{k}")
        body = relay.Let(name, relay.exp(x), body) if k % 2 else -body
    assert len(list(lower(relay.Function([x], body))["main"].bindings)) == 2000
