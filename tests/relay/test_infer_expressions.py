"""Types of expressions: what each construct gives, and what inference writes into the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import tir
from pullback.ir import IRModule, Span
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.node import structural_equal
from pullback.relay.adt import Clause, Match, PatternTuple, PatternVar
from pullback.relay.expr import (
    Call,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    call_op,
    const,
    var,
)
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.op.registry import Op
from pullback.relay.transform.infer_type import InferType, InferTypeLocal
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import FuncType, IncompleteType, RefType, TensorType, TupleType, scalar_type
from pullback.relay.visitor import post_order


def tensor(*shape: Any, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype)


def x(*shape: Any, dtype: str = "float32", name: str = "x") -> Var:
    return var(name, shape=shape, dtype=dtype)


CASES: dict[str, tuple[Expr, Any]] = {
    "variable": (x(3), tensor(3)),
    "float constant": (const(1.0), scalar_type("float32")),
    "array constant": (const(np.zeros((2, 3), "int64")), tensor(2, 3, dtype="int64")),
    "operator": (x(2, 3) + x(3), tensor(2, 3)),
    "operators": ((x(2, 1) * x(3)) - const(1.0), tensor(2, 3)),
    "tuple": (Tuple((x(3), const(1))), TupleType((tensor(3), scalar_type("int32")))),
    "no tuple": (Tuple(()), TupleType(())),
    "field": (TupleGetItem(Tuple((x(3), const(1))), 1), scalar_type("int32")),
    "let": (Let(var("y"), x(3), const(1)), scalar_type("int32")),
    "if": (If(const(True), x(3), x(3)), tensor(3)),
    "reference": (RefCreate(x(3)), RefType(tensor(3))),
    "read": (RefRead(RefCreate(x(3))), tensor(3)),
    "write": (RefWrite(RefCreate(x(3)), x(3)), TupleType(())),
    "function": (Function((v := x(3),), Tuple((v, v))), FuncType((tensor(3),), TupleType((tensor(3), tensor(3))))),
    "call of a function": (Function((v := x(3),), v + v)(x(3)), tensor(3)),
    "function that takes a function": (
        Function((f := var("f", FuncType((tensor(3),), tensor(4))),), f(x(3))),
        FuncType((FuncType((tensor(3),), tensor(4)),), tensor(4)),
    ),
    "operator of a tuple": (call_op("concatenate", Tuple((x(2, 3), x(4, 3))), axis=0), tensor(6, 3)),
    "several results": (
        TupleGetItem(call_op("split", x(4, 2), indices_or_sections=2, axis=0).astuple(), 1),
        tensor(2, 2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_type(name: str) -> None:
    expr, type_ = CASES[name]
    assert structural_equal(infer_expr(expr).checked_type, type_)


@pytest.mark.parametrize("name", CASES)
def test_every_node_has_a_type_and_the_structure_stays(name: str) -> None:
    expr, _ = CASES[name]
    found = infer_expr(expr)
    assert all(node.checked_type is not None for node in post_order(found) if not isinstance(node, Op))
    unannotated = [v for v in post_order(expr) if isinstance(v, Var) and v.type_annotation is None]
    functions = [f for f in post_order(expr) if isinstance(f, Function)]
    assert unannotated or functions or structural_equal(found, expr)


@pytest.mark.parametrize("name", CASES)
def test_again(name: str) -> None:
    found = infer_expr(CASES[name][0])
    assert infer_expr(found) is found


def test_the_argument_is_not_changed() -> None:
    y = x(3) + const(1.0)
    infer_expr(y)
    assert y.checked_type_ is None


def test_a_type_of_a_kind() -> None:
    pair = infer_expr(Tuple((x(3), x(2, 3))))
    assert pair.fields[1].checked_as(TensorType).shape == (2, 3)
    assert pair.checked_as(TupleType).fields == (tensor(3), tensor(2, 3))
    with pytest.raises(UserError, match=r"a tensor is expected, got a value of type \(Tensor") as raised:
        pair.checked_as(TensorType)
    assert "t[0], t[1]" in str(raised.value.hint)
    with pytest.raises(UserError, match="a function is expected, got a value of type Tensor"):
        pair.fields[0].checked_as(FuncType)
    with pytest.raises(UserError, match="the type checker has not run"):
        x(3).checked_as(TensorType)


def test_declared_variables_stay_themselves() -> None:
    a, b = x(3), var("b")
    f = infer_expr(Function((a,), Let(b, a + a, b)))
    assert f.params == (a,) and a.checked_type == tensor(3)
    assert f.body.variable is not b and f.body.variable.type_annotation == tensor(3) and b.type_annotation is None
    assert f.body.body is f.body.variable


def test_functions_get_their_result_types() -> None:
    a = x(3)
    f = infer_expr(Function((a,), Tuple((a,))))
    assert f.ret_type == TupleType((tensor(3),)) and f.checked_type == FuncType((tensor(3),), f.ret_type)


def test_calls_of_operators_get_the_types_of_their_arguments() -> None:
    call = infer_expr(x(2, 3) + x(3))
    assert call.type_args == (tensor(2, 3), tensor(3))


def test_spans_stay() -> None:
    span = Span("program.py", 3)
    y = infer_expr(Let(Var("v", span=span), x(3), x(3), span=span))
    assert y.span == span and y.variable.span == span


def test_sharing_stays() -> None:
    y = x(3) + x(3)
    found = infer_expr(y * y)
    assert found.args[0] is found.args[1]


# what follows from elsewhere


def test_a_parameter_has_the_type_of_the_argument() -> None:
    a = var("a")
    call = infer_expr(Function((a,), a + a)(x(2, 3)))
    assert call.checked_type == tensor(2, 3) and call.op.params[0].type_annotation == tensor(2, 3)


def test_a_parameter_has_the_type_that_its_use_asks_for() -> None:
    a, g = var("a"), Function((b := x(2, 3),), b)
    assert infer_expr(Function((a,), g(a))).params[0].checked_type == tensor(2, 3)


def test_fields_of_a_parameter() -> None:
    a = var("a")
    f = Function((a,), TupleGetItem(a, 0) + TupleGetItem(a, 1))
    call = infer_expr(f(Tuple((x(3), x(2, 3)))))
    assert call.checked_type == tensor(2, 3)
    assert call.op.checked_type == FuncType((TupleType((tensor(3), tensor(2, 3))),), tensor(2, 3))


def test_a_function_that_a_parameter_stands_for() -> None:
    f, a, b = var("f"), var("a"), x(3, name="b")
    call = infer_expr(Function((f, a), f(f(a)))(Function((b,), b + b), x(3)))
    assert call.checked_type == tensor(3)
    assert call.op.params[0].checked_type == FuncType((tensor(3),), tensor(3))


def test_weights_follow_from_data() -> None:
    weight = var("weight")
    call = infer_expr(call_op("nn.dense", x(4, 8), weight, units=5))
    assert call.checked_type == tensor(4, 5) and call.args[1].checked_type == tensor(5, 8)


def test_weights_follow_from_data_that_is_found_later() -> None:
    data, weight = var("data"), var("weight")
    f = Function((data, weight), call_op("nn.dense", data, weight, units=5))
    call = infer_expr(f(x(4, 8), var("w")))
    assert call.checked_type == tensor(4, 5) and call.args[1].checked_type == tensor(5, 8)


def test_the_type_of_a_cell_follows_from_what_is_written() -> None:
    cell = var("cell")
    f = Function((cell,), Let(var("_"), RefWrite(cell, x(3)), RefRead(cell)))
    assert infer_expr(f).checked_type == FuncType((RefType(tensor(3)),), tensor(3))


def test_unknown_types_that_are_one() -> None:
    unknown = IncompleteType()
    a, b = var("a", unknown), var("b", unknown)
    takes = Function((c := x(3),), c)
    f = infer_expr(Function((a, b), Tuple((takes(a), b))))
    assert f.params[1].checked_type == tensor(3)


def test_patterns_bind_the_parts_of_a_tuple() -> None:
    a, b = var("a"), var("b")
    match = Match(Tuple((x(3), const(1))), (Clause(PatternTuple((PatternVar(a), PatternVar(b))), Tuple((b, a))),))
    assert infer_expr(match).checked_type == TupleType((scalar_type("int32"), tensor(3)))


# sizes that are not known


ANY = AnySize()


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ((3,), (3,), (3,)),
        ((ANY,), (3,), (ANY,)),
        ((3, ANY), (ANY, 4), (ANY, ANY)),
        ((3, 4), (5, 4), (ANY, 4)),
    ],
)
def test_branches_join(first: Any, second: Any, joined: Any) -> None:
    a, b = x(*first), x(*second)
    assert infer_expr(If(const(True), a, b)).checked_type == tensor(*joined)
    assert infer_expr(If(const(True), b, a)).checked_type == tensor(*joined)
    assert infer_expr(If(const(True), Tuple((a, b)), Tuple((b, a)))).checked_type == TupleType((tensor(*joined),) * 2)
    assert infer_expr(Tuple((If(const(True), a, b), a, b))).checked_type.fields[1:] == (tensor(*first), tensor(*second))


@pytest.mark.parametrize(("param", "argument"), [((3,), (ANY,)), ((ANY,), (3,)), ((ANY, 2), (3, ANY))])
def test_a_size_that_is_not_known_fits_every_other(param: Any, argument: Any) -> None:
    p = x(*param)
    call = infer_expr(Function((p,), p)(x(*argument)))
    assert call.checked_type == tensor(*param) and call.args[0].checked_type == tensor(*argument)


N, M = tir.Var("n", "int64"), tir.Var("m", "int64")


def test_sizes_that_are_variables() -> None:
    """One of the same value fits; it fits a number, as it may be that; another variable does not fit."""
    p = x(N + N)
    function = Function((p,), p)
    for size in (N * 2, ANY, 6):
        assert infer_expr(function(x(size))).checked_type == tensor(N + N)
    with pytest.raises(ShapeError, match="axis 0 is m against"):
        infer_expr(function(x(M)))
    assert infer_expr(If(const(True), x(N), x(M))).checked_type == tensor(ANY)
    assert infer_expr(If(const(True), x(N), x(N))).checked_type == tensor(N)


def test_a_parameter_of_several_calls_takes_all_sizes() -> None:
    f, a = var("f"), var("a")
    program = Let(f, Function((a,), a + a), Tuple((f(x(3)), f(x(ANY)))))
    found = infer_expr(program)
    assert found.checked_type == TupleType((tensor(ANY), tensor(ANY)))
    assert found.value.params[0].checked_type == tensor(ANY) and found.value.body.checked_type == tensor(ANY)


def test_declared_types_of_lets() -> None:
    y = var("y", tensor(ANY))
    found = infer_expr(Let(y, x(3), y))
    assert found.checked_type == tensor(ANY) and found.variable is y


# modules, and the pass


def test_pass() -> None:
    a = x(3)
    module = IRModule.from_expr(Function((a,), a + a))
    module.attrs["kept"] = 1
    found = InferType()(module)
    assert found["main"].checked_type == FuncType((tensor(3),), tensor(3)) and found.attrs == {"kept": 1}
    assert module["main"].checked_type_ is None and found is not module
    assert InferType()(found)["main"] is found["main"]


def test_local_inference_writes_the_type_of_the_expression() -> None:
    y = x(3) + x(3)
    assert InferTypeLocal(y) == tensor(3) == y.checked_type


def test_functions_of_a_module_that_share_a_part() -> None:
    shared = const(1.0) + const(2.0)
    found = infer_module(IRModule({"f": Function((), shared), "g": Function((), Tuple((shared,)))}))
    assert found["f"].body is found["g"].body.fields[0]


@pytest.mark.parametrize("kind", ["graph", "lets", "fields", "nested", "calls"])
def test_time_is_linear(kind: str) -> None:
    """A graph of 2^4000 paths, a type of 2^1000 leaves, and chains that are longer than Python's stack."""
    y: Expr = x(3)
    count = 4_000
    if kind == "graph":
        for _ in range(count):
            y = y + y
    elif kind == "lets":
        names = [var(f"v{i}") for i in range(10_000)]
        y = names[-1]
        for i in reversed(range(10_000)):
            y = Let(names[i], (names[i - 1] if i else const(1.0)) + const(1.0), y)
    elif kind == "fields":
        for _ in range(count):
            y = TupleGetItem(Tuple((y, const(1))), 0)
    elif kind == "nested":
        for _ in range(count // 4):
            y = Tuple((y, y))
        for _ in range(count // 4):
            y = TupleGetItem(y, 1)
    else:
        param = var("param")
        inner: Expr = param
        for _ in range(count):
            inner = call_op("tanh", inner)
        y = Function((param,), inner)(y)
    found = infer_expr(y)
    assert found.checked_type == (scalar_type("float32") if kind == "lets" else tensor(3))


def test_calls_without_arguments() -> None:
    assert infer_expr(Call(Function((), const(1)), ())).checked_type == scalar_type("int32")
