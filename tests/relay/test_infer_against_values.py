"""Inferred types of random programs in which hardly anything is declared: they are those that the programs were made
to have, and those of the values that the evaluator finds."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pullback.ir import UserError
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)
from pullback.relay.evaluate import ConstructorValue, Interpreter, RefValue
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
    call_op,
    const,
    var,
)
from pullback.relay.infer import infer_module
from pullback.relay.ty import FuncType, RefType, TensorType, TupleType, Type, TypeCall, TypeVar
from pullback.relay.visitor import ExprMutator, post_order
from tests.relay.lists import Lists

SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (2, 1)]
Scope = list[tuple[Type, Expr]]


class Programs:
    """Makes closed expressions of types: of tensors, tuples, references and lists."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lists = Lists()
        self.left = 60
        self.count = 0
        self._add_globals()

    def _add_globals(self) -> None:
        a = TypeVar("a")
        p = var("p", a)
        self.lists.module["id"] = Function((p,), p, None, (a,))
        self.lists.add_map()

    def fresh(self, name: str) -> Any:
        self.count += 1
        return var(f"{name}{self.count}")

    def type(self, depth: int = 2) -> Type:
        choice = self.random.random()
        if depth == 0 or choice < 0.5:
            return TensorType(self.random.choice(SHAPES))
        if choice < 0.8:
            return TupleType(tuple(self.type(depth - 1) for _ in range(self.random.randint(1, 3))))
        inner = self.type(depth - 1)
        return RefType(inner) if choice < 0.9 else self.lists.of(inner)

    def leaf(self, type_: Type, scope: Scope) -> Expr:
        known = [e for t, e in scope if t == type_]
        if known and self.random.random() < 0.7:
            return self.random.choice(known)
        if isinstance(type_, TensorType):
            return const(np.full(type_.shape, self.random.random(), "float32"))
        if isinstance(type_, TupleType):
            return Tuple(tuple(self.leaf(t, scope) for t in type_.fields))
        if isinstance(type_, RefType):
            return RefCreate(self.leaf(type_.value, scope))
        assert isinstance(type_, TypeCall)
        return Call(self.lists.cons, (self.leaf(type_.args[0], scope), Call(self.lists.nil, ())))

    def expr(self, type_: Type, scope: Scope) -> Expr:
        self.left -= 1
        if self.left <= 0:
            return self.leaf(type_, scope)
        makers = [self.let, self.call, self.project, self.match, self.identity, self.read, self.branch]
        if isinstance(type_, TensorType):
            makers += [self.arithmetic, self.arithmetic, self.operator]
        elif isinstance(type_, TupleType):
            makers.append(self.tuple)
        elif isinstance(type_, TypeCall):
            makers += [self.map, self.map]
        return self.random.choice(makers)(type_, scope)

    def arithmetic(self, type_: Any, scope: Scope) -> Expr:
        smaller = self.random.choice([s for s in SHAPES if np.broadcast_shapes(s, type_.shape) == type_.shape])
        a, b = self.expr(type_, scope), self.expr(TensorType(smaller), scope)
        args = (a, b) if self.random.random() < 0.5 else (b, a)
        return call_op(self.random.choice(["add", "multiply", "subtract"]), *args)

    def operator(self, type_: Any, scope: Scope) -> Expr:
        if type_.shape == ():
            return call_op("sum", self.expr(TensorType(self.random.choice(SHAPES)), scope))
        return call_op(self.random.choice(["tanh", "negative"]), self.expr(type_, scope))

    def tuple(self, type_: Any, scope: Scope) -> Expr:
        return Tuple(tuple(self.expr(t, scope) for t in type_.fields))

    def let(self, type_: Any, scope: Scope) -> Expr:
        inner, name = self.type(), self.fresh("v")
        value = self.expr(inner, scope)
        return Let(name, value, self.expr(type_, [*scope, (inner, name)]))

    def call(self, type_: Any, scope: Scope) -> Expr:
        """A function that is called once or, by name, twice with the same argument."""
        inner, param = self.type(), self.fresh("p")
        argument = self.expr(inner, scope)
        function = Function((param,), self.expr(type_, [*scope, (inner, param)]))
        if self.random.random() < 0.5:
            return function(argument)
        name, arg = self.fresh("f"), self.fresh("a")
        twice = TupleGetItem(Tuple((name(arg), name(arg))), self.random.randrange(2))
        return Let(arg, argument, Let(name, function, twice))

    def project(self, type_: Any, scope: Scope) -> Expr:
        others = [self.type(1) for _ in range(self.random.randint(0, 2))]
        place = self.random.randint(0, len(others))
        whole = TupleType((*others[:place], type_, *others[place:]))
        return TupleGetItem(self.expr(whole, scope), place)

    def match(self, type_: Any, scope: Scope) -> Expr:
        first, second = self.type(1), self.type(1)
        a, b = self.fresh("m"), self.fresh("n")
        data = self.expr(TupleType((first, second)), scope)
        body = self.expr(type_, [*scope, (first, a), (second, b)])
        pattern = PatternTuple((PatternVar(a), PatternVar(b)))
        return Match(data, (Clause(pattern, body), Clause(PatternWildcard(), self.leaf(type_, scope))))

    def identity(self, type_: Any, scope: Scope) -> Expr:
        return GlobalVar("id")(self.expr(type_, scope))

    def read(self, type_: Any, scope: Scope) -> Expr:
        cell = self.fresh("cell")
        value, held = self.expr(type_, scope), self.fresh("held")
        write = Let(self.fresh("_"), RefWrite(cell, held), RefRead(cell))
        return Let(held, value, Let(cell, RefCreate(held), write))

    def branch(self, type_: Any, scope: Scope) -> Expr:
        taken = const(self.random.random() < 0.5)
        value = self.fresh("b")
        return Let(value, self.expr(type_, scope), If(taken, value, GlobalVar("id")(value)))

    def map(self, type_: Any, scope: Scope) -> Expr:
        inner, param = self.type(1), self.fresh("e")
        function = Function((param,), self.expr(type_.args[0], [*scope, (inner, param)]))
        return GlobalVar("map")(function, self.expr(self.lists.of(inner), scope))


def has_type(value: Any, type_: Type) -> bool:
    """Whether the evaluator's value is of the type."""
    if isinstance(type_, TensorType):
        return (value.shape, str(value.dtype)) == (type_.shape, type_.dtype)
    if isinstance(type_, TupleType):
        return len(value) == len(type_.fields) and all(has_type(v, t) for v, t in zip(value, type_.fields, strict=True))
    if isinstance(type_, RefType):
        return isinstance(value, RefValue) and has_type(value.value, type_.value)
    if isinstance(type_, FuncType):
        return callable(value)
    assert isinstance(type_, TypeCall) and isinstance(value, ConstructorValue)
    if not value.fields:
        return True
    head, tail = value.fields
    return has_type(head, type_.args[0]) and has_type(tail, type_)


@pytest.mark.parametrize("seed", range(150))
def test_types_of_random_programs(seed: int) -> None:
    programs = Programs(seed)
    type_ = TupleType(tuple(programs.type() for _ in range(3)))
    programs.lists.module["main"] = Function((), programs.expr(type_, []))
    found = infer_module(programs.lists.module)
    assert found["main"].ret_type == type_
    assert has_type(Interpreter(found).function(found["main"])(), type_)
    assert infer_module(found)["main"] is found["main"]


class Replace(ExprMutator):
    """One node replaced by another expression."""

    def __init__(self, old: Expr, new: Expr) -> None:
        super().__init__()
        self.old, self.new = old, new

    def dispatch(self, expr: Any) -> Any:
        return self.new if expr is self.old else super().dispatch(expr)


def wrong_parts(old: Expr, lists: Lists) -> list[Expr]:
    """Expressions that hardly ever fit where ``old`` stands."""
    one = Match(old, (Clause(PatternTuple((PatternWildcard(),)), old),))
    cons = PatternConstructor(lists.cons, (PatternWildcard(),))
    two = Match(old, (Clause(cons, old), Clause(PatternTuple(()), old)))
    made = [Tuple(()), Tuple((old,)), RefCreate(old), RefRead(old), TupleGetItem(old, 0), Function((), old)]
    calls = [Call(old, ()), Call(old, (old,)), Call(lists.nil, ()), GlobalVar("map")(old), GlobalVar("absent")(old)]
    return [*made, *calls, one, two, If(old, old, old), const(1), var("free"), lists.nil, GlobalVar("map")]


@pytest.mark.parametrize("seed", range(120))
def test_programs_with_a_wrong_part(seed: int) -> None:
    """They are refused, or what they compute is of the type that was found."""
    chosen, programs = random.Random(seed), Programs(seed)
    body = programs.expr(TupleType(tuple(programs.type() for _ in range(3))), [])
    nodes = [n for n in post_order(body) if isinstance(n, Expr) and not isinstance(n, (Var, GlobalVar, Constructor))]
    old = chosen.choice(nodes)
    new = chosen.choice(wrong_parts(old, programs.lists))
    programs.lists.module["main"] = Function((), Replace(old, new).visit(body))
    try:
        found = infer_module(programs.lists.module)
    except UserError:
        return
    value, type_ = Interpreter(found).function(found["main"])(), found["main"].ret_type
    assert has_type(value, type_)
