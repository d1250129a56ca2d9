"""Expressions with bound variables of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pullback.relay.adt import Clause, Match, bound_by
from pullback.relay.expr import Expr, Function, Let, Var
from pullback.relay.ty import Type, TypeVar
from pullback.relay.type_visitor import substitute
from pullback.relay.visitor import ExprMutator, children, post_order


class Duplicator(ExprMutator):
    """Copies binders with new variables. ``values`` stand for free variables, ``types`` for free type variables.

    A variable that several binders bind is another one under each of them: a node in which it is free has a copy for
    each.
    """

    def __init__(self, expr: Any, values: Mapping[Var, Expr] = {}, types: Mapping[Any, Type] = {}) -> None:
        super().__init__()
        self.env: dict[Var, Any] = dict(values)
        self.types: dict[Any, Type] = dict(types)
        self.ambiguous = _ambiguous(expr)

    def visit(self, expr: Any) -> Any:
        variables = self.ambiguous.get(expr)
        key = (expr, *(self.env.get(v) for v in variables)) if variables else expr
        return self.memo_map[key] if key in self.memo_map else self._first_visit(expr, key)

    def visit_type(self, type_: Type) -> Type:
        return substitute(type_, self.types)

    def visit_var(self, var: Var) -> Any:
        return self.env.get(var, var)

    @contextmanager
    def _scope(self, variables: Sequence[Var]) -> Iterator[tuple[Var, ...]]:
        """New variables, for which these stand inside."""
        new = tuple(Var(v.name, self._type(v.type_annotation), span=v.span) for v in variables)
        outer = [self.env.get(v) for v in variables]
        self.env.update(zip(variables, new, strict=True))
        yield new
        for variable, old in zip(variables, outer, strict=True):
            if old is None:
                self.env.pop(variable, None)
            else:
                self.env[variable] = old

    def visit_function(self, function: Function) -> Expr:
        types = self.types
        type_params = tuple(TypeVar(t.name, t.kind, span=t.span) for t in function.type_params)
        self.types = {**types, **dict(zip(function.type_params, type_params, strict=True))}
        with self._scope(function.params) as params:
            ret_type, body = self._type(function.ret_type), self.visit(function.body)
        self.types = types
        return function.replace(params=params, body=body, ret_type=ret_type, type_params=type_params)

    def visit_let(self, let: Let) -> Expr:
        with self._scope([let.variable]) as (variable,):
            return Let(variable, self.visit(let.value), self.visit(let.body), span=let.span)

    def visit_clause(self, clause: Clause) -> Clause:
        with self._scope(bound_by(clause.lhs)):
            return Clause(self.visit_pattern(clause.lhs), self.visit(clause.rhs), span=clause.span)


def _binders(node: Any) -> list[list[Var]]:
    """The variables that the node binds, by scope."""
    if isinstance(node, Function):
        return [list(node.params)]
    if isinstance(node, Let):
        return [[node.variable]]
    return [bound_by(clause.lhs) for clause in node.clauses] if isinstance(node, Match) else []


def _bound_several_times(nodes: Sequence[Any]) -> set[Var]:
    counts = Counter(v for node in nodes for scope in _binders(node) for v in scope)
    return {v for v, count in counts.items() if count > 1}


def _ambiguous(expr: Any) -> dict[Any, tuple[Var, ...]]:
    """For nodes in which such are free, the variables that several scopes bind."""
    nodes = list(post_order(expr))
    several = _bound_several_times(nodes)
    free: dict[Any, frozenset[Var]] = {}
    for node in nodes if several else ():
        if isinstance(node, Var):
            free[node] = frozenset([node]) & several
        elif isinstance(node, Match):
            inside = [free[c.rhs] - set(bound_by(c.lhs)) for c in node.clauses]
            free[node] = free[node.data].union(*inside)
        else:
            bound = {v for scope in _binders(node) for v in scope}
            free[node] = frozenset().union(*(free[child] for child in children(node))) - bound
    return {node: tuple(variables) for node, variables in free.items() if variables}


def duplicate(expr: Any, values: Mapping[Var, Expr] = {}, types: Mapping[Any, Type] = {}) -> Any:
    """The expression with new variables and type variables wherever it binds some, each bound once.

    Free variables stay, or are replaced by ``values``, free type variables by ``types``. A function that another one
    uses with the same variables gets its own.

    Args:
        expr: an expression.
        values: expressions for free variables.
        types: types for free type variables.

    Returns:
        The new expression; parts that do not change are the old ones.

    Raises:
        ArgumentError: for what is no expression.

    Examples:
        >>> from pullback import relay
        >>> from pullback.relay.analysis import well_formed
        >>> x = relay.var("x", shape=(2,))
        >>> f = relay.Function([x], x)
        >>> loss = relay.Function([x], f(x))
        >>> well_formed(loss), well_formed(relay.duplicate(loss))
        (False, True)
    """
    return Duplicator(expr, values, types).visit(expr)


def bound_once(expr: Any) -> Any:
    """The expression itself where it binds each variable once, else :func:`duplicate` of it."""
    return duplicate(expr) if _bound_several_times(list(post_order(expr))) else expr
