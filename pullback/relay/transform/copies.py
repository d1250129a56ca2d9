"""Copies of expressions with variables of their own: code that comes to stand at several places binds new ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.depth import deep
from pullback.relay.adt import Clause, bound_by
from pullback.relay.expr import Call, Expr, Function, Let, Var
from pullback.relay.ty import Type, TypeVar
from pullback.relay.type_visitor import substitute
from pullback.relay.visitor import ExprMutator


class Copier(ExprMutator):
    """Copies an expression: what it binds is bound to new variables; free ones are replaced by ``values``, type
    variables by ``types``."""

    def __init__(self, values: Mapping[Var, Expr] = {}, types: Mapping[TypeVar, Type] = {}) -> None:
        super().__init__()
        self.memo_map.update(values)
        self.types = types

    def visit_type(self, type_: Type) -> Any:
        return substitute(type_, self.types)

    def _bind(self, variable: Var) -> Var:
        self.memo_map[variable] = Var(variable.name, self._type(variable.type_annotation), span=variable.span)
        return self.memo_map[variable]

    def visit_var(self, var: Var) -> Expr:
        return var

    def visit_call(self, call: Call) -> Expr:
        args = tuple(self.visit(a) for a in call.args)
        return Call(self.visit(call.op), args, call.attrs, self._types(call.type_args), span=call.span)

    def visit_function(self, function: Function) -> Expr:
        params = tuple(map(self._bind, function.params))
        return function.replace(params=params, body=self.visit(function.body), ret_type=self._type(function.ret_type))

    def visit_let(self, let: Let) -> Expr:
        chain: list[tuple[Let, Var, Expr]] = []
        body: Any = let
        while isinstance(body, Let) and body not in self.memo_map:
            variable = self._bind(body.variable)
            chain.append((body, variable, self.visit(body.value)))
            body = body.body
        result = self.visit(body)
        for old, variable, value in reversed(chain):
            result = self.memo_map[old] = Let(variable, value, result, span=old.span)
        return result

    def visit_clause(self, clause: Clause) -> Clause:
        for variable in bound_by(clause.lhs):
            self._bind(variable)
        return super().visit_clause(clause)


@deep
def copied(expr: Any, values: Mapping[Var, Expr] = {}, types: Mapping[TypeVar, Type] = {}) -> Any:
    """A copy of the expression, with free variables and type variables replaced."""
    return Copier(values, types).visit(expr)
