"""What gradients are made of: straight code after partial evaluation, and no forward computation twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from pullback.ir.module import IRModule
from pullback.ir.node import assert_structural_equal
from pullback.relay.expr import Call, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, Var, call_op, const, var
from pullback.relay.infer import infer_expr
from pullback.relay.op.registry import Op
from pullback.relay.transform import DeadCodeElimination, PartialEvaluate, gradient
from pullback.relay.ty import TensorType
from pullback.relay.visitor import post_order
from tests.relay.differences import differences, run

SQUARE = TensorType((10, 10))


def straightened(function: Function, inline_once: bool = True) -> Function:
    """The gradient after partial evaluation and dead code elimination."""
    mod = IRModule.from_expr(gradient(function))
    for step in (PartialEvaluate(), DeadCodeElimination(inline_once=inline_once, ignore_impurity=True)):
        mod = step(mod)
    return mod["main"]


def operators(expr: Any) -> Counter[str]:
    return Counter(node.op.name for node in post_order(expr) if isinstance(node, Call) and isinstance(node.op, Op))


def test_the_gradient_of_a_square_is_straight_code() -> None:
    d, x, ones = var("d", SQUARE), Var("x"), Var("ones")
    found = straightened(Function((d,), d * d))
    terms = [call_op("collapse_sum_like", ones * d, d) for _ in range(2)]
    adjoint = call_op("zeros_like", d) + terms[0] + terms[1]
    inner = Let(ones, call_op("ones_like", x), Tuple((x, Tuple((adjoint,)))))
    expected = infer_expr(Function((d,), Let(x, d * d, inner)))
    assert_structural_equal(found, expected)


@pytest.mark.parametrize("inline_once", [True, False])
def test_programs_without_recursion_become_dataflow(inline_once: bool) -> None:
    x, w, f, r, t = var("x", shape=(4,)), var("w", shape=(4,)), Var("f"), Var("r"), var("t", shape=(4,))
    scaled = Function((t,), call_op("tanh", t * w))
    body = Let(
        f, scaled, Let(r, RefCreate(f(x)), Let(Var("u"), RefWrite(r, RefRead(r) * x), call_op("sum", f(RefRead(r)))))
    )
    function = Function((x, w), body)
    found = straightened(function, inline_once)
    kinds = {type(node) for node in post_order(found.body)}
    assert not kinds & {RefCreate, RefRead, RefWrite, Function, If}
    args = [np.array([0.5, -1.0, 0.25, 2.0], "float32"), np.array([1.5, 0.5, -1.0, 1.0], "float32")]
    value, adjoints = run(found, *args)
    np.testing.assert_allclose(value, run(function, *args), rtol=1e-6)
    wide = Function((x, w), body)  # differences in float32: a coarse step
    for adjoint, wanted in zip(adjoints, differences(lambda *xs: run(wide, *xs), args, 1e-2), strict=True):
        np.testing.assert_allclose(adjoint, wanted, rtol=0.02, atol=2e-3)


def test_first_order_gradients_duplicate_nothing() -> None:
    x, y = var("x", shape=(12, 12)), var("y", shape=(12, 12))
    product = call_op("nn.dense", x, y)
    centred = product - call_op("sum", product, keepdims=True)
    found = gradient(Function((x, y), call_op("sum", centred)), mode="first_order")
    assert operators(found)["nn.dense"] == 3  # once forward, once for each factor
    assert not {type(node) for node in post_order(found.body)} & {Let, RefCreate, Function, If}


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "sqrt", "nn.softmax", "divide", "max"])
@pytest.mark.parametrize("mode", ["first_order", "higher_order"])
def test_rules_use_the_result_that_is_there(name: str, mode: str) -> None:
    x, y = var("x", shape=(3, 4)), var("y", shape=(3, 4))
    args = (x, y) if name == "divide" else (x,)
    found = gradient(Function(args, call_op("cos", call_op(name, *args))), mode=mode)
    assert operators(found)[name] == (3 if name == "divide" else 1)  # quotients are in its rule as well


def test_first_order_of_first_order() -> None:
    x = var("x", shape=(3,), dtype="float64")
    first = gradient(Function((x,), x * x * x), mode="first_order")
    slope = Function(first.params, first.body.fields[1].fields[0])
    values = np.array([0.5, -1.0, 2.0])
    second = gradient(slope, mode="first_order")
    np.testing.assert_allclose(run(second, values)[1][0], 6 * values)


def test_numbers_that_do_not_move_take_no_update() -> None:
    """What has no floats, and constants, have no adjoints to be added to."""
    x, n = var("x", shape=(3,)), var("n", "int32")
    function = Function((x, n), x * const(2.0) * call_op("cast", n + const(1, "int32"), dtype="float32"))
    found = gradient(function)
    assert operators(found)["collapse_sum_like"] == 3
    assert operators(found)["cast_like"] == 0


def test_the_same_whatever_the_mode() -> None:
    x, w = var("x", shape=(2, 3)), var("w", shape=(4, 3))
    function = Function((x, w), call_op("nn.log_softmax", call_op("nn.dense", x, w)))
    rng = np.random.default_rng(5)
    args = [rng.normal(size=s).astype("float32") for s in ((2, 3), (4, 3))]
    one, other = (run(gradient(function, mode=mode), *args) for mode in ("first_order", "higher_order"))
    np.testing.assert_array_equal(one[0], other[0])
    for a, b in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
