"""Sizes that ONNX demands to be equal, and that are not seen to be: taken for equal, and checked when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.nn.trace import active_trace
from pullback.relax.struct_info import TensorStructInfo
from pullback.tir.expr import Var
from pullback.tir.polynomial import same


def with_sizes(x: Any, sizes: Sequence[Any]) -> Any:
    """x with a shape that it has when it runs, or it is an error then."""
    if all(same(a, b) for a, b in zip(x.struct_info.shape, sizes, strict=True)):
        return x
    builder = active_trace().builder
    return builder.match_cast(x, TensorStructInfo(tuple(sizes), x.struct_info.dtype), "agreed")


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def _chosen(sizes: Sequence[Any]) -> Any:
    """The plainest of sizes that are equal: a number, a name, or an expression."""
    return min(sizes, key=lambda s: 0 if isinstance(s, int) else 1 if isinstance(s, Var) else 2)


def _differ(sizes: Sequence[Any]) -> bool:
    """Whether some are symbolic, and not seen to be equal to the others; numbers are compared by the ops."""
    return any(not isinstance(s, int) for s in sizes) and not all(same(sizes[0], s) for s in sizes[1:])


def broadcast(*values: Any) -> list[Any]:
    """Operands whose sizes, but those that are 1, are equal along each axis."""
    rank = max(len(v.struct_info.shape) for v in values)
    shapes = [[1] * (rank - len(v.struct_info.shape)) + list(v.struct_info.shape) for v in values]
    for axis in range(rank):
        found = [s[axis] for s in shapes if not _is_one(s[axis])]
        if _differ(found):
            size = _chosen(found)
            for shape in shapes:
                shape[axis] = shape[axis] if isinstance(shape[axis], int) else size
    return [with_sizes(v, shape[rank - len(v.struct_info.shape) :]) for v, shape in zip(values, shapes, strict=True)]


def joined(values: Sequence[Any], axis: int) -> list[Any]:
    """Tensors whose sizes are equal along all axes but one."""
    rank = len(values[0].struct_info.shape)
    shapes = [list(v.struct_info.shape) for v in values]
    if any(len(s) != rank for s in shapes):
        return list(values)
    for a in range(rank):
        found = [s[a] for s in shapes]
        if a != axis % rank and _differ(found):
            size = _chosen(found)
            for shape in shapes:
                shape[a] = shape[a] if isinstance(shape[a], int) else size
    return [with_sizes(v, shape) for v, shape in zip(values, shapes, strict=True)]
