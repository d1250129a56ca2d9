"""Types of expressions: each node gives a type, of unknowns where it is not known yet, and constraints.

The traversal takes no stack: a program of any depth is walked by a list of what is still to do. A node's parts come
before the node, and what binds a variable before its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback.ir.errors import NameNotFound, UserError, suggestion
from pullback.ir.module import IRModule
from pullback.ir.node import Node, Span
from pullback.ir.op import Op
from pullback.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
)
from pullback.relay.analysis.kinds import check_type
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
from pullback.relay.infer.errors import TypeInferenceError, mismatch_error
from pullback.relay.infer.operators import Field, OperatorCall
from pullback.relay.infer.solver import Flow, Mismatch, Solver
from pullback.relay.infer.words import expr_text
from pullback.relay.ty import (
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    scalar_type,
)

Described = tuple[str, Span | None] | tuple[str, Span | None, str]  # a message, its place, and how to mend it
Describe = Callable[[], Described]
_ONE_TYPE = "both branches give values of one type: tuples of as many fields, tensors of one dtype and rank"


class Inferencer:
    """Finds the types of expressions of a module. ``types`` has one for each node, ``type_args`` those of calls;
    ``errors`` are the mistakes so far."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.solver = Solver()
        self.types: dict[Any, Type] = {}
        self.type_args: dict[Call, tuple[Type, ...]] = {}
        self.declared: dict[Function, FuncType] = {}
        self.errors: list[UserError] = []
        self.function: str | None = None  # the global function that errors without a place name
        self._checked: set[int] = set()  # annotations
        self._reported: set[tuple[str, Span | None]] = set()
        self._todo: list[Any] = []

    # faces

    def infer(self, expr: Any) -> Type:
        """The type of the expression, after all that follows from it."""
        self._todo.append(expr)
        while self._todo:
            task = self._todo.pop()
            if isinstance(task, Node):
                if task not in self.types:
                    _step(task)(self, task)
            else:
                task[0](self, *task[1:])
            self.solver.solve()
        return self.types[expr]

    def declare(self, function: Function) -> FuncType:
        """The function's type as far as its annotations say it."""
        if function not in self.declared:
            params = tuple(self._type_of_var(p) for p in function.params)
            result = self._annotation(function.ret_type, function)
            self.declared[function] = FuncType(params, result, function.type_params)
        return self.declared[function]

    # helpers

    def _then(self, *tasks: Any) -> None:
        """Do these tasks next, in this order: nodes to visit, and methods with arguments."""
        self._todo.extend(reversed(tasks))

    def report(self, error: UserError) -> None:
        """Add the mistake, unless the same was reported for the same place."""
        if error.span is None and self.function is not None:
            error = type(error)(f"@{self.function}: {error.message}", hint=error.hint)
        if (error.message, error.span) not in self._reported:
            self._reported.add((error.message, error.span))
            self.errors.append(error)

    def _failed(self, error: UserError) -> Type:
        """A type that stands for that of a mistake."""
        self.report(error)
        unknown = IncompleteType()
        self.solver.excuse(unknown)
        return unknown

    def _text(self, type_: Type) -> str:
        return str(self.solver.resolve(type_))

    def _annotation(self, type_: Type | None, where: Any) -> Type:
        """The type that is written there, or an unknown."""
        if type_ is None:
            return IncompleteType()
        if id(type_) not in self._checked:
            self._checked.add(id(type_))
            try:
                check_type(type_, self.module)
            except UserError as error:
                self.report(type(error)(error.message, span=error.span or where.span, hint=error.hint))
        return type_

    def _type_of_var(self, var: Var) -> Type:
        if var not in self.types:
            self.types[var] = self._annotation(var.type_annotation, var)
        return self.types[var]

    def _flow(self, src: Type, dst: Type, describe: Describe, widen: bool = False) -> None:
        """A value of ``src`` stands where ``dst`` is expected; ``describe`` gives an error's message and place."""

        def report(mismatch: Mismatch) -> None:
            described = describe()
            if widen:  # the message has all of the types
                mismatch.why = ""
            self.report(mismatch_error(mismatch, *described))
            self.solver.excuse(src)
            self.solver.excuse(dst)

        Flow(self.solver, src, dst, widen, report).run()

    def _equal(self, a: Type, b: Type, describe: Describe) -> bool:
        try:
            self.solver.equal(a, b)
        except Mismatch as mismatch:
            self.report(mismatch_error(mismatch, *describe()))
            self.solver.excuse(a)
            self.solver.excuse(b)
            return False
        return True

    # leaves

    def _var(self, var: Var) -> None:
        self._type_of_var(var)

    def _global_var(self, var: GlobalVar) -> None:
        function = self.module.functions.get(var.name)
        if isinstance(function, Function):
            checked = function.checked_type_
            known = checked if function not in self.declared and isinstance(checked, FuncType) else None
            self.types[var] = known or self.declare(function)
            return
        known_names = ", ".join(f"@{n}" for n in self.module.functions) or "none"
        if function is None:
            message = f"there is no global function @{var.name}{suggestion(var.name, self.module.functions, start='@')}"
            error: UserError = NameNotFound(message, span=var.span, hint=f"the module has {known_names}")
        else:
            hint = "calls of relay functions can be inferred"
            error = TypeInferenceError(f"@{var.name} is a {type(function).__name__}", span=var.span, hint=hint)
        self.types[var] = self._failed(error)

    def _constant(self, constant: Constant) -> None:
        self.types[constant] = TensorType(constant.data.shape, constant.data.dtype)

    def _op(self, op: Op) -> None:
        hint = f"write a function that calls it: fn (%x) {{ {op.name}(%x) }}"
        self.types[op] = self._failed(TypeInferenceError(f"the operator {op.name} is used as a value", hint=hint))

    def _definition(self, constructor: Constructor, span: Span | None) -> TypeData | None:
        definition = self.module.type_definitions.get(constructor.belong_to)
        if definition is None:
            known = ", ".join(t.name for t in self.module.type_definitions) or "none"
            message = f"the module does not define {constructor.belong_to.name}, the type of {constructor.name}"
            hint = f"it defines {known}; module[type] = TypeData(type, …) adds one"
            self.report(NameNotFound(message, span=span, hint=hint))
        return definition

    def _constructor(self, constructor: Constructor) -> None:
        definition = self._definition(constructor, constructor.span)
        if definition is None:
            self.types[constructor] = IncompleteType()
            self.solver.excuse(self.types[constructor])
            return
        result = TypeCall(definition.header, definition.type_vars)
        self.types[constructor] = FuncType(constructor.inputs, result, definition.type_vars)

    # tuples, references

    def _tuple(self, expr: Tuple) -> None:
        self._then(*expr.fields, (Inferencer._end_tuple, expr))

    def _end_tuple(self, expr: Tuple) -> None:
        self.types[expr] = TupleType(tuple(self.types[f] for f in expr.fields))

    def _item(self, expr: TupleGetItem) -> None:
        self._then(expr.tuple_value, (Inferencer._end_item, expr))

    def _end_item(self, expr: TupleGetItem) -> None:
        result = self.types[expr] = IncompleteType()
        field = Field(self, expr, self.types[expr.tuple_value], result)
        field.run()
        self.types[expr] = field.found or result

    def _ref_create(self, expr: RefCreate) -> None:
        self._then(expr.value, (Inferencer._end_ref_create, expr))

    def _end_ref_create(self, expr: RefCreate) -> None:
        self.types[expr] = RefType(self.types[expr.value])

    def _ref_read(self, expr: RefRead) -> None:
        self._then(expr.ref, (Inferencer._end_ref_read, expr))

    def _end_ref_read(self, expr: RefRead) -> None:
        self.types[expr] = self._held_by(expr.ref, expr)

    def _ref_write(self, expr: RefWrite) -> None:
        self._then(expr.ref, expr.value, (Inferencer._end_ref_write, expr))

    def _end_ref_write(self, expr: RefWrite) -> None:
        held, value = self._held_by(expr.ref, expr), self.types[expr.value]

        def describe() -> Described:
            text = f"the cell {expr_text(expr.ref)} holds {self._text(held)}, and is given {self._text(value)}"
            return f"{text} in {expr_text(expr)}", expr.span

        self._flow(value, held, describe)
        self.types[expr] = TupleType(())

    def _held_by(self, ref: Expr, expr: Any) -> Type:
        """The type of the value that the cell holds."""
        known = self.solver.known(self.types[ref])
        if isinstance(known, RefType):
            return known.value
        value = IncompleteType()

        def describe() -> Described:
            return f"{expr_text(ref)} is no reference, but {self._text(known)}, in {expr_text(expr)}", expr.span

        self._equal(known, RefType(value), describe)
        return value

    # control

    def _if(self, expr: If) -> None:
        self._then(expr.cond, expr.true_branch, expr.false_branch, (Inferencer._end_if, expr))

    def _end_if(self, expr: If) -> None:
        cond = self.types[expr.cond]

        def describe() -> Described:
            text = f"the condition of an If has to be a scalar bool, {expr_text(expr.cond)} is {self._text(cond)}"
            return text, expr.cond.span or expr.span, "relay.all and relay.any make one bool of many"

        self._flow(cond, scalar_type("bool"), describe)
        one, other = self.types[expr.true_branch], self.types[expr.false_branch]
        self.types[expr] = self._join([one, other], lambda: (self._branches(expr, one, other), expr.span, _ONE_TYPE))

    def _branches(self, expr: If, one: Type, other: Type) -> str:
        return f"the branches of {expr_text(expr)} give {self._text(one)} and {self._text(other)}"

    def _join(self, types: Sequence[Type], describe: Describe) -> Type:
        """The type of a value that is of one of the types."""
        first = types[0]
        if all(t is first for t in types):
            return first
        result = IncompleteType()
        for type_ in types:
            self._flow(type_, result, describe, widen=True)
        known = self.solver.known(result)
        return first if known is first else result

    def _let(self, let: Let) -> None:
        if isinstance(let.value, Function) and let.variable not in self.types:
            annotated = let.variable.type_annotation is not None
            self.types[let.variable] = self._type_of_var(let.variable) if annotated else self.declare(let.value)
        self._then(let.value, (Inferencer._bind_let, let), let.body, (Inferencer._end_let, let))

    def _bind_let(self, let: Let) -> None:
        value = self.types[let.value]
        if let.variable not in self.types and let.variable.type_annotation is None:
            self.types[let.variable] = value
            return
        type_ = self._type_of_var(let.variable)

        def describe() -> Described:
            return (
                f"%{let.variable.name} is declared as {self._text(type_)}, its value is {self._text(value)}",
                let.span,
            )

        if type_ is not value:
            self._flow(value, type_, describe)

    def _end_let(self, let: Let) -> None:
        self.types[let] = self.types[let.body]

    # functions and calls

    def _function(self, function: Function) -> None:
        self.declare(function)
        self._then(function.body, (Inferencer._end_function, function))

    def _end_function(self, function: Function) -> None:
        type_, found = self.declared[function], self.types[function.body]

        def describe() -> Described:
            text = f"a function that is declared to return {self._text(type_.ret_type)} returns {self._text(found)}"
            return text, function.body.span or function.span

        self._flow(found, type_.ret_type, describe)
        self.types[function] = type_

    def _call(self, call: Call) -> None:
        if isinstance(call.op, Op):
            self._then(*call.args, (Inferencer._end_operator, call))
        else:
            self._then(*call.args, call.op, (Inferencer._end_call, call))

    def _end_operator(self, call: Call) -> None:
        op, count = call.op, len(call.args)
        args = self.type_args[call] = tuple(self.types[a] for a in call.args)
        if not op.signature.takes(count):
            message = f"{op.name} takes {_arguments(op)}, got {count} in {expr_text(call)}"
            self.types[call] = self._failed(TypeInferenceError(message, span=call.span))
            return
        result = self.types[call] = IncompleteType()
        operator = OperatorCall(self, call, args, result)
        operator.run()
        self.types[call] = operator.found or result

    def _end_call(self, call: Call) -> None:
        type_ = self.solver.known(self.types[call.op])
        args = [self.types[a] for a in call.args]
        if isinstance(type_, IncompleteType):
            result = IncompleteType()
            function = FuncType(tuple(IncompleteType() for _ in args), result)
            if type_ in self.solver.excused:
                self.solver.excuse(function)
            self.solver.equal(type_, function)
            type_ = function
        if not isinstance(type_, FuncType):
            message = f"{expr_text(call.op)} is no function, but {self._text(type_)}, in {expr_text(call)}"
            hint = "relay.Function values, global functions and variables of a function type are called"
            self.types[call] = self._failed(TypeInferenceError(message, span=call.span, hint=hint))
            return
        self.types[call] = self._apply(call, type_, args)

    def _apply(self, call: Call, type_: FuncType, args: list[Type]) -> Type:
        if len(call.type_args) > len(type_.type_params):
            message = (
                f"{expr_text(call.op)} has {len(type_.type_params)} type parameters, got {len(call.type_args)} types"
            )
            return self._failed(TypeInferenceError(f"{message} in {expr_text(call)}", span=call.span))
        if len(args) != len(type_.arg_types):
            expected = len(type_.arg_types)
            message = f"{expr_text(call.op)} takes {expected} argument{'s' * (expected != 1)}, got {len(args)}"
            hint = f"its type is {self._text(type_)}"
            return self._failed(TypeInferenceError(f"{message} in {expr_text(call)}", span=call.span, hint=hint))
        rest = type_.type_params[len(call.type_args) :]
        types = self.type_args[call] = (*call.type_args, *(IncompleteType() for _ in rest))
        of_types = self.solver.instantiate(type_, types)
        for i, (arg, param) in enumerate(zip(args, of_types.arg_types, strict=True)):
            self._flow(arg, param, self._of_argument(call, i, arg, param))
        return of_types.ret_type

    def _of_argument(self, call: Call, i: int, arg: Type, param: Type) -> Describe:
        def describe() -> Described:
            place = f"argument {i + 1} of {expr_text(call)}"
            return f"{place} is {self._text(arg)}, expected {self._text(param)}", call.span

        return describe

    # matches

    def _match(self, match: Match) -> None:
        tasks: list[Any] = [match.data]
        for clause in match.clauses:
            tasks += [(Inferencer._bind_pattern, clause.lhs, match), clause.rhs]
        self._then(*tasks, (Inferencer._end_match, match))

    def _bind_pattern(self, pattern: Pattern, match: Match) -> None:
        self._pattern(pattern, self.types[match.data], match)

    def _pattern(self, pattern: Pattern, type_: Type, match: Match) -> None:
        """The pattern's variables get the types of the parts of a value of the type that they stand for."""
        if isinstance(pattern, PatternVar):
            self._pattern_var(pattern.var, type_, match)
        elif isinstance(pattern, PatternTuple):
            self._pattern_tuple(pattern, type_, match)
        elif isinstance(pattern, PatternConstructor):
            self._pattern_constructor(pattern, type_, match)

    def _pattern_var(self, var: Var, type_: Type, match: Match) -> None:
        if var not in self.types and var.type_annotation is None:
            self.types[var] = type_
            return
        declared = self._type_of_var(var)

        def describe() -> Described:
            text = f"%{var.name} is declared as {self._text(declared)}, and stands for {self._text(type_)}"
            return text, var.span or match.span

        self._flow(type_, declared, describe)

    def _skip(self, patterns: Iterable[Pattern], match: Match) -> None:
        """After a mistake: the variables of the patterns have some type."""
        for pattern in patterns:
            unknown = IncompleteType()
            self.solver.excuse(unknown)
            self._pattern(pattern, unknown, match)

    def _pattern_tuple(self, pattern: PatternTuple, type_: Type, match: Match) -> None:
        fields = TupleType(tuple(IncompleteType() for _ in pattern.patterns))

        def describe() -> Described:
            text = f"a pattern for a tuple of {len(pattern.patterns)} cannot match {self._text(type_)}"
            return text, pattern.span or match.span

        if self._equal(type_, fields, describe):
            known = self.solver.known(type_)
            assert isinstance(known, TupleType)
            for inner, field in zip(pattern.patterns, known.fields, strict=True):
                self._pattern(inner, field, match)
        else:
            self._skip(pattern.patterns, match)

    def _pattern_constructor(self, pattern: PatternConstructor, type_: Type, match: Match) -> None:
        constructor, span = pattern.constructor, pattern.span or match.span
        definition = self._definition(constructor, span)
        if definition is None:
            self._skip(pattern.patterns, match)
            return
        self._constructor(constructor)
        types = tuple(IncompleteType() for _ in definition.type_vars)

        def describe() -> Described:
            text = f"{constructor.name} makes values of {definition.header.name}, it cannot match {self._text(type_)}"
            return text, span

        matches = self._equal(type_, TypeCall(definition.header, types), describe)
        expected, got = len(constructor.inputs), len(pattern.patterns)
        if expected != got:
            message = f"{constructor.name} has {expected} field{'s' * (expected != 1)}, its pattern has {got}"
            self.report(TypeInferenceError(message, span=span))
        if not matches or expected != got:
            self._skip(pattern.patterns, match)
            return
        whole = self.types[constructor]
        assert isinstance(whole, FuncType)
        for inner, field in zip(pattern.patterns, self.solver.instantiate(whole, types).arg_types, strict=True):
            self._pattern(inner, field, match)

    def _end_match(self, match: Match) -> None:
        if not match.clauses:
            message = f"{expr_text(match)} has no clauses, so it gives no value"
            self.types[match] = self._failed(TypeInferenceError(message, span=match.span))
            return
        types = [self.types[clause.rhs] for clause in match.clauses]

        def describe() -> Described:
            texts = dict.fromkeys(self._text(t) for t in types)
            return f"the clauses of {expr_text(match)} give {' and '.join(texts)}", match.span

        self.types[match] = self._join(types, describe)


def _arguments(op: Any) -> str:
    names = ", ".join(n + ("?" if n in op.signature.optional else "") for n in op.signature.tensors)
    return f"({names})"


_STEPS: dict[type, Callable[[Inferencer, Any], None]] = {
    Var: Inferencer._var,
    GlobalVar: Inferencer._global_var,
    Constant: Inferencer._constant,
    Op: Inferencer._op,
    Constructor: Inferencer._constructor,
    Tuple: Inferencer._tuple,
    TupleGetItem: Inferencer._item,
    RefCreate: Inferencer._ref_create,
    RefRead: Inferencer._ref_read,
    RefWrite: Inferencer._ref_write,
    If: Inferencer._if,
    Let: Inferencer._let,
    Function: Inferencer._function,
    Call: Inferencer._call,
    Match: Inferencer._match,
}


def _step(node: Any) -> Callable[[Inferencer, Any], None]:
    """What begins with a node of its class, which the table learns."""
    found = _STEPS.get(type(node))
    if found is not None:
        return found
    for kind in type(node).__mro__:
        if kind in _STEPS:
            found = _STEPS[type(node)] = _STEPS[kind]
            return found
    raise TypeInferenceError(f"{type(node).__name__} is no expression of relay")
