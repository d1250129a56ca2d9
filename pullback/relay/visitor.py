"""Traversals of expressions, patterns and types, substitution of variables, and the nodes in post-order.

A functor remembers what it returned for a node: what stands at several places is visited once, so a traversal takes
time in proportion to the size of the graph. Expressions nested more deeply than Python's stack allows are visited on a
large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, overload

from pullback.ir.depth import on_large_stack
from pullback.ir.errors import ArgumentError, CallError, UserError
from pullback.ir.op import Op
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)
from pullback.relay.expr import (
    Call,
    Constant,
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
)
from pullback.relay.ty import Type
from pullback.relay.type_visitor import TypeFunctor, TypeMutator, TypeVisitor, same_or, substitute

__all__ = [
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "PatternFunctor",
    "PatternMutator",
    "PatternVisitor",
    "TypeFunctor",
    "TypeMutator",
    "TypeVisitor",
    "bind",
    "children",
    "post_order",
    "post_order_visit",
    "substitute",
]

_SHALLOW = 40  # levels that Python's own stack holds, whatever a case does at each

_HINTS = {
    "expression": "relay.var, relay.const and calls of operators are",
    "pattern": "relay.PatternVar(var) and its like are",
}

_METHODS: dict[type, str] = {
    Function: "visit_function",
    Call: "visit_call",
    Let: "visit_let",
    Var: "visit_var",
    GlobalVar: "visit_global_var",
    If: "visit_if",
    Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem",
    Constant: "visit_constant",
    RefCreate: "visit_ref_create",
    RefRead: "visit_ref_read",
    RefWrite: "visit_ref_write",
    Op: "visit_op",
    Constructor: "visit_constructor",
    Match: "visit_match",
}

_CHILDREN: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Function: lambda e: (*e.params, e.body),
    Call: lambda e: (e.op, *e.args),
    Let: lambda e: (e.variable, e.value, e.body),
    If: lambda e: (e.cond, e.true_branch, e.false_branch),
    Tuple: lambda e: e.fields,
    TupleGetItem: lambda e: (e.tuple_value,),
    RefCreate: lambda e: (e.value,),
    RefRead: lambda e: (e.ref,),
    RefWrite: lambda e: (e.ref, e.value),
    Match: lambda e: (e.data, *(clause.rhs for clause in e.clauses)),
    **dict.fromkeys((Var, GlobalVar, Constant, Op, Constructor), lambda e: ()),
}


def _case(table: dict[type, Any], node: Any, what: str) -> Any:
    """The table's entry for the node's class or a base of it, which the table learns."""
    found = table.get(type(node))
    if found is not None:
        return found
    for kind in type(node).__mro__:
        if kind in table:
            found = table[type(node)] = table[kind]
            return found
    raise ArgumentError(f"{type(node).__name__} is no {what} of relay", hint=_HINTS[what])


def children(expr: Any) -> tuple[Any, ...]:
    """The expressions right inside one, in the order in which they are computed. Of a call the callee is the first,
    an operator too; parameters and the variable of a ``Let`` are among them, variables of patterns are not."""
    return _case(_CHILDREN, expr, "expression")(expr)


def post_order(expr: Any) -> Iterator[Any]:
    """The nodes of an expression, operators included, each once, those inside before what they are in."""
    seen: set[Any] = set()
    pending: list[tuple[Any, bool]] = [(expr, False)]
    while pending:
        node, done = pending.pop()
        if done:
            yield node
        elif node not in seen:
            seen.add(node)
            inner = children(node)
            if not inner:
                yield node
                continue
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(inner))


def post_order_visit(expr: Any, fvisit: Callable[[Any], Any]) -> None:
    """Call ``fvisit`` with each node of the expression once, operators included, in post-order.

    >>> from pullback.relay.expr import var
    >>> seen = []
    >>> post_order_visit(var("x"), lambda node: seen.append(node.name_hint))
    >>> seen
    ['x']
    """
    for node in list(post_order(expr)):
        fvisit(node)


def _is_deep(expr: Any) -> bool:
    """Whether some path through the expression is longer than Python's stack surely holds."""
    height: dict[Any, int] = {}
    for node in post_order(expr):
        level = height[node] = 1 + max((height[child] for child in children(node)), default=0)
        if level > _SHALLOW:
            return True
    return False


class ExprFunctor:
    """A function of expressions by cases: a subclass writes ``visit_call`` and the other cases, which call
    :meth:`visit` for what is inside. ``memo_map`` holds the result for each node visited."""

    _under_way = False

    def __init__(self) -> None:
        self.memo_map: dict[Any, Any] = {}

    def visit(self, expr: Any) -> Any:
        """What the case of the expression returns: computed once for a node."""
        return self.memo_map[expr] if expr in self.memo_map else self._first_visit(expr, expr)

    def _first_visit(self, expr: Any, key: Any) -> Any:
        """What the case returns, remembered under ``key``."""
        if not self._under_way:
            return self._outermost(expr)
        result = self.memo_map[key] = self.dispatch(expr)
        return result

    def dispatch(self, expr: Any) -> Any:
        """What the case returns. A subclass that does something at every node overrides this."""
        return getattr(self, _case(_METHODS, expr, "expression"))(expr)

    def _outermost(self, expr: Any) -> Any:
        self._under_way = True
        try:
            return on_large_stack(self.visit, expr) if _is_deep(expr) else self.visit(expr)
        finally:
            self._under_way = False

    def visit_function(self, function: Function) -> Any:
        raise NotImplementedError

    def visit_let(self, let: Let) -> Any:
        raise NotImplementedError

    def visit_call(self, call: Call) -> Any:
        raise NotImplementedError

    def visit_var(self, var: Var) -> Any:
        raise NotImplementedError

    def visit_type(self, type_: Type) -> Any:
        """A type inside an expression: by default the type itself."""
        return type_

    def visit_if(self, if_: If) -> Any:
        raise NotImplementedError

    def visit_tuple(self, tuple_: Tuple) -> Any:
        raise NotImplementedError

    def visit_tuple_getitem(self, item: TupleGetItem) -> Any:
        raise NotImplementedError

    def visit_global_var(self, var: GlobalVar) -> Any:
        raise NotImplementedError

    def visit_op(self, op: Op) -> Any:
        raise NotImplementedError

    def visit_constant(self, constant: Constant) -> Any:
        raise NotImplementedError

    def visit_ref_create(self, create: RefCreate) -> Any:
        raise NotImplementedError

    def visit_ref_write(self, write: RefWrite) -> Any:
        raise NotImplementedError

    def visit_ref_read(self, read: RefRead) -> Any:
        raise NotImplementedError

    def visit_constructor(self, constructor: Constructor) -> Any:
        raise NotImplementedError

    def visit_match(self, match: Match) -> Any:
        raise NotImplementedError


class ExprVisitor(ExprFunctor):
    """Visits every node once. A subclass overrides the cases that it is about, and calls ``super().visit_call(call)``
    to go on to what is inside."""

    def _inside(self, expr: Any) -> None:
        for child in children(expr):
            self.visit(child)

    def visit_tuple(self, tuple_: Tuple) -> None:
        self._inside(tuple_)

    def visit_call(self, call: Call) -> None:
        self._inside(call)

    def visit_if(self, if_: If) -> None:
        self._inside(if_)

    def visit_tuple_getitem(self, item: TupleGetItem) -> None:
        self._inside(item)

    def visit_ref_create(self, create: RefCreate) -> None:
        self._inside(create)

    def visit_ref_read(self, read: RefRead) -> None:
        self._inside(read)

    def visit_ref_write(self, write: RefWrite) -> None:
        self._inside(write)

    def visit_var(self, var: Var) -> None: ...

    def visit_global_var(self, var: GlobalVar) -> None: ...

    def visit_constant(self, constant: Constant) -> None: ...

    def visit_op(self, op: Op) -> None: ...

    def visit_constructor(self, constructor: Constructor) -> None: ...

    def visit_let(self, let: Let) -> None:
        self._inside(let)

    def visit_function(self, function: Function) -> None:
        self._inside(function)

    def visit_match(self, match: Match) -> None:
        self.visit(match.data)
        for clause in match.clauses:
            self.visit_clause(clause)

    def visit_clause(self, clause: Clause) -> None:
        self.visit_pattern(clause.lhs)
        self.visit(clause.rhs)

    def visit_pattern(self, pattern: Pattern) -> None: ...


class ExprMutator(ExprFunctor):
    """Rebuilds an expression from its changed parts. What does not change is returned as it is; new nodes have the
    span of the old ones, and no checked type. :meth:`visit_type` changes the types in it."""

    def _types(self, types: tuple[Any, ...]) -> tuple[Any, ...]:
        return same_or(types, tuple(self.visit_type(t) for t in types))

    def _type(self, type_: Type | None) -> Type | None:
        return None if type_ is None else self.visit_type(type_)

    def _all(self, exprs: tuple[Any, ...]) -> tuple[Any, ...]:
        return same_or(exprs, tuple(self.visit(e) for e in exprs))

    def visit_var(self, var: Var) -> Expr:
        annotation = self._type(var.type_annotation)
        return var if annotation is var.type_annotation else Var(var.name, annotation, span=var.span)

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return var

    def visit_constant(self, constant: Constant) -> Expr:
        return constant

    def visit_op(self, op: Op) -> Any:
        return op

    def visit_constructor(self, constructor: Constructor) -> Expr:
        return constructor

    def visit_function(self, function: Function) -> Expr:
        type_params = self._types(function.type_params)
        params, ret_type = self._all(function.params), self._type(function.ret_type)
        body = self.visit(function.body)
        old = (function.type_params, function.params, function.ret_type, function.body)
        if all(a is b for a, b in zip(old, (type_params, params, ret_type, body), strict=True)):
            return function
        return function.replace(type_params=type_params, params=params, ret_type=ret_type, body=body)

    def visit_let(self, let: Let) -> Expr:
        variable, value, body = self.visit(let.variable), self.visit(let.value), self.visit(let.body)
        if variable is let.variable and value is let.value and body is let.body:
            return let
        return Let(variable, value, body, span=let.span)

    def visit_call(self, call: Call) -> Expr:
        op, args, type_args = self.visit(call.op), self._all(call.args), self._types(call.type_args)
        if op is call.op and args is call.args and type_args is call.type_args:
            return call
        return Call(op, args, call.attrs, type_args, span=call.span)

    def visit_if(self, if_: If) -> Expr:
        parts = tuple(self.visit(e) for e in children(if_))
        return if_ if same_or(children(if_), parts) is not parts else If(*parts, span=if_.span)

    def visit_tuple(self, tuple_: Tuple) -> Expr:
        fields = self._all(tuple_.fields)
        return tuple_ if fields is tuple_.fields else Tuple(fields, span=tuple_.span)

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        value = self.visit(item.tuple_value)
        return item if value is item.tuple_value else TupleGetItem(value, item.index, span=item.span)

    def visit_ref_create(self, create: RefCreate) -> Expr:
        value = self.visit(create.value)
        return create if value is create.value else RefCreate(value, span=create.span)

    def visit_ref_read(self, read: RefRead) -> Expr:
        ref = self.visit(read.ref)
        return read if ref is read.ref else RefRead(ref, span=read.span)

    def visit_ref_write(self, write: RefWrite) -> Expr:
        ref, value = self.visit(write.ref), self.visit(write.value)
        return write if ref is write.ref and value is write.value else RefWrite(ref, value, span=write.span)

    def visit_match(self, match: Match) -> Expr:
        data = self.visit(match.data)
        clauses = same_or(match.clauses, tuple(self.visit_clause(c) for c in match.clauses))
        if data is match.data and clauses is match.clauses:
            return match
        return Match(data, clauses, match.complete, span=match.span)

    def visit_clause(self, clause: Clause) -> Clause:
        lhs, rhs = self.visit_pattern(clause.lhs), self.visit(clause.rhs)
        return clause if lhs is clause.lhs and rhs is clause.rhs else Clause(lhs, rhs, span=clause.span)

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        """The pattern with its variables visited."""
        return _PatternOf(self).visit(pattern)


_PATTERN_METHODS: dict[type, str] = {
    PatternWildcard: "visit_wildcard",
    PatternVar: "visit_pattern_var",
    PatternConstructor: "visit_pattern_constructor",
    PatternTuple: "visit_pattern_tuple",
}


class PatternFunctor:
    """A function of patterns by cases."""

    def visit(self, pattern: Pattern) -> Any:
        return getattr(self, _case(_PATTERN_METHODS, pattern, "pattern"))(pattern)

    def visit_wildcard(self, pattern: PatternWildcard) -> Any:
        raise NotImplementedError

    def visit_pattern_var(self, pattern: PatternVar) -> Any:
        raise NotImplementedError

    def visit_pattern_constructor(self, pattern: PatternConstructor) -> Any:
        raise NotImplementedError

    def visit_pattern_tuple(self, pattern: PatternTuple) -> Any:
        raise NotImplementedError


class PatternVisitor(PatternFunctor):
    """Visits every part of a pattern."""

    def visit_wildcard(self, pattern: PatternWildcard) -> None: ...

    def visit_pattern_var(self, pattern: PatternVar) -> None: ...

    def visit_pattern_constructor(self, pattern: PatternConstructor) -> None:
        for inner in pattern.patterns:
            self.visit(inner)

    def visit_pattern_tuple(self, pattern: PatternTuple) -> None:
        for inner in pattern.patterns:
            self.visit(inner)


class PatternMutator(PatternFunctor):
    """Rebuilds a pattern from its changed parts; :meth:`visit_var` and :meth:`visit_constructor` change what is in
    it."""

    def visit_var(self, var: Var) -> Var:
        return var

    def visit_constructor(self, constructor: Constructor) -> Constructor:
        return constructor

    def visit_wildcard(self, pattern: PatternWildcard) -> Pattern:
        return pattern

    def visit_pattern_var(self, pattern: PatternVar) -> Pattern:
        variable = self.visit_var(pattern.var)
        return pattern if variable is pattern.var else PatternVar(variable, span=pattern.span)

    def visit_pattern_constructor(self, pattern: PatternConstructor) -> Pattern:
        constructor = self.visit_constructor(pattern.constructor)
        inner = same_or(pattern.patterns, tuple(self.visit(p) for p in pattern.patterns))
        if constructor is pattern.constructor and inner is pattern.patterns:
            return pattern
        return PatternConstructor(constructor, inner, span=pattern.span)

    def visit_pattern_tuple(self, pattern: PatternTuple) -> Pattern:
        inner = same_or(pattern.patterns, tuple(self.visit(p) for p in pattern.patterns))
        return pattern if inner is pattern.patterns else PatternTuple(inner, span=pattern.span)


class _PatternOf(PatternMutator):
    """A pattern whose variables and constructors a mutator of expressions changes."""

    def __init__(self, mutator: ExprMutator) -> None:
        self.mutator = mutator

    def visit_var(self, var: Var) -> Var:
        return self.mutator.visit(var)

    def visit_constructor(self, constructor: Constructor) -> Constructor:
        return self.mutator.visit(constructor)


class _Binder(ExprMutator):
    def __init__(self, values: Mapping[Var, Expr]) -> None:
        super().__init__()
        self.memo_map.update(values)
        self.values = values

    def _refuse(self, variable: Var, where: Any) -> None:
        if variable in self.values:
            hint = "bind replaces free variables, and parameters of the function that it is given"
            raise UserError(f"cannot bind {variable.name}: it is bound inside", span=where.span, hint=hint)

    def visit_let(self, let: Let) -> Expr:
        self._refuse(let.variable, let)
        return super().visit_let(let)

    def visit_function(self, function: Function) -> Expr:
        for param in function.params:
            self._refuse(param, function)
        return super().visit_function(function)

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        return pattern


@overload
def bind(expr: Function, values: Mapping[Any, Any]) -> Function: ...
@overload
def bind(expr: Expr, values: Mapping[Any, Any]) -> Expr: ...
def bind(expr: Expr, values: Mapping[Any, Any]) -> Expr:
    """``expr`` with variables replaced by expressions.

    Of a function the parameters that are replaced are parameters no more; free variables of what replaces them, which
    the function did not have before, become its last ones. UserError where a variable is bound inside.

    >>> from pullback.relay.expr import const, var
    >>> x = var("x", shape=(2,))
    >>> bind(Function((x,), x), {x: const(1.0)}).params
    ()
    """
    from pullback.relay.analysis.variables import free_vars
    from pullback.relay.expr import as_expr

    for variable in values:
        if not isinstance(variable, Var):
            raise CallError(f"bind replaces variables, not {type(variable).__name__}", hint="write {var: expr}")
    values = {variable: as_expr(value) for variable, value in values.items()}
    if not isinstance(expr, Function):
        return _Binder(values).visit(expr)
    body = _Binder(values).visit(expr.body)
    params = tuple(p for p in expr.params if p not in values)
    if body is expr.body and len(params) == len(expr.params):
        return expr
    known = set(free_vars(expr))
    bound = expr.replace(params=params, body=body)
    return bound.replace(params=params + tuple(v for v in free_vars(bound) if v not in known))
