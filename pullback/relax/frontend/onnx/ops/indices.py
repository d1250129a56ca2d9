"""Elements at indices: what gathers and scatters them, and what finds where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import array, number, static
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.ops.shapes import axis_of, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.tir.expr import FLOATS


@ONNX.register("Gather")
def gather(x: Any, indices: Any, *, axis: int) -> Any:
    return op.take(x, indices, axis)


@ONNX.register("GatherElements")
def gather_elements(x: Any, indices: Any, *, axis: int) -> Any:
    return op.gather_elements(x, indices, axis)


@ONNX.register("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    return op.gather_nd(x, indices, batch_dims)


def _reduction(name: str) -> str:
    return "update" if name == "none" else name


@ONNX.register("Scatter", "ScatterElements")
def scatter_elements(x: Any, indices: Any, updates: Any, *, axis: int, reduction: str = "none") -> Any:
    return op.scatter_elements(x, indices, updates, axis, _reduction(reduction))


@ONNX.register("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    return op.scatter_nd(x, indices, updates, _reduction(reduction))


@ONNX.register("TensorScatter")
def tensor_scatter(past: Any, update: Any, write_indices: Any = None, *, axis: int, mode: str) -> Any:
    """A cache with an update written from a place on, another one for each row of the batch."""
    axis = axis_of(axis, rank_of(past))
    total, count = static([shape_of(past)[axis], shape_of(update)[axis]], "the sizes of TensorScatter's axis")
    batch = shape_of(past)[0]
    start = write_indices if write_indices is not None else op.zeros((batch,), "int64")
    places = op.add(op.expand_dims(start, 1), const(np.arange(count)[None]))
    if mode == "circular":
        places = op.mod(places, const(total))
    shape = [1] * rank_of(past)
    shape[0], shape[axis] = batch, count
    return op.scatter_elements(past, op.broadcast_to(op.reshape(places, tuple(shape)), shape_of(update)), update, axis)


@ONNX.register("OneHot")
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int) -> Any:
    """Negative indices count from the end; those outside of the depth name no class."""
    count = int(number(depth))
    found = indices if indices.struct_info.dtype == "int64" else op.astype(indices, "int64")
    wrapped = op.where(op.less(found, const(0)), op.add(found, const(count)), found)
    rank = rank_of(found) + 1
    axis = axis_of(axis, rank)
    classes = op.reshape(const(np.arange(count)), (count, *(1,) * (rank - 1 - axis)))
    chosen = op.equal(op.expand_dims(wrapped, axis), classes)
    parts = op.split(values, [1])
    return op.where(chosen, op.squeeze(parts[1]), op.squeeze(parts[0]))


@ONNX.register("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int, time_axis: int) -> Any:
    return op.reverse_sequence(x, lengths, time_axis, batch_axis)


# -- results whose size depends on values: these have to be known


@ONNX.register("NonZero")
def non_zero(x: Any) -> Any:
    values = array(x)
    return np.stack(np.nonzero(np.atleast_1d(values) if values.ndim == 0 else values)).astype(np.int64)


@ONNX.register("Compress")
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    places = np.flatnonzero(array(condition)).astype(np.int64)
    if axis is None:
        return op.take(op.flatten(x), const(places), 0)
    return op.take(x, const(places), axis_of(axis, rank_of(x)))


@ONNX.register("Unique")
def unique(x: Any, *, axis: int | None = None, sorted: int) -> Any:
    values = array(x)
    found, first, inverse, counts = np.unique(values, True, True, True, axis)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        found = np.take(found, order, 0 if axis is None else axis)
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return found, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


# -- ai.onnx.ml


@ONNX.register("ai.onnx.ml.ArrayFeatureExtractor")
def array_feature_extractor(x: Any, places: Any) -> Any:
    data = op.expand_dims(x, 0) if rank_of(x) == 1 else x
    return op.take(data, op.flatten(places), rank_of(data) - 1)


@ONNX.register("ai.onnx.ml.Binarizer")
def binarizer(x: Any, *, threshold: float) -> Any:
    above = op.greater(x, numbers_like(threshold, x))
    return op.astype(above, x.struct_info.dtype)


@ONNX.register("ai.onnx.ml.Scaler")
def scaler(x: Any, *, offset: Sequence[float], scale: Sequence[float]) -> Any:
    wide = x if x.struct_info.dtype == "float32" else op.astype(x, "float32")
    moved = op.subtract(wide, const(np.asarray(offset, np.float32)))
    return op.multiply(moved, const(np.asarray(scale, np.float32)))


@ONNX.register("ai.onnx.ml.Normalizer")
def normalizer(x: Any, *, norm: str) -> Any:
    wide = x if x.struct_info.dtype in FLOATS else op.astype(x, "float32")
    if norm == "MAX":
        return op.divide(wide, op.max(op.abs(wide), -1, True))
    return op.divide(wide, op.norm(wide, 1.0 if norm == "L1" else 2.0, -1, True))


_DTYPES = {"int64s": np.int64, "floats": np.float32}


@ONNX.register("ai.onnx.ml.LabelEncoder")
def label_encoder(x: Any, **attrs: Any) -> Any:
    """Numbers looked up among keys."""
    keys = _table("keys", attrs, x)
    values = _table("values", attrs, None)
    default = attrs.get("default_tensor")
    if default is None:
        name = {"i": "default_int64", "f": "default_float"}.get(values.dtype.kind, "")
        default = np.asarray(attrs.get(name, 0), values.dtype)
    if len(keys) != len(values):
        raise ArgumentError(f"{len(keys)} keys and {len(values)} values")
    flat = op.expand_dims(x, rank_of(x))
    hits = op.equal(flat, const(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        hits = op.logical_or(hits, op.logical_and(op.isnan(flat), const(np.isnan(keys))))
    place = op.argmax(op.astype(hits, "int32"), -1)
    found = op.take(const(values), place, 0)
    return op.where(op.any(hits, -1), found, const(np.asarray(default, values.dtype).reshape(())))


def _table(what: str, attrs: dict[str, Any], x: Any) -> np.ndarray:
    if f"{what}_tensor" in attrs:
        found = np.asarray(attrs[f"{what}_tensor"])
        if found.dtype.kind not in "iuf":
            raise UserError(f"the {what} are strings: tensors cannot have this type")
        return found
    for kind, dtype in _DTYPES.items():
        if attrs.get(f"{what}_{kind}"):
            return np.asarray(attrs[f"{what}_{kind}"], x.struct_info.dtype if x is not None else dtype)
    raise UserError(f"the {what} are strings: tensors cannot have this type")
