"""Programs written as statements, and loops."""

from __future__ import annotations

from typing import Any

import pytest

from pullback.ir import UserError
from pullback.ir.errors import ArgumentError
from pullback.ir.node import structural_equal
from pullback.relay.analysis import free_vars, well_formed
from pullback.relay.evaluate import Interpreter
from pullback.relay.expr import Function, If, Let, Tuple, call_op, const, var
from pullback.relay.infer import infer_expr
from pullback.relay.loops import while_loop
from pullback.relay.scope_builder import ScopeBuilder
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import FuncType, IncompleteType, TensorType, TupleType, scalar_type

X, C = var("x", shape=(3,)), var("c", "bool")
I0 = scalar_type("int32")


def test_lets() -> None:
    sb = ScopeBuilder()
    a = sb.let("a", X + X)
    b = sb.let(("b", TensorType((3,))), a)
    c = sb.let(var("c"), 1.0)
    sb.ret((a, b, c))
    p, q, r = var("p"), var("q", TensorType((3,))), var("r")
    wanted = Let(p, X + X, Let(q, p, Let(r, const(1.0), Tuple((p, q, r)))))
    assert structural_equal(sb.get(), wanted) and a.name_hint == "a" and b.type_annotation == TensorType((3,))


def test_branches() -> None:
    sb = ScopeBuilder()
    before = sb.let("before", X)
    with sb.if_scope(C):
        y = sb.let("y", before + before)
        with sb.if_scope(C):
            sb.ret(y)
        with sb.else_scope():
            sb.ret(X)
    with sb.else_scope():
        sb.ret(before)
    b, y = var("b"), var("y")
    assert structural_equal(sb.get(), Let(b, X, If(C, Let(y, b + b, If(C, y, X)), b)))


def test_type_of() -> None:
    sb = ScopeBuilder()
    assert sb.type_of(X) == TensorType((3,))
    unknown = sb.type_of(call_op("tanh", X))
    y = var("y", unknown)
    sb.ret(Function((y,), y))
    assert isinstance(unknown, IncompleteType)
    assert infer_expr(sb.get()).checked_type == FuncType((TensorType((3,)),), TensorType((3,)))


def test_errors() -> None:
    sb = ScopeBuilder()
    with pytest.raises(UserError, match="the program has no result"):
        sb.get()
    with pytest.raises(UserError, match="an else_scope follows an if_scope"), sb.else_scope():
        pass
    with pytest.raises(UserError, match="the if_scope has no result"), sb.if_scope(C):
        pass
    with sb.if_scope(C):
        sb.ret(X)
    with pytest.raises(RuntimeError, match="an if_scope in the program has no else_scope"):
        sb.get()
    with pytest.raises(RuntimeError, match="this scope has a result already"):
        sb.ret(X)
    with sb.else_scope():
        with pytest.raises(RuntimeError, match="get gives the outermost scope"):
            sb.get()
        sb.ret(X)
    with pytest.raises(RuntimeError, match="this scope has a result already, which an If would be"), sb.if_scope(C):
        pass
    assert isinstance(sb.get(), If)


def test_arguments_of_let() -> None:
    sb = ScopeBuilder()
    with pytest.raises(ArgumentError, match="let takes a name and a type, got 3 items"):
        sb.let(("a", I0, 3), X)
    with pytest.raises(ArgumentError, match="let binds a variable or a name, got int"):
        sb.let(3, X)


def test_errors_inside_a_scope_leave_the_builder_as_it_was() -> None:
    sb = ScopeBuilder()
    with pytest.raises(KeyError), sb.if_scope(C):
        raise KeyError
    sb.ret(X)
    assert sb.get() is X


def test_loop() -> None:
    i, acc = var("i", I0), var("acc", TensorType((3,)))
    loop = while_loop(lambda i, a: call_op("less", i, const(10)), [i, acc], lambda i, a: (i + const(1), a + X))
    found = infer_expr(loop(const(0), X))
    assert found.checked_type == TupleType((I0, TensorType((3,)))) and free_vars(loop) == [X]
    assert well_formed(found)
    f, j, b = var("f"), var("j", I0), var("b", TensorType((3,)))
    body = If(call_op("less", j, const(10)), f(j + const(1), b + X), Tuple((j, b)))
    assert structural_equal(loop, Let(f, Function((j, b), body), f))


@pytest.mark.parametrize("kind", [list, tuple, lambda values: Tuple(tuple(values))])
def test_values_of_loops(kind: Any) -> None:
    """The sum of the numbers below ten, and their number."""
    i, total = var("i", I0), var("total", I0)
    loop = while_loop(lambda i, t: call_op("less", i, const(10)), [i, total], lambda i, t: kind([i + const(1), t + i]))
    last, found = Interpreter().value(loop(const(0), const(0)))
    assert (int(last.numpy()), int(found.numpy())) == (10, sum(range(10)))


def test_loop_over_expressions() -> None:
    loop = while_loop(lambda a: call_op("less", call_op("sum", a), const(9.0)), [call_op("tanh", X)], lambda a: [a + a])
    found = infer_expr(loop(X))
    assert found.checked_type == TupleType((TensorType((3,)),)) and found.op.value.params[0].name_hint == "arg0"


def test_loop_over_sizes_that_are_not_known() -> None:
    rows = var("rows", shape=(AnySize(),))
    loop = while_loop(
        lambda r: call_op("less", call_op("sum", r), const(9.0)),
        [rows],
        lambda r: [call_op("concatenate", Tuple((r, r)), axis=0)],
    )
    assert infer_expr(loop(X)).checked_type == TupleType((TensorType((AnySize(),)),))


@pytest.mark.parametrize(("body", "got"), [([X, X], "2 of them"), (X, "Var")])
def test_values_of_a_loop(body: object, got: str) -> None:
    with pytest.raises(ArgumentError, match=f"loop_bodies returns a list of the 1 next values, got {got}"):
        while_loop(lambda a: C, [X], lambda a: body)
