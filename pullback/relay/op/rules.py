"""What the operators' rules share: reading attributes, and types of tensors whose sizes are not all known."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.arguments import sequence, whole
from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Constant, Expr
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import IncompleteType, TensorType, TupleType, Type
from pullback.runtime.tensor import Tensor

# -- attributes


def is_dynamic(value: Any) -> bool:
    """Whether what stands for an attribute is known only when the program runs."""
    return isinstance(value, Expr) and not isinstance(value, Constant)


def python_value(value: Any) -> Any:
    """Constants, arrays and tensors as numbers of Python, or lists of them; anything else as it is."""
    if isinstance(value, Constant):
        value = value.data
    if isinstance(value, Tensor):
        value = value.numpy()
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def ints(name: str, value: Any) -> tuple[int, ...]:
    """Several ints, of whatever form; one int is one of them."""
    value = python_value(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        return (whole(name, value),)
    except ArgumentError:
        items = sequence(name, value, "write (2, 3)")
    return tuple(whole(name, _int_of(item)) for item in items)


def _int_of(item: Any) -> Any:
    item = python_value(item)
    if isinstance(item, list) and len(item) == 1:
        item = item[0]
    return int(item) if isinstance(item, float) and item.is_integer() else item


def maybe_ints(name: str, value: Any) -> tuple[int, ...] | None:
    return None if value is None else ints(name, value)


def repeated(name: str, value: Any, count: int) -> tuple[int, ...]:
    """``count`` ints, or one for all of them."""
    found = ints(name, value)
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise ShapeError(f"{name} must be 1 or {count} ints, got {len(found)}: {list(found)}")
    return found


def padding(value: Any, rank: int) -> tuple[int, ...]:
    """Padding before all of ``rank`` axes, then after all of them: from one int, one for each axis, or all."""
    found = ints("padding", value)
    if len(found) == 1:
        return found * (2 * rank)
    if len(found) == rank:
        return found + found
    if len(found) != 2 * rank:
        hint = f"one for all, {rank} (one for each axis), or {2 * rank} (before each axis, then after each)"
        raise ShapeError(f"padding must be 1, {rank} or {2 * rank} ints, got {len(found)}", hint=hint)
    return found


def dtype_name(value: Any) -> str:
    """``""`` for None and void."""
    if value is None:
        return ""
    name = np.dtype(value).name if isinstance(value, (type, np.dtype)) else str(value)
    return "" if name == "void" else name


def axis_of(name: str, axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{name}: there is no axis {axis} in a tensor of {rank} axes")
    return axis % rank


# -- types


def tensor_type(op: str, type_: Type) -> TensorType:
    """``type_`` itself, which must be that of a tensor."""
    if not isinstance(type_, TensorType):
        raise ShapeError(f"{op}: an argument must be a tensor, got {type_}")
    return type_


def is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def is_any(size: Any) -> bool:
    """Whether the size is not known as an int."""
    return not isinstance(size, int)


def same(types: list[Type], attrs: Any) -> Type | None:
    """The relation of an operator whose result has the first argument's type, where sizes are not known."""
    return types[0] if isinstance(types[0], TensorType) and not types[0].is_concrete else None


def joined_size(op: str, a: Any, b: Any) -> Any:
    """The size of an axis along which two tensors broadcast."""
    if is_one(a) or is_one(b):
        return b if is_one(a) else a
    if is_any(a) or is_any(b):
        return b if isinstance(a, AnySize) or not is_any(b) else a
    if a != b:
        raise ShapeError(f"{op}: sizes {a} and {b} do not broadcast")
    return a


def joined_shape(op: str, *shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape to which the shapes broadcast."""
    rank = max(map(len, shapes))
    result = (1,) * rank
    for shape in shapes:
        padded = (1,) * (rank - len(shape)) + tuple(shape)
        result = tuple(joined_size(op, a, b) for a, b in zip(result, padded, strict=True))
    return result


def broadcast_of(
    name: str, dtype: str | None = None, always: bool = False
) -> Callable[[list[Type], Attrs], Type | None]:
    """The relation of an elementwise operator of two tensors, one of which has sizes that are not known (or any)."""

    def relation(types: list[Type], attrs: Attrs) -> Type | None:
        lhs, rhs = types
        if not isinstance(lhs, TensorType) or not isinstance(rhs, TensorType):
            return None
        if lhs.is_concrete and rhs.is_concrete and not always:
            return None
        if lhs.dtype != rhs.dtype:
            hint = "relay.cast(x, dtype) makes them equal"
            raise DTypeError(f"{name}: the operands must have one dtype, got {lhs.dtype} and {rhs.dtype}", hint=hint)
        return TensorType(joined_shape(name, lhs.shape, rhs.shape), dtype or lhs.dtype)

    return relation


def is_known(type_: Type) -> bool:
    """Whether all sizes of the tensor or tuple are ints."""
    if isinstance(type_, TupleType):
        return all(map(is_known, type_.fields))
    return isinstance(type_, TensorType) and type_.is_concrete


def of_unknown(rule: Callable[[list[Any], Attrs], Type]) -> Callable[[list[Type], Attrs], Type | None]:
    """The relation that leaves arguments whose sizes are all known to the lowered form."""
    return lambda types, attrs: None if all(map(is_known, types)) else rule(types, attrs)


def same_size(op: str, sizes: Sequence[Any]) -> Any:
    """The one size that all of them are, as far as they are known."""
    known = [s for s in sizes if not is_any(s)]
    if any(s != known[0] for s in known):
        raise ShapeError(f"{op}: sizes {', '.join(map(str, known))} differ")
    symbols = [s for s in sizes if not isinstance(s, AnySize)]
    return known[0] if known else symbols[0] if symbols else AnySize()


def product(sizes: Sequence[Any]) -> Any:
    """Of sizes; what is not known makes it unknown, unless one is 0."""
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return 0
    if any(isinstance(size, AnySize) for size in sizes):
        return AnySize()
    known = math.prod(size for size in sizes if isinstance(size, int))
    symbols = [size for size in sizes if not isinstance(size, int)]
    result: Any = functools.reduce(operator.mul, symbols) if symbols else known
    return result * known if symbols and known != 1 else result


def total(sizes: Sequence[Any]) -> Any:
    """Of sizes; what is not known makes it unknown."""
    if any(isinstance(size, AnySize) for size in sizes):
        return AnySize()
    known = sum(size for size in sizes if isinstance(size, int))
    symbols = [size for size in sizes if not isinstance(size, int)]
    result: Any = functools.reduce(operator.add, symbols) if symbols else known
    return result + known if symbols and known != 0 else result


def quotient(size: Any, by: int) -> Any:
    """⌊size / by⌋ of a size; what is not known stays so."""
    return size if isinstance(size, AnySize) or by == 1 else size // by


def ratio(sizes: Sequence[Any], by: Sequence[Any]) -> Any:
    """The product of the sizes through that of others, some of which they are; unknown where it does not come out."""
    left = [size for size in sizes if is_any(size)]
    for size in (size for size in by if is_any(size)):
        place = next((i for i, other in enumerate(left) if other is size), None)
        if place is None or isinstance(size, AnySize):
            return AnySize()
        del left[place]
    whole, part = (math.prod(size for size in some if not is_any(size)) for some in (sizes, by))
    return product([*left, whole // part]) if part and whole % part == 0 else AnySize()


def is_unknown(type_: Type | None) -> bool:
    """Whether inference has still to find the type."""
    return type_ is None or isinstance(type_, IncompleteType)


def fill(index: int, shape: Callable[[TensorType, Mapping[str, Any]], Any]) -> Callable[[list[Type], Attrs], Any]:
    """A ``complete`` that gives the argument at ``index`` the shape that follows from the first one (None: none)."""

    def complete(types: list[Type], attrs: Attrs) -> list[Type]:
        types = list(types)
        if index < len(types) and is_unknown(types[index]) and isinstance(types[0], TensorType):
            found = shape(types[0], attrs)
            if found is not None:
                types[index] = TensorType(tuple(found), types[0].dtype)
        return types

    return complete


def all_of(*completes: Callable[[list[Type], Attrs], Any]) -> Callable[[list[Type], Attrs], Any]:
    """Several ``complete``, one after the other."""

    def complete(types: list[Type], attrs: Attrs) -> list[Type]:
        for one in completes:
            types = one(types, attrs)
        return types

    return complete


def tensors_of(op: str, type_: Type) -> list[TensorType]:
    """The types of a tuple's tensors."""
    if not isinstance(type_, TupleType):
        raise ShapeError(f"{op}: the argument must be a tuple of tensors, got {type_}")
    return [tensor_type(op, f) for f in type_.fields]


# -- graph expressions


def shape_of(x: Any) -> tuple[Any, ...]:
    """The sizes of a graph expression, ints where they are known."""
    return tuple(x.struct_info.shape)


def rank_of(x: Any) -> int:
    return len(x.struct_info.shape)


def dtype_of(x: Any) -> str:
    return x.struct_info.dtype


def is_float(x: Any) -> bool:
    return "float" in dtype_of(x)


def cast(x: Any, dtype: str) -> Any:
    """``x`` of the dtype; x itself where it has it."""
    return x if not dtype or dtype_of(x) == dtype else ops.astype(x, dtype)


def number(x: Any, value: Any) -> Any:
    """A number of x's dtype as a constant of the graph."""
    from pullback import relax

    return relax.const(value, dtype_of(x))


def places(values: Sequence[int], dtype: str = "int32") -> Any:
    """Whole numbers as a constant of the graph."""
    from pullback import relax

    return relax.const(np.array(values, dtype))
