"""Expressions with the types that inference found: new nodes, in which every part has a ``checked_type``."""

from __future__ import annotations

from typing import Any

from pullback.ir.op import Op
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
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
    set_checked_type,
)
from pullback.relay.infer.inferencer import Inferencer
from pullback.relay.ty import FuncType
from pullback.relay.type_visitor import same_or
from pullback.relay.visitor import post_order


class Annotator:
    """Rebuilds expressions; what they share stays shared. A node whose parts and types are right already is kept.

    A variable that is declared with its type stays itself. Others get theirs, and are new.
    """

    def __init__(self, inferencer: Inferencer) -> None:
        self.inferencer = inferencer
        self.new: dict[Any, Any] = {}
        self._type = inferencer.solver.final()

    def annotate(self, expr: Any) -> Any:
        for node in post_order(expr):
            if node not in self.new:
                self.new[node] = self._annotated(node)
        return self.new[expr]

    def _annotated(self, node: Any) -> Any:
        if isinstance(node, Op):
            return node
        if isinstance(node, Var):
            return self._var(node)
        type_ = self._type(self.inferencer.types[node])
        made = node if isinstance(node, (Constant, Constructor)) else _REBUILD[type(node)](self, node)
        if made is node and made.checked_type_ == type_:
            return node
        if made is node and not isinstance(node, (Constant, Constructor)):  # whose types follow from themselves
            made = _copy(node)
        set_checked_type(made, type_)
        return made

    def _var(self, var: Var) -> Var:
        if var in self.new:
            return self.new[var]
        type_ = self._type(self.inferencer.types[var])
        made = var if type_ is var.type_annotation else Var(var.name, type_, span=var.span)
        set_checked_type(made, type_)
        self.new[var] = made
        return made

    def _all(self, nodes: tuple[Any, ...]) -> tuple[Any, ...]:
        return same_or(nodes, tuple(self.new[n] for n in nodes))

    def _global_var(self, var: GlobalVar) -> GlobalVar:
        return var

    def _tuple(self, expr: Tuple) -> Tuple:
        fields = self._all(expr.fields)
        return expr if fields is expr.fields else Tuple(fields, span=expr.span)

    def _item(self, expr: TupleGetItem) -> TupleGetItem:
        value = self.new[expr.tuple_value]
        return expr if value is expr.tuple_value else TupleGetItem(value, expr.index, span=expr.span)

    def _call(self, call: Call) -> Call:
        op, args = self.new[call.op], self._all(call.args)
        types = tuple(self._type(t) for t in self.inferencer.type_args.get(call, ()))
        if op is call.op and args is call.args and types == call.type_args:
            return call
        return Call(op, args, call.attrs, types, span=call.span)

    def _let(self, let: Let) -> Let:
        variable, value, body = self._var(let.variable), self.new[let.value], self.new[let.body]
        if variable is let.variable and value is let.value and body is let.body:
            return let
        return Let(variable, value, body, span=let.span)

    def _if(self, expr: If) -> If:
        old = (expr.cond, expr.true_branch, expr.false_branch)
        parts = self._all(old)
        return expr if parts is old else If(*parts, span=expr.span)

    def _function(self, function: Function) -> Function:
        type_ = self._type(self.inferencer.types[function])
        assert isinstance(type_, FuncType)
        params, body = same_or(function.params, tuple(map(self._var, function.params))), self.new[function.body]
        if params is function.params and body is function.body and function.ret_type == type_.ret_type:
            return function
        return function.replace(params=params, body=body, ret_type=type_.ret_type)

    def _ref_create(self, expr: RefCreate) -> RefCreate:
        value = self.new[expr.value]
        return expr if value is expr.value else RefCreate(value, span=expr.span)

    def _ref_read(self, expr: RefRead) -> RefRead:
        ref = self.new[expr.ref]
        return expr if ref is expr.ref else RefRead(ref, span=expr.span)

    def _ref_write(self, expr: RefWrite) -> RefWrite:
        ref, value = self.new[expr.ref], self.new[expr.value]
        return expr if ref is expr.ref and value is expr.value else RefWrite(ref, value, span=expr.span)

    def _match(self, match: Match) -> Match:
        data = self.new[match.data]
        clauses = same_or(match.clauses, tuple(self._clause(c) for c in match.clauses))
        if data is match.data and clauses is match.clauses:
            return match
        return Match(data, clauses, match.complete, span=match.span)

    def _clause(self, clause: Clause) -> Clause:
        lhs, rhs = self._pattern(clause.lhs), self.new[clause.rhs]
        return clause if lhs is clause.lhs and rhs is clause.rhs else Clause(lhs, rhs, span=clause.span)

    def _pattern(self, pattern: Pattern) -> Pattern:
        if isinstance(pattern, PatternVar):
            var = self._var(pattern.var)
            return pattern if var is pattern.var else PatternVar(var, span=pattern.span)
        if isinstance(pattern, (PatternConstructor, PatternTuple)):
            inner = same_or(pattern.patterns, tuple(map(self._pattern, pattern.patterns)))
            if isinstance(pattern, PatternTuple):
                return pattern if inner is pattern.patterns else PatternTuple(inner, span=pattern.span)
            constructor = pattern.constructor
            set_checked_type(constructor, self._type(self.inferencer.types[constructor]))
            return pattern if inner is pattern.patterns else PatternConstructor(constructor, inner, span=pattern.span)
        return pattern


_REBUILD: dict[type, Any] = {
    GlobalVar: Annotator._global_var,
    Tuple: Annotator._tuple,
    TupleGetItem: Annotator._item,
    Call: Annotator._call,
    Let: Annotator._let,
    If: Annotator._if,
    Function: Annotator._function,
    RefCreate: Annotator._ref_create,
    RefRead: Annotator._ref_read,
    RefWrite: Annotator._ref_write,
    Match: Annotator._match,
}


def _copy(node: Any) -> Any:
    """Another node of the same fields, with no checked type."""
    made = object.__new__(type(node))
    vars(made).update(vars(node))
    return made
