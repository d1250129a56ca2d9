"""Traversals of types: functors, visitors and mutators, and substitution of type variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.errors import ArgumentError
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
    TypeRelation,
    TypeVar,
)

_METHODS: dict[type, str] = {
    TypeVar: "visit_type_var",
    IncompleteType: "visit_incomplete_type",
    TensorType: "visit_tensor_type",
    FuncType: "visit_func_type",
    TupleType: "visit_tuple_type",
    TypeRelation: "visit_type_relation",
    RefType: "visit_ref_type",
    GlobalTypeVar: "visit_global_type_var",
    TypeCall: "visit_type_call",
    TypeData: "visit_type_data",
}


class TypeFunctor:
    """A function of types by cases: a subclass writes ``visit_tensor_type`` and the other cases."""

    def visit(self, type_: Type) -> Any:
        """What the case of the type returns."""
        for kind in type(type_).__mro__:
            if kind in _METHODS:
                return getattr(self, _METHODS[kind])(type_)
        hint = "relay.TensorType(shape, dtype) and its like are"
        raise ArgumentError(f"{type(type_).__name__} is no type of relay", hint=hint)

    def visit_type_var(self, type_: TypeVar) -> Any:
        raise NotImplementedError

    def visit_incomplete_type(self, type_: IncompleteType) -> Any:
        raise NotImplementedError

    def visit_tensor_type(self, type_: TensorType) -> Any:
        raise NotImplementedError

    def visit_func_type(self, type_: FuncType) -> Any:
        raise NotImplementedError

    def visit_tuple_type(self, type_: TupleType) -> Any:
        raise NotImplementedError

    def visit_type_relation(self, type_: TypeRelation) -> Any:
        raise NotImplementedError

    def visit_ref_type(self, type_: RefType) -> Any:
        raise NotImplementedError

    def visit_global_type_var(self, type_: GlobalTypeVar) -> Any:
        raise NotImplementedError

    def visit_type_call(self, type_: TypeCall) -> Any:
        raise NotImplementedError

    def visit_type_data(self, type_: TypeData) -> Any:
        raise NotImplementedError


class TypeVisitor(TypeFunctor):
    """Visits every part of a type, once for each place where it stands."""

    def visit_type_var(self, type_: TypeVar) -> None: ...

    def visit_incomplete_type(self, type_: IncompleteType) -> None: ...

    def visit_tensor_type(self, type_: TensorType) -> None: ...

    def visit_global_type_var(self, type_: GlobalTypeVar) -> None: ...

    def visit_func_type(self, type_: FuncType) -> None:
        for part in (*type_.type_params, *type_.arg_types, type_.ret_type, *type_.type_constraints):
            self.visit(part)

    def visit_tuple_type(self, type_: TupleType) -> None:
        for field in type_.fields:
            self.visit(field)

    def visit_type_relation(self, type_: TypeRelation) -> None:
        for arg in type_.args:
            self.visit(arg)

    def visit_ref_type(self, type_: RefType) -> None:
        self.visit(type_.value)

    def visit_type_call(self, type_: TypeCall) -> None:
        for part in (type_.func, *type_.args):
            self.visit(part)

    def visit_type_data(self, type_: TypeData) -> None:
        self.visit(type_.header)
        for var in type_.type_vars:
            self.visit(var)
        for constructor in type_.constructors:
            for part in constructor.inputs:
                self.visit(part)


class TypeMutator(TypeFunctor):
    """Rebuilds a type from its changed parts; what does not change is returned as it is."""

    def visit_type_var(self, type_: TypeVar) -> Type:
        return type_

    def visit_incomplete_type(self, type_: IncompleteType) -> Type:
        return type_

    def visit_tensor_type(self, type_: TensorType) -> Type:
        return type_

    def visit_global_type_var(self, type_: GlobalTypeVar) -> Type:
        return type_

    def _all(self, types: tuple[Any, ...]) -> tuple[Any, ...]:
        return same_or(types, tuple(self.visit(t) for t in types))

    def visit_func_type(self, type_: FuncType) -> Type:
        params, args = self._all(type_.type_params), self._all(type_.arg_types)
        result, constraints = self.visit(type_.ret_type), self._all(type_.type_constraints)
        if (params, args, constraints) == (type_.type_params, type_.arg_types, type_.type_constraints) and (
            result is type_.ret_type
        ):
            return type_
        return FuncType(args, result, params, constraints, span=type_.span)

    def visit_tuple_type(self, type_: TupleType) -> Type:
        fields = self._all(type_.fields)
        return type_ if fields is type_.fields else TupleType(fields, span=type_.span)

    def visit_type_relation(self, type_: TypeRelation) -> Type:
        args = self._all(type_.args)
        if args is type_.args:
            return type_
        return TypeRelation(type_.func, args, type_.num_inputs, type_.attrs, span=type_.span)

    def visit_ref_type(self, type_: RefType) -> Type:
        value = self.visit(type_.value)
        return type_ if value is type_.value else RefType(value, span=type_.span)

    def visit_type_call(self, type_: TypeCall) -> Type:
        func, args = self.visit(type_.func), self._all(type_.args)
        return type_ if func is type_.func and args is type_.args else TypeCall(func, args, span=type_.span)

    def visit_type_data(self, type_: TypeData) -> Type:
        return type_


def same_or(old: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[Any, ...]:
    """``old`` where ``new`` holds the same objects, else ``new``."""
    return old if len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True)) else new


class _Substituter(TypeMutator):
    def __init__(self, types: Mapping[Any, Type]) -> None:
        self.types = types

    def visit_type_var(self, type_: TypeVar) -> Type:
        return self.types.get(type_, type_)

    def visit_incomplete_type(self, type_: IncompleteType) -> Type:
        return self.types.get(type_, type_)


def substitute(type_: Type, types: Mapping[Any, Type]) -> Type:
    """``type_`` with type variables (and incomplete types) replaced by ``types``.

    >>> a = TypeVar("a")
    >>> substitute(TupleType((a, a)), {a: TensorType((3,))}) == TupleType((TensorType((3,)),) * 2)
    True
    """
    return _Substituter(types).visit(type_) if types else type_
