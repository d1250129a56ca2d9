"""What partial evaluation leaves of a program as it is, with variables and types of its own."""

from __future__ import annotations

from typing import Any

from pullback.ir.optional import all_known
from pullback.relay.adt import Clause, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from pullback.relay.duplicate import Duplicator
from pullback.relay.expr import Expr, Var
from pullback.relay.transform.static_values import Data, Env, Fields, Value
from pullback.relay.ty import Type


class Copy(Duplicator):
    """An expression as it is, with variables and types of its own, and what stands for those around it."""

    def __init__(self, expr: Expr, around: Env) -> None:
        super().__init__(expr)
        self.around = around

    def _type(self, type_: Type | None) -> Any:
        found = self.around.type(type_)
        return None if found is None else self.visit_type(found)

    def _types(self, types: tuple[Any, ...]) -> tuple[Any, ...]:
        return super()._types(self.around.all_types(types))

    def visit_var(self, var: Var) -> Any:
        known = None if var in self.env else self.around.find(var)
        return super().visit_var(var) if known is None else known.atom()


class Renamed:
    """A clause that is left, with variables of its own, and the values of those that it binds."""

    def __init__(self, clause: Clause, env: Env) -> None:
        self.clause, self.env = clause, Env(env)
        self.pattern = self._rename(clause.lhs)

    def _rename(self, pattern: Pattern) -> Pattern:
        if isinstance(pattern, PatternVar):
            variable = Var(pattern.var.name, self.env.type(pattern.var.type_annotation), span=pattern.var.span)
            self.env.values[pattern.var] = Value(variable)
            return PatternVar(variable, span=pattern.span)
        if isinstance(pattern, PatternConstructor):
            inner = tuple(self._rename(p) for p in pattern.patterns)
            return PatternConstructor(pattern.constructor, inner, span=pattern.span)
        if isinstance(pattern, PatternTuple):
            return PatternTuple(tuple(self._rename(p) for p in pattern.patterns), span=pattern.span)
        return pattern

    def value(self, pattern: Pattern, code: Any) -> Value | None:
        """What matched, with the fields that have names; None where one of them has none."""
        if isinstance(pattern, PatternVar):
            return Value(pattern.var)
        if isinstance(pattern, PatternWildcard) or code is None:
            return None
        assert isinstance(pattern, (PatternConstructor, PatternTuple))
        fields = all_known(self.value(p, None) for p in pattern.patterns)
        if fields is None:
            return None
        if isinstance(pattern, PatternConstructor):
            if len(pattern.patterns) != len(pattern.constructor.inputs):
                return None
            return Value(code, Data(pattern.constructor, tuple(fields)))
        return Value(code, Fields(tuple(fields)))
