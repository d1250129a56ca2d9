"""A module with lists, which several tests use."""

from __future__ import annotations

from pullback.ir import IRModule
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternVar,
    TypeData,
)
from pullback.relay.expr import Call, Function, GlobalVar, Var, var
from pullback.relay.ty import FuncType, GlobalTypeVar, Type, TypeCall, TypeVar


class Lists:
    """A module with ``List[A] = Nil | Cons(A, List[A])``; ``add_map`` gives it the function ``@map``."""

    def __init__(self) -> None:
        self.name = GlobalTypeVar("List")
        a = TypeVar("A")
        self.nil = Constructor("Nil", (), self.name)
        self.cons = Constructor("Cons", (a, TypeCall(self.name, (a,))), self.name)
        self.module = IRModule()
        self.module[self.name] = TypeData(self.name, (a,), (self.nil, self.cons))

    def of(self, element: Type) -> TypeCall:
        return TypeCall(self.name, (element,))

    def by_cases(self, data: Var, empty: object, head: Var, tail: Var, other: object) -> Match:
        nil = Clause(PatternConstructor(self.nil), empty)
        return Match(data, (nil, Clause(self.pattern(head, tail), other)))

    def pattern(self, head: Var, tail: Var) -> PatternConstructor:
        return PatternConstructor(self.cons, (PatternVar(head), PatternVar(tail)))

    def add_map(self) -> GlobalVar:
        """``fn [T, U](f: fn (T) -> U, xs: List[T]) -> List[U]``."""
        t, u = TypeVar("T"), TypeVar("U")
        f, xs, head, tail = var("f", FuncType((t,), u)), var("xs", self.of(t)), var("head"), var("tail")
        name = GlobalVar("map")
        mapped = Call(self.cons, (f(head), name(f, tail)))
        body = self.by_cases(xs, Call(self.nil, ()), head, tail, mapped)
        self.module["map"] = Function((f, xs), body, self.of(u), (t, u))
        return name
