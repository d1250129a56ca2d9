"""Operators of several tensors: one after the other, side by side, and apart again."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    ints,
    python_value,
    quotient,
    rank_of,
    same_size,
    shape_of,
    tensors_of,
    total,
)
from pullback.relay.ty import TensorType, TupleType, Type


def _joined(types: list[Type], attrs: Attrs) -> Type | None:
    fields = tensors_of("concatenate", types[0])
    if all(t.is_concrete for t in fields):
        return None
    rank = fields[0].ndim
    if any(t.ndim != rank for t in fields):
        raise ShapeError(f"concatenate: the tensors have {', '.join(str(t.ndim) for t in fields)} axes")
    axis = axis_of("concatenate", attrs["axis"], rank)
    columns = list(zip(*(t.shape for t in fields), strict=True))
    sizes = [same_size("concatenate", c) if i != axis else total(c) for i, c in enumerate(columns)]
    return TensorType(tuple(sizes), fields[0].dtype)


define(
    "concatenate",
    "data | axis=0",
    lambda tensors, *, axis: ops.concat(tensors, axis),
    tuples=True,
    relation=_joined,
    adapt=lambda args, attrs: (args, {"axis": ints("axis", attrs["axis"])[0]}),
    doc="The tensors of a tuple one after the other along the axis.",
    pattern=OpPattern.INJECTIVE,
)


def _stacked(types: list[Type], attrs: Attrs) -> Type | None:
    fields = tensors_of("stack", types[0])
    if all(t.is_concrete for t in fields):
        return None
    sizes = [same_size("stack", c) for c in zip(*(t.shape for t in fields), strict=True)]
    sizes.insert(axis_of("stack", attrs["axis"], len(sizes) + 1), len(fields))
    return TensorType(tuple(sizes), fields[0].dtype)


define(
    "stack",
    "data | axis=0",
    lambda tensors, *, axis: ops.stack(tensors, axis),
    tuples=True,
    relation=_stacked,
    doc="The tensors of a tuple side by side along a new axis.",
    pattern=OpPattern.INJECTIVE,
)


def _adapt_split(args: list[Any], attrs: dict[str, Any]) -> Any:
    given = python_value(attrs["indices_or_sections"])
    return args, attrs | {"indices_or_sections": given if isinstance(given, int) else ints("indices", given)}


def _parts(call: Any) -> int:
    given = call.attrs["indices_or_sections"]
    return given if isinstance(given, int) else len(given) + 1


def _split(x: Any, *, indices_or_sections: Any, axis: int) -> Any:
    sections, size = indices_or_sections, shape_of(x)[axis_of("split", axis, rank_of(x))]
    if isinstance(sections, int) and isinstance(size, int) and (sections < 1 or size % sections):
        hint = "give the places between the parts: relay.split(x, (2, 5), axis)"
        raise ShapeError(f"split: an axis of size {size} has no {sections} equal parts", hint=hint)
    parts = ops.split(x, sections, axis)
    return tuple(parts[i] for i in range(sections if isinstance(sections, int) else len(sections) + 1))


def _split_type(types: list[Type], attrs: Attrs) -> Type | None:
    x, parts = types[0], attrs["indices_or_sections"]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    axis = axis_of("split", attrs["axis"], x.ndim)
    size = x.shape[axis]
    if isinstance(size, int):
        return None
    if isinstance(parts, int):
        sizes = [quotient(size, parts)] * parts
    else:
        sizes = [b - a for a, b in zip((0, *parts), parts, strict=False)] + [total([size, -parts[-1]])]
    return TupleType(tuple(TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes))


define(
    "split",
    "data | indices_or_sections, axis=0",
    _split,
    adapt=_adapt_split,
    relation=_split_type,
    returns=_parts,
    shown=("indices_or_sections",),
    doc="data in several parts along the axis: in so many equal ones, or cut at these places. A tuple.",
    pattern=OpPattern.INJECTIVE,
)


def _meshgrid(tensors: list[Any], *, indexing: str) -> Any:
    lines = [ops.reshape(t, (1,)) if rank_of(t) == 0 else t for t in tensors]
    grid = ops.meshgrid(lines, indexing=indexing)
    return tuple(grid[i] for i in range(len(lines)))


define(
    "meshgrid",
    "data | indexing='ij'",
    _meshgrid,
    tuples=True,
    returns=lambda call: _count(call.args[0]),
    doc="The coordinates of a grid: for each tensor of rank 1 (or 0) one with all axes.",
    pattern=OpPattern.INJECTIVE,
)


def _count(expr: Any) -> int | None:
    return len(expr) if hasattr(expr, "fields") else None
