"""What gradients refuse, and what they say; rules that users register."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pullback.ir.errors import ArgumentError, DifferentiationError, NameNotFound, UserError
from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Function, GlobalVar, If, Let, RefCreate, RefRead, Tuple, Var, call_op, const, var
from pullback.relay.op import get, register, register_gradient
from pullback.relay.op.registry import Op
from pullback.relay.text import parse
from pullback.relay.transform import first_order_gradient, gradient
from pullback.relay.ty import TypeVar
from tests.relay.differences import run

X = np.array([1.0, 2.0, 3.0])


def vector(name: str = "x") -> Var:
    return var(name, shape=(3,), dtype="float64")


@pytest.fixture
def opaque() -> Iterator[list[Op]]:
    """Two operators that have a type, but neither a meaning nor a gradient."""
    made = [register(f"test.opaque{k}") for k in (1, 2)]
    for op in made:
        op.set_num_inputs(1)
        op.add_type_rel("Identity")
    yield made
    for op in made:
        del Op.registry[op.name]


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_all_operators_without_a_gradient_are_named(opaque: list[Op], mode: str) -> None:
    x = vector()
    body = opaque[0](x) * opaque[1](call_op("sin", x))
    with pytest.raises(DifferentiationError) as caught:
        gradient(Function((x,), body), mode=mode)
    message = str(caught.value)
    assert "test.opaque1" in message and "test.opaque2" in message and "sin" not in message
    assert "has no meaning in the graph IR" in message
    assert "register_gradient(name, lambda orig, grad: [an adjoint per argument])" in message


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_places_are_named(opaque: list[Op], mode: str) -> None:
    text = """#[version = "0.0.5"]
    def @main(%x: Tensor[(3), float64]) {
      test.opaque2(add(%x, test.opaque1(%x)))
    }
    """
    with pytest.raises(DifferentiationError, match=r"test\.opaque1 at net\.rly:3:28") as caught:
        gradient(parse(text, "net.rly")["main"], mode=mode)
    assert "test.opaque2 at net.rly:3:7" in str(caught.value)


def test_functions_of_the_module_count(opaque: list[Op]) -> None:
    x, y = vector(), vector("y")
    mod = IRModule({"f": Function((y,), opaque[0](y))})
    with pytest.raises(DifferentiationError, match=r"test\.opaque1"):
        gradient(Function((x,), Call(GlobalVar("f"), (x,))), mod)
    assert set(mod) == {"f"}


@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_no_gradient_is_needed_where_nothing_moves(opaque: list[Op], mode: str) -> None:
    """Of whole numbers, and of places."""
    x = vector()
    count = call_op("cast", call_op("argmax", x), dtype="float64")
    result, (dx,) = run(gradient(Function((x,), x * count), mode=mode), X)
    np.testing.assert_array_equal(result, 2 * X)
    np.testing.assert_array_equal(dx, np.full(3, 2.0))


def test_a_registered_rule_is_used(opaque: list[Op]) -> None:
    name = opaque[0].name
    register_gradient(name, lambda orig, grad: [grad * const(7.0, "float64") * orig.args[0]])
    assert get(name).get_attr("FPrimalGradient") is not None
    x = vector()
    assert gradient(Function((x,), opaque[0](x))) is not None


def identity() -> Any:
    register("test.identity", lower=lambda x: x).set_num_inputs(1)
    return get("test.identity")


def slope(op: Any, mode: str = "higher_order") -> np.ndarray:
    x = vector()
    return run(gradient(Function((x,), op(x)), mode=mode), X)[1][0]


def test_a_later_rule_of_at_least_the_level_replaces_an_earlier_one() -> None:
    op = identity()
    try:
        np.testing.assert_array_equal(slope(op), np.ones(3))  # of its meaning

        @register_gradient("test.identity")
        def double(orig: Any, grad: Any) -> list[Any]:
            return [grad * const(2.0, "float64")]

        np.testing.assert_array_equal(slope(op), np.full(3, 2.0))
        register_gradient("test.identity", lambda orig, grad: [grad * const(3.0, "float64")])
        np.testing.assert_array_equal(slope(op), np.full(3, 3.0))
        register_gradient("test.identity", double, level=5)
        np.testing.assert_array_equal(slope(op), np.full(3, 3.0))
        register_gradient("test.identity", double, level=15)
        np.testing.assert_array_equal(slope(op, "first_order"), np.full(3, 2.0))
    finally:
        del Op.registry["test.identity"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda orig, grad: [grad, grad], "gave 2 adjoints for 1 arguments"),
        (lambda orig, grad: [], "gave 0 adjoints for 1 arguments"),
        (lambda orig, grad: ["grad"], "gave no expression for argument 0"),
    ],
)
@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_what_a_rule_returns_is_checked(rule: Any, message: str, mode: str) -> None:
    op = identity()
    try:
        register_gradient("test.identity", rule)
        with pytest.raises(DifferentiationError, match=message):
            slope(op, mode)
    finally:
        del Op.registry["test.identity"]


@pytest.mark.parametrize("rule", [lambda orig, grad: grad, lambda orig, grad: (grad,)])
def test_a_rule_may_return_one_expression_or_a_tuple(rule: Any) -> None:
    op = identity()
    try:
        register_gradient("test.identity", rule)
        np.testing.assert_array_equal(slope(op), np.ones(3))
    finally:
        del Op.registry["test.identity"]


def test_registering_for_what_is_no_operator() -> None:
    with pytest.raises(NameNotFound, match=r"no relay operator 'nn\.densee'"):
        register_gradient("nn.densee", lambda orig, grad: [grad])
    with pytest.raises(ArgumentError, match="a gradient rule is a function"):
        register_gradient("nn.dense", "rule")


def test_modes_and_arguments() -> None:
    x = vector()
    with pytest.raises(ArgumentError, match="unknown mode 'firstorder': did you mean first_order"):
        gradient(Function((x,), x), mode="firstorder")
    with pytest.raises(DifferentiationError, match="only functions have gradients, not Call"):
        gradient(x + x)
    with pytest.raises(DifferentiationError, match="the function f is not known"):
        gradient(GlobalVar("f"))
    a = TypeVar("a")
    v = Var("v", a)
    with pytest.raises(DifferentiationError, match="polymorphic"):
        gradient(Function((v,), v, a, (a,)))
    with pytest.raises(UserError, match="y"):
        gradient(Function((x,), x * vector("y")))
    with pytest.raises(DifferentiationError, match="y is bound nowhere"):
        first_order_gradient(Function((x,), x * vector("y")))


@pytest.mark.parametrize("result", [Tuple(()), Function((), Tuple(()))])
@pytest.mark.parametrize("mode", ["higher_order", "first_order"])
def test_a_result_without_a_tensor(result: Any, mode: str) -> None:
    with pytest.raises(DifferentiationError):
        gradient(Function((vector(),), result), mode=mode)


X_VAR, Y_VAR = vector(), vector("y")
NO_DATAFLOW = {
    "Let": Let(Y_VAR, X_VAR * X_VAR, Y_VAR),
    "If": If(call_op("less", call_op("sum", X_VAR), const(0.0, "float64")), X_VAR, X_VAR * X_VAR),
    "a call of what is no operator": Call(Function((Y_VAR,), Y_VAR * Y_VAR), (X_VAR,)),
    "RefCreate": RefRead(RefCreate(X_VAR)),
}


@pytest.mark.parametrize("what", NO_DATAFLOW)
def test_first_order_names_what_it_cannot_take(what: str) -> None:
    with pytest.raises(DifferentiationError) as caught:
        first_order_gradient(Function((X_VAR,), call_op("sin", NO_DATAFLOW[what])))
    assert f"take dataflow only, not {'Function' if 'call' in what else what}" in str(caught.value)
    assert 'mode="higher_order"' in str(caught.value)
