"""Types in which every tensor is something else: a pair in reverse mode, a cell that may be empty in others.

    Tensor[(3), float32]   →   (Tensor[(3), float32], ref(Tensor[(3), float32]))
    fn(a) -> b             →   fn(a', ref(fn() -> ())) -> b'        the last argument: the backpropagator

A data type that names tensors itself becomes another one; ``List`` applied to tensors is ``List`` still.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from pullback.ir.errors import InternalError
from pullback.ir.module import IRModule
from pullback.relay.adt import Constructor, TypeData
from pullback.relay.ty import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, Type, TypeCall
from pullback.relay.type_visitor import TypeMutator, TypeVisitor

BACKPROPAGATOR = RefType(FuncType((), TupleType(())))


class LiftedTypes(TypeMutator):
    """``visit(type)`` is the type with other tensors. ``definitions``: the data types that this made, by the names of
    the original ones; ``taken``: names that they may not have."""

    changes_functions: ClassVar[bool] = False  # whether a type of a function that names no tensors changes
    suffix: ClassVar[str]

    def __init__(self, module: IRModule, taken: Collection[str]) -> None:
        self.taken = taken
        self.known: dict[str, TypeData] = {name.name: data for name, data in module.type_definitions.items()}
        self.changing = self._changing()
        self.names = {name: self._fresh(name) for name in sorted(self.changing)}
        self.definitions: dict[str, TypeData] = {}

    def _changing(self) -> set[str]:
        changing: set[str] = set()
        while True:
            more = {n for n, d in self.known.items() if n not in changing and self._changes(d, changing)}
            if not more:
                return changing
            changing |= more

    def _changes(self, data: TypeData, changing: set[str]) -> bool:
        visitor = _Names(changing, self.changes_functions)
        for constructor in data.constructors:
            for type_ in constructor.inputs:
                visitor.visit(type_)
        return visitor.found

    def _fresh(self, name: str) -> str:
        fresh = name + self.suffix
        while fresh in self.taken:
            fresh += "_"
        return fresh

    def visit_tensor_type(self, type_: TensorType) -> Type:
        raise InternalError("a subclass says what becomes of a tensor")

    def visit_global_type_var(self, type_: GlobalTypeVar) -> Type:
        return self._definition(type_.name).header if type_.name in self.names else type_

    def constructor(self, constructor: Constructor) -> Constructor:
        """The constructor of the data type with other tensors."""
        name = constructor.belong_to.name
        return self._definition(name).constructors[constructor.tag] if name in self.names else constructor

    def _definition(self, name: str) -> TypeData:
        if name not in self.definitions:
            old, header = self.known[name], GlobalTypeVar(self.names[name])
            # made before its constructors are: they may name the type itself
            self.definitions[name] = TypeData(header, old.type_vars, ())
            constructors = [
                Constructor(c.name + self.suffix, tuple(map(self.visit, c.inputs)), header) for c in old.constructors
            ]
            self.definitions[name] = TypeData(header, old.type_vars, tuple(constructors))
        return self.definitions[name]


class ReverseTypes(LiftedTypes):
    """The types of reverse mode."""

    changes_functions = True
    suffix = "_grad"

    def visit_tensor_type(self, type_: TensorType) -> Type:
        return TupleType((type_, RefType(type_)))

    def visit_func_type(self, type_: FuncType) -> Type:
        whole = super().visit_func_type(type_)
        assert isinstance(whole, FuncType)
        args = (*whole.arg_types, BACKPROPAGATOR)
        return FuncType(args, whole.ret_type, whole.type_params, whole.type_constraints, span=type_.span)


class CellTypes(LiftedTypes):
    """Types in which every tensor is in a ``GradCell``."""

    suffix = "_GradCell"
    header = GlobalTypeVar("GradCell")

    def visit_tensor_type(self, type_: TensorType) -> Type:
        return TypeCall(self.header, (type_,))


class _Names(TypeVisitor):
    """Whether a type names tensors, or data types that do."""

    def __init__(self, changing: set[str], functions: bool) -> None:
        self.changing, self.functions, self.found = changing, functions, False

    def visit_tensor_type(self, type_: TensorType) -> None:
        self.found = True

    def visit_func_type(self, type_: FuncType) -> None:
        self.found |= self.functions
        super().visit_func_type(type_)

    def visit_global_type_var(self, type_: GlobalTypeVar) -> None:
        self.found |= type_.name in self.changing
