"""Reverse mode for the whole language.

A tensor becomes a pair: its value, and a reference in which its adjoint is added up. Functions take and return pairs,
and one argument more: the *backpropagator*, a reference of a function without arguments. Each call of an operator puts
a function in it that adds to the adjoints of its arguments, then calls the one that was there before. So when the
result's adjoint is known, one call of the backpropagator carries adjoints back the way that was taken forward, through
branches, recursion, closures, references and data types.

    fn (x) {                       let bp = ref(fn () { () });
      sin(x)                       let x1 = (x, ref(zeros_like(x)));
    }                              let y = sin(x);                          let y1 = (y, ref(zeros_like(y)));
                            →      let last = bp^;
                                   bp := fn () { x1.1 := x1.1^ + y1.1^ * cos(x); last() };
                                   y1.1 := ones_like(y);                    bp^();
                                   (y, (x1.1^,))

What it writes is relay itself, so it can be applied to its own result. ``PartialEvaluate`` turns it into straight code
where the way does not depend on values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pullback.ir.errors import DifferentiationError
from pullback.ir.module import IRModule
from pullback.ir.node import span_scope
from pullback.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
)
from pullback.relay.analysis.variables import free_vars
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
    call_op,
    set_checked_type,
    span_of,
)
from pullback.relay.gradient.lifted_types import BACKPROPAGATOR, ReverseTypes
from pullback.relay.gradient.result import gradient_type
from pullback.relay.gradient.rules import adjoints_of, has_floats, moves
from pullback.relay.let_list import LetList
from pullback.relay.op.registry import Op
from pullback.relay.ty import TensorType, TupleType, Type
from pullback.relay.visitor import ExprMutator

CHECKPOINTED = "checkpoint"  # attribute of the function that stands for what a checkpoint is put on
_NOTHING = TupleType(())


def empty_backpropagator() -> Expr:
    return RefCreate(Function((), Tuple(()), _NOTHING))


class Scope(LetList):
    """The bindings of a function's body or of a branch. ``backpropagator``: the variable that holds it here."""

    def __init__(self, backpropagator: Var, outer: Scope | None = None) -> None:
        super().__init__()
        self.backpropagator, self.outer = backpropagator, outer
        self.values: dict[Var, Any] = {}  # of pairs, as far as they were asked for

    def named(self, value: Any, type_: Type | None = None, name: str = "x") -> Var:
        """A variable with this value: a new one, unless it is one. ``type_``: what is known to be its type."""
        if isinstance(value, Var):
            return value
        variable = self.push(value, name)
        if type_ is not None:
            set_checked_type(variable, type_)
        return variable

    def value_of(self, pair: Any, type_: Type) -> Any:
        """The value of a variable in reverse mode, of an original type that is made of tensors."""
        scope: Scope | None = self
        while scope is not None:
            if pair in scope.values:
                return scope.values[pair]
            scope = scope.outer
        found = self.values[pair] = self.lifted(lambda x, t: self.named(TupleGetItem(x, 0), t), pair, type_)
        return found

    def adjoint_of(self, pair: Any, type_: Type) -> Any:
        """What is in the references of a variable in reverse mode."""
        return self.lifted(lambda x, t: self.named(RefRead(TupleGetItem(x, 1)), t, "grad"), pair, type_)

    def pair(self, value: Any, type_: Type) -> Expr:
        """A value in reverse mode, with adjoints that are zeros."""
        return self.lifted(lambda x, t: Tuple((x, self.named(RefCreate(call_op("zeros_like", x))))), value, type_)

    def lifted(self, change: Callable[[Any, TensorType], Any], value: Any, type_: Type) -> Any:
        """``change`` of every tensor of a value."""
        if isinstance(type_, TensorType):
            return change(value, type_)
        fields = []
        for k, t in enumerate(fields_of(type_, value)):
            fields.append(self.lifted(change, self.named(TupleGetItem(value, k), t), t))
        whole = Tuple(tuple(fields))
        set_checked_type(whole, type_)
        return whole

    def add(self, pair: Any, adjoint: Any, type_: Type) -> None:
        """Add to the adjoint of a variable in reverse mode."""
        if isinstance(type_, TensorType):
            if has_floats(type_):
                reference = TupleGetItem(pair, 1)
                total = call_op("add", self.named(RefRead(reference), type_), adjoint)
                self.named(RefWrite(reference, total), name="u")
            return
        for k, t in enumerate(fields_of(type_, pair)):
            if has_floats(t):
                part = adjoint.fields[k] if isinstance(adjoint, Tuple) else TupleGetItem(adjoint, k)
                self.add(self.named(TupleGetItem(pair, k)), self.named(part), t)


def is_data(type_: Type) -> bool:
    """Whether it is the type of a tensor, or of a tuple of tensors."""
    return all(map(is_data, type_.fields)) if isinstance(type_, TupleType) else isinstance(type_, TensorType)


def fields_of(type_: Type, value: Any) -> tuple[Type, ...]:
    """The types of a tuple's fields; a DifferentiationError for what is neither a tensor nor a tuple."""
    if isinstance(type_, TupleType):
        return type_.fields
    kind = type(type_).__name__
    hint = "parameters and results of what is differentiated are tensors and tuples of them, arguments of operators too"
    raise DifferentiationError(f"a value of type {kind} has no adjoint", span=span_of(value), hint=hint)


class Reversal:
    """Writes expressions in reverse mode. ``module``: where global functions are, inferred and in A-normal form;
    ``taken``: names that no new one may have. ``functions`` and ``types.definitions`` are what the result needs."""

    def __init__(self, module: IRModule, taken: Collection[str]) -> None:
        self.module, self.taken = module, taken
        self.types = ReverseTypes(module, taken)
        self.functions: dict[str, Function] = {}
        self.names: dict[str, str] = {}  # of global functions in reverse mode
        self.variables: dict[Var, Var] = {}
        self.checkpointed: dict[Var, Function] = {}

    def variable(self, old: Var) -> Var:
        """A new variable for one that is bound here."""
        annotation = None if old.type_annotation is None else self.types.visit(old.type_annotation)
        new = self.variables[old] = Var(old.name, annotation, span=old.span)
        return new

    def body(self, expr: Expr, scope: Scope) -> Expr:
        """An expression in a scope of its own, with the bindings around it."""
        return scope.get(self.expr(expr, scope))

    def atom(self, expr: Any, scope: Scope) -> Var:
        return scope.named(self.expr(expr, scope))

    def expr(self, expr: Any, scope: Scope) -> Any:
        """The expression in reverse mode, of which parts are bound in the scope."""
        while isinstance(expr, Let):
            self.binding(expr, scope)
            expr = expr.body
        with span_scope(span_of(expr)):
            return _CASES[type(expr)](self, expr, scope)

    def binding(self, let: Let, scope: Scope) -> None:
        value = let.value
        if isinstance(value, Function) and CHECKPOINTED in value.attrs:
            self.checkpointed[let.variable] = value
            return
        variable = self.variable(let.variable)  # first: a function may name itself
        with span_scope(span_of(let)):
            scope.push(self.expr(value, scope), variable)

    def of_var(self, var: Var, scope: Scope) -> Expr:
        if var not in self.variables:
            hint = "make it a parameter of the function, or bind it with relay.Let"
            raise DifferentiationError(f"{var.name} is bound nowhere", span=var.span, hint=hint)
        return self.variables[var]

    def of_global_var(self, var: GlobalVar, scope: Scope) -> Expr:
        if var.name not in self.names:
            if var.name not in self.module:
                hint = "give gradient the module that defines it: gradient(expr, mod=module)"
                raise DifferentiationError(f"the function {var.name} is not known", span=var.span, hint=hint)
            name = f"{var.name}_grad"
            while name in self.taken or name in self.functions:
                name += "_"
            self.names[var.name] = name
            self.functions[name] = self.module[var.name]  # takes the name
            variables, self.variables = self.variables, {}  # of this function, which may share its own with others
            self.functions[name] = self.function(self.module[var.name], None)
            self.variables = variables
        return GlobalVar(self.names[var.name])

    def of_constant(self, constant: Constant, scope: Scope) -> Expr:
        type_ = TensorType(constant.data.shape, constant.data.dtype)
        return scope.pair(scope.named(constant, type_), type_)

    def of_tuple(self, tuple_: Tuple, scope: Scope) -> Expr:
        return Tuple(tuple(self.expr(f, scope) for f in tuple_.fields))

    def of_item(self, item: TupleGetItem, scope: Scope) -> Expr:
        return TupleGetItem(self.expr(item.tuple_value, scope), item.index)

    def of_if(self, if_: If, scope: Scope) -> Expr:
        condition = scope.value_of(self.atom(if_.cond, scope), if_.cond.checked_type)
        branches = (self.body(b, Scope(scope.backpropagator, scope)) for b in (if_.true_branch, if_.false_branch))
        return If(condition, *branches)

    def of_function(self, function: Function, scope: Scope) -> Expr:
        return self.function(function, scope)

    def function(self, function: Function, outer: Scope | None) -> Function:
        params = [self.variable(p) for p in function.params]
        scope = Scope(Var("bp", BACKPROPAGATOR), outer)
        ret_type = None if function.ret_type is None else self.types.visit(function.ret_type)
        body = self.body(function.body, scope)
        params.append(scope.backpropagator)
        return Function(tuple(params), body, ret_type, function.type_params, span=function.span)

    def of_ref_create(self, create: RefCreate, scope: Scope) -> Expr:
        return RefCreate(self.expr(create.value, scope))

    def of_ref_read(self, read: RefRead, scope: Scope) -> Expr:
        return RefRead(self.expr(read.ref, scope))

    def of_ref_write(self, write: RefWrite, scope: Scope) -> Expr:
        reference = self.expr(write.ref, scope)
        return RefWrite(reference, self.expr(write.value, scope))

    def of_match(self, match: Match, scope: Scope) -> Expr:
        data = self.expr(match.data, scope)
        clauses = []
        for clause in match.clauses:
            pattern = self.pattern(clause.lhs)
            clauses.append(Clause(pattern, self.body(clause.rhs, Scope(scope.backpropagator, scope))))
        return Match(data, tuple(clauses), match.complete)

    def pattern(self, pattern: Pattern) -> Pattern:
        if isinstance(pattern, PatternVar):
            return PatternVar(self.variable(pattern.var))
        if isinstance(pattern, PatternConstructor):
            constructor = self.types.constructor(pattern.constructor)
            return PatternConstructor(constructor, tuple(map(self.pattern, pattern.patterns)))
        if isinstance(pattern, PatternTuple):
            return PatternTuple(tuple(map(self.pattern, pattern.patterns)))
        return pattern

    def of_constructor(self, constructor: Constructor, scope: Scope) -> Expr:
        """A constructor as a function value."""
        params = tuple(Var(f"x{k}") for k in range(len(constructor.inputs)))
        made = Call(self.types.constructor(constructor), params)
        return Function((*params, Var("bp", BACKPROPAGATOR)), made)

    def of_op(self, op: Op, scope: Scope) -> Expr:
        hint = f"write a function that calls it: relay.Function([x], relay.{op.name}(x))"
        raise DifferentiationError(f"operator {op.name} is no value where it is not called", hint=hint)

    def of_call(self, call: Call, scope: Scope) -> Expr:
        if isinstance(call.op, Op):
            return self.of_op_call(call, scope)
        if isinstance(call.op, Constructor):
            args = tuple(self.expr(a, scope) for a in call.args)
            type_args = tuple(map(self.types.visit, call.type_args))
            return Call(self.types.constructor(call.op), args, call.attrs, type_args)
        checkpointed = self.checkpointed.get(call.op) if isinstance(call.op, Var) else call.op
        if isinstance(checkpointed, Function) and CHECKPOINTED in checkpointed.attrs:
            return self.checkpoint(checkpointed.body, scope)
        function = self.expr(call.op, scope)
        args = tuple(self.expr(a, scope) for a in call.args)
        type_args = tuple(map(self.types.visit, call.type_args))
        return Call(function, (*args, scope.backpropagator), call.attrs, type_args)

    def of_op_call(self, call: Call, scope: Scope) -> Expr:
        type_ = call.checked_type
        arg_types = [a.checked_type for a in call.args]
        pairs = [None if isinstance(a, Constant) else self.atom(a, scope) for a in call.args]
        values = [a if p is None else scope.value_of(p, t) for a, p, t in zip(call.args, pairs, arg_types, strict=True)]
        orig = Call(call.op, tuple(values), call.attrs, call.type_args)
        set_checked_type(orig, type_)
        result = scope.named(orig, type_)
        returned = scope.named(scope.pair(result, type_))
        if moves(call):
            later = self.later(scope)
            adjoints = adjoints_of(orig, later.adjoint_of(returned, type_))
            write = _Writing(later, orig, result)
            for pair, adjoint, arg_type in zip(pairs, adjoints, arg_types, strict=True):
                if pair is not None and has_floats(arg_type):
                    later.add(pair, write.value(adjoint), arg_type)
            self.remember(later, scope)
        return returned

    def later(self, scope: Scope) -> Scope:
        """The body of a new backpropagator."""
        before = scope.named(RefRead(scope.backpropagator), name="last")
        return Scope(before, scope)

    def remember(self, later: Scope, scope: Scope) -> None:
        """Put a body in the backpropagator; then comes what was there before."""
        body = later.get(Call(later.backpropagator, ()))
        scope.named(RefWrite(scope.backpropagator, Function((), body, _NOTHING)), name="u")

    def checkpoint(self, expr: Expr, scope: Scope) -> Expr:
        """What is computed again on the way back: forward there is its value only. Where it reads functions, references
        or data types, which hold pairs, it is differentiated at once."""
        free = free_vars(expr)
        if not all(map(is_data, (v.checked_type for v in free))):
            return self.expr(expr, scope)
        type_ = expr.checked_type
        values = ExprMutator()
        values.memo_map.update({v: scope.value_of(self.variables[v], v.checked_type) for v in free})
        returned = scope.named(scope.pair(scope.named(values.visit(expr), type_), type_))
        later = self.later(scope)
        inner = Scope(later.push(empty_backpropagator(), Var("bp", BACKPROPAGATOR)), later)
        again = later.named(self.body(expr, inner), name="again")
        later.add(again, later.adjoint_of(returned, type_), type_)  # it may be what is outside, with an adjoint already
        later.named(Call(RefRead(inner.backpropagator), ()), name="u")
        self.remember(later, scope)
        return returned


def higher_order_gradient(function: Function, module: IRModule, taken: Collection[str]) -> tuple[Function, Reversal]:
    """The gradient of a function, and what it needs beside it. Function and module are inferred, and in A-normal form;
    ``taken``: names that no new function may have."""
    reversal = Reversal(module, taken)
    scope = Scope(Var("bp", BACKPROPAGATOR))
    scope.push(empty_backpropagator(), scope.backpropagator)
    types = [p.checked_type for p in function.params]
    pairs = []
    for param, type_ in zip(function.params, types, strict=True):
        pairs.append(scope.push(scope.pair(param, type_), param.name))
        scope.values[pairs[-1]] = param
        reversal.variables[param] = pairs[-1]
    result, result_type = reversal.atom(function.body, scope), function.body.checked_type
    values = scope.value_of(result, result_type)
    _begin(scope, result, result_type)
    scope.named(Call(RefRead(scope.backpropagator), ()), name="u")
    adjoints = Tuple(tuple(scope.adjoint_of(p, t) for p, t in zip(pairs, types, strict=True)))
    body = scope.get(Tuple((values, adjoints)))
    return Function(function.params, body, gradient_type(function)), reversal


def _begin(scope: Scope, pair: Any, type_: Type) -> None:
    """The adjoint of a tensor is ones, that of a tuple is that of its first field."""
    while not isinstance(type_, TensorType):
        fields = fields_of(type_, pair)
        if not fields:
            raise DifferentiationError("an empty tuple has no gradient", hint="the function returns no tensor")
        pair, type_ = scope.named(TupleGetItem(pair, 0)), fields[0]
    scope.named(RefWrite(TupleGetItem(pair, 1), call_op("ones_like", scope.value_of(pair, type_))), name="u")


class _Writing:
    """Writes the adjoints that a rule gave: the call itself, where they use it, is the variable of its result."""

    def __init__(self, scope: Scope, orig: Call, result: Var) -> None:
        self.scope = scope
        self.written: dict[Any, Any] = {orig: result}
        self.inside = ExprMutator()
        self.inside.memo_map[orig] = result

    def value(self, expr: Any) -> Any:
        """The expression with its calls bound in the scope, each once."""
        if expr not in self.written:
            self.written[expr] = self.write(expr)
        return self.written[expr]

    def write(self, expr: Any) -> Any:
        if isinstance(expr, Call) and isinstance(expr.op, Op):
            args = tuple(map(self.value, expr.args))
            return self.scope.named(Call(expr.op, args, expr.attrs, expr.type_args))
        if isinstance(expr, Tuple):
            return Tuple(tuple(map(self.value, expr.fields)))
        if isinstance(expr, TupleGetItem):
            whole = self.value(expr.tuple_value)
            return whole.fields[expr.index] if isinstance(whole, Tuple) else TupleGetItem(whole, expr.index)
        if isinstance(expr, (Var, Constant)):
            return expr
        return self.scope.named(self.inside.visit(expr))


_CASES: dict[type, Callable[[Any, Any, Scope], Any]] = {
    Var: Reversal.of_var,
    GlobalVar: Reversal.of_global_var,
    Constant: Reversal.of_constant,
    Tuple: Reversal.of_tuple,
    TupleGetItem: Reversal.of_item,
    Call: Reversal.of_call,
    If: Reversal.of_if,
    Function: Reversal.of_function,
    RefCreate: Reversal.of_ref_create,
    RefRead: Reversal.of_ref_read,
    RefWrite: Reversal.of_ref_write,
    Match: Reversal.of_match,
    Constructor: Reversal.of_constructor,
    Op: Reversal.of_op,
}
