"""Struct info: the static types of the graph IR.

s ::= TensorStructInfo(shape?, dtype)      shape: sizes, ints or int64 tir expressions; None when unknown
    | TupleStructInfo(s…)
    | FuncStructInfo(s…, s)
    | ShapeStructInfo(values)
    | PrimStructInfo(dtype)
    | ObjectStructInfo()
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from pullback.ir.arguments import sequence
from pullback.ir.errors import DTypeError, InternalError, ShapeError
from pullback.ir.node import Node
from pullback.tir.expr import DTYPES, FLOATS, HANDLE, Binary, IntImm, PrimExpr, Var, nbytes
from pullback.tir.polynomial import same, simplify

Dim = int | PrimExpr


@dataclass(frozen=True, eq=False)
class StructInfo(Node):
    """Base of the static types; ``==`` compares by value.

    Args:
        span: the place in the user's source.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructInfo) and same_info(self, other)

    def __hash__(self) -> int:
        return hash(type(self))


@dataclass(frozen=True, eq=False)
class ObjectStructInfo(StructInfo):
    """Anything.

    Args:
        span: the place in the user's source.
    """


@dataclass(frozen=True, eq=False)
class PrimStructInfo(StructInfo):
    """A scalar of the host, such as a size.

    Args:
        dtype: of the scalar; sizes are int64.
        span: the place in the user's source.
    """

    dtype: str = "int64"


@dataclass(frozen=True, eq=False)
class ShapeStructInfo(StructInfo):
    """A shape as a value.

    Args:
        values: the sizes, each an int or an int64 expression.
        span: the place in the user's source.
    """

    values: tuple[Dim, ...]


@dataclass(frozen=True, eq=False)
class TensorStructInfo(StructInfo):
    """A tensor of the shape (None: unknown) and dtype.

    Args:
        shape: the sizes, each an int of at least 0 or an int64 expression; None where they are unknown.
        dtype: of the elements.
        ndim: the number of axes, where the shape is unknown; None where that is unknown too.
        span: the place in the user's source.

    Raises:
        ShapeError: for what is no shape, one that ``ndim`` contradicts, and one of 2**63 bytes or more.
        DTypeError: for an unknown dtype, and for a symbolic size that is not int64.

    Examples:
        >>> n = pullback.tir.Var("n", "int64")
        >>> relax.TensorStructInfo((n, 4), "float32")
        Tensor((n, 4), float32)
        >>> relax.TensorStructInfo(None, "float32", ndim=2).ndim
        2
        >>> relax.TensorStructInfo((2, 3)) == relax.TensorStructInfo([2, 3])
        True
    """

    shape: tuple[Dim, ...] | None = None
    dtype: str = "float32"
    unknown_ndim: int | None = None  # the rank of a tensor whose shape is unknown

    def __init__(
        self, shape: Sequence[Any] | None = None, dtype: str = "float32", ndim: int | None = None, span: Any = None
    ) -> None:
        values = getattr(shape, "values", shape)  # a ShapeExpr is fine too
        if values is not None and (not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0):
            hint = "write (3,) for one axis, () for a scalar, None where the shape is unknown"
            raise ShapeError(f"a shape must be a sequence of sizes, got {type(shape).__name__} {shape!r}", hint=hint)
        sizes = None if values is None else tuple([dim(s) for s in values])
        if sizes is not None and ndim is not None and ndim != len(sizes):
            raise ShapeError(f"ndim={ndim} does not fit the shape {format_shape(sizes)}")
        name = str(dtype)
        if name not in DTYPES and name != HANDLE:
            raise DTypeError(f"unknown dtype {name!r}", hint=f"the dtypes are {', '.join(DTYPES)}")
        if sizes is not None and math.prod([s for s in sizes if isinstance(s, int)]) * nbytes(name) >= 2**63:
            raise ShapeError(f"a tensor of shape {format_shape(sizes)} has more bytes than there are addresses")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", name)
        object.__setattr__(self, "unknown_ndim", ndim if sizes is None else None)
        object.__setattr__(self, "span", span)

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape if self.is_static else self.ndim))  # equal sizes may be written differently

    @property
    def ndim(self) -> int:
        """The rank, or -1 when it is unknown."""
        if self.shape is not None:
            return len(self.shape)
        return -1 if self.unknown_ndim is None else self.unknown_ndim

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """The shape of a tensor of which it is known that it is known."""
        if self.shape is None:
            raise InternalError("the shape is not known: whoever reads it has to check that first")
        return self.shape

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape of a tensor of which it is known that its sizes are numbers."""
        if not self.is_static:
            raise InternalError(
                f"the sizes of {format_info(self)} are not numbers: whoever reads them checks that first"
            )
        return cast(tuple[int, ...], self.shape)

    @cached_property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(s, int) for s in self.shape)

    def __repr__(self) -> str:
        return format_info(self)


@dataclass(frozen=True, eq=False)
class TupleStructInfo(StructInfo):
    """A tuple of values.

    Args:
        fields: the types of the values.
        span: the place in the user's source.

    Raises:
        ArgumentError: where ``fields`` is no sequence.

    Examples:
        >>> pair = relax.TupleStructInfo([R.Tensor((3,), "float32"), R.Tensor((), "int64")])
        >>> pair.fields[1]
        Tensor((), int64)
    """

    fields: tuple[StructInfo, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", sequence("fields", self.fields))


@dataclass(frozen=True, eq=False)
class FuncStructInfo(StructInfo):
    """A graph function; symbolic sizes of the parameters may stand in the result.

    Args:
        params: the types of the parameters.
        ret: the type of the result.
        span: the place in the user's source.
    """

    params: tuple[StructInfo, ...]
    ret: StructInfo


def as_tensor(info: StructInfo) -> TensorStructInfo:
    """The type, of which it is known that it is a tensor's."""
    if not isinstance(info, TensorStructInfo):
        raise InternalError(f"expected the type of a tensor, got {format_info(info)}")
    return info


def as_tuple(info: StructInfo) -> TupleStructInfo:
    """The type, of which it is known that it is a tuple's."""
    if not isinstance(info, TupleStructInfo):
        raise InternalError(f"expected the type of a tuple, got {format_info(info)}")
    return info


def as_int(size: Dim) -> int:
    """The size, of which it is known that it is a number."""
    if not isinstance(size, int):
        raise InternalError(f"expected a size that is a number, got {format_dim(size)}")
    return size


def flat_infos(info: StructInfo) -> list[StructInfo]:
    """The type's parts that are no tuples, in order."""
    return [t for f in info.fields for t in flat_infos(f)] if isinstance(info, TupleStructInfo) else [info]


def fields_of(info: StructInfo) -> tuple[StructInfo, ...]:
    """The types of a tuple's fields; of what is no tuple, the type itself."""
    return info.fields if isinstance(info, TupleStructInfo) else (info,)


def has_adjoint(info: StructInfo) -> bool:
    """Whether it is the type of a tensor that has an adjoint: floats, and handles (``relax/boxes.py``)."""
    return isinstance(info, TensorStructInfo) and (info.dtype in FLOATS or info.dtype == HANDLE)


def dim(size: Any) -> Dim:
    """A size in canonical form: an int, or an int64 expression that is not constant."""
    if type(size) is int and 0 <= size < 2**63:
        return size
    if isinstance(size, PrimExpr):
        if size.dtype != "int64":
            raise DTypeError(f"a symbolic size must be int64, not {size.dtype}")
        canonical = size if isinstance(size, Var) else simplify(size)
        return canonical.value if isinstance(canonical, IntImm) else canonical
    value = getattr(size, "value", size)  # a PrimValue is fine too
    if isinstance(value, PrimExpr):
        return dim(value)
    try:
        number = None if isinstance(value, bool) else value.__index__()
    except (AttributeError, TypeError):
        number = None
    if number is None:
        raise ShapeError(
            f"a size must be an int or a symbolic int64 expression, not {size!r}",
            hint='sizes are whole numbers, or names of symbolic sizes: R.Tensor(("n", 4), "float32")',
        ) from None
    if number < 0:
        raise ShapeError(
            f"a size cannot be negative: {number}",
            hint="sizes are 0 or more; -1 means what is left over in R.reshape only",
        )
    if number >= 2**63:
        raise ShapeError(f"a size must be less than 2**63, got {number}", hint="no memory holds that many elements")
    return number


def same_shape(a: Iterable[Dim], b: Iterable[Dim]) -> bool:
    a, b = tuple(a), tuple(b)
    return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))


def same_info(a: StructInfo, b: StructInfo) -> bool:
    """Equality of static types, sizes compared as polynomials."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        if a.dtype != b.dtype or a.ndim != b.ndim or (a.shape is None) != (b.shape is None):
            return False
        return a.shape is None or same_shape(a.sizes, b.sizes)
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(map(same_info, a.fields, b.fields))
    if isinstance(a, FuncStructInfo) and isinstance(b, FuncStructInfo):
        return len(a.params) == len(b.params) and all(map(same_info, (*a.params, a.ret), (*b.params, b.ret)))
    if isinstance(a, ShapeStructInfo) and isinstance(b, ShapeStructInfo):
        return same_shape(a.values, b.values)
    return not isinstance(a, PrimStructInfo) or not isinstance(b, PrimStructInfo) or a.dtype == b.dtype


def format_shape(shape: Iterable[Dim | str] | None) -> str:
    """``(64, n)``."""
    if shape is None:
        return "(?)"
    parts = [format_dim(s) for s in shape]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


_INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


def format_dim(size: Dim | str) -> str:
    if isinstance(size, Var):
        return size.name
    if isinstance(size, Binary) and size.kind in _INFIX:
        return f"({format_dim(size.a)} {_INFIX[size.kind]} {format_dim(size.b)})"
    if isinstance(size, Binary) and size.kind in ("min", "max"):
        return f"{size.kind}({format_dim(size.a)}, {format_dim(size.b)})"
    return str(getattr(size, "value", size))


def format_info(info: StructInfo) -> str:
    """A type as messages show it: ``Tensor((64, 10), float32)``."""
    if isinstance(info, TensorStructInfo):
        return f"Tensor({format_shape(info.shape)}, {info.dtype})"
    if isinstance(info, TupleStructInfo):
        return f"Tuple({', '.join(map(format_info, info.fields))})"
    if isinstance(info, FuncStructInfo):
        return f"({', '.join(map(format_info, info.params))}) -> {format_info(info.ret)}"
    if isinstance(info, ShapeStructInfo):
        return f"Shape{format_shape(info.values)}"
    return info.dtype if isinstance(info, PrimStructInfo) else "Object"


def symbolic_vars(info: StructInfo) -> list[Var]:
    """The symbolic sizes in a type, in the order of appearance."""
    if isinstance(info, TensorStructInfo) and info.is_static:
        return []
    from pullback.tir.visitor import walk

    found: dict[Var, None] = {}

    def visit(x: Any) -> None:
        if isinstance(x, PrimExpr):
            found.update((v, None) for v in walk(x) if isinstance(v, Var))
        elif isinstance(x, TensorStructInfo):
            visit(x.shape)
        elif isinstance(x, TupleStructInfo):
            visit(x.fields)
        elif isinstance(x, FuncStructInfo):
            visit((*x.params, x.ret))
        elif isinstance(x, ShapeStructInfo):
            visit(x.values)
        elif isinstance(x, tuple):
            for y in x:
                visit(y)

    visit(info)
    return list(found)
