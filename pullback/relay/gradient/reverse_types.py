"""The types of reverse mode: a tensor becomes a pair of it and the reference of its adjoint.

    Tensor[(3), float32]   →   (Tensor[(3), float32], ref(Tensor[(3), float32]))
    fn(a) -> b             →   fn(a', ref(fn() -> ())) -> b'        the last argument: the backpropagator

A data type that names tensors or functions itself becomes another one; ``List`` applied to tensors is ``List`` still.
"""

from __future__ import annotations

from collections.abc import Collection

from pullback.ir.module import IRModule
from pullback.relay.adt import Constructor, TypeData
from pullback.relay.ty import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, Type
from pullback.relay.type_visitor import TypeMutator, TypeVisitor

BACKPROPAGATOR = RefType(FuncType((), TupleType(())))


class _Names(TypeVisitor):
    """Whether a type names tensors or functions, or data types of these."""

    def __init__(self, changing: set[str]) -> None:
        self.changing, self.found = changing, False

    def visit_tensor_type(self, type_: TensorType) -> None:
        self.found = True

    def visit_func_type(self, type_: FuncType) -> None:
        self.found = True

    def visit_global_type_var(self, type_: GlobalTypeVar) -> None:
        self.found |= type_.name in self.changing


class ReverseTypes(TypeMutator):
    """``visit(type)`` is the type in reverse mode. ``definitions``: the data types that this made, by the names of the
    original ones; ``taken``: names that they may not have."""

    def __init__(self, module: IRModule, taken: Collection[str]) -> None:
        self.taken = taken
        self.known: dict[str, TypeData] = {name.name: data for name, data in module.type_definitions.items()}
        self.changing = self._changing()
        self.names = {name: self._fresh(name) for name in sorted(self.changing)}
        self.definitions: dict[str, TypeData] = {}

    def _changing(self) -> set[str]:
        changing: set[str] = set()
        while True:
            more = {name for name, data in self.known.items() if name not in changing and _names(data, changing)}
            if not more:
                return changing
            changing |= more

    def _fresh(self, name: str) -> str:
        fresh = f"{name}_grad"
        while fresh in self.taken:
            fresh += "_"
        return fresh

    def visit_tensor_type(self, type_: TensorType) -> Type:
        return TupleType((type_, RefType(type_)))

    def visit_func_type(self, type_: FuncType) -> Type:
        whole = super().visit_func_type(type_)
        assert isinstance(whole, FuncType)
        args = (*whole.arg_types, BACKPROPAGATOR)
        return FuncType(args, whole.ret_type, whole.type_params, whole.type_constraints, span=type_.span)

    def visit_global_type_var(self, type_: GlobalTypeVar) -> Type:
        return self._definition(type_.name).header if type_.name in self.names else type_

    def constructor(self, constructor: Constructor) -> Constructor:
        """The constructor of the data type in reverse mode."""
        name = constructor.belong_to.name
        return self._definition(name).constructors[constructor.tag] if name in self.names else constructor

    def _definition(self, name: str) -> TypeData:
        if name not in self.definitions:
            old, header = self.known[name], GlobalTypeVar(self.names[name])
            # made before its constructors are: they may name the type itself
            self.definitions[name] = TypeData(header, old.type_vars, ())
            constructors = [
                Constructor(self.names[name] + "_" + c.name, tuple(map(self.visit, c.inputs)), header)
                for c in old.constructors
            ]
            self.definitions[name] = TypeData(header, old.type_vars, tuple(constructors))
        return self.definitions[name]


def _names(data: TypeData, changing: set[str]) -> bool:
    visitor = _Names(changing)
    for constructor in data.constructors:
        for type_ in constructor.inputs:
            visitor.visit(type_)
    return visitor.found
