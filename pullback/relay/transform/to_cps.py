"""Continuation passing style: a function does not return, it calls its *continuation* with the result.

    fn (%x: float32) -> float32 {          fn <answer>(%x: float32, %k: fn (float32) -> answer) -> answer {
      let %y = @f(%x);                →      @f_cps(%x, fn (%y: float32) { %k(add(%y, %y)) })
      add(%y, %y)                          }
    }

Operators and constructors are called as ever. An ``If`` hands one continuation to both sides. Partial evaluation of
such a function knows more than of the one that it was: what follows an ``If`` is evaluated in each side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, InternalError, UserError
from pullback.ir.module import IRModule
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
from pullback.relay.transform.to_anf import is_primitive, to_anf
from pullback.relay.ty import FuncType, Type, TypeVar
from pullback.relay.type_visitor import TypeMutator, substitute

SUFFIX = "_cps"


@deep
def to_cps(func: Function, mod: IRModule | None = None) -> Function:
    """The function in continuation passing style, with the continuation as its last parameter and the continuation's
    result, ``answer``, as its last type parameter. Global functions that it calls get a counterpart ``NAME_cps`` in
    ``mod``, which changes.

    Checks: raises NameNotFound where it calls a global function that ``mod`` does not have.
    """
    if not isinstance(func, Function):
        hint = "take it from its module: mod['main']"
        raise ArgumentError(f"to_cps takes a relay.Function, got {type(func).__name__}", hint=hint)
    return _Globals(IRModule() if mod is None else mod).convert(func)


ToCPS = to_cps


@deep
def un_cps(func: Function) -> Function:
    """A function without the continuation, which calls ``func`` with one that returns its argument. Functions among
    its arguments and in its result are in continuation passing style still.

        fn <answer>(%x: t, %k: fn (r) -> answer) -> answer { … }      →      fn (%x: t) -> r { … }

    Checks: raises ArgumentError where ``func`` is not in that style.
    """
    last = func.params[-1].type_annotation if func.params else None
    answer = func.type_params[-1] if func.type_params else None
    if not isinstance(last, FuncType) or answer is None or last.ret_type is not answer or len(last.arg_types) != 1:
        hint = "to_cps gives such functions: their last parameter is fn (result) -> answer"
        raise ArgumentError("un_cps takes a function in continuation passing style", hint=hint, span=func.span)
    fresh = {v: TypeVar(v.name, v.kind) for v in func.type_params[:-1]}
    result = substitute(last.arg_types[0], fresh)
    own = {**fresh, answer: result}
    params = tuple(Var(p.name, _substituted(p.type_annotation, own), span=p.span) for p in func.params[:-1])
    back = Var("x", result)
    call = Call(func, (*params, Function((back,), back, result)), {}, (*fresh.values(), result), span=func.span)
    return Function(params, call, result, tuple(fresh.values()), func.attrs, span=func.span)


UnCPS = un_cps


def _known(type_: Type | None) -> Type:
    """A type of a program in which all are inferred."""
    if type_ is None:
        raise InternalError("inference has left a type open")
    return type_


def _substituted(type_: Type | None, types: dict[Any, Type]) -> Type | None:
    return None if type_ is None else substitute(type_, types)


class _Globals:
    """The functions of a module, and their counterparts."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.names: dict[str, GlobalVar] = {}

    def counterpart(self, var: GlobalVar) -> GlobalVar:
        if var.name not in self.names:
            function = self.module[var.name]
            if not isinstance(function, Function):
                raise UserError(f"@{var.name} is no function of relay, so it has no continuation", span=var.span)
            name = self.module.unique_name(var.name + SUFFIX)
            self.names[var.name] = GlobalVar(name)
            self.module[name] = function  # the name is taken
            self.module[name] = self.convert(function)
        return self.names[var.name]

    def convert(self, function: Function) -> Function:
        from pullback.relay.infer import infer_expr

        typed = infer_expr(to_anf(function), self.module)
        answer = TypeVar("answer")
        made = _Converter(self, answer).function(typed)
        return made.replace(type_params=(*made.type_params, answer))


class _Types(TypeMutator):
    """Types in continuation passing style."""

    def __init__(self, answer: TypeVar) -> None:
        self.answer = answer

    def visit_func_type(self, type_: FuncType) -> Type:
        made = super().visit_func_type(type_)
        assert isinstance(made, FuncType)
        rest = FuncType((made.ret_type,), self.answer)
        return FuncType((*made.arg_types, rest), self.answer, made.type_params, made.type_constraints, span=type_.span)


Wrap = Callable[[Expr], Expr]  # what stands around the rest of a computation


class _Converter:
    """Converts one function of the module, whose expressions are in A-normal form and have types."""

    def __init__(self, globals_: _Globals, answer: TypeVar) -> None:
        self.globals, self.answer = globals_, answer
        self.types = _Types(answer)
        self.variables: dict[Var, Var] = {}

    def type(self, type_: Type | None) -> Type | None:
        return None if type_ is None else self.types.visit(type_)

    def bind(self, variable: Var) -> Var:
        made = Var(variable.name, self.type(variable.type_annotation), span=variable.span)
        self.variables[variable] = made
        return made

    def function(self, function: Function) -> Function:
        params = [self.bind(p) for p in function.params]
        k = Var("k", FuncType((self.types.visit(_known(function.ret_type)),), self.answer))
        body = self.body(function.body, k)
        return function.replace(params=(*params, k), body=body, ret_type=self.answer)

    def body(self, expr: Any, k: Expr) -> Expr:
        """What calls the continuation ``k``, a variable, with the value of the expression."""
        around: list[Wrap] = []
        while isinstance(expr, Let):
            if expr.body is expr.variable and self.hands_on(expr.value):
                return _wrapped(around, self.continued(expr.value, k))
            around.append(self.binding(expr))
            expr = expr.body
        return _wrapped(around, Call(k, (self.atom(expr),), span=expr.span))

    def hands_on(self, value: Expr) -> bool:
        """Whether the value comes by way of a continuation."""
        if isinstance(value, Call):
            return not isinstance(value.op, (Op, Constructor)) and not _is_primitive(value.op)
        return isinstance(value, (If, Match))

    def binding(self, let: Let) -> Wrap:
        """What stands around the body of the ``Let``."""
        if not self.hands_on(let.value):
            variable = self.bind(let.variable)
            value = self.value(let.value)
            return lambda rest: Let(variable, value, rest, span=let.span)
        variable = self.bind(let.variable)
        if isinstance(let.value, Call):
            return lambda rest: self.continued(let.value, self.rest(variable, rest))
        k = Var("k", FuncType((_known(variable.type_annotation),), self.answer))
        decided = self.continued(let.value, k)
        return lambda rest: Let(k, self.rest(variable, rest), decided, span=let.span)

    def rest(self, variable: Var, body: Expr) -> Function:
        """The continuation that binds its argument to the variable."""
        return Function((variable,), body, self.answer)

    def continued(self, value: Any, k: Expr) -> Expr:
        """A call, an ``If`` or a ``Match`` that goes on with ``k``."""
        if isinstance(value, Call):
            args = (*map(self.atom, value.args), k)
            types = tuple(self.types.visit(t) for t in value.type_args)
            if isinstance(value.op, GlobalVar):
                return Call(self.globals.counterpart(value.op), args, {}, (*types, self.answer), span=value.span)
            return Call(self.atom(value.op), args, {}, types, span=value.span)
        if isinstance(value, If):
            sides = [self.body(side, k) for side in (value.true_branch, value.false_branch)]
            return If(self.atom(value.cond), sides[0], sides[1], span=value.span)
        clauses = tuple(Clause(self.pattern(c.lhs), self.body(c.rhs, k), span=c.span) for c in value.clauses)
        return Match(self.atom(value.data), clauses, value.complete, span=value.span)

    def pattern(self, pattern: Pattern) -> Pattern:
        if isinstance(pattern, PatternVar):
            return PatternVar(self.bind(pattern.var), span=pattern.span)
        if isinstance(pattern, PatternConstructor):
            inner = tuple(map(self.pattern, pattern.patterns))
            return PatternConstructor(pattern.constructor, inner, span=pattern.span)
        if isinstance(pattern, PatternTuple):
            return PatternTuple(tuple(map(self.pattern, pattern.patterns)), span=pattern.span)
        return pattern

    def value(self, expr: Any) -> Expr:
        """A value that is computed at once."""
        if isinstance(expr, Function):
            return expr if is_primitive(expr) else self.function(expr)
        if isinstance(expr, Call):
            types = tuple(self.types.visit(t) for t in expr.type_args)
            op = expr.op if isinstance(expr.op, (Op, Constructor, Function)) else self.atom(expr.op)
            return Call(op, self.atoms(expr.args), expr.attrs, types, span=expr.span)
        if isinstance(expr, Tuple):
            return Tuple(self.atoms(expr.fields), span=expr.span)
        if isinstance(expr, TupleGetItem):
            return TupleGetItem(self.atom(expr.tuple_value), expr.index, span=expr.span)
        if isinstance(expr, RefCreate):
            return RefCreate(self.atom(expr.value), span=expr.span)
        if isinstance(expr, RefRead):
            return RefRead(self.atom(expr.ref), span=expr.span)
        if isinstance(expr, RefWrite):
            return RefWrite(self.atom(expr.ref), self.atom(expr.value), span=expr.span)
        return self.atom(expr)  # a name

    def atoms(self, exprs: Sequence[Any]) -> tuple[Expr, ...]:
        return tuple(map(self.atom, exprs))

    def atom(self, expr: Any) -> Any:
        """What stands for a variable, a constant or a function that has a name."""
        if isinstance(expr, Var):
            return self.variables.get(expr, expr)
        if isinstance(expr, Constant):
            return expr
        if isinstance(expr, GlobalVar):
            return self.as_value(expr, self.globals.counterpart(expr))
        if isinstance(expr, Constructor):
            return self.as_value(expr, None)
        if isinstance(expr, Op):
            hint = f"write a function that calls it: fn (%x) {{ {expr.name}(%x) }}"
            raise UserError(f"operator {expr.name} is handed on, so it has no continuation", hint=hint)
        raise InternalError(f"{type(expr).__name__} stands where A-normal form has a name")

    def as_value(self, expr: Any, counterpart: GlobalVar | None) -> Expr:
        """A global function or a constructor that is handed on, as a function whose answer is this one's."""
        type_ = expr.checked_type
        fresh = {v: TypeVar(v.name, v.kind) for v in type_.type_params}
        args = tuple(substitute(t, fresh) for t in type_.arg_types)
        made = self.types.visit(FuncType(args, substitute(type_.ret_type, fresh)))
        params = tuple(Var("x", t) for t in made.arg_types)
        own = tuple(fresh.values())
        if counterpart is None:
            body = Call(params[-1], (Call(expr, params[:-1], {}, own, span=expr.span),))
        else:
            body = Call(counterpart, params, {}, (*own, self.answer), span=expr.span)
        return Function(params, body, self.answer, own)


def _is_primitive(expr: Any) -> bool:
    return isinstance(expr, Function) and is_primitive(expr)


def _wrapped(around: Sequence[Wrap], inner: Expr) -> Expr:
    for wrap in reversed(around):
        inner = wrap(inner)
    return inner
