"""Visitors and mutators: each node once, at any depth, with what is unchanged kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from pullback.ir import CallError, Span, UserError
from pullback.ir.errors import ArgumentError
from pullback.ir.node import structural_equal
from pullback.relay import analysis
from pullback.relay.adt import Clause, Match, PatternTuple, PatternVar, PatternWildcard
from pullback.relay.expr import (
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from pullback.relay.op.registry import get
from pullback.relay.ty import (
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    TypeCall,
    TypeRelation,
    TypeVar,
)
from pullback.relay.visitor import (
    ExprFunctor,
    ExprMutator,
    ExprVisitor,
    PatternMutator,
    PatternVisitor,
    TypeMutator,
    TypeVisitor,
    bind,
    post_order,
    post_order_visit,
    substitute,
)
from tests.relay.lists import Lists


def every_expression() -> tuple[Expr, Var]:
    """An expression with every construct, and its free variable."""
    lists, free = Lists(), var("free", shape=())
    x, head, tail, c = var("x", shape=()), var("head"), var("tail"), var("c", "bool")
    cell = RefCreate(free)
    pair = Tuple((RefRead(cell), RefWrite(cell, x)))
    listed = Call(lists.cons, (TupleGetItem(pair, 0), Call(lists.nil, ())))
    match = lists.by_cases(listed, const(1.0), head, tail, head + GlobalVar("g")(tail))
    f = Function((x, c), If(c, match, x))
    return Let(var("f"), f, f(free, const(True))), free


def swapped(expr: Any, old: Any, new: Any) -> Any:
    class Swap(ExprMutator):
        def visit_var(self, var: Var) -> Any:
            return new if var is old else var

    return Swap().visit(expr)


def test_post_order_visits_each_node_once_and_operators_too() -> None:
    x = var("x", shape=())
    y = x + x
    names: list[str] = []
    post_order_visit(y * y, lambda node: names.append(getattr(node, "name", type(node).__name__)))
    assert names == ["multiply", "add", "x", "Call", "Call"]


def test_post_order_has_parts_before_the_whole() -> None:
    expr, _ = every_expression()
    nodes = list(post_order(expr))
    assert nodes[-1] is expr and len(nodes) == len(set(nodes))
    place = {node: i for i, node in enumerate(nodes)}
    for node in nodes:
        if isinstance(node, Call):
            assert all(place[a] < place[node] for a in (*node.args, node.op))


def test_visitor_visits_every_kind_of_node_once() -> None:
    expr, _ = every_expression()
    seen: Counter[Any] = Counter()

    class Count(ExprVisitor):
        def visit_call(self, call: Call) -> None:
            seen[call] += 1
            super().visit_call(call)

        def visit_var(self, var: Var) -> None:
            seen[var] += 1

    Count().visit(expr)
    wanted = {node for node in post_order(expr) if isinstance(node, (Call, Var))}
    assert set(seen) == wanted and set(seen.values()) == {1}


def test_functor_without_a_case() -> None:
    with pytest.raises(NotImplementedError):
        ExprFunctor().visit(var("x"))


def test_functor_remembers_what_it_returned() -> None:
    class Size(ExprFunctor):
        calls = 0

        def visit_var(self, var: Var) -> int:
            return 1

        def visit_call(self, call: Call) -> int:
            self.calls += 1
            return 1 + sum(self.visit(a) for a in call.args)

    x = var("x", shape=())
    for _ in range(300):
        x = x + x
    size = Size()
    assert size.visit(x) == 2**301 - 1 and size.calls == 300
    assert size.memo_map[x] == 2**301 - 1


def test_mutator_keeps_what_does_not_change() -> None:
    expr, _ = every_expression()
    assert ExprMutator().visit(expr) is expr


def test_mutator_changes_every_construct() -> None:
    expr, free = every_expression()
    other = var("other", shape=())
    changed = swapped(expr, free, other)
    assert analysis.free_vars(changed) == [other] and analysis.free_vars(expr) == [free]
    assert structural_equal(changed, swapped(changed, other, free)) and swapped(changed, other, free) is not expr


def test_mutator_keeps_sharing() -> None:
    x, y = var("x", shape=()), var("y", shape=())
    shared = x + x
    changed = swapped(shared * shared, x, y)
    assert changed.args[0] is changed.args[1] is not shared


@pytest.mark.parametrize("place", ["call", "let", "if", "tuple", "item", "ref", "read", "write", "function", "match"])
def test_mutator_keeps_spans(place: str) -> None:
    span, x, y = Span("program.py", 7), var("x", shape=()), var("y", shape=())
    expr: Any = {
        "call": lambda: Call(get("add"), (x, x), span=span),
        "let": lambda: Let(var("v"), x, x, span=span),
        "if": lambda: If(const(True), x, x, span=span),
        "tuple": lambda: Tuple((x,), span=span),
        "item": lambda: TupleGetItem(x, 0, span=span),
        "ref": lambda: RefCreate(x, span=span),
        "read": lambda: RefRead(x, span=span),
        "write": lambda: RefWrite(x, x, span=span),
        "function": lambda: Function((), x, span=span),
        "match": lambda: Match(x, (Clause(PatternWildcard(), x),), span=span),
    }[place]()
    changed = swapped(expr, x, y)
    assert changed is not expr and changed.span == span and changed.checked_type_ is None


def test_mutator_changes_types() -> None:
    a, t = TypeVar("a"), TensorType((3,))

    class Typed(ExprMutator):
        def visit_type(self, type_: Any) -> Any:
            return substitute(type_, {a: t})

    x = var("x", a)
    f = Typed().visit(Function((x,), x, a))
    assert f.ret_type == t and f.params[0].type_annotation == t and f.body is f.params[0]


def test_mutator_changes_variables_of_patterns() -> None:
    x, y, data = var("x"), var("y"), var("data")
    match = Match(data, (Clause(PatternTuple((PatternVar(x), PatternWildcard())), x),))
    changed = swapped(match, x, y)
    clause = changed.clauses[0]
    assert clause.lhs.patterns[0].var is y is clause.rhs and clause.lhs.patterns[1] is match.clauses[0].lhs.patterns[1]


@pytest.mark.parametrize("depth", [10, 3_000])
@pytest.mark.parametrize("kind", ["calls", "lets"])
def test_depth(kind: str, depth: int) -> None:
    x, y = var("x", shape=()), var("y", shape=())
    expr: Expr = x
    for i in range(depth):
        expr = expr + expr if kind == "calls" else Let(var(f"v{i}"), x, expr)
    changed = swapped(expr, x, y)
    assert analysis.free_vars(changed) == [y]
    assert ExprMutator().visit(changed) is changed
    visited: list[Any] = []
    post_order_visit(changed, visited.append)
    assert len(visited) == (depth + 2 if kind == "calls" else 2 * depth + 1)


def test_errors_of_cases_come_through_deep_expressions() -> None:
    class Refuse(ExprVisitor):
        def visit_var(self, var: Var) -> None:
            raise UserError(f"no {var.name_hint}")

    x: Any = var("x", shape=())
    for _ in range(500):
        x = x + x
    with pytest.raises(UserError, match="no x"):
        Refuse().visit(x)


# types and patterns


def every_type() -> tuple[FuncType, TypeVar]:
    a, free = TypeVar("a"), TypeVar("free")
    listed = Lists().of(TupleType((a, free)))
    relation = TypeRelation("same", (a, free), 1)
    return FuncType((RefType(listed), TensorType((3,))), free, (a,), (relation,)), free


def test_type_visitor() -> None:
    type_, _ = every_type()
    seen: list[str] = []

    class Names(TypeVisitor):
        def visit_type_var(self, type_: TypeVar) -> None:
            seen.append(type_.name)

        def visit_tensor_type(self, type_: TensorType) -> None:
            seen.append("tensor")

    Names().visit(type_)
    assert seen == ["a", "a", "free", "tensor", "free", "a", "free"]


def test_type_mutator_and_substitute() -> None:
    type_, free = every_type()
    assert TypeMutator().visit(type_) is type_
    t = TensorType((7,))
    changed = substitute(type_, {free: t})
    assert changed.ret_type == t and analysis.free_type_vars(changed) == []
    assert changed.type_constraints[0].args[1] == t
    assert changed.arg_types[0].value == TypeCall(
        type_.arg_types[0].value.func, (TupleType((type_.type_params[0], t)),)
    )
    unknown = IncompleteType()
    assert substitute(TupleType((unknown,)), {unknown: t}) == TupleType((t,))


def test_pattern_visitor_and_mutator() -> None:
    lists, x, y, z = Lists(), var("x"), var("y"), var("z")
    pattern = PatternTuple((lists.pattern(x, y), PatternWildcard()))
    names: list[str] = []

    class Names(PatternVisitor):
        def visit_pattern_var(self, pattern: PatternVar) -> None:
            names.append(pattern.var.name_hint)

    Names().visit(pattern)
    assert names == ["x", "y"]

    class Renamed(PatternMutator):
        def visit_var(self, var: Var) -> Var:
            return z if var is x else var

    changed = Renamed().visit(pattern)
    assert analysis.bound_vars(changed) == [z, y] and PatternMutator().visit(pattern) is pattern


# bind


def test_bind_replaces_free_variables() -> None:
    x, y = var("x", shape=()), var("y", shape=())
    assert structural_equal(bind(x + y, {x: const(1.0)}), const(1.0) + y)
    assert bind(x, {x: y}) is y


def test_bind_of_a_function_makes_free_variables_parameters() -> None:
    x, y, z = var("x", shape=()), var("y", shape=()), var("z", shape=())
    f = Function((x, y), x + y)
    bound = bind(f, {x: z * z})
    assert bound.params == (y, z) and structural_equal(bound.body, (z * z) + y)
    assert bind(f, {z: x}) is f
    assert bind(f, {x: 1.0}).params == (y,)


def test_bind_keeps_free_variables_free() -> None:
    x, free = var("x", shape=()), var("free", shape=())
    assert bind(Function((x,), x + free), {x: const(2.0)}).params == ()


@pytest.mark.parametrize("inside", ["let", "function"])
def test_bind_refuses_bound_variables(inside: str) -> None:
    x, y = var("x", shape=()), var("y", shape=())
    expr: Any = Let(x, y, x) if inside == "let" else Tuple((Function((x,), x), y))
    with pytest.raises(UserError, match="cannot bind x: it is bound inside"):
        bind(expr, {x: y})


def test_bind_takes_variables() -> None:
    with pytest.raises(CallError, match="bind replaces variables, not str"):
        bind(var("x"), {"x": const(1.0)})


@pytest.mark.parametrize("ask", [analysis.free_vars, ExprVisitor().visit, lambda e: post_order_visit(e, print)])
def test_what_is_no_expression(ask: Any) -> None:
    with pytest.raises(ArgumentError, match="int is no expression of relay"):
        ask(3)


def test_what_is_no_type_and_no_pattern() -> None:
    with pytest.raises(ArgumentError, match="str is no type of relay"):
        analysis.check_kind("float32")
    with pytest.raises(ArgumentError, match="Var is no pattern of relay"):
        PatternVisitor().visit(var("x"))
