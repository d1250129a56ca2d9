"""Values of a batch, as ``VMap`` has them while it writes: whether they have the axis of the batch, first of all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback.relax.boxes import is_handle
from pullback.relax.expr import Expr, Tuple, TupleGetItem, const
from pullback.relax.op.batching import with_axis
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import Dim, StructInfo, TensorStructInfo, TupleStructInfo, as_tensor, fields_of

Value = Any  # of a tensor: the expression, and whether it has the axis of the batch; of a tuple: a list of values


def value_of(expr: Expr, has: bool) -> Value:
    """An expression as a value all of which has the axis, but for handles, or nothing."""
    if isinstance(expr.struct_info, TupleStructInfo):
        return [value_of(part, has) for part in parts_of(expr)]
    return expr, has and not is_handle(expr.struct_info)


def tensors_of(value: Any) -> list[tuple[Expr, bool]]:
    """The tensors of what an argument is; none of what is no value."""
    if isinstance(value, list):
        return [leaf for part in value for leaf in tensors_of(part)]
    is_tensor = isinstance(value, tuple) and isinstance(value[0].struct_info, TensorStructInfo)
    return [value] if is_tensor else []


def with_tensors(value: Any, tensors: Iterator[Expr]) -> Any:
    """The argument with these for its tensors."""
    if isinstance(value, list):
        return Tuple(tuple(with_tensors(part, tensors) for part in value))
    return next(tensors) if tensors_of(value) else value[0] if isinstance(value, tuple) else value


def nested(info: StructInfo, values: Iterator[Value]) -> Value:
    """Values in lists that are nested as the tuples of a type."""
    return [nested(f, values) for f in info.fields] if isinstance(info, TupleStructInfo) else next(values)


def expr_of(value: Value) -> Expr:
    return Tuple(tuple(map(expr_of, value))) if isinstance(value, list) else value[0]


def flags_of(value: Value) -> Any:
    return [flags_of(v) for v in value] if isinstance(value, list) else value[1]


def any_flag(flags: Any) -> bool:
    return any(map(any_flag, flags)) if isinstance(flags, list) else flags


def with_flag(value: tuple[Expr, bool], wanted: bool, size: Dim) -> Expr:
    return with_axis(*value, size) if wanted else value[0]


def like(condition: Expr, value: Expr) -> Expr:
    """One truth value for each element of the batch, to choose between values by."""
    return ops.reshape(condition, (condition.shape[0], *[1] * (as_tensor(value.struct_info).ndim - 1)))


def zero(value: Expr) -> Expr:
    return const(value.dtype != "bool" and 0, value.dtype)


def moved_axis(value: Expr, source: int, target: int) -> Expr:
    """The value with an axis at another place, the others in their order."""
    if source == target:
        return value
    axes = [a for a in range(as_tensor(value.struct_info).ndim) if a != source]
    axes.insert(target, source)
    return ops.permute_dims(value, axes)


def parts_of(value: Expr) -> list[Expr]:
    """The fields of a tuple."""
    if isinstance(value, Tuple):
        return list(value.fields)
    return [TupleGetItem(value, k) for k in range(len(fields_of(value.struct_info)))]
