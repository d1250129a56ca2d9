"""Slices, by numbers and by tensors, and what is written into them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Expr, call_op, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    ints,
    is_any,
    is_dynamic,
    maybe_ints,
    number,
    places,
    python_value,
    same,
    shape_of,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type


def slice_bounds(size: Any, begin: int | None, end: int | None, stride: int) -> tuple[int, int, int]:
    """begin, end and stride of a slice of an axis, clamped; the size may be symbolic."""
    largest = size if isinstance(size, int) else np.iinfo(np.int64).max
    if begin is None:
        begin = 0 if stride > 0 else largest
    if end is None:
        end = largest if stride > 0 else -largest - 1
    return begin, end, stride


def sliced_size(size: Any, begin: int | None, end: int | None, stride: int) -> Any:
    if is_any(size):
        return AnySize()
    return len(range(*slice(begin, end, stride).indices(size)))


def _slices(shape: Sequence[Any], attrs: Any) -> list[tuple[int, Any, Any, int]]:
    """(axis, begin, end, stride) of each axis that a call slices."""
    begin, end, strides, axes = (attrs[name] for name in ("begin", "end", "strides", "axes"))
    count = max(len(begin), len(end))
    if axes is not None and not len(axes) == len(begin) == len(end):
        hint = "with axes, begin and end have one number for each of them"
        raise ShapeError(f"strided_slice: {len(axes)} axes, but {len(begin)} begins and {len(end)} ends", hint=hint)
    found_axes = range(count) if axes is None else [axis_of("strided_slice", a, len(shape)) for a in axes]
    if count > len(shape):
        raise ShapeError(f"strided_slice: data has {len(shape)} axes, but there are {count} begins and ends")
    found = []
    for i, axis in enumerate(found_axes):
        first = begin[i] if i < len(begin) else None
        last = end[i] if i < len(end) else None
        stride = strides[i] if strides and i < len(strides) else 1
        if attrs["slice_mode"] == "size":
            stride = 1
            last = None if last is None or last < 0 else (first or 0) + last
        if stride == 0:
            raise ArgumentError("strided_slice: a stride cannot be 0")
        found.append((axis, first, last, stride))
    return found


def _strided_slice(x: Any, **attrs: Any) -> Any:
    slices = _slices(shape_of(x), attrs)
    if not slices:
        return x
    bounds = [slice_bounds(shape_of(x)[axis], *bound) for axis, *bound in slices]
    axes = [s[0] for s in slices]
    return ops.strided_slice(x, axes, [b[0] for b in bounds], [b[1] for b in bounds], [b[2] for b in bounds])


def _sliced_type(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    shape = list(x.shape)
    for axis, *bound in _slices(shape, attrs):
        shape[axis] = shape[axis] if bound in ([None, None, 1], [0, None, 1]) else sliced_size(shape[axis], *bound)
    return TensorType(tuple(shape), x.dtype)


def _bounds(name: str, value: Any) -> tuple[Any, ...]:
    value = python_value(value)
    items = value if isinstance(value, (list, tuple)) else [value]
    return tuple(None if item is None else ints(name, item)[0] for item in items)


def _adapt_slice(args: list[Any], attrs: dict[str, Any]) -> Any:
    begin, end, strides = attrs["begin"], attrs["end"], attrs["strides"]
    if attrs["slice_mode"] not in ("end", "size"):
        raise ArgumentError(f"strided_slice: slice_mode must be 'end' or 'size', got {attrs['slice_mode']!r}")
    if is_dynamic(begin) or is_dynamic(end) or is_dynamic(strides):
        if attrs["axes"] is not None:
            raise ArgumentError("strided_slice: axes need begin, end and strides that are constants")
        strides = [1] if strides is None else strides
        given = [v if isinstance(v, Expr) else const(list(_bounds("begin", v)), "int64") for v in (begin, end, strides)]
        return call_op("dyn.strided_slice", args[0], *given, slice_mode=attrs["slice_mode"])
    found = {"begin": _bounds("begin", begin), "end": _bounds("end", end)}
    found["strides"] = (1,) if strides is None else _bounds("strides", strides) or (1,)
    return args, attrs | found | {"axes": maybe_ints("axes", attrs["axes"])}


define(
    "strided_slice",
    "data | begin, end, strides=None, axes=None, slice_mode='end'",
    _strided_slice,
    adapt=_adapt_slice,
    relation=_sliced_type,
    shown=("begin", "end", "strides", "axes"),
    doc="data[begin:end:stride] along the first axes, or those given. With slice_mode 'size', end are sizes, -1 all\n"
    "that is left, and the strides are 1.",
    pattern=OpPattern.INJECTIVE,
)


def _strided_set(x: Any, v: Any, begin: Any, end: Any, strides: Any) -> Any:
    """Where the element at i of an axis is of the slice, k = (i - begin) / stride says which of v's it gets."""
    shape, value = shape_of(x), v
    chosen = None
    for axis in range(shape_of(begin)[0]):
        size = shape[axis]
        first = _at(begin, axis)
        first = ops.where(ops.less(first, number(first, 0)), ops.add(first, number(first, size)), first)
        step = _at(strides, axis % shape_of(strides)[0]) if shape_of(strides)[0] else number(first, 1)
        offset = ops.subtract(places(range(size), "int64"), first)
        k = ops.floor_divide(offset, step)
        count = shape_of(v)[axis]
        inside = ops.logical_and(ops.greater_equal(k, number(k, 0)), ops.less(k, number(k, count)))
        inside = ops.logical_and(inside, ops.equal(ops.mod(offset, step), number(k, 0)))
        inside = ops.reshape(inside, tuple(size if i == axis else 1 for i in range(len(shape))))
        chosen = inside if chosen is None else ops.logical_and(chosen, inside)
        value = ops.take(value, k, axis, mode="clip")
    return x if chosen is None else ops.where(chosen, value, x)


def _at(x: Any, i: int) -> Any:
    return cast(ops.reshape(ops.strided_slice(x, [0], [i], [i + 1]), ()), "int64")


def _adapt_set(args: list[Any], attrs: dict[str, Any]) -> Any:
    if len(args) == 4:
        args.append([1])
    return [*args[:2], *(v if isinstance(v, Expr) else const(list(ints("begin", v)), "int64") for v in args[2:])], attrs


define(
    "strided_set",
    "data, v, begin, end, strides?",
    _strided_set,
    adapt=_adapt_set,
    relation=same,
    doc="data with v in place of data[begin:end:stride]; begin, end and strides are tensors.",
    pattern=OpPattern.INJECTIVE,
)


def _like_sizes(shape: Sequence[Any], like: Sequence[Any], axes: Any) -> list[Any]:
    chosen = range(len(like)) if not axes else [axis_of("slice_like", a, len(shape)) for a in axes]
    result = list(shape)
    for axis in chosen:
        size = like[axis]
        if not is_any(size) and not is_any(shape[axis]) and size > shape[axis]:
            raise ShapeError(f"slice_like: axis {axis} has {shape[axis]} elements, shape_like {size}")
        result[axis] = size
    return result


def _slice_like(x: Any, like: Any, *, axes: Any) -> Any:
    sizes = _like_sizes(shape_of(x), shape_of(like), axes)
    cut = [i for i, (a, b) in enumerate(zip(sizes, shape_of(x), strict=True)) if a is not b]
    return ops.strided_slice(x, cut, [0] * len(cut), [sizes[i] for i in cut]) if cut else x


define(
    "slice_like",
    "data, shape_like | axes=None",
    _slice_like,
    adapt=lambda args, attrs: (args, {"axes": maybe_ints("axes", attrs["axes"])}),
    relation=lambda types, attrs: (
        None
        if all(t.is_concrete for t in types)
        else TensorType(tuple(_like_sizes(types[0].shape, types[1].shape, attrs["axes"])), types[0].dtype)
    ),
    shown=("axes",),
    doc="The first elements of data along the axes (by default all), as many as shape_like has.",
    pattern=OpPattern.INJECTIVE,
)
