"""The variables and type variables of expressions: all, free, and bound inside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback.relay.adt import Constructor, Match, Pattern, bound_by
from pullback.relay.expr import Call, Function, Let, Var
from pullback.relay.ty import FuncType, Type, TypeVar
from pullback.relay.type_visitor import TypeVisitor
from pullback.relay.visitor import children


class _Variables:
    """Variables in the order in which they first occur, binders before what is in their scope."""

    def __init__(self, expr: Any) -> None:
        self.all: dict[Var, None] = {}
        self.bound: dict[Var, None] = {}
        for node in [_Bound(bound_by(expr))] if isinstance(expr, Pattern) else _walk(expr):
            if isinstance(node, Var):
                self.all[node] = None
            elif isinstance(node, _Bound):
                self.all.update(dict.fromkeys(node.variables))
                self.bound.update(dict.fromkeys(node.variables))


class _Bound:
    """Variables that are bound at this point of the traversal, and types that stand there."""

    def __init__(self, variables: Any, types: Any = ()) -> None:
        self.variables, self.types = variables, types


def _parts(node: Any) -> tuple[Any, ...]:
    if isinstance(node, Let):
        return _Bound([node.variable]), node.value, node.body
    if isinstance(node, Function):
        return _Bound(node.params, [node.ret_type]), node.body
    if isinstance(node, Match):
        return node.data, *(part for c in node.clauses for part in (_Bound(bound_by(c.lhs)), c.rhs))
    return children(node)


def _walk(root: Any) -> Iterator[Any]:
    """The nodes of an expression, each once and before those inside, with what is bound in between."""
    seen: set[Any] = set()
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, _Bound):
            yield node
        elif node not in seen:
            seen.add(node)
            yield node
            pending.extend(reversed(_parts(node)))


def free_vars(expr: Any) -> list[Var]:
    """The variables that the expression uses and does not bind, in the order of their first use.

    >>> from pullback.relay.expr import Function, var
    >>> x, y = var("x", shape=()), var("y", shape=())
    >>> [v.name_hint for v in free_vars(Function((x,), x + y))]
    ['y']
    """
    variables = _Variables(expr)
    return [v for v in variables.all if v not in variables.bound]


def bound_vars(expr: Any) -> list[Var]:
    """The variables that parameters, ``Let`` or patterns bind inside an expression, or those of a pattern."""
    return list(_Variables(expr).bound)


def all_vars(expr: Any) -> list[Var]:
    """The variables of an expression or a pattern, free and bound, in the order of their first occurrence."""
    return list(_Variables(expr).all)


class _TypeVariables(TypeVisitor):
    def __init__(self, module: Any) -> None:
        self.module = module
        self.all: dict[TypeVar, None] = {}
        self.bound: dict[TypeVar, None] = {}

    def bind(self, variables: Any) -> None:
        self.all.update(dict.fromkeys(variables))
        self.bound.update(dict.fromkeys(variables))

    def visit_type_var(self, type_: TypeVar) -> None:
        self.all[type_] = None

    def visit_func_type(self, type_: FuncType) -> None:
        self.bind(type_.type_params)
        super().visit_func_type(type_)

    def visit_expr(self, expr: Any) -> None:
        for node in _walk(expr):
            if isinstance(node, Function):
                self.bind(node.type_params)
            elif isinstance(node, _Bound):
                self._visit_types([*(v.type_annotation for v in node.variables), *node.types])
            elif isinstance(node, Var):
                self._visit_types([node.type_annotation])
            elif isinstance(node, Call):
                self._visit_types(node.type_args)
            elif isinstance(node, Constructor):
                self._constructor(node)

    def _visit_types(self, types: Any) -> None:
        for type_ in types:
            if type_ is not None:
                self.visit(type_)

    def _constructor(self, constructor: Constructor) -> None:
        if self.module is not None and constructor.belong_to in self.module.type_definitions:
            self.bind(self.module[constructor.belong_to].type_vars)
            self._visit_types(constructor.inputs)


def _type_variables(expr: Any, mod: Any) -> _TypeVariables:
    found = _TypeVariables(mod)
    if isinstance(expr, Type):
        found.visit(expr)
    else:
        found.visit_expr(expr)
    return found


def free_type_vars(expr: Any, mod: Any = None) -> list[TypeVar]:
    """The type variables that an expression or a type uses and does not bind. With ``mod`` the types of constructors
    count, whose variables their definitions bind."""
    found = _type_variables(expr, mod)
    return [v for v in found.all if v not in found.bound]


def bound_type_vars(expr: Any, mod: Any = None) -> list[TypeVar]:
    """The type variables that functions and function types bind inside an expression or a type."""
    return list(_type_variables(expr, mod).bound)


def all_type_vars(expr: Any, mod: Any = None) -> list[TypeVar]:
    """The type variables of an expression or a type, free and bound."""
    return list(_type_variables(expr, mod).all)
