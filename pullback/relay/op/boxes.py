"""Detection: boxes, and regions of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback import relax
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import define
from pullback.relay.op.rules import cast, dtype_of, of_unknown, product, python_value, repeated, shape_of
from pullback.relay.ty import TensorType, TupleType, Type


def _number(value: Any) -> Any:
    found = python_value(value)
    while isinstance(found, list):
        found = found[0]
    return found


def _numbers(*names: str) -> Any:
    return lambda args, attrs: (args, attrs | {n: _number(attrs[n]) for n in names})


def _fields(found: Any, count: int) -> tuple[Any, ...]:
    return tuple(found[i] for i in range(count))


def _counted_type(types: list[Any], attrs: Attrs) -> Type:
    batch, count, _ = types[0].shape
    return TupleType((TensorType((batch,), "int32"), types[0], TensorType((batch, count), "int32")))


def _kept_type(types: list[Any], attrs: Attrs) -> Type:
    batch, count, _ = types[0].shape
    if not attrs["return_indices"]:
        return types[0]
    return TupleType((TensorType((batch, count), "int32"), TensorType((batch, 1), "int32")))


def _kept_of_each(types: list[Any], attrs: Attrs) -> Type:
    batch, classes, count = types[1].shape
    if attrs["output_format"] == "onnx":
        most = attrs["max_output_boxes_per_class"]
        each = count if most < 1 else most if not isinstance(count, int) else min(most, count)
        return TupleType((TensorType((product([batch, classes, each]), 3), "int64"), TensorType((1,), "int64")))
    rows = product([classes, count])
    fields = [((batch, rows, 2), "int64"), ((batch, rows), types[1].dtype), ((batch,), "int64")]
    return TupleType(tuple(TensorType(*field) for field in fields))


def _regions_type(types: list[Any], attrs: Attrs) -> Type:
    x, rois = types
    sizes = {"N": rois.shape[0], "C": x.shape[attrs["layout"].index("C")]}
    sizes |= dict(zip("HW", attrs["pooled_size"], strict=True))
    return TensorType(tuple(sizes[c] for c in attrs["layout"]), x.dtype)


def _priors_type(types: list[Any], attrs: Attrs) -> Type:
    each = len(attrs["sizes"]) + len(attrs["ratios"]) - 1
    return TensorType((1, product([*types[0].shape[2:], each]), 4), types[0].dtype)


define(
    "vision.get_valid_counts",
    "data | score_threshold=0.0, id_index=0, score_index=1",
    lambda x, **attrs: _fields(ops.vision.get_valid_counts(x, **attrs), 3),
    adapt=lambda args, attrs: (args, attrs | {"score_threshold": float(_number(attrs["score_threshold"]))}),
    relation=of_unknown(_counted_type),
    returns=3,
    doc="(counts, data, places) of the rows of data (B, A, E) whose score is above the threshold: how many there are,\n"
    "themselves in front of rows of -1, and where they were.",
)


def _nms(x: Any, count: Any, places: Any, **attrs: Any) -> Any:
    found = ops.vision.non_max_suppression(x, count, places, **attrs)
    return _fields(found, 2) if attrs["return_indices"] else found


define(
    "vision.non_max_suppression",
    "data, valid_count, indices | max_output_size=-1, iou_threshold=0.5, force_suppress=False, top_k=-1, "
    "coord_start=2, score_index=1, id_index=0, return_indices=True, invalid_to_bottom=False",
    _nms,
    relation=of_unknown(_kept_type),
    adapt=_numbers("max_output_size", "iou_threshold", "top_k"),
    returns=lambda call: 2 if call.attrs["return_indices"] else None,
    doc="The boxes that overlap no better one of their class by iou_threshold: (places, counts) or the rows.",
)


def _all_class(boxes: Any, scores: Any, **attrs: Any) -> Any:
    found = ops.vision.all_class_non_max_suppression(boxes, scores, **attrs)
    return _fields(found, 2 if attrs["output_format"] == "onnx" else 3)


define(
    "vision.all_class_non_max_suppression",
    "boxes, scores | max_output_boxes_per_class=-1, iou_threshold=-1.0, score_threshold=-1.0, output_format='onnx'",
    _all_class,
    relation=of_unknown(_kept_of_each),
    adapt=_numbers("max_output_boxes_per_class", "iou_threshold", "score_threshold"),
    returns=lambda call: 2 if call.attrs["output_format"] == "onnx" else 3,
    doc="For each class, the boxes that overlap no better one.",
)


def _size(args: list[Any], attrs: dict[str, Any]) -> Any:
    return args, attrs | {"pooled_size": repeated("pooled_size", attrs["pooled_size"], 2)}


define(
    "vision.roi_align",
    "data, rois | pooled_size, spatial_scale, sample_ratio=-1, layout='NCHW', mode='avg'",
    lambda x, rois, **attrs: ops.vision.roi_align(x, rois, **attrs),
    adapt=_size,
    relation=of_unknown(_regions_type),
    shown=("pooled_size", "spatial_scale"),
    doc="Regions (batch, x, y, x', y') of images in pooled_size bins, each the mean or the greatest of its samples.",
)
define(
    "vision.roi_pool",
    "data, rois | pooled_size, spatial_scale, layout='NCHW'",
    lambda x, rois, **attrs: ops.vision.roi_pool(x, rois, **attrs),
    adapt=_size,
    relation=of_unknown(_regions_type),
    shown=("pooled_size", "spatial_scale"),
    doc="The greatest pixels in pooled_size bins of regions (batch, x, y, x', y') of images.",
)


def _priors(x: Any, *, sizes: Any, ratios: Any, steps: Any, offsets: Any, clip: bool) -> Any:
    height, width = shape_of(x)[2:]
    step = [steps[0] if steps[0] > 0 else 1 / height, steps[1] if steps[1] > 0 else 1 / width]
    y = (np.arange(height) + offsets[0]) * step[0]
    x_centers = (np.arange(width) + offsets[1]) * step[1]
    halves = [(s * height / width / 2, s / 2) for s in sizes]
    halves += [(sizes[0] * height / width * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2) for r in ratios[1:]]
    centers = np.stack(np.broadcast_arrays(x_centers[None, :, None], y[:, None, None]), axis=-1)
    half = np.array(halves)[None, None]
    found = np.concatenate([centers - half, centers + half], axis=-1).reshape(1, -1, 4)
    return relax.const((np.clip(found, 0, 1) if clip else found).astype(dtype_of(x)))


def _floats(value: Any) -> tuple[float, ...]:
    found = python_value(value)
    return tuple(float(v) for v in (found if isinstance(found, (list, tuple)) else [found]))


define(
    "vision.multibox_prior",
    "data | sizes=(1.0,), ratios=(1.0,), steps=(-1.0, -1.0), offsets=(0.5, 0.5), clip=False",
    _priors,
    relation=of_unknown(_priors_type),
    adapt=lambda args, attrs: (
        args,
        attrs | {n: _floats(attrs[n]) for n in ("sizes", "ratios", "steps", "offsets")} | {"clip": bool(attrs["clip"])},
    ),
    doc="The anchors (x, y, x', y') of a single-shot detector: for each pixel of data (N, C, H, W) one of each size,\n"
    "and of the first size one of each further ratio: (1, anchors, 4).",
)


def _locations(scores: Any, offsets: Any, anchors: Any, **attrs: Any) -> Any:
    """The best class but the background (0), and the box that the offsets move the anchor to."""
    batch, _, count = shape_of(scores)
    dtype = dtype_of(scores)
    foreground = ops.strided_slice(scores, [1], [1], [shape_of(scores)[1]])
    best, kind = ops.max(foreground, axis=1), cast(ops.argmax(foreground, axis=1), dtype)
    valid = ops.greater_equal(best, relax.const(float(attrs["threshold"]), dtype))
    kind = ops.where(valid, kind, relax.const(-1.0, dtype))
    offsets = ops.reshape(offsets, (batch, count, 4))

    def column(x: Any, k: int) -> Any:
        return ops.strided_slice(x, [2], [k], [k + 1])

    left, top, right, bottom = (column(anchors, k) for k in range(4))
    half = relax.const(0.5, dtype)
    sizes = [ops.subtract(right, left), ops.subtract(bottom, top)]
    middles = [ops.multiply(ops.add(left, right), half), ops.multiply(ops.add(top, bottom), half)]
    corners: dict[int, Any] = {}
    for k in range(2):
        moved = ops.multiply(column(offsets, k), relax.const(float(attrs["variances"][k]), dtype))
        center = ops.add(ops.multiply(moved, sizes[k]), middles[k])
        grown = ops.exp(ops.multiply(column(offsets, k + 2), relax.const(float(attrs["variances"][k + 2]), dtype)))
        reach = ops.multiply(ops.multiply(grown, sizes[k]), half)
        corners[k], corners[k + 2] = ops.subtract(center, reach), ops.add(center, reach)
    boxes = ops.concat([corners[k] for k in range(4)], 2)
    boxes = ops.clip(boxes, 0.0, 1.0) if attrs["clip"] else boxes
    rows = ops.concat([ops.expand_dims(kind, 2), ops.expand_dims(best, 2), boxes], 2)
    order = ops.argsort(cast(ops.logical_not(valid), "int32"), axis=1, dtype="int64")  # stable: valid ones first
    numbers = relax.const(np.arange(batch, dtype="int64")[:, None])
    found = ops.index_tensor([rows, numbers, order])
    kept = ops.index_tensor([valid, numbers, order])
    found = ops.where(ops.expand_dims(kept, 2), found, relax.const(-1.0, dtype))
    return found, ops.sum(cast(valid, "int32"), axis=1)


def _locations_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    if all(t.is_concrete for t in types):
        return None
    batch, _, count = types[0].shape
    return TupleType((TensorType((batch, count, 6), types[0].dtype), TensorType((batch,), "int32")))


define(
    "vision.multibox_transform_loc",
    "cls_prob, loc_pred, anchor | clip=True, threshold=0.01, variances=(0.1, 0.1, 0.2, 0.2)",
    _locations,
    adapt=lambda args, attrs: (args, attrs | {"variances": _floats(attrs["variances"])}),
    relation=_locations_type,
    returns=2,
    doc="(rows, counts): for each anchor whose best class reaches the threshold a row (class, score, box), in front\n"
    "of rows of -1, (B, anchors, 6), and how many there are, (B,).",
)
