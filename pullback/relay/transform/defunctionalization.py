"""Defunctionalization: functions as values become data, and calls of them calls of a function that takes data apart.

    @twice(fn (%y) { add(%x, %y) }, %z)    →    @twice_first_order(closure_1_0(%x), %z)

    type closure_1 { closure_1_0(float32) … }
    def @apply_closure_1(%f: closure_1[], %a: float32) {
      match (%f) { closure_1_0(%x) => add(%x, %a), … }
    }

There is a data type for each type of functions, with a constructor for each function of that type that the program
makes, whose fields are what it captures. Functions of the module that are called are copied for the types that they are
called with, so that nothing polymorphic remains of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.depth import deep
from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relay.adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternVar, TypeData
from pullback.relay.analysis import free_vars
from pullback.relay.expr import Call, Expr, Function, GlobalVar, Let, Var
from pullback.relay.transform.lets import LetMutator
from pullback.relay.transform.to_anf import is_primitive
from pullback.relay.transform.to_basic_block import to_basic_block_normal_form
from pullback.relay.ty import FuncType, GlobalTypeVar, RefType, TupleType, Type, TypeCall, TypeVar
from pullback.relay.type_visitor import TypeMutator, TypeVisitor, substitute
from pullback.relay.visitor import PatternMutator

MOST_COPIES = 10_000  # of functions of a module


@deep
def Defunctionalization(func: Function, mod: IRModule) -> Function:  # noqa: N802
    """The function without functions as values. The data types and functions that it needs are added to ``mod``.

    ``func`` is to have types that are all known: neither type parameters nor functions among its arguments and in its
    result, else it is an ArgumentError.

    Checks: it is a UserError where a function takes ever more copies, as it calls itself with ever larger types.
    """
    from pullback.relay.infer import infer_expr, infer_module

    typed = infer_expr(to_basic_block_normal_form(func), mod)
    _check(typed)
    blocks = mod.copy()
    for name, function in mod.items():
        if isinstance(function, Function):
            blocks[name] = to_basic_block_normal_form(function)
    program = _Program(mod, infer_module(blocks))
    made = program.converted(typed, {})
    program.finish()
    return infer_expr(made, mod)


def _check(func: Function) -> None:
    hint = "give it functions inside, and call it with data"
    if func.type_params:
        raise ArgumentError("a polymorphic function cannot be defunctionalized", hint=hint, span=func.span)
    for part in (*(p.checked_type for p in func.params), func.ret_type):
        if part is not None and _has_function(part):
            raise ArgumentError("a function that takes or returns functions cannot be defunctionalized", hint=hint)


class _Functions(TypeVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_func_type(self, type_: FuncType) -> None:
        self.found = True


def _has_function(type_: Type) -> bool:
    visitor = _Functions()
    visitor.visit(type_)
    return visitor.found


class _Closures:
    """The data type of the functions of one type, and the function that calls them."""

    def __init__(self, module: IRModule, number: int, type_: FuncType) -> None:
        self.name = GlobalTypeVar(f"closure_{number}")
        self.apply = GlobalVar(module.unique_name(f"apply_{self.name.name}"))
        self.params = tuple(Var(f"a{i}", t) for i, t in enumerate(type_.arg_types))
        self.result = type_.ret_type
        self.constructors: list[Constructor] = []
        self.clauses: list[Clause] = []

    @property
    def type(self) -> Type:
        return TypeCall(self.name, ())

    def constructor(self, inputs: tuple[Type, ...]) -> Constructor:
        """A new one, whose clause is to follow."""
        made = Constructor(f"{self.name.name}_{len(self.constructors)}", inputs, self.name)
        self.constructors.append(made)
        return made

    def define(self, module: IRModule) -> None:
        closure = Var("f", self.type)
        body: Expr = Match(closure, tuple(self.clauses))
        if not self.clauses:  # nothing makes such a function, so nothing calls this one
            body = Call(self.apply, (closure, *self.params))
        module[self.name] = TypeData(self.name, (), tuple(self.constructors))
        module[self.apply.name] = Function((closure, *self.params), body, self.result)


class _Encoded(TypeMutator):
    """Types with data types for those of functions."""

    def __init__(self, program: _Program) -> None:
        self.program = program

    def visit_func_type(self, type_: FuncType) -> Type:
        made = super().visit_func_type(type_)
        assert isinstance(made, FuncType)
        return self.program.closures(made).type


class _Program:
    def __init__(self, module: IRModule, typed: IRModule) -> None:
        self.module, self.typed = module, typed
        self.encoded = _Encoded(self)
        self._closures: dict[FuncType, _Closures] = {}
        self._copies: dict[tuple[str, tuple[Type, ...]], GlobalVar] = {}
        self._pending: list[tuple[GlobalVar, Function, dict[TypeVar, Type]]] = []

    def closures(self, type_: FuncType) -> _Closures:
        """Those of a type whose parts are encoded."""
        if type_ not in self._closures:
            taken = {v.name for v in self.module.type_definitions}
            number = len(self._closures)
            while f"closure_{number}" in taken:
                number += 1
            found = self._closures[type_] = _Closures(self.module, number, type_)
            self.module[found.apply.name] = Function(found.params, found.params[0]) if found.params else _UNIT
            self.module[found.name] = TypeData(found.name, (), ())  # both names are taken
        return self._closures[type_]

    def copy(self, var: GlobalVar, types: tuple[Type, ...]) -> GlobalVar:
        """The function of the module for these types."""
        function = self.typed[var.name]
        if not isinstance(function, Function) or is_primitive(function):
            return var
        if len(types) != len(function.type_params):
            raise ArgumentError(f"the types that @{var.name} is called with are not known", span=var.span)
        key = (var.name, types)
        if key not in self._copies:
            if len(self._copies) >= MOST_COPIES:
                hint = "it calls itself with ever larger types"
                raise UserError(f"@{var.name} takes more than {MOST_COPIES} copies", hint=hint, span=var.span)
            name = GlobalVar(self.module.unique_name(f"{var.name}_first_order"))
            self.module[name.name] = function  # the name is taken
            self._copies[key] = name
            self._pending.append((name, function, dict(zip(function.type_params, types, strict=True))))
        return self._copies[key]

    def converted(self, function: Function, types: Mapping[TypeVar, Type]) -> Function:
        converter = _Converter(self, types, {})
        params = converter._all(function.params)
        body = converter.visit(function.body)
        ret_type = converter._type(function.ret_type)
        return function.replace(params=params, body=body, ret_type=ret_type, type_params=())

    def finish(self) -> None:
        """Convert all that is called, and define the data types."""
        while self._pending:
            name, function, types = self._pending.pop()
            self.module[name.name] = self.converted(function, types)
        for found in self._closures.values():
            found.define(self.module)


_UNIT = Function((), Var("nothing"))


class _Converter(LetMutator):
    """Converts what is inside one function. ``types`` are those of its type variables."""

    def __init__(self, program: _Program, types: Mapping[TypeVar, Type], values: Mapping[Var, Expr]) -> None:
        super().__init__()
        self.program, self.types = program, dict(types)
        self.memo_map.update(values)
        self.templates: dict[Var, Any] = {}  # polymorphic functions: made where they are used

    def known(self, type_: Type) -> Type:
        """A type of the program, for the types of this copy."""
        return substitute(type_, self.types)

    def visit_type(self, type_: Type) -> Any:
        return self.program.encoded.visit(self.known(type_))

    def visit_var(self, var: Var) -> Expr:
        if var in self.templates:
            raise ArgumentError(f"the types that {var.name} is used with are not known", span=var.span)
        return Var(var.name, self.visit_type(var.checked_type), span=var.span)

    def binding(self, let: Let) -> Expr | None:
        value = let.value
        if isinstance(value, (Function, GlobalVar, Constructor)) and value.checked_as(FuncType).type_params:
            self.templates[let.variable] = value
            return None
        if isinstance(value, Function) and not is_primitive(value):
            self.memo_map[value] = self.closure(value, let.variable, {})
        return self.visit(value)

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        return _PatternVariables(self).visit(pattern)

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else self.closure(function, None, {})

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self.handed_on(var, {})

    def visit_constructor(self, constructor: Constructor) -> Expr:
        return self.handed_on(constructor, {})

    def visit_op(self, op: Op) -> Any:
        hint = f"write a function that calls it: fn (%x) {{ {op.name}(%x) }}"
        raise ArgumentError(f"operator {op.name} is handed on", hint=hint)

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        types = tuple(self.known(t) for t in call.type_args)
        if isinstance(op, Op) or (isinstance(op, Function) and is_primitive(op)):
            return Call(op, self._all(call.args), call.attrs, self._types(call.type_args), span=call.span)
        expected = self.expected(op.checked_type, types)
        args = tuple(self.argument(a, t) for a, t in zip(call.args, expected.arg_types, strict=True))
        if isinstance(op, Constructor):
            return Call(op, args, call.attrs, self._types(call.type_args), span=call.span)
        if isinstance(op, GlobalVar):
            return Call(self.program.copy(op, types), args, span=call.span)
        encoded = self.program.encoded
        parts = tuple(map(encoded.visit, expected.arg_types)), encoded.visit(expected.ret_type)
        closures = self.program.closures(FuncType(*parts))
        return Call(closures.apply, (self.argument(op, expected), *args), span=call.span)

    def expected(self, type_: FuncType, types: tuple[Type, ...]) -> FuncType:
        """The type of a callee, called with these types."""
        own = dict(zip(type_.type_params, types, strict=True))
        plain = FuncType(type_.arg_types, type_.ret_type)
        found = self.known(substitute(plain, own))
        assert isinstance(found, FuncType)
        return found

    def argument(self, expr: Any, expected: Type) -> Expr:
        """An expression where that type is expected, of which a polymorphic function takes its types."""
        function = self.templates.get(expr, expr) if isinstance(expr, Var) else expr
        type_ = None if isinstance(function, Op) else function.checked_type_
        if not isinstance(type_, FuncType) or not type_.type_params:
            return self.visit(expr)
        own: dict[TypeVar, Type] = {}
        _solve(FuncType(type_.arg_types, type_.ret_type), expected, set(type_.type_params), own)
        if isinstance(function, Function):
            return self.closure(function, expr if isinstance(expr, Var) else None, own)
        return self.handed_on(function, own)

    def closure(self, function: Function, itself: Var | None, own: Mapping[TypeVar, Type]) -> Expr:
        """The data that stands for a function, whose type parameters are ``own``."""
        types = {**self.types, **own}
        captured = [v for v in free_vars(function) if v is not itself and v not in self.templates]
        inner = _Converter(self.program, types, {})
        inner.templates.update({v: t for v, t in self.templates.items() if v is not itself})
        closures = self._of(function.checked_as(FuncType), inner)
        inputs = tuple(inner.visit_type(v.checked_type) for v in captured)
        constructor = closures.constructor(inputs)
        fields = tuple(Var(v.name, t) for v, t in zip(captured, inputs, strict=True))
        inner.memo_map.update(zip(captured, fields, strict=True))
        inner.memo_map.update(zip(function.params, closures.params, strict=True))
        again = Var("itself" if itself is None else itself.name, closures.type)
        if itself is not None:
            inner.memo_map[itself] = again
        body = inner.visit(function.body)
        if itself is not None and itself in free_vars(function):
            body = Let(again, Call(constructor, fields), body)
        pattern = PatternConstructor(constructor, tuple(map(PatternVar, fields)))
        closures.clauses.append(Clause(pattern, body, span=function.span))
        return Call(constructor, self._all(tuple(captured)), span=function.span)

    def _of(self, type_: FuncType, converter: _Converter) -> _Closures:
        args = tuple(map(converter.visit_type, type_.arg_types))
        return self.program.closures(FuncType(args, converter.visit_type(type_.ret_type)))

    def handed_on(self, function: Any, own: Mapping[TypeVar, Type]) -> Expr:
        """The data that stands for a function of the module or a constructor."""
        type_ = function.checked_type
        if len(own) < len(type_.type_params):
            raise ArgumentError(f"the types that {function.name} is used with are not known", span=function.span)
        closures = self._of(type_, _Converter(self.program, {**self.types, **own}, {}))
        types = tuple(own[v] for v in type_.type_params)
        callee = self.program.copy(function, types) if isinstance(function, GlobalVar) else function
        given = () if isinstance(function, GlobalVar) else tuple(map(self.program.encoded.visit, types))
        constructor = closures.constructor(())
        body = Call(callee, closures.params, {}, given, span=function.span)
        closures.clauses.append(Clause(PatternConstructor(constructor), body))
        return Call(constructor, (), span=function.span)


class _PatternVariables(PatternMutator):
    """A pattern with the variables of a converter."""

    def __init__(self, converter: _Converter) -> None:
        self.converter = converter

    def visit_var(self, var: Var) -> Var:
        return self.converter.visit(var)


def _solve(type_: Type, known: Type, variables: set[TypeVar], found: dict[TypeVar, Type]) -> None:
    """What the variables of a type stand for, where it is the known one."""
    if isinstance(type_, TypeVar) and type_ in variables:
        found.setdefault(type_, known)
    elif isinstance(type_, FuncType) and isinstance(known, FuncType):
        for a, b in zip((*type_.arg_types, type_.ret_type), (*known.arg_types, known.ret_type), strict=True):
            _solve(a, b, variables, found)
    elif isinstance(type_, TupleType) and isinstance(known, TupleType):
        for a, b in zip(type_.fields, known.fields, strict=True):
            _solve(a, b, variables, found)
    elif isinstance(type_, TypeCall) and isinstance(known, TypeCall):
        for a, b in zip(type_.args, known.args, strict=True):
            _solve(a, b, variables, found)
    elif isinstance(type_, RefType) and isinstance(known, RefType):
        _solve(type_.value, known.value, variables, found)
