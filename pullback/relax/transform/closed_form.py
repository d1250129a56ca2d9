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
from pullback.relax.struct_info import StructInfo, TupleStructInfo, as_tuple


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

    def is_same(self, other: Known) -> bool:
        """Whether both compute the same of any arguments, as the function is the same, and what it reads around it."""
        return self.function is other.function and (self.env is other.env or not (self.env or other.env))


def sizes_of(known: Known, arguments: Sequence[Any]) -> dict[Any, Any]:
    """What the symbolic sizes of a function are for these arguments."""
    sizes = dict(known.sizes)
    for param, argument in zip(known.function.params, arguments, strict=True):
        match_info(param.struct_info, argument.struct_info, sizes)
    return {var: size for var, size in sizes.items() if var is not size}


def closed(
    functions: Sequence[Function], builder: BlockBuilder, outer: Sequence[Var] | None = None
) -> tuple[list[Function], list[Expr]]:
    """The functions with what they read around them as parameters at the end, the same for all, and what these stand
    for: tensors, those of a tuple each by itself. ``outer``: the variables that they may read, in this order."""
    outer = list(dict.fromkeys(v for f in functions for v in free_vars(f))) if outer is None else outer
    parts = {v: parts_of(v, builder) for v in outer}
    operands = [leaf for part in parts.values() for leaf in leaves_of(part)]
    result = []
    for function in functions:
        fresh = [Var(leaf.name, leaf.struct_info, span=leaf.span) for leaf in operands]
        rest = iter(fresh)
        mutator = ExprMutator()
        mutator.builder.begin([p.name for p in (*function.params, *fresh)])
        mutator.env = {p: p for p in function.params}
        mutator.env |= {v: nested_value(v.struct_info, rest, builder) for v in outer}
        body = mutator.branch(function.body)
        result.append(Function((*function.params, *fresh), body, span=function.span))
    return result, operands


def parts_of(value: Expr, builder: BlockBuilder) -> Expr:
    """A variable; of a tuple, the variables of its tensors."""
    if not isinstance(value.struct_info, TupleStructInfo):
        return value if isinstance(value, Var) else builder.emit(value)
    whole = value if isinstance(value, Var) else builder.emit(value)
    return Tuple(tuple(parts_of(item, builder) for item in items_of(whole)))


def scalar_function(function: Function) -> Function:
    """The function that gives one value, not a tuple of one."""
    body = function.body
    assert isinstance(body.body, Tuple)
    return Function(function.params, SeqExpr(body.blocks, body.body.fields[0]), span=function.span)


def name_of(value: Expr) -> str:
    """What a parameter for the value is called."""
    return value.name if isinstance(value, Var) else "carry"


def leaves_of(value: Expr) -> list[Expr]:
    """The values of nested tuples that are no tuples."""
    if isinstance(value.struct_info, TupleStructInfo):
        fields = value.fields if isinstance(value, Tuple) else tuple(value)
        return [leaf for f in fields for leaf in leaves_of(f)]
    return [value]


def items_of(value: Expr) -> Iterator[Expr]:
    return iter(TupleGetItem(value, k) for k in range(len(as_tuple(value.struct_info).fields)))


def nested_value(info: StructInfo, leaves: Iterable[Expr], builder: BlockBuilder) -> Any:
    """Values in the nested tuples of a type; items are bound to variables."""
    leaves = iter(leaves)
    if isinstance(info, TupleStructInfo):
        return Tuple(tuple(nested_value(f, leaves, builder) for f in info.fields))
    value = next(leaves)
    return value if isinstance(value, Var) else builder.emit(value)
