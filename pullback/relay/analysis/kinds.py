"""Kinds of types: whether a type is put together as types may be."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import NameNotFound, UserError
from pullback.relay.adt import TypeData
from pullback.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeKind,
    TypeRelation,
    TypeVar,
)
from pullback.relay.type_visitor import TypeFunctor


class KindError(UserError, TypeError):
    """A type is put together of parts that are none."""


class _Kinds(TypeFunctor):
    def __init__(self, module: Any) -> None:
        self.module = module

    def _is_type(self, part: Type, where: str) -> None:
        kind = self.visit(part)
        if kind != TypeKind.Type:
            raise KindError(f"{where} has to be a type, got one of kind {kind.name}", span=part.span)

    def visit_incomplete_type(self, type_: IncompleteType) -> TypeKind:
        return type_.kind

    def visit_type_var(self, type_: TypeVar) -> TypeKind:
        return type_.kind

    def visit_global_type_var(self, type_: GlobalTypeVar) -> TypeKind:
        return type_.kind

    def visit_tensor_type(self, type_: TensorType) -> TypeKind:
        return TypeKind.Type

    def visit_tuple_type(self, type_: TupleType) -> TypeKind:
        for i, field in enumerate(type_.fields):
            self._is_type(field, f"field {i} of a tuple")
        return TypeKind.Type

    def visit_func_type(self, type_: FuncType) -> TypeKind:
        for param in type_.type_params:
            self.visit(param)
        for i, arg in enumerate(type_.arg_types):
            self._is_type(arg, f"argument {i + 1} of a function")
        self._is_type(type_.ret_type, "the result of a function")
        for constraint in type_.type_constraints:
            if self.visit(constraint) != TypeKind.Constraint:
                raise KindError("a function's type_constraints have to be TypeRelations", span=constraint.span)
        return TypeKind.Type

    def visit_ref_type(self, type_: RefType) -> TypeKind:
        self._is_type(type_.value, "what a reference holds")
        return TypeKind.Type

    def visit_type_relation(self, type_: TypeRelation) -> TypeKind:
        for i, arg in enumerate(type_.args):
            self._is_type(arg, f"argument {i + 1} of a relation")
        return TypeKind.Constraint

    def visit_type_call(self, type_: TypeCall) -> TypeKind:
        if not isinstance(type_.func, (GlobalTypeVar, TypeVar, IncompleteType)):
            raise KindError(f"only data types are applied to types, got {type(type_.func).__name__}", span=type_.span)
        kind = self.visit(type_.func)
        if kind != TypeKind.AdtHandle:
            raise KindError(f"only data types are applied to types, got one of kind {kind.name}", span=type_.span)
        for i, arg in enumerate(type_.args):
            self._is_type(arg, f"argument {i + 1} of {type_.func.name}")
        if self.module is not None and isinstance(type_.func, GlobalTypeVar):
            self._has_arguments(type_, type_.func)
        return TypeKind.Type

    def _has_arguments(self, type_: TypeCall, name: GlobalTypeVar) -> None:
        definition = self.module.type_definitions.get(name)
        if definition is None:
            known = ", ".join(t.name for t in self.module.type_definitions) or "none"
            raise NameNotFound(f"there is no data type {name.name}", span=type_.span, hint=f"the module has {known}")
        expected, got = len(definition.type_vars), len(type_.args)
        if expected != got:
            raise KindError(f"{name.name} is applied to {expected} types, got {got}", span=type_.span)

    def visit_type_data(self, type_: TypeData) -> TypeKind:
        header = self.visit(type_.header)
        if header != TypeKind.AdtHandle:
            raise KindError(f"the name of a data type has to be of kind AdtHandle, got {header.name}", span=type_.span)
        for var in type_.type_vars:
            self._is_type(var, f"the parameter {var.name} of {type_.header.name}")
        for constructor in type_.constructors:
            if constructor.belong_to != type_.header:
                raise KindError(f"{constructor.name} belongs to {constructor.belong_to.name}, not {type_.header.name}")
            for i, part in enumerate(constructor.inputs):
                self._is_type(part, f"field {i} of {constructor.name}")
        return TypeKind.TypeData


def check_kind(t: Type, mod: Any = None) -> TypeKind:
    """The kind of a type; with ``mod`` its data types have to be defined there, and be applied to as many types as
    they have parameters.

    Raises a UserError where it is put together of what are no types.

    >>> check_kind(TupleType((TensorType((3,)),)))
    <TypeKind.Type: 0>
    """
    return _Kinds(mod).visit(t)


def check_type(type_: Type, module: Any = None) -> None:
    """Raise a UserError unless values may be of the type. A data type without parameters may stand without brackets."""
    if isinstance(type_, GlobalTypeVar):
        type_ = TypeCall(type_, ())
    kind = check_kind(type_, module)
    if kind != TypeKind.Type:
        raise KindError(f"a value has to be of a type, got one of kind {kind.name}", span=type_.span)
