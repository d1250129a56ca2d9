"""Patterns of expressions, and the functions and operators that build them.

    x, w, b = wildcard(), wildcard(), is_constant()
    pattern = is_op("nn.bias_add")(is_op("nn.dense")(x, w), b)

A pattern object that stands at several places matches one expression at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relay.attrs import Attrs, frozen
from pullback.relay.expr import as_expr
from pullback.relay.op.registry import get
from pullback.relay.ty import Type


@dataclass(frozen=True, eq=False)
class DFPattern:
    """Base of patterns. Called with patterns of arguments it matches a call; ``p | q`` is either; infix arithmetic
    matches calls of these operators."""

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns right inside, in the order in which a call has them."""
        return ()

    def __call__(self, *args: Any) -> CallPattern:
        return CallPattern(self, None if args == (None,) else args)

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, other)

    def __add__(self, other: DFPattern) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """The pattern, where the expression has these attributes: of a call or a function, or of an operator
        (``TOpPattern``)."""
        return AttrPattern(self, Attrs(attrs))

    def has_type(self, ttype: Type) -> TypePattern:
        """The pattern, where the expression is of the type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """The pattern, where the expression is a tensor of the dtype."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """The pattern, where the expression is a tensor of the shape."""
        return ShapePattern(self, tuple(shape))

    def match(self, expr: Any) -> bool:
        """Whether the expression matches."""
        from pullback.relay.dataflow_pattern.matcher import match

        return match(self, expr)

    def partition(
        self, expr: Any, attrs: Mapping[str, Any] | None = None, check: Callable[[Any], bool] = lambda expr: True
    ) -> Any:
        """:func:`pullback.relay.dataflow_pattern.partition`."""
        from pullback.relay.dataflow_pattern.rewrite import partition

        return partition(self, expr, attrs, check)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This pattern for the one last user of what ``parent`` matches, with ``path`` for all that lies between."""
        return DominatorPattern(parent, wildcard() if path is None else path, self)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """This pattern, or what the function makes of it."""
        return self | option_constructor(self)


def _patterns(what: str, patterns: Any) -> tuple[DFPattern, ...] | None:
    if patterns is None:
        return None
    for pattern in patterns:
        if not isinstance(pattern, DFPattern):
            hint = "wildcard() matches anything, is_expr(e) one expression"
            raise ArgumentError(f"{what} are patterns, got {type(pattern).__name__}", hint=hint)
    return tuple(patterns)


@dataclass(frozen=True, eq=False)
class ExprPattern(DFPattern):
    """One expression, or operator."""

    expr: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "expr", as_expr(self.expr))


@dataclass(frozen=True, eq=False)
class VarPattern(DFPattern):
    """A variable, of the name if one is given."""

    name: str = ""

    @property
    def name_hint(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class ConstantPattern(DFPattern):
    """A constant."""


@dataclass(frozen=True, eq=False)
class WildcardPattern(DFPattern):
    """Anything."""


@dataclass(frozen=True, eq=False)
class CallPattern(DFPattern):
    """A call of ``op`` with such arguments; ``args`` None: with any."""

    op: DFPattern
    args: tuple[DFPattern, ...] | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", _patterns("arguments of a CallPattern", self.args))

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.op, *(self.args or ()))


@dataclass(frozen=True, eq=False)
class FunctionPattern(DFPattern):
    """A function with such parameters and body; ``params`` None: with any."""

    params: tuple[DFPattern, ...] | None
    body: DFPattern

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", _patterns("params of a FunctionPattern", self.params))

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (*(self.params or ()), self.body)


@dataclass(frozen=True, eq=False)
class IfPattern(DFPattern):
    """An ``If`` of such parts."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self.cond, self.true_branch, self.false_branch


@dataclass(frozen=True, eq=False)
class LetPattern(DFPattern):
    """A ``Let`` of such parts."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self.var, self.value, self.body


@dataclass(frozen=True, eq=False)
class TuplePattern(DFPattern):
    """A tuple of such fields; ``fields`` None: of any."""

    fields: tuple[DFPattern, ...] | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", _patterns("fields of a TuplePattern", self.fields))

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self.fields or ()

    def __getitem__(self, index: int) -> DFPattern:
        return self.parts[index]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[DFPattern]:
        return iter(self.parts)


@dataclass(frozen=True, eq=False)
class TupleGetItemPattern(DFPattern):
    """A field of such a tuple; ``index`` None: any field."""

    tuple_value: DFPattern
    index: int | None = None

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.tuple_value,)


@dataclass(frozen=True, eq=False)
class AltPattern(DFPattern):
    """What one of the two matches, ``left`` if it does."""

    left: DFPattern
    right: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self.left, self.right


@dataclass(frozen=True, eq=False)
class _Constrained(DFPattern):
    pattern: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return (self.pattern,)


@dataclass(frozen=True, eq=False)
class TypePattern(_Constrained):
    """What the pattern matches, where it is of the type."""

    type: Type


@dataclass(frozen=True, eq=False)
class DataTypePattern(_Constrained):
    """What the pattern matches, where it is a tensor of the dtype."""

    dtype: str


@dataclass(frozen=True, eq=False)
class ShapePattern(_Constrained):
    """What the pattern matches, where it is a tensor of the shape."""

    shape: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class AttrPattern(_Constrained):
    """What the pattern matches, where it has the attributes."""

    attrs: Attrs


@dataclass(frozen=True, eq=False)
class DominatorPattern(DFPattern):
    """What ``child`` matches, where all that it computes comes from one expression that ``parent`` matches, by way of
    expressions that ``path`` matches, and nothing else uses any of these."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    @property
    def parts(self) -> tuple[DFPattern, ...]:
        return self.parent, self.path, self.child


def is_var(name: str = "") -> VarPattern:
    """A variable, of the name if one is given."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def is_expr(expr: Any) -> ExprPattern:
    """An expression of the same structure."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """The operator: called with patterns, its calls. NameNotFound where there is none of that name."""
    return ExprPattern(get(op_name))


def is_tuple(fields: Sequence[DFPattern] | None) -> TuplePattern:
    """A tuple."""
    return TuplePattern(None if fields is None else tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """A field of a tuple, of any index where none is given."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """An ``If``."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """A ``Let``."""
    return LetPattern(var, value, body)


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def has_type(ttype: Type, pattern: DFPattern | None = None) -> TypePattern:
    """What is of the type."""
    return (pattern or wildcard()).has_type(ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """Tensors of the dtype."""
    return (pattern or wildcard()).has_dtype(dtype)


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Tensors of the shape."""
    return (pattern or wildcard()).has_shape(frozen(shape))


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """What has the attributes."""
    return (pattern or wildcard()).has_attr(attrs)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """:class:`DominatorPattern`."""
    return DominatorPattern(parent, path, child)


def patterns_of(pattern: DFPattern) -> list[DFPattern]:
    """The patterns inside and the pattern itself, each once, those inside first."""
    order: dict[DFPattern, None] = {}
    pending: list[tuple[DFPattern, bool]] = [(pattern, False)]
    while pending:
        found, done = pending.pop()
        if done:
            order[found] = None
        elif found not in order:
            pending.append((found, True))
            pending.extend((part, False) for part in reversed(found.parts))
    return list(order)
