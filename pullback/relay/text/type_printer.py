"""Types as relay text, and what stands in their shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pullback import tir
from pullback.relay.text.attributes import CONSTANTS
from pullback.relay.text.meta import MetaTable
from pullback.relay.text.names import Names, identifier
from pullback.relay.text.tokens import WORDS
from pullback.relay.text.types import KINDS, SIZE_FUNCTIONS
from pullback.relay.ty import Any as AnySize
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
    TypeVar,
)
from pullback.tir.expr import DTYPES

_KIND_NAMES = {kind: name for name, kind in KINDS.items()}
_SUMS = {"add": "+", "sub": "-", "mul": "*"}
_RESERVED = ("Tensor", "Ref", *WORDS, *DTYPES)


class TypePrinter:
    """Writes types. Type variables and sizes get unique names; ``data_types`` are names that they cannot have."""

    def __init__(self, meta: MetaTable, data_types: Sequence[str] = ()) -> None:
        self.meta = meta
        self.taken = {*_RESERVED, *data_types}
        self.type_vars: dict[int, str] = {}
        self.forget_sizes()

    def forget_sizes(self) -> None:
        """Begin a definition: a size is the same in all of it."""
        self.sizes: dict[int, str] = {}
        self.size_names = Names((*SIZE_FUNCTIONS, *CONSTANTS, *WORDS))

    @contextlib.contextmanager
    def binding(self, type_vars: Sequence[TypeVar]) -> Iterator[str]:
        """Inside, the type variables have names; gives their list, ``[A, B]``, or nothing."""
        parts, outer = [], {id(var): self.type_vars.get(id(var)) for var in type_vars}
        for var in type_vars:
            hint = identifier(var.name, "t")
            in_use = self.taken.union(self.type_vars.values())
            name = Names(in_use).unique(hint)
            self.type_vars[id(var)] = name
            parts.append(name if var.kind is TypeKind.Type else f"{name}: {_KIND_NAMES[var.kind]}")
        yield f"[{', '.join(parts)}]" if parts else ""
        for key, before in outer.items():
            if before is None:
                del self.type_vars[key]
            else:
                self.type_vars[key] = before

    def type(self, type_: Type) -> str:
        """The type's text."""
        if isinstance(type_, TensorType):
            shape = ", ".join(self.size(s) for s in type_.shape)
            return f"Tensor[({shape}), {type_.dtype}]" if type_.shape else type_.dtype
        if isinstance(type_, TupleType):
            return f"({self._list(type_.fields)}{',' * (len(type_.fields) == 1)})"
        if isinstance(type_, FuncType) and not type_.type_constraints:
            with self.binding(type_.type_params) as params:
                return f"fn {params}({self._list(type_.arg_types)}) -> {self.type(type_.ret_type)}"
        if isinstance(type_, RefType):
            return f"ref({self.type(type_.value)})"
        if isinstance(type_, TypeVar):
            return self.type_vars.get(id(type_), type_.name)
        if isinstance(type_, TypeCall) and isinstance(type_.func, (GlobalTypeVar, TypeVar)):
            head = type_.func.name if isinstance(type_.func, GlobalTypeVar) else self.type(type_.func)
            return f"{head}[{self._list(type_.args)}]"
        if isinstance(type_, IncompleteType):
            return "_"
        return self.meta.reference(type_)

    def _list(self, types: Sequence[Type]) -> str:
        return ", ".join(self.type(t) for t in types)

    def size(self, size: Any, explicit: bool = False) -> str:
        """A size's text; ``explicit`` where a name that is new could be something else."""
        if isinstance(size, AnySize):
            return "?"
        if isinstance(size, int):
            return str(size)
        return self._size_expr(size, explicit) if _has_text(size) else self.meta.reference(size)

    def _size_expr(self, size: Any, explicit: bool) -> str:
        if isinstance(size, tir.IntImm):
            return str(size.value) if size.type == "int64" else f"{size.value}{size.type.replace('int', 'i')}"
        if isinstance(size, tir.Var):
            if id(size) in self.sizes:
                return self.sizes[id(size)]
            name = self.sizes[id(size)] = self.size_names.unique(identifier(size.name, "n"))
            return name if size.dtype == "int64" and not explicit else f"{name}: {size.dtype}"
        a, b = self._size_expr(size.a, explicit), self._size_expr(size.b, explicit)
        return f"({a} {_SUMS[size.kind]} {b})" if size.kind in _SUMS else f"{size.kind}({a}, {b})"


def _has_text(size: Any) -> bool:
    if isinstance(size, tir.expr.Binary):
        return (size.kind in _SUMS or size.kind in SIZE_FUNCTIONS) and _has_text(size.a) and _has_text(size.b)
    if isinstance(size, tir.IntImm):
        return size.type in ("int8", "int16", "int32", "int64")
    return isinstance(size, tir.Var)
