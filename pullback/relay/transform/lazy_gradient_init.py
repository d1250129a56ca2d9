"""LazyGradientInit: tensors of zeros and ones are not made before they are needed, nor added and multiplied.

    fn (%x: Tensor[(3)]) {             fn (%x: GradCell[Tensor[(3)]]) {
      %0 = zeros_like(%x);       →       %0 = Zero(fn () { zeros(shape=[3]) });
      %1 = add(%0, %x);                  %1 = AddGradCell(add, %0, %x);
      exp(%1)                            Raw(exp(FromGradCell(%1)))
    }                                  }

Inside, every tensor is in a ``GradCell`` of ``gradient.rly``: a value, or ones or zeros that a function makes. Sums and
products of such are cells again; another operator takes values, and gives one. Each function gets a twin of that kind,
and calls it: its own type does not change. It is for gradients: adjoints begin as zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback import ir
from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.adt import Clause, Constructor, Match, PatternConstructor, PatternVar
from pullback.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Tuple,
    Var,
    call_op,
    span_of,
)
from pullback.relay.gradient.generic import field
from pullback.relay.gradient.lifted_types import CellTypes
from pullback.relay.infer import infer_module
from pullback.relay.op.registry import Op
from pullback.relay.prelude import import_from_std
from pullback.relay.transform.infra import optimizable
from pullback.relay.transform.to_anf import is_primitive
from pullback.relay.ty import FuncType, GlobalTypeVar, TensorType, TupleType, Type, TypeCall
from pullback.relay.type_visitor import substitute
from pullback.relay.visitor import ExprMutator

LIBRARY = "gradient.rly"
_FILLED = {"zeros": "Zero", "zeros_like": "Zero", "ones": "One", "ones_like": "One"}
_LAZY = {"add": GlobalVar("AddGradCell"), "multiply": GlobalVar("MultiplyGradCell")}
_VALUE = GlobalVar("FromGradCell")


@dataclass(frozen=True)
class LazyGradientInit(Pass):
    """The functions of a module with cells for tensors inside.

    Parameters and results of a function that is to be called from outside are tensors, tuples, data types and functions
    of them; one of references or of any type keeps its body, and only functions inside call its twin.

    Checks: types are all known. A function whose type has references or type parameters keeps its body.
    """

    def run(self, module: IRModule) -> IRModule:
        given = module.copy()
        import_from_std(given, LIBRARY)
        own = [name for name, f in module.items() if optimizable(f) and name not in _library(given)]
        typed = infer_module(given)
        result = typed.copy()
        types = CellTypes(typed, {name.name for name in typed.type_definitions})
        twins = {name: GlobalVar(typed.unique_name(f"_GradCell_Func_{name}")) for name in own}
        cells = _Cells(result, types, twins)
        for name in own:
            result[twins[name].name] = cells.twin(typed[name])
            if _is_convertible(typed[name].checked_type):
                result[name] = cells.face(typed[name], twins[name])
        for data in types.definitions.values():
            result[data.header] = data
        return infer_module(result)


def _library(module: IRModule) -> set[str]:
    added = IRModule()
    import_from_std(added, LIBRARY)
    return {name for name in added if name in module}


def _is_convertible(type_: Type) -> bool:
    """Whether values of the type can be told from cells by their type."""
    if isinstance(type_, FuncType):
        return not type_.type_params and all(map(_is_convertible, (*type_.arg_types, type_.ret_type)))
    if isinstance(type_, TupleType):
        return all(map(_is_convertible, type_.fields))
    if isinstance(type_, TypeCall):
        return all(map(_is_convertible, type_.args))
    return isinstance(type_, (TensorType, GlobalTypeVar))


class _Cells(ExprMutator):
    """Expressions with cells for tensors. Functions that convert data types are added to ``module``."""

    def __init__(self, module: IRModule, types: CellTypes, twins: dict[str, GlobalVar]) -> None:
        super().__init__()
        self.module, self.types, self.twins = module, types, twins
        self.converters: dict[tuple[Type, bool], GlobalVar] = {}
        self.cell = {c.name: c for c in module[CellTypes.header].constructors}

    def twin(self, function: Function) -> Function:
        """The function of cells."""
        twin = self.visit(function)
        assert isinstance(twin, Function)
        return twin

    def face(self, function: Function, twin: GlobalVar) -> Function:
        """The function of tensors, by its twin."""
        params = tuple(Var(p.name, p.checked_type, span=p.span) for p in function.params)
        args = tuple(self.wrapped(p, p.type_annotation) for p in params)
        body = self.unwrapped(Call(twin, args), function.body.checked_type)
        return function.replace(params=params, body=body)

    # ---- between tensors and cells

    def wrapped(self, value: Any, type_: Any) -> Expr:
        """A value of the type with its tensors in cells."""
        if isinstance(type_, TensorType):
            return Call(self.cell["Raw"], (value,))
        return self._converted(value, type_, True)

    def unwrapped(self, value: Any, type_: Any) -> Expr:
        """What a value in cells is; ``type_``: its type outside of them."""
        if isinstance(type_, TensorType):
            return Call(_VALUE, (value,))
        return self._converted(value, type_, False)

    def _converted(self, value: Any, type_: Type, wrap: bool) -> Expr:
        convert: Callable[[Any, Any], Expr] = self.wrapped if wrap else self.unwrapped
        if isinstance(type_, TupleType):
            return Tuple(tuple(convert(field(value, k), t) for k, t in enumerate(type_.fields)))
        if isinstance(type_, FuncType) and not type_.type_params:
            back = self.unwrapped if wrap else self.wrapped
            params = tuple(Var(f"x{k}", self.types.visit(t) if wrap else t) for k, t in enumerate(type_.arg_types))
            args = tuple(back(p, t) for p, t in zip(params, type_.arg_types, strict=True))
            ret_type = self.types.visit(type_.ret_type) if wrap else type_.ret_type
            return Function(params, convert(Call(value, args), type_.ret_type), ret_type)
        if isinstance(type_, (TypeCall, GlobalTypeVar)):
            return value if self.types.visit(type_) == type_ else Call(self._converter(type_, wrap), (value,))
        hint = "it converts tensors, tuples, data types and functions of them"
        raise UserError(f"LazyGradientInit cannot convert a {type(type_).__name__}", span=span_of(value), hint=hint)

    def _converter(self, type_: TypeCall | GlobalTypeVar, wrap: bool) -> GlobalVar:
        """The function that converts the values of a data type."""
        key = type_, wrap
        if key not in self.converters:
            header = type_.func if isinstance(type_, TypeCall) else type_
            assert isinstance(header, GlobalTypeVar)
            name = self.module.unique_name(f"_GradCell_{'Wrap' if wrap else 'Unwrap'}_{header.name}")
            self.converters[key] = GlobalVar(name)
            self.module[name] = Function((), Tuple(()))  # takes the name
            self.module[name] = self._conversion(type_, header, wrap)
        return self.converters[key]

    def _conversion(self, type_: TypeCall | GlobalTypeVar, header: GlobalTypeVar, wrap: bool) -> Function:
        data = self.types.known[header.name]
        given = dict(zip(data.type_vars, type_.args if isinstance(type_, TypeCall) else (), strict=True))
        lifted, clauses = self.types.visit(type_), []
        for old in data.constructors:
            inputs = [substitute(t, given) for t in old.inputs]
            new = self.types.constructor(old)
            source, target = (old, new) if wrap else (new, old)
            fields = [Var(f"x{k}") for k in range(len(inputs))]
            convert = self.wrapped if wrap else self.unwrapped
            made = Call(target, tuple(convert(f, t) for f, t in zip(fields, inputs, strict=True)))
            clauses.append(Clause(PatternConstructor(source, tuple(map(PatternVar, fields))), made))
        taken, made_type = (type_, lifted) if wrap else (lifted, type_)
        value = Var("value", taken)
        return Function((value,), Match(value, tuple(clauses)), made_type)

    # ---- expressions

    def visit_type(self, type_: Type) -> Type:
        return self.types.visit(type_)

    def visit_constant(self, constant: Constant) -> Expr:
        return Call(self.cell["Raw"], (constant,), span=constant.span)

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self.twins.get(var.name, var)

    def visit_constructor(self, constructor: Constructor) -> Any:
        return self.types.constructor(constructor)

    def visit_if(self, if_: If) -> Expr:
        branches = self.visit(if_.true_branch), self.visit(if_.false_branch)
        return If(Call(_VALUE, (self.visit(if_.cond),)), *branches, span=if_.span)

    def visit_function(self, function: Function) -> Expr:
        if is_primitive(function):  # one operator
            return self.wrapped(function, function.checked_type)
        return super().visit_function(function)

    def visit_op(self, op: ir.Op) -> Any:
        hint = f"write a function that calls it: relay.Function([x], relay.{op.name}(x))"
        raise UserError(f"LazyGradientInit: operator {op.name} is used where it is not called", hint=hint)

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op):
            return super().visit_call(call)
        type_, arg_types = call.checked_type, [a.checked_type for a in call.args]
        name = call.op.name
        if name in _FILLED and isinstance(type_, TensorType):
            return Call(self.cell[_FILLED[name]], (self._filled(call, type_),), span=call.span)
        args = [self.visit(a) for a in call.args]
        if name in _LAZY and all(t == type_ for t in arg_types):
            left, right = Var("l", type_), Var("r", type_)
            combine = Function((left, right), Call(call.op, (left, right), call.attrs), type_)
            return Call(_LAZY[name], (combine, *args), span=call.span)
        values = tuple(self.unwrapped(a, t) for a, t in zip(args, arg_types, strict=True))
        return self.wrapped(Call(call.op, values, call.attrs, span=call.span), type_)

    def _filled(self, call: Call, type_: TensorType) -> Function:
        """The function that makes zeros or ones; of sizes that are not known like what the call is given."""
        if type_.is_concrete:
            kind = call.op.name.removesuffix("_like")
            made = call_op(kind, shape=type_.shape, dtype=type_.dtype)
        else:
            args = (self.unwrapped(self.visit(a), a.checked_type) for a in call.args)
            made = Call(call.op, tuple(args), call.attrs)
        return Function((), made, type_)
