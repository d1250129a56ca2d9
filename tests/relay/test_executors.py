"""Every kind of executor computes what NumPy does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pullback
from pullback import relay
from pullback.ir import IRModule
from pullback.ir.errors import ArgumentError, CallError, DTypeError, ShapeError, TargetError, UserError
from pullback.relay.expr import call_op
from pullback.relay.lower import NotDataflow
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, TupleType
from tests.relay.programs import CASES, W, X, check, double, matrix, straight

KINDS = ("debug", "vm", "graph", "aot")
NATIVE = ("graph", "aot")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_program(case, kind):
    arguments = [np.asarray(a) for a in case.arguments]
    if kind in NATIVE and not case.native:
        with pytest.raises(NotDataflow, match="closure: the branches of an if choose one of two"):
            relay.create_executor(kind).evaluate(case.make())
        return
    function = relay.create_executor(kind).evaluate(case.make())
    for _ in range(2):  # the second call takes what the first has made ready
        check(function(*arguments), case.expected(*double(*arguments)))


@pytest.mark.parametrize("kind", KINDS)
class TestCalls:
    def test_main_of_a_module_and_a_function_of_it(self, kind):
        module = IRModule.from_expr(straight())
        x = matrix("x")
        module["other"] = relay.Function([x], module.get_global_var("main")(x, x) - x)
        executor = relay.create_executor(kind, module)
        check(executor.evaluate()(X, W), np.tanh(X * W) + 1)
        check(executor.evaluate(module.get_global_var("other"))(X), np.tanh(X * X) + 1 - X)

    def test_positions_first_then_names(self, kind):
        function = relay.create_executor(kind).evaluate(straight())
        for result in (function(X, w=W), function(w=W, x=X), function(pullback.tensor(X), W)):
            check(result, np.tanh(X * W) + 1)

    def test_lists_and_numbers_take_the_declared_dtype(self, kind):
        x, n = relay.var("x", shape=(2,)), relay.var("n", shape=())
        function = relay.create_executor(kind).evaluate(relay.Function([x, n], x * n))
        check(function([1, 2], 3), np.array([3, 6], "float32"))

    def test_a_tuple_as_an_argument(self, kind):
        pair = relay.var("pair", TupleType([TensorType((2, 3)), TensorType((2, 3))]))
        body = relay.TupleGetItem(pair, 0) - relay.TupleGetItem(pair, 1)
        check(relay.create_executor(kind).evaluate(relay.Function([pair], body))((X, W)), X - W)

    def test_an_expression_is_its_value(self, kind):
        executor = relay.create_executor(kind)
        check(executor.evaluate(relay.const(2.0) * relay.const(3.0)), np.float32(6))
        x = matrix("x")
        check(executor.evaluate(x + x, {x: X}), X + X)

    def test_values_of_parameters(self, kind):
        module = IRModule.from_expr(straight())
        function = relay.create_executor(kind, module, params={"w": W, "nobody": W}).evaluate()
        check(function(X), np.tanh(X * W) + 1)

    def test_sizes_that_only_a_call_tells(self, kind):
        x = relay.var("x", TensorType((AnySize(), 3)))
        function = relay.create_executor(kind).evaluate(relay.Function([x], relay.exp(x) * x))
        for rows in (1, 4):
            value = np.full((rows, 3), 0.5, "float32")
            check(function(value), np.exp(value) * value)

    def test_results_are_not_the_callers_memory(self, kind):
        x = matrix("x")
        given = X.copy()
        result = relay.create_executor(kind).evaluate(relay.Function([x], x))(given)
        given[:] = 0
        check(result, X)

    @pytest.mark.parametrize(
        ("arguments", "names", "error", "message"),
        [
            ((X,), {}, CallError, "lacks the arguments w"),
            ((X, W, W), {}, CallError, "takes 2 arguments, got 3"),
            ((X,), {"v": W}, CallError, "v is no parameter"),
            ((X, W), {"x": W}, CallError, "x is given twice"),
            ((X, W.astype("float64")), {}, DTypeError, "%w must have dtype float32, got float64"),
            ((X, W[:1]), {}, ShapeError, r"%w must have shape \(2, 3\), got \(1, 3\)"),
        ],
    )
    def test_arguments_that_do_not_fit(self, kind, arguments, names, error, message):
        function = relay.create_executor(kind).evaluate(straight())
        with pytest.raises(error, match=message):
            function(*arguments, **names)

    def test_gradient_in_both_modes(self, kind):
        x, w = matrix("x"), matrix("w")
        loss = relay.sum(relay.exp(x * w) + relay.tanh(w))
        grown = np.exp(X.astype("float64") * W)
        expected = (grown.sum() + np.tanh(W).sum(), (W * grown, X * grown + 1 - np.tanh(W.astype("float64")) ** 2))
        for mode in ("higher_order", "first_order"):
            gradient = relay.transform.gradient(relay.Function([x, w], loss), mode=mode)
            check(relay.create_executor(kind).evaluate(gradient)(X, W), expected)


def test_the_kind_device_and_target_are_checked():
    with pytest.raises(ArgumentError, match="there is no executor 'grahp': did you mean graph"):
        relay.create_executor("grahp")
    with pytest.raises(TargetError, match="unknown target kind"):
        relay.create_executor("vm", target="cuda")
    with pytest.raises(TargetError, match="runs on cpu"):
        relay.create_executor("vm", device="gpu")
    assert relay.create_executor(ctx=pullback.cpu(), target="llvm").evaluate(relay.const(1.0)).item() == 1.0


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_what_a_program_keeps_is_not_the_callers_memory(kind):
    x, u = matrix("x"), matrix("u")
    given = X.copy()
    kept = relay.Tuple([relay.Function([u], u * x), relay.RefCreate(x)])
    function, cell = relay.create_executor(kind).evaluate(relay.Function([x], kept))(given)
    given[:] = 0
    check(function(W), X * W)
    check(cell.value, X)


@pytest.mark.parametrize("kind", NATIVE)
def test_what_is_left_is_named_with_its_place_and_a_way_out(kind):
    x = matrix("x")
    span = pullback.ir.node.Span("model.py", 7, text="If(...)")
    condition = call_op("greater", relay.sum(x), relay.const(0.0))
    either = relay.If(condition, relay.Function([], x), relay.Function([], x + x), span=span)
    with pytest.raises(NotDataflow) as caught:
        relay.create_executor(kind).evaluate(relay.Function([x], either()))
    text = str(caught.value)
    assert text.startswith(f'the executor "{kind}" runs dataflow only; closure')
    assert "model.py:7" in text
    assert '"vm" and "debug"' in text


@pytest.mark.parametrize("kind", NATIVE)
def test_a_parameter_that_is_a_function_is_refused(kind):
    f = relay.var("f", relay.FuncType([TensorType(())], TensorType(())))
    with pytest.raises(NotDataflow, match="closure: a parameter of such a type"):
        relay.create_executor(kind).evaluate(relay.Function([f], f(relay.const(1.0))))


def test_types_that_are_not_written_are_inferred():
    x, untyped = matrix("x"), relay.var("y")
    inner = relay.Function([untyped], untyped * untyped)
    main = relay.Function([x], inner(x))
    check(relay.create_executor("graph").evaluate(main)(X), X * X)


def test_the_vm_takes_functions_and_references_across_calls():
    x, u = matrix("x"), matrix("u")
    executor = relay.create_executor("vm")
    made = executor.evaluate(relay.Function([x], relay.Function([u], u * x)))(X)
    check(made(W), X * W)
    f = relay.var("f")
    check(executor.evaluate(relay.Function([f, x], f(f(x))))(made, W), W * X * X)
    cell = executor.evaluate(relay.Function([x], relay.RefCreate(x)))(X)
    check(cell.value, X)
    r = relay.var("r")
    check(executor.evaluate(relay.Function([r], relay.RefRead(r) + relay.RefRead(r)))(cell), X + X)


def test_an_error_in_native_code_names_the_operator():
    x, w = relay.var("x"), relay.var("w")
    function = relay.create_executor("vm").evaluate(relay.Function([x, w], x + w))
    with pytest.raises(UserError, match="add"):
        function(X, np.ones((5, 7), "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_a_function(kind):
    function = relay.create_executor(kind).evaluate(straight())
    inputs = [np.full((2, 3), k / 8, "float32") for k in range(8)]

    def calls(value):
        return [function(value, W).numpy() for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        for value, results in zip(inputs, pool.map(calls, inputs), strict=True):
            for result in results:
                np.testing.assert_allclose(result, np.tanh(value * W) + 1, rtol=1e-6)
