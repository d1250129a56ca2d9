"""Which of many boxes are kept: the best of those that overlap.

A box is four numbers (x, y, x', y'), two opposite corners. The overlap of two boxes is the area of their intersection
divided by that of their union, 0 where that is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.op.family import (
    expect_dtype,
    expect_same_dtype,
    known_shape,
    masked,
    wide,
    zero_gradient,
)
from pullback.relax.op.kernel import Lines
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Bools, Floats, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, format_shape, same_shape
from pullback.tir import (
    Allocate,
    Buffer,
    If,
    Let,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    call,
    cast,
    const,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)

# -- overlaps


def _corners(boxes: Any, least: Callable[..., Any], most: Callable[..., Any]) -> tuple[Any, ...]:
    """Left, top, right and bottom of boxes given as four numbers."""
    return least(boxes[0], boxes[2]), least(boxes[1], boxes[3]), most(boxes[0], boxes[2]), most(boxes[1], boxes[3])


def _areas(a: Any, b: Any, least: Callable[..., Any], most: Callable[..., Any]) -> tuple[Any, Any]:
    """The areas of the intersection and of the union of two boxes."""
    (al, at, ar, ab), (bl, bt, br, bb) = (_corners(x, least, most) for x in (a, b))
    width, height = least(ar, br) - most(al, bl), least(ab, bb) - most(at, bt)
    common = most(width, 0.0) * most(height, 0.0)
    return common, (ar - al) * (ab - at) + (br - bl) * (bb - bt) - common


def overlap_array(a: np.ndarray, b: np.ndarray) -> float:
    common, union = _areas(a, b, min, max)
    return float(common / union) if union > 0 else 0.0


def _overlap(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> PrimExpr:
    common, union = _areas(a, b, minimum, maximum)
    return select(union > 0.0, common / union, const(0.0, common.dtype))


def overlaps(boxes: Any) -> Any:
    """The overlaps of all pairs of boxes (R, A, 4), as ops: (R, A, A)."""
    parts = [ops.squeeze(p, 2) for p in ops.split(boxes, 4, 2)]
    a, b = ([ops.expand_dims(p, axis) for p in parts] for axis in (2, 1))
    common, union = _areas(a, b, ops.minimum, ops.maximum)
    exists = ops.greater(union, 0.0)
    return masked(exists, common / ops.where(exists, union, 1.0))


# -- which boxes are kept


def _suppress_expect(name: str, boxes: TensorStructInfo, *others: TensorStructInfo) -> tuple[Dim, ...]:
    shape = known_shape(name, boxes, "boxes")
    expect_dtype(name, boxes, "float", "boxes")
    if len(shape) != 3 or not same_shape(shape, (*shape[:2], 4)):
        raise ShapeError(f"{name}: boxes must have the shape (rows, boxes, 4), got {format_shape(shape)}")
    for info in others:
        if not same_shape(known_shape(name, info), shape[:2]):
            raise ShapeError(f"{name}: {format_shape(shape[:2])} needed of all boxes, got {format_shape(info.shape)}")
    expect_dtype(name, others[-1], "bool", "candidates")
    return shape[:2]


def _box(boxes: Buffer, row: PrimExpr, k: PrimExpr) -> list[PrimExpr]:
    return [cast(wide(boxes.dtype), boxes[row, k, c]) for c in range(4)]


def _suppress_kernel(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, iou_threshold: float, max_output_size: int
) -> Stmt:
    (boxes, labels, candidates), (out,) = inputs, outputs
    rows, size = candidates.shape
    kept = Buffer("kept", (1,), "int64", "local")

    def line(row: PrimExpr) -> Stmt:
        def against(j: PrimExpr, k: PrimExpr) -> Stmt:
            covers = _overlap(_box(boxes, row, j), _box(boxes, row, k)) >= iou_threshold
            suppressed = labels[row, j].equal(labels[row, k]) & covers
            return store(out, (row, k), out[row, k] & ~suppressed)

        def each(j: PrimExpr) -> Stmt:
            stays = out[row, j] if max_output_size <= 0 else out[row, j] & (kept[0] < max_output_size)
            others = loop("k", size - 1 - j, lambda k: against(j, j + 1 + k))
            return If(stays, seq(store(kept, (0,), kept[0] + 1), others), store(out, (row, j), const(False, "bool")))

        begin = loop("k", size, lambda k: store(out, (row, k), candidates[row, k]))
        return Allocate(kept, seq(begin, store(kept, (0,), as_expr(0)), loop("j", size, each)))

    return Lines((rows, size), 1).each(line)


def _suppress(
    boxes: np.ndarray, labels: np.ndarray, candidates: np.ndarray, *, iou_threshold: float, max_output_size: int
) -> np.ndarray:
    boxes = boxes.astype(wide(boxes.dtype.name))
    result = np.zeros_like(candidates)
    for row, own in enumerate(result):
        for k in np.flatnonzero(candidates[row]):
            before = [j for j in np.flatnonzero(own) if labels[row, j] == labels[row, k]]
            covered = any(overlap_array(boxes[row, j], boxes[row, k]) >= iou_threshold for j in before)
            own[k] = not covered and (max_output_size <= 0 or own.sum() < max_output_size)
    return result


_CORNERS = Floats((2, 9, 4), 0.0, 3.0)
_LABELS = Ints((2, 9), 0, 2)

define(
    "vision.suppress",
    "boxes, labels, candidates | iou_threshold=0.5, max_output_size=-1",
    infer=lambda boxes, *others, **attrs: TensorStructInfo(_suppress_expect("vision.suppress", boxes, *others), "bool"),
    kernel=_suppress_kernel,
    numpy=_suppress,
    gradient=zero_gradient,
    family="detection",
    doc="Which boxes, (R, A, 4), are kept: the candidates (bool, (R, A)) that overlap no box that is kept before\n"
    "them in the row and has the same label, (R, A), by iou_threshold or more; max_output_size of them, where it is\n"
    "positive.",
    samples=[
        sample(_CORNERS, _LABELS, Bools((2, 9)), iou_threshold=0.2),
        sample(_CORNERS, _LABELS, Bools((2, 9)), iou_threshold=0.1, max_output_size=2),
        sample(Floats((3, 2, 4), 0.0, 1.0), Ints((3, 2), 0, 1, "int32"), Bools((3, 2))),
        sample((2, 0, 4), Ints((2, 0), 0, 1), Bools((2, 0))),
    ],
)


def _soft_kernel(
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    *,
    iou_threshold: float,
    max_output_size: int,
    sigma: float,
    score_threshold: float,
) -> Stmt:
    (boxes, scores, labels, candidates), (out,) = inputs, outputs
    rows, size = candidates.shape
    kind = wide(scores.dtype)
    left = Buffer("left", (rows, size), kind, "workspace")  # scores of those that are left
    best, score = Buffer("best", (1,), "int64", "local"), Buffer("score", (1,), kind, "local")
    gone = const(float("-inf"), kind)

    def line(row: PrimExpr) -> Stmt:
        def begin(k: PrimExpr) -> Stmt:
            own = select(candidates[row, k], cast(kind, scores[row, k]), gone)
            return seq(store(left, (row, k), own), store(out, (row, k), const(-1, "int32")))

        def compare(k: PrimExpr) -> Stmt:
            return If(left[row, k] > score[0], seq(store(best, (0,), k), store(score, (0,), left[row, k])), None)

        def decay(chosen: PrimExpr, k: PrimExpr) -> Stmt:
            overlap = Var("overlap", kind)
            factor = call("exp", overlap * overlap * (-0.5 / sigma))
            decayed = select(overlap >= iou_threshold, gone, left[row, k] * factor)
            body = Let(
                overlap,
                cast(kind, _overlap(_box(boxes, row, chosen), _box(boxes, row, k))),
                store(left, (row, k), decayed),
            )
            return If((left[row, k] > gone) & labels[row, chosen].equal(labels[row, k]), body)

        def turn(number: PrimExpr) -> Stmt:
            chosen = Var("chosen")
            take = seq(
                store(out, (row, number), cast("int32", chosen)),
                store(left, (row, chosen), gone),
                loop("k", size, lambda k: decay(chosen, k)),
            )
            look = seq(store(best, (0,), as_expr(-1)), store(score, (0,), const(score_threshold, kind)))
            return seq(look, loop("k", size, compare), Let(chosen, best[0], If(chosen >= 0, take)))

        turns = minimum(as_expr(size), max_output_size) if max_output_size > 0 else size
        return Allocate(best, Allocate(score, seq(loop("k", size, begin), loop("number", turns, turn))))

    return Allocate(left, Lines((rows, size), 1).each(line))


def _soft(
    boxes: np.ndarray,
    scores: np.ndarray,
    labels: np.ndarray,
    candidates: np.ndarray,
    *,
    iou_threshold: float,
    max_output_size: int,
    sigma: float,
    score_threshold: float,
) -> np.ndarray:
    kind = wide(scores.dtype.name)
    result, boxes = np.full(candidates.shape, -1, np.int32), boxes.astype(kind)
    for row, own in enumerate(result):
        left = {int(k): scores.astype(kind)[row, k] for k in np.flatnonzero(candidates[row])}
        for number in range(len(own) if max_output_size <= 0 else min(len(own), max_output_size)):
            left = {k: s for k, s in left.items() if s > score_threshold}
            if not left:
                break
            chosen = max(left, key=lambda k: (left[k], -k))
            own[number] = chosen
            del left[chosen]
            for k in [k for k in left if labels[row, k] == labels[row, chosen]]:
                overlap = overlap_array(boxes[row, chosen], boxes[row, k])
                left[k] = left[k] * left[k].dtype.type(np.exp(-0.5 / sigma * overlap**2))
                if overlap >= iou_threshold:
                    del left[k]
    return result


def _soft_expect(
    boxes: TensorStructInfo, scores: TensorStructInfo, *others: TensorStructInfo, sigma: float, **_: Any
) -> TensorStructInfo:
    shape = _suppress_expect("vision.soft_suppress", boxes, scores, *others)
    expect_same_dtype("vision.soft_suppress", boxes, scores)
    if not sigma > 0:
        raise UserError(f"vision.soft_suppress: sigma must be positive, got {sigma!r}")
    return TensorStructInfo(shape, "int32")


_SCORES = Floats((2, 9), 0.0, 1.0)

define(
    "vision.soft_suppress",
    "boxes, scores, labels, candidates | iou_threshold=0.5, max_output_size=-1, sigma=0.5, score_threshold=0.0",
    infer=_soft_expect,
    kernel=_soft_kernel,
    numpy=_soft,
    gradient=zero_gradient,
    family="detection",
    doc="The places of boxes, (R, A, 4), that are kept, one by one the best that is left, and -1 behind them: (R,\n"
    "A), int32. Each one multiplies the scores of those left that have its label by exp(-overlap² / (2·sigma)), and\n"
    "removes those that overlap it by iou_threshold or more; what is not above score_threshold is not taken, nor are\n"
    "more than max_output_size, where it is positive. Bodla et al., Soft-NMS, ICCV 2017.",
    samples=[
        sample(_CORNERS, _SCORES, _LABELS, Bools((2, 9)), iou_threshold=0.9),
        sample(_CORNERS, _SCORES, _LABELS, Bools((2, 9)), iou_threshold=0.3, sigma=0.1, score_threshold=0.2),
        sample(_CORNERS, _SCORES, _LABELS, Bools((2, 9)), max_output_size=3),
        sample((2, 0, 4), (2, 0), Ints((2, 0), 0, 1), Bools((2, 0))),
    ],
)
