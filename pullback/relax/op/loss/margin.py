"""Losses that compare scores or vectors: rankings, cosines, triplets, classes by margins.

Names, formulas and the order of arguments are those of torch.nn.functional; where max(…, 0) is just 0 its derivative
is 1, as in PyTorch. Half-precision types are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.family import (
    broadcast_shapes,
    composite,
    expect_dtype,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    normalize_axis,
    widened,
)
from pullback.relax.op.index.gather import INDEX_CHECK
from pullback.relax.op.loss.cross_entropy import nll_array
from pullback.relax.op.loss.pointwise import at_least_zero, check_alike, check_positive, pointwise
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import scalar_count
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape

_SIGNS = [1.0, -1.0, -1.0, 1.0, 1.0]


def _floor_at_zero(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, x.dtype.type(0))


pointwise(
    "nn.margin_ranking_loss",
    "x1, x2, targets",
    "margin=0.0",
    element=lambda x1, x2, t, margin: at_least_zero(margin - t * (x1 - x2)),
    numpy=lambda x1, x2, t, margin: _floor_at_zero(x1.dtype.type(margin) - t * (x1 - x2)),
    expect=lambda x1, x2, t, margin: check_alike("nn.margin_ranking_loss", x1=x1, x2=x2, targets=t),
    doc="max(margin - t·(x1 - x2), 0), reduced: the target 1 asks for x1 > x2, -1 for x1 < x2.\n"
    "PyTorch's margin_ranking_loss.",
    samples=[
        sample((5,), (5,), _SIGNS),
        sample((5,), (5,), _SIGNS, reduction="sum", margin=0.5),
        sample((5,), (5,), _SIGNS, reduction="none", margin=1.0),
        sample([1.0, 2.0], [1.0, 3.0], [1.0, 1.0], smooth=False),
    ],
)

# -- cosines


def _check_vectors(name: str, x1: TensorStructInfo, x2: TensorStructInfo) -> None:
    check_alike(name, x1=x1, x2=x2)
    if len(known_shape(name, x1)) not in (1, 2):
        raise ShapeError(f"{name}: x1 must have the shape (N, D) or (D,), got {format_shape(x1.shape)}")


def _cosine_check(x1: TensorStructInfo, x2: TensorStructInfo, *, axis: int, eps: float) -> None:
    name = "nn.cosine_similarity"
    shapes = [known_shape(name, i, label) for label, i in (("x1", x1), ("x2", x2))]
    for label, info in (("x1", x1), ("x2", x2)):
        expect_dtype(name, info, "float", label)
    expect_same_dtype(name, x1, x2)
    normalize_axis(name, axis, len(broadcast_shapes(name, *shapes)))
    check_positive(name, "eps", eps)


def _cosine_similarity(x1: Any, x2: Any, *, axis: int, eps: float, **_: Any) -> Any:
    """The vectors are divided by their lengths, or eps if that is more, before they are multiplied."""
    dtype = x1.dtype
    rank = max(len(x1.shape), len(x2.shape))
    own = normalize_axis("nn.cosine_similarity", axis, rank) - rank
    shape = broadcast_shapes("nn.cosine_similarity", x1.shape, x2.shape)
    a, b = (widened(x if same_shape(x.shape, shape) else ops.broadcast_to(x, shape)) for x in (x1, x2))
    unit = [x / ops.maximum(ops.norm(x, 2.0, own, True), eps) for x in (a, b)]
    return narrowed(ops.sum(unit[0] * unit[1], own), dtype)


def _cosine_array(x1: np.ndarray, x2: np.ndarray, axis: int, eps: float) -> np.ndarray:
    a, b = np.broadcast_arrays(x1, x2)
    lengths = [np.maximum(np.sqrt(np.sum(x * x, axis, keepdims=True)), x1.dtype.type(eps)) for x in (a, b)]
    return np.asarray(np.sum(a / lengths[0] * (b / lengths[1]), axis))


composite(
    "nn.cosine_similarity",
    "x1, x2 | axis=1, eps=1e-8",
    expect=_cosine_check,
    decompose=_cosine_similarity,
    numpy=in_wide(_cosine_array),
    family="loss",
    doc="Σ x1·x2 / (max(|x1|, eps)·max(|x2|, eps)) along an axis of the broadcast tensors.\n"
    "PyTorch's cosine_similarity.",
    samples=[
        sample((3, 5), (3, 5)),
        sample((2, 3, 4), (3, 4), axis=-1),
        sample((5,), (5,), axis=0),
        sample((3, 1, 4), (3, 5, 4), axis=2),
    ],
)


def _cosine_loss_check(x1: TensorStructInfo, x2: TensorStructInfo, targets: TensorStructInfo, margin: float) -> None:
    name = "nn.cosine_embedding_loss"
    _check_vectors(name, x1, x2)
    rows = known_shape(name, x1)[:-1]
    if not same_shape(known_shape(name, targets, "targets"), rows):
        raise ShapeError(f"{name}: targets must have the shape {format_shape(rows)}, got {format_shape(targets.shape)}")
    expect_dtype(name, targets, "number", "targets")


def _cosine_loss(x1: Any, x2: Any, targets: Any, margin: float) -> Any:
    def length(x: Any) -> Any:
        return ops.sum(ops.square(x), -1) + 1e-12

    cosine = ops.sum(x1 * x2, -1) / ops.sqrt(length(x1) * length(x2))
    near = masked(ops.equal(targets, 1), 1.0 - cosine)
    return near + masked(ops.equal(targets, -1), at_least_zero(cosine - margin))


def _cosine_loss_array(x1: np.ndarray, x2: np.ndarray, targets: np.ndarray, margin: float) -> np.ndarray:
    kind = x1.dtype.type
    lengths = [np.sum(x * x, -1) + kind(1e-12) for x in (x1, x2)]
    cosine = np.sum(x1 * x2, -1) / np.sqrt(lengths[0] * lengths[1])
    far = np.where(targets == -1, _floor_at_zero(cosine - kind(margin)), kind(0))
    return np.where(targets == 1, 1 - cosine, far).astype(x1.dtype)


pointwise(
    "nn.cosine_embedding_loss",
    "x1, x2, targets",
    "margin=0.0",
    element=_cosine_loss,
    numpy=_cosine_loss_array,
    expect=_cosine_loss_check,
    doc="1 - cos(x1, x2) where the target is 1, max(cos(x1, x2) - margin, 0) where it is -1, reduced; x1 and x2 are\n"
    "rows of vectors, (N, D), with a target for each, (N,), or vectors. PyTorch's cosine_embedding_loss.",
    samples=[
        sample((5, 4), (5, 4), [1.0, -1.0, -1.0, 1.0, -1.0], smooth=False),
        sample((5, 4), (5, 4), Ints((5,), 1, 2), reduction="sum"),
        sample((5, 4), (5, 4), Ints((5,), -1, 0, "int32"), reduction="none", margin=-1.5),
        sample((7,), (7,), Ints((), 1, 2)),
    ],
)

# -- triplets


def _triplet_check(
    anchor: TensorStructInfo, positive: TensorStructInfo, negative: TensorStructInfo, **attrs: Any
) -> None:
    name = "nn.triplet_margin_loss"
    check_alike(name, anchor=anchor, positive=positive, negative=negative)
    if not known_shape(name, anchor):
        raise ShapeError(f"{name}: anchor must have an axis of features, got a scalar")
    check_positive(name, "p", attrs["p"])


def _triplet(anchor: Any, positive: Any, negative: Any, margin: float, p: float, eps: float, swap: bool) -> Any:
    def distance(x: Any, y: Any) -> Any:
        return ops.norm(x - y + eps, p, -1)

    far = distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return at_least_zero(distance(anchor, positive) - far + margin)


def _triplet_array(
    anchor: np.ndarray, positive: np.ndarray, negative: np.ndarray, margin: float, p: float, eps: float, swap: bool
) -> np.ndarray:
    def distance(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.linalg.norm(x - y + x.dtype.type(eps), p, -1), x.dtype)

    far = distance(anchor, negative)
    if swap:
        far = np.minimum(far, distance(positive, negative))
    return _floor_at_zero(distance(anchor, positive) - far + anchor.dtype.type(margin))


pointwise(
    "nn.triplet_margin_loss",
    "anchor, positive, negative",
    "margin=1.0, p=2.0, eps=1e-6, swap=False",
    element=_triplet,
    numpy=_triplet_array,
    expect=_triplet_check,
    doc="max(d(anchor, positive) - d(anchor, negative) + margin, 0), reduced, with d(x, y) = |x - y + eps| in the\n"
    "norm p along the last axis; swap takes d(positive, negative) where that is less. PyTorch's triplet_margin_loss.",
    samples=[
        sample((5, 4), (5, 4), (5, 4), margin=20.0),
        sample((5, 4), (5, 4), (5, 4), margin=20.0, p=1.0, reduction="sum"),
        sample((2, 3, 4), (2, 3, 4), (2, 3, 4), margin=20.0, p=3.0, swap=True, reduction="none"),
        sample((7,), (7,), (7,), margin=20.0, swap=True),
        sample((5, 4), (5, 4), (5, 4)),
    ],
)

# -- classes


def _multi_margin_check(
    predictions: TensorStructInfo, targets: TensorStructInfo, weights: TensorStructInfo | None = None, **attrs: Any
) -> None:
    name = "nn.multi_margin_loss"
    shape = known_shape(name, predictions, "predictions")
    expect_dtype(name, predictions, "float", "predictions")
    expect_dtype(name, targets, "integer", "targets")
    if len(shape) not in (1, 2):
        raise ShapeError(f"{name}: predictions must have the shape (N, C) or (C,), got {format_shape(shape)}")
    if not same_shape(known_shape(name, targets, "targets"), shape[:-1]):
        wanted, got = format_shape(shape[:-1]), format_shape(targets.shape)
        raise ShapeError(f"{name}: targets must have the shape {wanted}, got {got}")
    if weights is not None:
        if not same_shape(known_shape(name, weights, "weights"), shape[-1:]):
            wanted, got = format_shape(shape[-1:]), format_shape(weights.shape)
            raise ShapeError(f"{name}: weights must have the shape {wanted}, got {got}")
        expect_same_dtype(name, predictions, weights)
    if attrs["p"] not in (1, 2):
        raise UserError(f"{name}: p must be 1 or 2, got {attrs['p']!r}")


_NEVER_IGNORED = -(2**63)


def _multi_margin(x: Any, targets: Any, weights: Any = None, *, p: int, margin: float) -> Any:
    classes = x.shape[-1]
    hot = ops.one_hot(targets, True, False, classes, -1, "bool")
    own = -ops.nn.nll_loss(x, targets, reduction="none", ignore_index=_NEVER_IGNORED)  # checks the targets, too
    excess = ops.nn.relu(x - ops.expand_dims(own, -1) + margin)
    each = ops.sum(masked(ops.logical_not(hot), excess if p == 1 else ops.square(excess)), -1)
    if weights is not None:
        each = each * ops.take(weights, targets, 0, "clip")
    return each / scalar_count(x, -1)


def _multi_margin_array(
    x: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None, *, p: int, margin: float
) -> np.ndarray:
    classes = x.shape[-1]
    own = -nll_array("nn.nll_loss", x, targets, None, "none", _NEVER_IGNORED)
    excess = _floor_at_zero(x - own[..., None] + x.dtype.type(margin)) ** p
    each = np.sum(np.where(np.arange(classes) == targets[..., None], x.dtype.type(0), excess), -1)
    return (each if weights is None else each * weights[targets]) / x.dtype.type(classes)


pointwise(
    "nn.multi_margin_loss",
    "predictions, targets, weights?",
    "p=1, margin=1.0",
    element=_multi_margin,
    numpy=_multi_margin_array,
    expect=_multi_margin_check,
    doc="w[t]·Σ max(margin - x[t] + x[c], 0)ᵖ / C over the classes c other than the target t, reduced, for\n"
    "predictions x of shape (N, C) or (C,), integer targets of shape (N,) or (), and p 1 or 2.\n"
    "PyTorch's multi_margin_loss.",
    samples=[
        sample((5, 4), Ints((5,), 0, 4)),
        sample((5, 4), Ints((5,), 0, 4), Floats((4,), 0.5, 2.0), reduction="sum"),
        sample((5, 4), Ints((5,), 0, 4, "int32"), p=2, margin=0.5, reduction="none"),
        sample((4,), Ints((), 0, 4)),
        sample([[1.0, 0.0, 2.0]], Ints((1,), 0, 1), smooth=False),
    ],
)

# -- several labels


def _multilabel_check(predictions: TensorStructInfo, targets: TensorStructInfo) -> None:
    name = "nn.multilabel_margin_loss"
    shape = known_shape(name, predictions, "predictions")
    expect_dtype(name, predictions, "float", "predictions")
    expect_dtype(name, targets, "integer", "targets")
    if len(shape) not in (1, 2):
        raise ShapeError(f"{name}: predictions must have the shape (N, C) or (C,), got {format_shape(shape)}")
    if not same_shape(known_shape(name, targets, "targets"), shape):
        wanted, got = format_shape(shape), format_shape(targets.shape)
        raise ShapeError(f"{name}: targets must have the shape {wanted}, got {got}")


def _multilabel_margin(x: Any, targets: Any) -> Any:
    count = x.shape[-1]
    labels = ops.astype(targets, "int64")
    given = ops.equal(ops.cumsum(ops.astype(ops.less(labels, 0), "int32"), -1), 0)  # up to the first that is negative
    labels = ops.where(given, labels, 0)
    own = ops.expand_dims(ops.gather_elements(x, labels, -1), -1)
    hot = ops.logical_and(ops.equal(ops.expand_dims(labels, -1), ops.arange(count)), ops.expand_dims(given, -1))
    others = ops.expand_dims(ops.logical_not(ops.any(hot, -2)), -2)
    excess = ops.nn.relu(1.0 - own + ops.expand_dims(x, -2))
    counted = ops.logical_and(ops.expand_dims(given, -1), others)
    return ops.sum(masked(counted, excess), (-2, -1)) / scalar_count(x, -1)


def _multilabel_margin_array(x: np.ndarray, targets: np.ndarray) -> np.ndarray:
    each = np.zeros(x.shape[:-1], x.dtype)
    for at in np.ndindex(x.shape[:-1]):
        row, own = x[at], targets[at]
        labels = own[: np.argmax(own < 0)] if np.any(own < 0) else own
        if np.any(labels >= len(row)):
            raise UserError(INDEX_CHECK)
        others = [c for c in range(len(row)) if c not in labels]
        for label in labels:
            each[at] += np.sum(_floor_at_zero(x.dtype.type(1) - row[label] + row[others]))
    return each / x.dtype.type(x.shape[-1])


pointwise(
    "nn.multilabel_margin_loss",
    "predictions, targets",
    element=_multilabel_margin,
    numpy=_multilabel_margin_array,
    expect=_multilabel_check,
    te=None,
    doc="Σ max(1 - x[t] + x[c], 0) / C over the labels t and the classes c that are none of them, reduced, for\n"
    "predictions x of shape (N, C) or (C,) and integer targets of the same shape: the labels of a row stand before\n"
    "its first negative number. PyTorch's multilabel_margin_loss.",
    samples=[
        sample((5, 4), Ints((5, 4), -1, 4)),
        sample((5, 4), Ints((5, 4), 0, 2), reduction="sum"),
        sample((3, 6), Ints((3, 6), -2, 6, "int32"), reduction="none"),
        sample((4,), Ints((4,), 1, 3)),
        sample([[1.0, 0.0, 2.0]], Ints((1, 3), 0, 1), smooth=False),
    ],
)


def _multilabel_soft_check(predictions: TensorStructInfo, targets: TensorStructInfo, *weights: Any) -> None:
    name = "nn.multilabel_soft_margin_loss"
    check_alike(name, predictions=predictions, targets=targets)
    if not known_shape(name, predictions):
        raise ShapeError(f"{name}: predictions must have an axis of classes, got a scalar")
    for weight in weights:
        if not same_shape(known_shape(name, weight, "weights"), predictions.sizes[-1:]):
            wanted, got = format_shape(predictions.sizes[-1:]), format_shape(weight.shape)
            raise ShapeError(f"{name}: weights must have the shape {wanted}, got {got}")
        expect_same_dtype(name, predictions, weight)


def _multilabel_soft_margin(x: Any, targets: Any, weights: Any = None) -> Any:
    each = ops.nn.binary_cross_entropy_with_logits(x, targets, reduction="none")
    return ops.mean(each if weights is None else each * weights, -1)


def _multilabel_soft_array(x: np.ndarray, targets: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    each = targets * np.logaddexp(x.dtype.type(0), -x) + (1 - targets) * np.logaddexp(x.dtype.type(0), x)
    return np.asarray(np.mean(each if weights is None else each * weights, -1), x.dtype)


pointwise(
    "nn.multilabel_soft_margin_loss",
    "predictions, targets, weights?",
    element=_multilabel_soft_margin,
    numpy=_multilabel_soft_array,
    expect=_multilabel_soft_check,
    doc="The mean along the last axis of -w·(t·log s + (1 - t)·log(1 - s)) with s = sigmoid(x), reduced, for\n"
    "predictions x and targets t of one shape, and weights w, one for each class. PyTorch's\n"
    "multilabel_soft_margin_loss.",
    samples=[
        sample((5, 4), Floats((5, 4), 0.0, 1.0)),
        sample((5, 4), Floats((5, 4), 0.0, 1.0), Floats((4,), 0.5, 2.0), reduction="sum"),
        sample((2, 3, 4), Floats((2, 3, 4), 0.0, 1.0), reduction="none"),
        sample((4,), Floats((4,), 0.0, 1.0), Floats((4,), 0.5, 2.0)),
    ],
)
