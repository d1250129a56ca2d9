"""Detection of objects: boxes from what a network says, and the best ones among those that overlap.

``suppression.py`` finds out which boxes are kept; what comes out of them are gathers and formulas in ops, so that
numbers have derivatives. Rows of results that hold no box are -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.expr import Tuple, const
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_member,
    expect_same_dtype,
    known_shape,
    masked,
    narrowed,
    wide,
    widened,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.op.vision.suppression import overlap_array, overlaps
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape
from pullback.tir import as_expr, minimum

# -- decoding


def _decode_expect(
    cls_pred: TensorStructInfo, loc_pred: TensorStructInfo, anchor: TensorStructInfo, *, variances: Any, **_: Any
) -> None:
    name = "vision.multibox_transform_loc"
    scores, places, priors = (known_shape(name, i) for i in (cls_pred, loc_pred, anchor))
    expect_dtype(name, cls_pred, "float", "cls_pred")
    expect_same_dtype(name, cls_pred, loc_pred, anchor)
    if len(scores) != 3:
        raise ShapeError(f"{name}: cls_pred must have the shape (B, C, N), got {format_shape(scores)}")
    for label, own, wanted in (
        ("loc_pred", places, (scores[0], scores[2] * 4)),
        ("anchor", priors, (1, scores[2], 4)),
    ):
        if not same_shape(own, wanted):
            raise ShapeError(f"{name}: {label} must have the shape {format_shape(wanted)}, got {format_shape(own)}")
    if not isinstance(variances, (tuple, list)) or len(variances) != 4:
        raise UserError(f"{name}: variances must be four numbers, got {variances!r}")


def _decode(
    cls_pred: Any,
    loc_pred: Any,
    anchor: Any,
    *,
    clip: bool,
    threshold: float,
    variances: Sequence[float],
    keep_background: bool,
    apply_softmax: bool,
) -> Any:
    dtype, (batch, classes, count) = cls_pred.dtype, cls_pred.shape
    x, y, w, h = ops.split(ops.reshape(widened(loc_pred), (batch, count, 4)), 4, 2)
    left, top, right, bottom = ops.split(widened(anchor), 4, 2)
    width, height = right - left, bottom - top
    middle_x = x * float(variances[0]) * width + (left + right) * 0.5
    middle_y = y * float(variances[1]) * height + (top + bottom) * 0.5
    half_w, half_h = (
        ops.exp(s * float(v)) * size * 0.5 for s, v, size in ((w, variances[2], width), (h, variances[3], height))
    )
    boxes = ops.concat([middle_y - half_h, middle_x - half_w, middle_y + half_h, middle_x + half_w], 2)
    boxes = ops.clip(boxes, 0.0, 1.0) if clip else boxes
    scores = widened(cls_pred)
    scores = ops.nn.softmax(scores, 1) if apply_softmax else scores
    scores = masked(ops.greater_equal(scores, threshold), scores)
    if not keep_background:
        scores = masked(ops.reshape(ops.greater(ops.arange(classes), 0), (1, classes, 1)), scores)
    return Tuple((narrowed(boxes, dtype), narrowed(scores, dtype)))


def _decode_array(
    cls_pred: np.ndarray,
    loc_pred: np.ndarray,
    anchor: np.ndarray,
    *,
    clip: bool,
    threshold: float,
    variances: Sequence[float],
    keep_background: bool,
    apply_softmax: bool,
) -> tuple[np.ndarray, np.ndarray]:
    dtype, kind = cls_pred.dtype, wide(cls_pred.dtype.name)
    scores, places, anchor = (a.astype(kind) for a in (cls_pred, loc_pred, anchor))
    places = places.reshape(len(scores), -1, 4) * np.asarray(variances, kind)
    corner, size = anchor[..., :2], anchor[..., 2:] - anchor[..., :2]
    middle, half = places[..., :2] * size + corner + size / 2, np.exp(places[..., 2:]) * size / 2
    boxes = np.concatenate([(middle - half)[..., ::-1], (middle + half)[..., ::-1]], 2)
    if apply_softmax:
        scores = np.exp(scores - scores.max(1, keepdims=True, initial=-np.inf))
        scores = scores / scores.sum(1, keepdims=True)
    scores = np.where(scores >= np.asarray(threshold, kind), scores, np.asarray(0, kind))
    if not keep_background:
        scores[:, :1] = 0
    return (np.clip(boxes, 0, 1) if clip else boxes).astype(dtype), scores.astype(dtype)


_ANCHOR = Floats((1, 5, 4), 0.0, 1.0)

composite(
    "vision.multibox_transform_loc",
    "cls_pred, loc_pred, anchor | clip=False, threshold=0.0, variances=(1.0, 1.0, 1.0, 1.0), keep_background=True,"
    " apply_softmax=True",
    expect=_decode_expect,
    decompose=_decode,
    numpy=_decode_array,
    family="detection",
    doc="(boxes, scores) of cls_pred (B, C, N), loc_pred (B, 4N) and anchor (1, N, 4), which are (left, top, right,\n"
    "bottom). With (x, y, w, h) = loc_pred · variances, a box has its middle at (x, y) · size + the anchor's middle,\n"
    "and exp(w, h) times the anchor's size; boxes (B, N, 4) are (top, left, bottom, right), with clip in [0, 1].\n"
    "Scores are the softmax of cls_pred along the classes, or cls_pred itself; those below threshold, and without\n"
    "keep_background those of class 0, are 0. TVM's multibox_transform_loc: SSD, Liu et al. 2016.",
    samples=[
        sample((2, 3, 5), (2, 20), _ANCHOR),
        sample((2, 3, 5), (2, 20), _ANCHOR, variances=(0.1, 0.1, 0.2, 0.2), keep_background=False, threshold=0.3),
        sample((1, 4, 5), (1, 20), _ANCHOR, clip=True, variances=(0.1, 0.1, 0.2, 0.2), apply_softmax=False),
        sample((2, 3, 0), (2, 0), (1, 0, 4)),
    ],
)  # fmt: skip

# -- rows of boxes


def _expect_rows(name: str, data: TensorStructInfo, *columns: tuple[str, Any, int]) -> int:
    """How many numbers a row of data (B, A, E) has, when the columns are among them; an index -1 stands for none."""
    shape = known_shape(name, data, "data")
    expect_dtype(name, data, "float", "data")
    if len(shape) != 3 or not isinstance(shape[2], int):
        raise ShapeError(f"{name}: data must have the shape (B, A, E) with a known E, got {format_shape(shape)}")
    for label, column, least in columns:
        expect_int(name, label, column)
        if not least <= column < shape[2]:
            raise ShapeError(f"{name}: {label} {column} is outside of rows of {shape[2]} numbers")
    return shape[2]


def _column(data: Any, k: int) -> Any:
    return ops.squeeze(ops.strided_slice(data, [2], [k], [k + 1]), 2)


def _rows(data: Any, places: Any) -> Any:
    """The rows of data (B, A, E) at the places (B, A) of each batch; -1: a row of -1."""
    index = ops.broadcast_to(ops.expand_dims(places, 2), data.shape)
    found = ops.gather_elements(data, ops.maximum(index, 0), 1, "clip")
    return ops.where(ops.greater_equal(index, 0), found, const(-1.0, data.dtype))


def _to_front(places: Any) -> Any:
    """The places with those that are -1 behind all others."""
    order = ops.argsort(ops.astype(ops.less(places, 0), "int32"), 1, dtype="int64")
    return ops.gather_elements(places, order, 1, "clip")


def _to_front_array(places: np.ndarray) -> np.ndarray:
    result = np.full_like(places, -1)
    for to, come in zip(result, places, strict=True):
        kept = come[come >= 0]
        to[: len(kept)] = kept
    return result


def _rows_array(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    found = data[np.arange(len(data))[:, None], np.maximum(places, 0)] if data.size else data.copy()
    return np.where(places[..., None] >= 0, found, data.dtype.type(-1))


def _numbered(valid: Any) -> Any:
    """The place of each element along axis 1 where it is valid, else -1: int64."""
    return ops.where(valid, ops.arange(valid.shape[1]), const(-1, "int64"))


def _valid_expect(data: TensorStructInfo, *, score_threshold: float, id_index: int, score_index: int) -> None:
    _expect_rows("vision.get_valid_counts", data, ("id_index", id_index, -1), ("score_index", score_index, 0))


def _valid(data: Any, *, score_threshold: float, id_index: int, score_index: int) -> Any:
    valid = ops.greater(widened(_column(data, score_index)), float(score_threshold))
    if id_index >= 0:
        valid = ops.logical_and(valid, ops.greater_equal(_column(data, id_index), 0.0))
    places = _to_front(_numbered(valid))
    return Tuple((ops.sum(ops.astype(valid, "int32"), 1), _rows(data, places), ops.astype(places, "int32")))


def _valid_array(
    data: np.ndarray, *, score_threshold: float, id_index: int, score_index: int
) -> tuple[np.ndarray, ...]:
    valid = data[:, :, score_index] > data.dtype.type(score_threshold)
    if id_index >= 0:
        valid &= data[:, :, id_index] >= 0
    places = _to_front_array(np.where(valid, np.arange(data.shape[1]), -1))
    return valid.sum(1, dtype=np.int32), _rows_array(data, places), places.astype(np.int32)


composite(
    "vision.get_valid_counts",
    "data | score_threshold=0.0, id_index=0, score_index=1",
    te=None,
    expect=_valid_expect,
    decompose=_valid,
    numpy=_valid_array,
    family="detection",
    doc="(counts, data, places) of the rows of data (B, A, E) whose score, at score_index, is above score_threshold\n"
    "and whose class, at id_index (-1: there is none), is not negative: how many of them there are, (B,), themselves\n"
    "in front of rows of -1, and where they were, (B, A), -1 behind them. Counts and places are int32.",
    samples=[
        sample((2, 7, 6)),
        sample((3, 5, 6), score_threshold=-1.0, id_index=-1, score_index=0),
        sample((2, 4, 3), score_threshold=5.0, score_index=2),
        sample((2, 19, 3), score_threshold=0.0, id_index=-1, score_index=2),
        sample((2, 0, 6)),
    ],
)

# -- non-maximum suppression


def _nms_expect(
    data: TensorStructInfo,
    valid_count: TensorStructInfo,
    indices: TensorStructInfo,
    *,
    max_output_size: int,
    top_k: int,
    coord_start: int,
    score_index: int,
    id_index: int,
    soft_nms_sigma: float,
    **_: Any,
) -> None:
    name = "vision.non_max_suppression"
    columns = (("coord_start", coord_start, 0), ("score_index", score_index, 0), ("id_index", id_index, -1))
    size = _expect_rows(name, data, *columns)
    if coord_start + 4 > size:
        raise ShapeError(f"{name}: the four coordinates from {coord_start} on are outside of rows of {size} numbers")
    for label, info, wanted in (
        ("valid_count", valid_count, data.sizes[:1]),
        ("indices", indices, data.sizes[:2]),
    ):
        expect_dtype(name, info, "integer", label)
        if not same_shape(known_shape(name, info, label), wanted):
            raise ShapeError(
                f"{name}: {label} must have the shape {format_shape(wanted)}, got {format_shape(info.shape)}"
            )
    expect_int(name, "max_output_size", max_output_size)
    expect_int(name, "top_k", top_k)
    if not soft_nms_sigma >= 0:
        raise UserError(f"{name}: soft_nms_sigma cannot be negative, got {soft_nms_sigma!r}")


def _decayed(rows: Any, labels: Any, coord_start: int, score_index: int, sigma: float) -> Any:
    """Rows of boxes in the order in which they were taken, the scores as those before have left them."""
    boxes = ops.strided_slice(rows, [2], [coord_start], [coord_start + 4])
    place = ops.arange(rows.shape[1])
    before = ops.less(ops.expand_dims(place, 0), ops.expand_dims(place, 1))
    alike = ops.equal(ops.expand_dims(labels, 1), ops.expand_dims(labels, 2))
    squares = masked(ops.logical_and(before, alike), ops.square(overlaps(widened(boxes))))
    factor = ops.expand_dims(ops.exp(ops.sum(squares, 2) * (-0.5 / sigma)), 2)
    hot = ops.equal(ops.arange(rows.shape[2]), score_index)
    return ops.where(hot, narrowed(widened(rows) * factor, rows.dtype), rows)


def _nms(
    data: Any,
    valid_count: Any,
    indices: Any,
    *,
    max_output_size: int,
    iou_threshold: float,
    force_suppress: bool,
    top_k: int,
    coord_start: int,
    score_index: int,
    id_index: int,
    return_indices: bool,
    invalid_to_bottom: bool,
    soft_nms_sigma: float,
    score_threshold: float,
) -> Any:
    place = ops.arange(data.shape[1])
    counts = ops.expand_dims(ops.astype(valid_count, "int64"), 1)
    scores = ops.where(ops.less(place, counts), _column(data, score_index), const(float("-inf"), data.dtype))
    order = ops.argsort(scores, 1, True, "int64")
    ranked = _rows(data, order)
    boxes = ops.strided_slice(ranked, [2], [coord_start], [coord_start + 4])
    labels = _column(ranked, id_index if id_index >= 0 and not force_suppress else score_index)
    labels = labels if id_index >= 0 and not force_suppress else ops.zeros_like(labels)
    inside = ops.less(place, ops.minimum(counts, top_k) if top_k > 0 else counts)
    own = _column(ranked, score_index)
    if soft_nms_sigma > 0:
        attrs = {"sigma": soft_nms_sigma, "score_threshold": score_threshold}
        taken = ops.vision.soft_suppress(boxes, own, labels, inside, iou_threshold, max_output_size, **attrs)
        taken = ops.astype(taken, "int64")
        ordered = ops.gather_elements(labels, ops.maximum(taken, 0), 1, "clip")
        result = _decayed(_rows(ranked, taken), ordered, coord_start, score_index, soft_nms_sigma)
        result = ops.where(ops.expand_dims(ops.greater_equal(taken, 0), 2), result, const(-1.0, data.dtype))
    else:
        candidates = ops.logical_and(inside, ops.greater(own, 0.0))
        taken = _numbered(ops.vision.suppress(boxes, labels, candidates, iou_threshold, max_output_size))
        taken = _to_front(taken) if return_indices or invalid_to_bottom else taken
        result = _rows(ranked, taken)
    if not return_indices:
        return result
    exists = ops.greater_equal(taken, 0)
    places = ops.gather_elements(order, ops.maximum(taken, 0), 1, "clip")
    found = ops.gather_elements(ops.astype(indices, "int32"), places, 1, "clip")
    kept = ops.where(exists, found, const(-1, "int32")), ops.sum(ops.astype(exists, "int32"), 1, True)
    return Tuple((result, *kept) if soft_nms_sigma > 0 else kept)


def _nms_array(
    data: np.ndarray,
    valid_count: np.ndarray,
    indices: np.ndarray,
    *,
    max_output_size: int,
    iou_threshold: float,
    force_suppress: bool,
    top_k: int,
    coord_start: int,
    score_index: int,
    id_index: int,
    return_indices: bool,
    invalid_to_bottom: bool,
    soft_nms_sigma: float,
    score_threshold: float,
) -> Any:
    kind, soft = wide(data.dtype.name), soft_nms_sigma > 0
    result, places = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    kept = np.zeros((len(data), 1), np.int32)
    for b, rows in enumerate(data):
        count = min(max(int(valid_count[b]), 0), len(rows))
        order = np.argsort(-rows[:count, score_index].astype(kind), kind="stable")
        order = order[:top_k] if top_k > 0 else order
        scores = {int(k): rows[k, score_index].astype(kind) for k in order}
        at = {int(k): n for n, k in enumerate(order)}
        taken: list[int] = []
        while scores and (max_output_size <= 0 or len(taken) < max_output_size):
            best = max(scores, key=lambda k: scores[k])  # the first of equal ones
            score = scores.pop(best)
            if not score > (score_threshold if soft else 0):
                break
            to = len(taken) if soft or return_indices or invalid_to_bottom else at[best]
            result[b, to], places[b, len(taken)] = rows[best], indices[b, best]
            result[b, to, score_index] = score
            taken.append(best)
            for k in list(scores):
                if id_index >= 0 and not force_suppress and rows[k, id_index] != rows[best, id_index]:
                    continue
                boxes = (rows[i, coord_start : coord_start + 4].astype(kind) for i in (best, k))
                overlap = overlap_array(*boxes)
                if overlap >= iou_threshold:
                    del scores[k]
                elif soft:
                    scores[k] = scores[k] * scores[k].dtype.type(np.exp(-0.5 / soft_nms_sigma * overlap**2))
        kept[b] = len(taken)
    if not return_indices:
        return result
    return (result, places, kept) if soft else (places, kept)


_BOXES = Floats((2, 8, 6), 0.0, 1.0)
_COUNTS, _PLACES = Ints((2,), 4, 9, "int32"), Ints((2, 8), 0, 20, "int32")

composite(
    "vision.non_max_suppression",
    "data, valid_count, indices | max_output_size=-1, iou_threshold=0.5, force_suppress=False, top_k=-1,"
    " coord_start=2, score_index=1, id_index=0, return_indices=True, invalid_to_bottom=False, soft_nms_sigma=0.0,"
    " score_threshold=0.0",
    te=None,
    expect=_nms_expect,
    decompose=_nms,
    numpy=_nms_array,
    family="detection",
    doc="Of the first valid_count (B,) rows of data (B, A, E), and of these the top_k with the best scores, those\n"
    "that are not suppressed: boxes, from coord_start on, that overlap a better one of the same class (id_index; any\n"
    "class with force_suppress or id_index = -1) by iou_threshold or more; at most max_output_size of them, with\n"
    "positive scores. With return_indices (places, counts), int32: their indices (B, A), -1 behind them, and how\n"
    "many, (B, 1). Else data in the order of scores, rows of -1 in place of those that are suppressed, or with\n"
    "invalid_to_bottom behind the others. With soft_nms_sigma boxes that overlap lose score (vision.soft_suppress),\n"
    "and data in the order in which they were taken comes first. Numbers below 1 are no limit. TVM's\n"
    "non_max_suppression.",
    samples=[
        sample(_BOXES, _COUNTS, _PLACES, iou_threshold=0.2, id_index=-1),
        sample(_BOXES, _COUNTS, _PLACES, iou_threshold=0.1, id_index=-1, return_indices=False),
        sample(_BOXES, _COUNTS, _PLACES, iou_threshold=0.1, force_suppress=True, return_indices=False,
               invalid_to_bottom=True, max_output_size=3),
        sample(_BOXES, _COUNTS, _PLACES, top_k=4, return_indices=False),
        sample(_BOXES, _COUNTS, _PLACES, iou_threshold=0.6, id_index=-1, soft_nms_sigma=0.5, return_indices=False),
        sample(_BOXES, _COUNTS, _PLACES, iou_threshold=0.4, id_index=-1, soft_nms_sigma=0.1, score_threshold=0.2),
        sample((2, 0, 6), Ints((2,), 0, 1), Ints((2, 0), 0, 1)),
    ],
)  # fmt: skip

# -- the same for each class


def _all_class_expect(
    boxes: TensorStructInfo,
    scores: TensorStructInfo,
    *,
    max_output_boxes_per_class: int,
    iou_threshold: float,
    score_threshold: float,
    output_format: str,
) -> None:
    name = "vision.all_class_non_max_suppression"
    shape, own = known_shape(name, boxes, "boxes"), known_shape(name, scores, "scores")
    expect_dtype(name, boxes, "float", "boxes")
    expect_same_dtype(name, boxes, scores)
    if len(shape) != 3 or not same_shape(shape[2:], (4,)):
        raise ShapeError(f"{name}: boxes must have the shape (B, A, 4), got {format_shape(shape)}")
    if len(own) != 3 or not same_shape(own, (shape[0], own[1], shape[1])):
        wanted = f"({shape[0]}, classes, {shape[1]})"
        raise ShapeError(f"{name}: scores must have the shape {wanted}, got {format_shape(own)}")
    expect_int(name, "max_output_boxes_per_class", max_output_boxes_per_class)
    expect_member(name, "output_format", output_format, ("onnx", "tensorflow"))


def _all_class(
    boxes: Any,
    scores: Any,
    *,
    max_output_boxes_per_class: int,
    iou_threshold: float,
    score_threshold: float,
    output_format: str,
) -> Any:
    (batch, classes, count), most = scores.shape, max_output_boxes_per_class
    flat = ops.reshape(scores, (batch * classes, count))
    order = ops.argsort(flat, 1, True, "int64")
    ranked = ops.gather_elements(flat, order, 1, "clip")
    each = ops.broadcast_to(ops.expand_dims(boxes, 1), (batch, classes, count, 4))
    own = _rows(ops.reshape(each, (batch * classes, count, 4)), order)
    labels = ops.zeros((batch * classes, count), "int32")
    kept = ops.vision.suppress(own, labels, ops.greater(widened(ranked), float(score_threshold)), iou_threshold, most)
    apart = output_format == "tensorflow"  # else all batches are joined
    taken = _to_front(_numbered(ops.reshape(kept, (batch, classes * count) if apart else (1, -1))))
    if not apart and most > 0:
        taken = ops.strided_slice(taken, [1], [0], [batch * classes * _least(most, count)])
    exists = ops.greater_equal(taken, 0)
    at = ops.maximum(taken, 0)
    if apart:
        at = at + ops.reshape(ops.arange(batch) * _number(classes * count), (batch, 1))
    row = ops.floor_divide(at, ops.maximum(_number(count), 1))
    found = [ops.mod(row, _number(classes)), ops.take(ops.reshape(order, [-1]), at, 0, "clip")]
    found = found if apart else [ops.floor_divide(row, _number(classes)), *found]
    places = ops.where(ops.expand_dims(exists, 2), ops.stack(found, 2), const(-1, "int64"))
    total = ops.sum(ops.astype(exists, "int64"), 1)
    if not apart:
        return Tuple((ops.squeeze(places, 0), total))
    return Tuple((places, masked(exists, ops.take(ops.reshape(ranked, [-1]), at, 0, "clip")), total))


def _least(most: int, count: Any) -> Any:
    return min(most, count) if isinstance(count, int) else minimum(as_expr(count), most)


def _number(size: Any) -> Any:
    return ops.full((), size, "int64")


def _all_class_array(
    boxes: np.ndarray,
    scores: np.ndarray,
    *,
    max_output_boxes_per_class: int,
    iou_threshold: float,
    score_threshold: float,
    output_format: str,
) -> tuple[np.ndarray, ...]:
    (batch, classes, count), most = scores.shape, max_output_boxes_per_class
    kind = wide(boxes.dtype.name)
    found: list[tuple[int, int, int]] = []
    for b, c in np.ndindex(batch, classes):
        own: list[int] = []
        for k in np.argsort(-scores[b, c].astype(kind), kind="stable"):
            if scores[b, c, k] <= score_threshold or (0 < most <= len(own)):
                break
            if all(overlap_array(boxes[b, j].astype(kind), boxes[b, k].astype(kind)) < iou_threshold for j in own):
                own.append(int(k))
        found += [(b, c, k) for k in own]
    if output_format == "onnx":
        places = np.full((batch * classes * (min(most, count) if most > 0 else count), 3), -1, np.int64)
        places[: len(found)] = np.reshape(found, (-1, 3))
        return places, np.array([len(found)], np.int64)
    places, values = (
        np.full((batch, classes * count, 2), -1, np.int64),
        np.zeros((batch, classes * count), scores.dtype),
    )
    totals = np.zeros(batch, np.int64)
    for b, c, k in found:
        places[b, totals[b]], values[b, totals[b]] = (c, k), scores[b, c, k]
        totals[b] += 1
    return places, values, totals


_ALL = Floats((2, 7, 4), 0.0, 1.0), Floats((2, 3, 7), 0.0, 1.0)

composite(
    "vision.all_class_non_max_suppression",
    "boxes, scores | max_output_boxes_per_class, iou_threshold, score_threshold, output_format='onnx'",
    te=None,
    expect=_all_class_expect,
    decompose=_all_class,
    numpy=_all_class_array,
    family="detection",
    doc="For each class, the boxes (B, A, 4) with scores (B, C, A) above score_threshold that overlap no better one\n"
    "which is kept by iou_threshold or more; at most max_output_boxes_per_class of them, where it is positive. With\n"
    "'onnx' (places, total): batch, class and number of each box, (B·C·boxes per class, 3), and how many, (1,). With\n"
    "'tensorflow' (places, scores, totals): class and number, (B, C·A, 2), scores, (B, C·A), and how many, (B,).\n"
    "Integers are int64; behind the last box places are -1, and scores 0. ONNX's NonMaxSuppression.",
    samples=[
        sample(*_ALL, max_output_boxes_per_class=3, iou_threshold=0.2, score_threshold=0.3),
        sample(*_ALL, max_output_boxes_per_class=-1, iou_threshold=0.4, score_threshold=0.0),
        sample(*_ALL, max_output_boxes_per_class=2, iou_threshold=0.2, score_threshold=0.4, output_format="tensorflow"),
        sample(*_ALL, max_output_boxes_per_class=0, iou_threshold=0.3, score_threshold=0.1, output_format="tensorflow"),
        sample(*_ALL, max_output_boxes_per_class=5, iou_threshold=0.6, score_threshold=0.1, output_format="tensorflow"),
        sample((1, 0, 4), (1, 2, 0), max_output_boxes_per_class=2, iou_threshold=0.2, score_threshold=0.4),
    ],
)
