"""ToANormalForm: every value gets a name, in the order in which it is computed.

    fn (%a, %b) {              fn (%a, %b) {
      %0 = add(%a, %b);   →      let %x = add(%a, %b);
      multiply(%0, %0)           let %x1 = multiply(%x, %x);
    }                            %x1
                               }

A node that stands at several places is bound once, in the innermost scope that holds them all (``scopes.py``), where it
is needed first; values of one scope are in post-order. What only one branch of an ``If`` needs is computed in that
branch. Constants are bound, too; variables, global ones, operators and constructors are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.module import IRModule
from pullback.relay.adt import Clause, Match
from pullback.relay.duplicate import bound_once
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
)
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.lets import NAMES
from pullback.relay.transform.scopes import Scope, Scopes


@dataclass(frozen=True)
class ToANormalForm(FunctionPass):
    """The functions of a module in A-normal form.

    Checks: values are computed once, in the order in which they were. Fused functions stay whole.
    """

    opt_level = 1

    def function(self, function: Function, module: IRModule) -> Function:
        return to_anf(function)


@deep
def to_anf(expr: Any) -> Any:
    """The expression in A-normal form; of a function, its body."""
    expr = bound_once(expr)
    if isinstance(expr, Function):
        return expr if is_primitive(expr) else expr.replace(body=_Naming(expr.body).whole(expr.body))
    return _Naming(expr).whole(expr)


ToANormalFormExpr = to_anf


def is_primitive(function: Function) -> bool:
    """Whether a function is one operator to passes: fused, or for an outside compiler."""
    return bool(function.attrs.get("Primitive") or function.attrs.get("Compiler"))


class _Naming:
    def __init__(self, root: Any) -> None:
        self.scopes = Scopes(root)
        self.names: dict[Any, Expr] = {}

    def whole(self, root: Any) -> Expr:
        result = self.name(root)
        return self.scopes.root.bindings.get(result)

    def name(self, expr: Any, variable: Var | None = None, scope: Scope | None = None) -> Any:
        """What stands for the expression from now on; ``variable`` if given, which is bound in ``scope``."""
        lets: list[Let] = []
        while isinstance(expr, Let) and expr not in self.names:
            lets.append(expr)
            self.name(expr.value, expr.variable, self.scopes.of[expr])
            expr = expr.body
        if expr in self.names:
            found = self._rename(self.names[expr], variable, scope)
        elif isinstance(expr, NAMES):
            found = self._rename(expr, variable, scope)
        else:
            found = self.names[expr] = self._bind(expr, variable)
        for let in lets:
            self.names[let] = found
        return found

    def _rename(self, known: Any, variable: Var | None, scope: Scope | None) -> Any:
        if variable is None:
            return known
        assert scope is not None
        return scope.bindings.push(known, variable)

    def _bind(self, expr: Any, variable: Var | None) -> Var:
        now = self._shallow(expr)
        return self.scopes.of[expr].bindings.push(now, variable)

    def _shallow(self, expr: Any) -> Expr:
        """The expression with names for what is inside it."""
        if isinstance(expr, Call):
            args = tuple(self.name(a) for a in expr.args)
            return Call(self.name(expr.op), args, expr.attrs, expr.type_args, span=expr.span)
        if isinstance(expr, Function):
            return expr if is_primitive(expr) else expr.replace(body=self._inner(expr, expr.body))
        if isinstance(expr, If):
            cond = self.name(expr.cond)
            branches = [self._inner(expr, e, i) for i, e in enumerate((expr.true_branch, expr.false_branch))]
            return If(cond, *branches, span=expr.span)
        if isinstance(expr, Match):
            data = self.name(expr.data)
            sides = [self._inner(expr, c.rhs, i) for i, c in enumerate(expr.clauses)]
            clauses = [Clause(c.lhs, side, span=c.span) for c, side in zip(expr.clauses, sides, strict=True)]
            return Match(data, tuple(clauses), expr.complete, span=expr.span)
        if isinstance(expr, Tuple):
            return Tuple(tuple(self.name(f) for f in expr.fields), span=expr.span)
        if isinstance(expr, TupleGetItem):
            return TupleGetItem(self.name(expr.tuple_value), expr.index, span=expr.span)
        if isinstance(expr, RefCreate):
            return RefCreate(self.name(expr.value), span=expr.span)
        if isinstance(expr, RefRead):
            return RefRead(self.name(expr.ref), span=expr.span)
        if isinstance(expr, RefWrite):
            ref = self.name(expr.ref)
            return RefWrite(ref, self.name(expr.value), span=expr.span)
        return expr  # a constant

    def _inner(self, opener: Any, body: Any, index: int = 0) -> Expr:
        result = self.name(body)
        return self.scopes.inner[opener][index].bindings.get(result)
