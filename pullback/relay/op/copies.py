"""Operators that repeat elements, and their adjoints, which add up what was repeated."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import call_op
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import axis_of, ints, is_dynamic, product, shape_of
from pullback.relay.ty import TensorType, Type


def _repeat(x: Any, *, repeats: int, axis: int | None) -> Any:
    return ops.repeat(x, repeats, axis)


def _repeated(types: list[Type], attrs: Attrs) -> Type | None:
    x = types[0]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    if attrs["axis"] is None:
        return TensorType((product([*x.shape, attrs["repeats"]]),), x.dtype)
    axis = axis_of("repeat", attrs["axis"], x.ndim)
    return TensorType(tuple(product([s, attrs["repeats"]]) if i == axis else s for i, s in enumerate(x.shape)), x.dtype)


define(
    "repeat",
    "data | repeats, axis=None",
    _repeat,
    relation=_repeated,
    adapt=lambda args, attrs: (args, attrs | {"repeats": ints("repeats", attrs["repeats"])[0]}),
    pattern=OpPattern.BROADCAST,
    shown=("repeats",),
    doc="Each element so many times in a row along the axis, or of the flattened data.",
)


def _adapt_tile(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["reps"]):
        return call_op("dyn.tile", args[0], attrs["reps"])
    reps = ints("reps", attrs["reps"])
    if any(r < 1 for r in reps):
        raise ShapeError(f"tile: reps must be positive, got {list(reps)}")
    return args, {"reps": reps}


def _tiled(types: list[Type], attrs: Attrs) -> Type | None:
    x, reps = types[0], attrs["reps"]
    if not isinstance(x, TensorType) or x.is_concrete:
        return None
    rank = max(x.ndim, len(reps))
    shape, reps = (1,) * (rank - x.ndim) + x.shape, (1,) * (rank - len(reps)) + reps
    return TensorType(tuple(product([s, r]) for s, r in zip(shape, reps, strict=True)), x.dtype)


define(
    "tile",
    "data | reps",
    lambda x, *, reps: ops.tile(x, reps),
    adapt=_adapt_tile,
    relation=_tiled,
    pattern=OpPattern.BROADCAST,
    shown=("reps",),
    doc="data as a whole, reps[k] times along each axis.",
)


def _adapt_broadcast(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["shape"]):
        return call_op("dyn.broadcast_to", args[0], attrs["shape"])
    return args, attrs | {"shape": ints("shape", attrs["shape"])}


define(
    "broadcast_to",
    "data | shape, dtype=''",
    lambda x, *, shape, dtype: ops.broadcast_to(x, shape),
    adapt=_adapt_broadcast,
    relation=lambda types, attrs: None if types[0].is_concrete else TensorType(attrs["shape"], types[0].dtype),
    pattern=OpPattern.BROADCAST,
    shown=("shape",),
)
define(
    "broadcast_to_like",
    "data, broadcast_type",
    lambda x, like: ops.broadcast_to(x, shape_of(like)),
    relation=lambda types, attrs: (
        None if all(t.is_concrete for t in types) else TensorType(types[1].shape, types[0].dtype)
    ),
    pattern=OpPattern.BROADCAST,
)


def _collapse(x: Any, shape: tuple[Any, ...]) -> Any:
    return x if shape == shape_of(x) else ops.collapse_sum_to(x, shape)


define(
    "collapse_sum_like",
    "data, collapse_type",
    lambda x, like: _collapse(x, shape_of(like)),
    relation=lambda types, attrs: (
        None if all(t.is_concrete for t in types) else TensorType(types[1].shape, types[0].dtype)
    ),
    pattern=OpPattern.COMM_REDUCE,
    doc="data summed over the axes along which collapse_type is repeated when it broadcasts to data's shape.",
)


def _adapt_collapse(args: list[Any], attrs: dict[str, Any]) -> Any:
    if is_dynamic(attrs["shape"]):
        return call_op("dyn.collapse_sum_to", args[0], attrs["shape"])
    return args, attrs | {"shape": ints("shape", attrs["shape"])}


define(
    "collapse_sum_to",
    "data | shape, dtype=''",
    lambda x, *, shape, dtype: _collapse(x, tuple(shape)),
    relation=lambda types, attrs: None if types[0].is_concrete else TensorType(attrs["shape"], types[0].dtype),
    adapt=_adapt_collapse,
    pattern=OpPattern.COMM_REDUCE,
    shown=("shape",),
    doc="data summed over the axes along which a tensor of the shape is repeated when it broadcasts to data's shape.",
)
