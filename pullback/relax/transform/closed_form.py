"""Values of nested tuples as flat ones and back, and functions that read what surrounds them as closed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pullback.relax.analysis import free_vars
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Expr, Function, SeqExpr, Tuple, TupleGetItem, Var
from pullback.relax.matching import match_info
from pullback.relax.mutator import ExprMutator
from pullback.relax.struct_info import StructInfo, TupleStructInfo


@dataclass(frozen=True, eq=False)
class Known:
    """A function as a value: what its free variables stand for, and which functions it was called in."""

    name: str
    function: Function
    env: Mapping[Any, Any] = field(default_factory=dict)
    sizes: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def struct_info(self) -> StructInfo:
        return self.function.struct_info


def sizes_of(known: Known, arguments: Sequence[Any]) -> dict[Any, Any]:
    """What the symbolic sizes of a function are for these arguments."""
    sizes = dict(known.sizes)
    for param, argument in zip(known.function.params, arguments, strict=True):
        match_info(param.struct_info, argument.struct_info, sizes)
    return {var: size for var, size in sizes.items() if var is not size}


def closed(functions: Sequence[Function]) -> tuple[list[Function], list[Var]]:
    """The functions with the variables that they read around them as parameters at the end, the same for all."""
    outer = list(dict.fromkeys(v for f in functions for v in free_vars(f)))
    result = []
    for function in functions:
        fresh = {v: Var(v.name, v.struct_info, span=v.span) for v in outer}
        mutator = ExprMutator()
        mutator.builder.begin([*(p.name for p in function.params), *(v.name for v in outer)])
        mutator.env = {**{p: p for p in function.params}, **fresh}
        body = mutator.branch(function.body)
        result.append(Function((*function.params, *fresh.values()), body, span=function.span))
    return result, outer


def scalar_function(function: Function) -> Function:
    """The function that gives one value, not a tuple of one."""
    body = function.body
    assert isinstance(body.body, Tuple)
    return Function(function.params, SeqExpr(body.blocks, body.body.fields[0]), span=function.span)


def leaves_of(value: Expr) -> list[Expr]:
    """The values of nested tuples that are no tuples."""
    if isinstance(value.struct_info, TupleStructInfo):
        fields = value.fields if isinstance(value, Tuple) else tuple(value)
        return [leaf for f in fields for leaf in leaves_of(f)]
    return [value]


def items_of(value: Expr) -> Iterator[Expr]:
    return iter(TupleGetItem(value, k) for k in range(len(value.struct_info.fields)))  # type: ignore[attr-defined]


def nested_value(info: StructInfo, leaves: Iterable[Expr], builder: BlockBuilder) -> Any:
    """Values in the nested tuples of a type; items are bound to variables."""
    leaves = iter(leaves)
    if isinstance(info, TupleStructInfo):
        return Tuple(tuple(nested_value(f, leaves, builder) for f in info.fields))
    value = next(leaves)
    return value if isinstance(value, Var) else builder.emit(value)
