"""relay's types.

t ::= TensorType(shape, dtype)            shape: ints, Any(), or sizes of the loop IR
    | TupleType(t…) | FuncType(t…, t)     a function may have type parameters
    | RefType(t)                          a mutable cell
    | TypeVar | GlobalTypeVar             a type parameter; the name of a data type
    | TypeCall(t, t…)                     a data type applied to types: List[Tensor[(3), float32]]
    | IncompleteType                      not known yet: inference finds it

Types compare by value with ``==``; variables are what they are by identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING
from typing import Any as AnyValue

from pullback.ir.arguments import sequence
from pullback.ir.errors import DTypeError, ShapeError
from pullback.ir.module import TypeName
from pullback.ir.node import Node, Span, Symbol, structural_equal
from pullback.relay.shown import Shown
from pullback.tir.expr import DTYPES, PrimExpr
from pullback.tir.polynomial import key


class TypeKind(IntEnum):
    """What a type variable stands for, with the reference's numbers."""

    Type = 0
    ShapeVar = 1
    BaseType = 2
    Constraint = 4
    AdtHandle = 5
    TypeData = 6


class Type(Shown):
    """Base of relay's types.

    Args:
        span: place in the user's source, for errors; by default the current one, if there is one.
    """


@dataclass(frozen=True)
class Any(Node):
    """A size that is only known when the program runs; ``?`` in text."""


@dataclass(frozen=True, eq=False)
class TensorType(Type):
    """A tensor of the shape, whose sizes are ints, :class:`Any` or expressions of the loop IR, and of the dtype.

    Two of them are equal that have equal sizes: ``n + n`` is ``2 * n``.

    Args:
        shape: the size of each axis; () for a scalar.
        dtype: of the elements.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for a shape that is no sequence.
        ShapeError: for what is no size, and for a negative one.
        DTypeError: for an unknown dtype.

    Examples:
        >>> from pullback import relay
        >>> kind = relay.TensorType((relay.Any(), 3))
        >>> print(kind)
        Tensor[(?, 3), float32]
        >>> kind.is_concrete
        False
    """

    shape: tuple[AnyValue, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        hint = "write (3,) for one axis, () for a scalar"
        sizes = tuple(_size(s) for s in sequence("shape of a TensorType", self.shape, hint))
        dtype = str(self.dtype)
        if dtype not in DTYPES:
            raise DTypeError(f"unknown dtype {dtype!r}", hint=f"the dtypes are {', '.join(DTYPES)}")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorType) or self.dtype != other.dtype or len(self.shape) != len(other.shape):
            return False
        return all(map(same_size, self.shape, other.shape))

    def __hash__(self) -> int:
        return hash((self.dtype, tuple(s if isinstance(s, int) else None for s in self.shape)))

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The sizes as ints; a ShapeError where one is not known."""
        if not self.is_concrete:
            raise ShapeError(f"the shape {self.shape} is not known before the program runs")
        return self.shape

    @property
    def is_concrete(self) -> bool:
        """Whether all sizes are ints."""
        return all(isinstance(s, int) for s in self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)


def same_size(a: AnyValue, b: AnyValue) -> bool:
    """Whether two sizes of a shape are equal: expressions for whatever value their variables have."""
    if isinstance(a, PrimExpr) and isinstance(b, PrimExpr):
        if a is b or structural_equal(a, b, map_free_vars=False):
            return True
        try:
            return key(a) == key(b)
        except DTypeError:  # quotients are polynomials of int64 alone
            return False
    return not isinstance(a, PrimExpr) and not isinstance(b, PrimExpr) and bool(a == b)


def _size(size: AnyValue) -> AnyValue:
    if isinstance(size, (Any, PrimExpr)):
        return getattr(size, "value", size) if type(size).__name__ == "IntImm" else size
    try:
        value = int(size.__index__())
    except (AttributeError, TypeError):
        hint = "sizes are ints, relay.Any(), or variables of the loop IR"
        raise ShapeError(f"{size!r} is no size of a shape", hint=hint) from None
    if value < 0:
        raise ShapeError(f"a size cannot be negative, got {value}")
    return value


def scalar_type(dtype: str) -> TensorType:
    """The type of a scalar tensor: ``TensorType((), dtype)``.

    Args:
        dtype: of the scalar.

    Returns:
        The tensor type of shape ().

    Raises:
        DTypeError: for an unknown dtype.

    Examples:
        >>> from pullback import relay
        >>> print(relay.scalar_type("int64"))
        int64
    """
    return TensorType((), dtype)


@dataclass(frozen=True)
class TupleType(Type):
    """Several values together.

    Args:
        fields: the types of the values, in order.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for fields that are no sequence.

    Examples:
        >>> from pullback import relay
        >>> print(relay.TupleType([relay.TensorType((2, 3)), relay.scalar_type("bool")]))
        (Tensor[(2, 3), float32], bool)
    """

    fields: tuple[Type, ...]

    if TYPE_CHECKING:  # what the constructor takes: __post_init__ makes a tuple of a sequence

        def __init__(self, fields: Sequence[Type], *, span: Span | None = ...) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", sequence("fields of a TupleType", self.fields))


@dataclass(frozen=True, eq=False)
class TypeVar(Type, Symbol):
    """A type parameter; equal only to itself. Applied to types it is a :class:`TypeCall`.

    Args:
        name: shown in text.
        kind: what the variable stands for, a type by default.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Examples:
        >>> from pullback import relay
        >>> a = relay.TypeVar("a")
        >>> x = relay.var("x", a)
        >>> print(relay.Function([x], x, ret_type=a, type_params=[a]))
        fn [a](%x: a) -> a {
          %x
        }
    """

    name: str = field(compare=False)
    kind: TypeKind = TypeKind.Type

    @property
    def name_hint(self) -> str:
        return self.name

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)


@dataclass(frozen=True, eq=False)
class GlobalTypeVar(Type, TypeName):
    """The name of a data type of the module; names compare. Applied to types it is a :class:`TypeCall`.

    Args:
        name: of the data type, which its definition (:class:`TypeData`) has in the module.
        kind: what the name stands for.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Examples:
        >>> from pullback import relay
        >>> print(relay.GlobalTypeVar("List")(relay.TensorType((3,))))
        List[Tensor[(3), float32]]
    """

    kind: TypeKind = field(default=TypeKind.AdtHandle, compare=False)

    @property
    def name_hint(self) -> str:
        return self.name

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)

    __eq__, __hash__ = TypeName.__eq__, TypeName.__hash__


@dataclass(frozen=True)
class TypeCall(Type):
    """A data type of the types.

    Args:
        func: the data type, a :class:`GlobalTypeVar`.
        args: the types that its type parameters stand for, in order.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for args that are no sequence.
    """

    func: Type
    args: tuple[Type, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", sequence("args of a TypeCall", self.args))


@dataclass(frozen=True)
class TypeRelation(Type):
    """A constraint of a function type: ``func`` names the relation of ``args``, the last ones its results.

    Args:
        func: the relation, by its name, such as "Broadcast".
        args: the types that it relates: inputs, then results.
        num_inputs: how many of them are inputs.
        attrs: attributes of the operator whose relation it is, if it has any.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for args that are no sequence.
    """

    func: AnyValue
    args: tuple[Type, ...]
    num_inputs: int
    attrs: AnyValue = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", sequence("args of a TypeRelation", self.args))


@dataclass(frozen=True)
class FuncType(Type):
    """A function from the types of its arguments to that of its result.

    Two of them with type parameters are equal by :func:`pullback.ir.structural_equal`.

    Args:
        arg_types: the types of the arguments.
        ret_type: the type of the result.
        type_params: type variables that the function is polymorphic in.
        type_constraints: relations that the types satisfy.
        span: place in the user's source, for errors; by default the current one, if there is one.

    Raises:
        ArgumentError: for arg_types, type_params or type_constraints that are no sequence.

    Examples:
        >>> from pullback import relay
        >>> x = relay.TensorType((2, 3))
        >>> print(relay.FuncType([x, x], relay.TensorType((2,))))
        fn (Tensor[(2, 3), float32], Tensor[(2, 3), float32]) -> Tensor[(2), float32]
    """

    binds = ("type_params",)

    arg_types: tuple[Type, ...]
    ret_type: Type
    type_params: tuple[TypeVar, ...] = ()
    type_constraints: tuple[TypeRelation, ...] = ()

    def __post_init__(self) -> None:
        for name in ("arg_types", "type_params", "type_constraints"):
            object.__setattr__(self, name, sequence(f"{name} of a FuncType", getattr(self, name) or ()))

    def structural_items(self) -> list[tuple[str, AnyValue]]:
        names = ("type_params", "arg_types", "ret_type", "type_constraints")  # binders first
        return [(name, getattr(self, name)) for name in names]


@dataclass(frozen=True)
class RefType(Type):
    """A mutable cell that holds a value of the type.

    Args:
        value: the type of what the cell holds.
        span: place in the user's source, for errors; by default the current one, if there is one.
    """

    value: Type


@dataclass(frozen=True, eq=False)
class IncompleteType(Type, Symbol):
    """A type that inference is to find; equal only to itself.

    Args:
        kind: what is to be found, a type by default.
        name: shown in text.
        span: place in the user's source, for errors; by default the current one, if there is one.
    """

    kind: TypeKind = TypeKind.Type
    name: str = field(default="_", compare=False)


def ShapeVar(name: str) -> TypeVar:  # noqa: N802
    """A type variable that stands for a shape."""
    return TypeVar(name, TypeKind.ShapeVar)


RelayRefType = RefType
TypeConstraint = TypeRelation
