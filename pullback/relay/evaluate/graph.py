"""Questions about the graph of an expression: what uses what, and in which function a shared node belongs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pullback import ir
from pullback.ir.errors import InternalError
from pullback.relay.adt import Constructor, Match, bound_by
from pullback.relay.expr import (
    Call,
    Constant,
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
)

LEAVES = (Var, Constant, GlobalVar, Constructor, ir.Op)


def children(expr: Any) -> tuple[Any, ...]:
    """The expressions directly inside, in the order in which they are computed."""
    if isinstance(expr, LEAVES):
        return ()
    if isinstance(expr, Call):
        return expr.args if isinstance(expr.op, (ir.Op, Constructor)) else (expr.op, *expr.args)
    if isinstance(expr, Tuple):
        return expr.fields
    if isinstance(expr, TupleGetItem):
        return (expr.tuple_value,)
    if isinstance(expr, Let):
        return (expr.value, expr.body)
    if isinstance(expr, If):
        return (expr.cond, expr.true_branch, expr.false_branch)
    if isinstance(expr, Function):
        return (expr.body,)
    if isinstance(expr, RefCreate):
        return (expr.value,)
    if isinstance(expr, RefRead):
        return (expr.ref,)
    if isinstance(expr, RefWrite):
        return (expr.ref, expr.value)
    if isinstance(expr, Match):
        return (expr.data, *(clause.rhs for clause in expr.clauses))
    raise InternalError(f"{type(expr).__name__} is no relay expression")


def postorder(root: Any) -> list[Any]:
    """Every node once, what is inside of it first."""
    order: list[Any] = []
    seen: set[int] = set()
    waiting: list[tuple[Any, Iterator[Any]]] = [(root, iter(children(root)))]
    seen.add(id(root))
    while waiting:
        node, inside = waiting[-1]
        for child in inside:
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append((child, iter(children(child))))
                break
        else:
            order.append(node)
            waiting.pop()
    return order


def binds(node: Any) -> list[Var]:
    """The variables that the node itself binds."""
    if isinstance(node, Let):
        return [node.variable]
    if isinstance(node, Function):
        return list(node.params)
    if isinstance(node, Match):
        return [var for clause in node.clauses for var in bound_by(clause.lhs)]
    return []


class Uses:
    """Who uses each node, and which function it belongs to: the innermost one around all of its uses.

    A node that a function inside and the function around it share is computed by the latter, before the former is made:
    ``shared[f]`` has those of each function ``f``. So does whoever writes the graph in A-normal form. A function that
    binds a variable which is bound elsewhere too is *apart*: it shares nothing, as the variable has two meanings.
    """

    def __init__(self, root: Any) -> None:
        order = postorder(root)
        self.parents: dict[Any, list[Any]] = defaultdict(list)
        self.shared: dict[Function, list[Any]] = defaultdict(list)
        self.apart: set[Function] = set()
        functions = [n for n in order if isinstance(n, Function)]
        bound: dict[Var, Any] = {}
        for node in order:
            for child in children(node):
                self.parents[child].append(node)
            for var in binds(node):
                first = bound.setdefault(var, node)
                self.apart.update(n for n in (first, node) if isinstance(n, Function) and first is not node)
        if len(functions) > isinstance(root, Function):
            self._place(order)

    def _place(self, order: list[Any]) -> None:
        """Find ``shared``: users come before what they use in the reverse of ``order``."""
        scopes: dict[Any, _Scope] = {order[-1]: _Scope(None, None)}
        for node in reversed(order):
            scope = scopes[node]
            inside = _Scope(node, scope) if isinstance(node, Function) else scope
            for child in children(node):
                known = scopes.get(child)
                scopes[child] = inside if known is None else known.common(inside)
        for node in order:
            if isinstance(node, (*LEAVES, Function)):
                continue
            scope = scopes[node]
            found = set()
            for parent in self.parents[node]:
                place = scopes[parent]
                while place.outer is not None and place.depth > scope.depth + 1:
                    if place.function in self.apart:
                        break
                    place = place.outer
                if place.outer is scope and place.function not in self.apart and place.function not in found:
                    found.add(place.function)
                    self.shared[place.function].append(node)


class _Scope:
    __slots__ = ("depth", "function", "outer")

    def __init__(self, function: Any, outer: _Scope | None) -> None:
        self.function, self.outer = function, outer
        self.depth: int = 0 if outer is None else outer.depth + 1

    def common(self, other: _Scope) -> _Scope:
        """The innermost scope around both."""
        one, two = self, other
        while one is not two:
            if one.depth < two.depth:
                one, two = two, one
            assert one.outer is not None
            one = one.outer
        return one


def free_variables(expr: Any) -> list[Var]:
    """The variables that occur in the expression and are not bound in it."""
    order = postorder(expr)
    bound = {var for node in order for var in binds(node)}
    return [n for n in order if isinstance(n, Var) and n not in bound]
