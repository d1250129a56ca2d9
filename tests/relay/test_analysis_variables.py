"""Variables and type variables of expressions: free, bound, all."""

from __future__ import annotations

import pytest

from pullback.ir import IRModule
from pullback.relay.adt import Clause, Match, PatternVar
from pullback.relay.analysis import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    bound_vars,
    free_type_vars,
    free_vars,
)
from pullback.relay.expr import Call, Expr, Function, Let, Tuple, Var, call_op, const, var
from pullback.relay.ty import FuncType, TensorType, TupleType, TypeVar
from tests.relay.lists import Lists

A, B, C, D = (var(n, shape=()) for n in "abcd")
HEAD, TAIL = var("head"), var("tail")
LISTS = Lists()

CASES: dict[str, tuple[Expr, str, str]] = {
    "variable": (A, "a", ""),
    "call": (A + B, "ab", ""),
    "a variable that occurs twice": (B + (A + B), "ba", ""),
    "function": (Function((A, B), A + C), "c", "ab"),
    "let": (Let(A, B, A + C), "bc", "a"),
    "let that uses itself": (Let(A, Function((), A), B), "b", "a"),
    "nested": (Let(A, Function((B,), B + C), Call(A, (D,))), "cd", "ab"),
    "match": (LISTS.by_cases(A, B, HEAD, TAIL, HEAD + C), "abc", "headtail"),
    "constant": (const(1), "", ""),
    "deep": (Let(D, Tuple((A, Tuple((B, Tuple((A, D)))))), D), "ab", "d"),
}


def names(variables: list[Var]) -> str:
    return "".join(v.name_hint for v in variables)


@pytest.mark.parametrize("name", CASES)
def test_free_and_bound(name: str) -> None:
    expr, free, bound = CASES[name]
    assert (names(free_vars(expr)), names(bound_vars(expr))) == (free, bound)
    assert set(all_vars(expr)) == {*free_vars(expr), *bound_vars(expr)}
    assert len(all_vars(expr)) == len(free_vars(expr)) + len(bound_vars(expr))


def test_all_are_in_the_order_of_their_occurrence() -> None:
    assert names(all_vars(Function((A, B), Let(C, B, C + D)))) == "abcd"


def test_patterns() -> None:
    pattern = LISTS.pattern(HEAD, TAIL)
    assert bound_vars(pattern) == [HEAD, TAIL] == all_vars(pattern) and free_vars(pattern) == []


def test_a_graph_of_many_paths() -> None:
    expr: Expr = A
    for _ in range(2_000):
        expr = expr + expr
    assert free_vars(expr) == [A]


def test_as_function_and_from_expr() -> None:
    f = (B + A).as_function()
    assert f.params == (B, A) and f.as_function() is f
    assert IRModule.from_expr(call_op("tanh", A))["main"].params == (A,)


# type variables

P, Q, R = TypeVar("p"), TypeVar("q"), TypeVar("r")


def test_type_variables_of_types() -> None:
    type_ = FuncType((TupleType((P, Q)), P), R, (P,))
    assert free_type_vars(type_) == [Q, R] and bound_type_vars(type_) == [P] and all_type_vars(type_) == [P, Q, R]
    assert all_type_vars(TensorType((3,))) == []


def test_type_variables_of_expressions() -> None:
    x, y = var("x", P), var("y", FuncType((Q,), R, (R,)))
    f = Function((x,), Let(y, Call(x, (x,), type_args=(Q,)), x), P, (P,))
    assert set(free_type_vars(f)) == {Q} and set(bound_type_vars(f)) == {P, R} and set(all_type_vars(f)) == {P, Q, R}
    assert free_type_vars(f.body) == [Q, P]
    assert all_type_vars(Function((var("x", P),), A, TupleType((P, R)), (Q,))) == [Q, P, R]


def test_type_variables_of_patterns() -> None:
    x = var("x", P)
    assert free_type_vars(Match(A, (Clause(PatternVar(x), B),))) == [P]


def test_type_variables_of_constructors_are_bound_by_the_definition() -> None:
    lists = Lists()
    (a,) = lists.module[lists.name].type_vars
    nil = Call(lists.nil, ())
    cons = Call(lists.cons, (A, nil))
    assert free_type_vars(cons, lists.module) == [] and bound_type_vars(cons, lists.module) == [a]
    assert all_type_vars(cons) == [] and all_type_vars(cons, lists.module) == [a]
