"""Losses of classes: of class indices, and of a probability for each class.

Half-precision types are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.expr import const
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    rule_in_wide,
    wide,
    widened,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.softmax import log_softmax_array
from pullback.relax.op.reduction.reduce import all_of, count, scalar_count, te_cast, te_sum
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, format_shape, same_shape
from pullback.tir.expr import INTEGERS

# -- losses on class indices

_REDUCTIONS = ("mean", "sum", "none")


def _class_axis(predictions: Any) -> int:
    return 1 if len(predictions.shape) > 1 else 0


def _nll_infer(name: str) -> Any:
    def infer(
        predictions: TensorStructInfo,
        targets: TensorStructInfo,
        weights: TensorStructInfo | None = None,
        *,
        reduction: str,
        ignore_index: int,
    ) -> TensorStructInfo:
        if reduction not in _REDUCTIONS:
            raise UserError(f"{name}: reduction must be one of {', '.join(map(repr, _REDUCTIONS))}, got {reduction!r}")
        expect_int(name, "ignore_index", ignore_index)
        shape, given = known_shape(name, predictions, "predictions"), known_shape(name, targets, "targets")
        expect_dtype(name, predictions, "float", "predictions")
        expect_dtype(name, targets, "integer", "targets")
        if not shape:
            raise ShapeError(f"{name}: predictions must have the shape (C,) or (N, C, d…), got ()")
        axis = _class_axis(predictions)
        expected = (*shape[:axis], *shape[axis + 1 :])
        if not same_shape(given, expected):
            raise ShapeError(
                f"{name}: targets must have the shape {format_shape(expected)}, got {format_shape(given)}",
                hint=f"predictions have the shape {format_shape(shape)}, their classes along axis {axis}",
            )
        if weights is not None:
            if not same_shape(known_shape(name, weights, "weights"), (shape[axis],)):
                wanted, got = format_shape((shape[axis],)), format_shape(weights.shape)
                raise ShapeError(f"{name}: weights must have the shape {wanted}, got {got}")
            expect_same_dtype(name, predictions, weights)
        return TensorStructInfo(given if reduction == "none" else (), predictions.dtype)

    return infer


def te_nll(
    logs: te.Tensor, targets: te.Tensor, weights: te.Tensor | None, reduction: str, ignore_index: int
) -> te.Tensor:
    """-Σ w·logs[target] / Σ w in the accumulator's type; an ignored target reads a valid element and counts 0. So
    does one of weight 0, whatever its log is."""
    axis = 1 if logs.ndim > 1 else 0
    kind, classes = wide(logs.dtype), tir.as_expr(logs.shape[axis])

    def target(i: Sequence[tir.PrimExpr]) -> tuple[tir.PrimExpr, tir.PrimExpr]:
        t = tir.cast("int64", targets[tuple(i)])
        return t.not_equal(ignore_index), tir.maximum(tir.minimum(t, classes - 1), 0)

    def weight(*i: tir.PrimExpr) -> tir.PrimExpr:
        valid, t = target(i)
        return tir.select(valid, tir.const(1, kind) if weights is None else tir.cast(kind, weights[t]), 0.0)

    def loss(*i: tir.PrimExpr) -> tir.PrimExpr:
        valid, t = target(i)
        log = tir.cast(kind, logs[(*i[:axis], t, *i[axis:])])
        return tir.select(valid, -(log if weights is None else tir.call("multiply_no_nan", log, w[i])), 0.0)

    w = te.compute(targets.shape, weight, "weight")
    each = te.compute(targets.shape, loss, "loss")
    if reduction == "none":
        return each
    axes = range(targets.ndim)
    total = te_sum(each, axes, False)
    if reduction == "sum":
        return total
    divisor = te_sum(w, axes, False)
    return te.compute((), lambda: total[()] / divisor[()], "mean")


_TARGET_CHECK = "a target is neither a class, 0 … C - 1, nor ignore_index"


def nll_array(
    name: str, logs: np.ndarray, targets: np.ndarray, weights: np.ndarray | None, reduction: str, ignore_index: int
) -> np.ndarray:
    axis = 1 if logs.ndim > 1 else 0
    classes = logs.shape[axis]
    valid = targets != ignore_index
    if not np.all(~valid | ((targets >= 0) & (targets < classes))):
        raise UserError(f"{name}: {_TARGET_CHECK}")
    index = np.where(valid, targets, 0).astype(np.int64)
    w = np.where(valid, logs.dtype.type(1) if weights is None else weights[index], logs.dtype.type(0))
    picked = np.squeeze(np.take_along_axis(logs, np.expand_dims(index, axis), axis), axis)
    each = np.where(valid & (w != 0), -picked * w, logs.dtype.type(0))
    if reduction == "none":
        return each
    total = np.sum(each, dtype=logs.dtype)
    if reduction == "sum":
        return total
    with np.errstate(invalid="ignore"):
        return total / np.sum(w, dtype=logs.dtype)


def _target_check(
    predictions: te.Tensor, targets: te.Tensor, weights: te.Tensor | None = None, *, reduction: str, ignore_index: int
) -> te.Tensor:
    classes = tir.as_expr(predictions.shape[1 if predictions.ndim > 1 else 0])

    def valid(*i: tir.PrimExpr) -> tir.PrimExpr:
        t = tir.cast("int64", targets[i])
        return ((t >= 0) & (t < classes)) | t.equal(ignore_index)

    return all_of(te.compute(targets.shape, valid, "valid"))


class _Targets:
    """What losses of class indices need, in the shape of the targets unless said otherwise."""

    def __init__(
        self, dy: Any, predictions: Any, targets: Any, weights: Any, reduction: str, ignore_index: int
    ) -> None:
        self.axis = _class_axis(predictions)
        self.classes: Dim = predictions.shape[self.axis]
        self.index = targets if targets.dtype == "int64" else ops.astype(targets, "int64")
        self.valid = ops.not_equal(self.index, ignore_index)
        if weights is None:
            self.weight = ops.astype(self.valid, predictions.dtype)
        else:
            self.weight = masked(self.valid, ops.take(weights, self.index, 0, "clip"))
        self.total = ops.sum(self.weight)
        self.scale = self.per_total(dy) if reduction == "mean" else dy

    def per_total(self, value: Any) -> Any:
        """A scalar divided by the sum of the weights; 0 where nothing counts."""
        counts = ops.not_equal(self.total, 0.0)
        return masked(counts, value / ops.where(counts, self.total, ops.ones_like(self.total)))

    def over_classes(self, value: Any) -> Any:
        """A value in the shape of the targets, with an axis of size 1 where the classes are."""
        return ops.expand_dims(value, self.axis)

    def hot(self, on: Any, off: Any, dtype: str) -> Any:
        """One-hot targets, in the shape of the predictions."""
        return ops.one_hot(self.index, on, off, self.classes, self.axis, dtype)


def _weights_adjoint(t: _Targets, y: Any, logs: Any, reduction: str) -> Any:
    picked = ops.sum(masked(t.hot(True, False, "bool"), logs), t.axis)
    each = -(picked + y if reduction == "mean" else picked) * t.scale
    return ops.take_gradient(masked(t.valid, each), t.index, t.classes, 0, "clip")


def _nll_gradient(
    dy: Any, y: Any, predictions: Any, targets: Any, weights: Any = None, *, reduction: str, ignore_index: int
) -> tuple[Any, ...]:
    t = _Targets(dy, predictions, targets, weights, reduction, ignore_index)
    chosen = ops.logical_and(t.hot(True, False, "bool"), t.over_classes(t.valid))
    dx = masked(chosen, t.over_classes(-(t.weight * t.scale)))
    return (dx, None) if weights is None else (dx, None, _weights_adjoint(t, y, predictions, reduction))


def _nll_divisor(predictions: Any, targets: Any, weights: Any = None, *, reduction: str, ignore_index: int) -> Any:
    """The sum of the weights of the targets that count."""
    if reduction == "sum":
        return 1
    weights = None if weights is None else widened(weights)
    return _Targets(None, widened(predictions), targets, weights, "sum", ignore_index).total


_NLL_SAMPLES = [
    sample((5, 4), Ints((5,), 0, 4)),
    sample((5, 4), Ints((5,), 0, 4, "int32"), Floats((4,), 0.5, 2.0)),
    sample((2, 3, 4), Ints((2, 4), 0, 3), Floats((3,), 0.5, 2.0), reduction="sum"),
    sample((2, 3, 2, 2), Ints((2, 2, 2), 0, 3), reduction="none"),
    sample((5, 3), Ints((5,), 0, 3), Floats((3,), 0.5, 2.0), reduction="none", ignore_index=1),
    sample((9, 3), Ints((9,), 0, 3), Floats((3,), 0.5, 2.0), ignore_index=1),
    sample((9, 3), Ints((9,), 0, 3), ignore_index=2),
    sample((4,), Ints((), 0, 4)),
    sample((1, 1), Ints((1,), 0, 1)),
    sample((0, 3), Ints((0,), 0, 3), reduction="sum"),
]

define(
    "nn.nll_loss",
    "predictions, targets, weights? | reduction='mean', ignore_index=-100",
    infer=_nll_infer("nn.nll_loss"),
    te=lambda predictions, targets, weights=None, *, reduction, ignore_index: te_cast(
        te_nll(predictions, targets, weights, reduction, ignore_index), predictions.dtype
    ),
    numpy=in_wide(
        lambda predictions, targets, weights=None, *, reduction, ignore_index: nll_array(
            "nn.nll_loss", predictions, targets, weights, reduction, ignore_index
        )
    ),
    gradient=rule_in_wide(_nll_gradient),
    divisor=_nll_divisor,
    check=_target_check,
    check_message=f"nn.nll_loss: {_TARGET_CHECK}",
    family="class loss",
    doc="The negative log-likelihood: -w[t]·predictions[n, t, d…] with t = targets[n, d…], for log-probabilities of\n"
    "shape (N, C, d…) or (C,), integer targets of shape (N, d…) or () and optional class weights of shape (C,).\n"
    "'mean' divides the sum by Σ w[t]; 'none' does not reduce. A target equal to ignore_index, or of a class of\n"
    "weight 0, counts nothing, even where its prediction is infinite or NaN; any\n"
    "other outside 0 … C - 1 is an error. PyTorch's nll_loss.",
    samples=_NLL_SAMPLES,
)


# -- cross entropy: of class indices or of a probability for each class


def _of_indices(targets: Any) -> bool:
    return targets.dtype in INTEGERS


def _cross_entropy_expect(
    predictions: TensorStructInfo,
    targets: TensorStructInfo,
    weights: TensorStructInfo | None = None,
    *,
    label_smoothing: float,
    **attrs: Any,
) -> None:
    name = "nn.cross_entropy"
    if not 0 <= label_smoothing <= 1:
        raise UserError(f"{name}: label_smoothing must be a number from 0 to 1, got {label_smoothing!r}")
    shape, given = known_shape(name, predictions, "predictions"), known_shape(name, targets, "targets")
    expect_dtype(name, targets, "number", "targets")
    indices = TensorStructInfo(given, "int64")
    if not _of_indices(targets):
        if not same_shape(given, shape):
            hint = "class indices have an integer dtype, and no axis of classes"
            wanted, got = format_shape(shape), format_shape(given)
            raise ShapeError(f"{name}: probabilities must have the shape {wanted}, got {got}", hint=hint)
        expect_same_dtype(name, predictions, targets)
        if attrs["ignore_index"] >= 0:
            raise UserError(f"{name}: ignore_index={attrs['ignore_index']} needs targets that are class indices")
        axis = _class_axis(predictions)
        indices = TensorStructInfo((*shape[:axis], *shape[axis + 1 :]), "int64")
    _nll_infer(name)(predictions, indices, *(() if weights is None else (weights,)), **attrs)


def _cross_entropy(
    predictions: Any,
    targets: Any,
    weights: Any = None,
    *,
    training: bool,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
    """With e = label_smoothing and log probabilities l, (1 - e)·nll_loss(l, t) - e/C·Σ_c w[c]·l[c] of valid rows."""
    dtype, axis = predictions.dtype, _class_axis(predictions)
    logs = ops.nn.log_softmax(widened(predictions), axis)
    weights = None if weights is None else widened(weights)
    others = [a for a in range(len(predictions.shape)) if a != axis]
    spread = None if weights is None else ops.expand_dims(weights, others) if others else weights
    share = 1.0 / scalar_count(logs, axis)
    if not _of_indices(targets):
        probabilities = widened(targets)
        if label_smoothing:
            probabilities = probabilities * (1.0 - label_smoothing) + share * label_smoothing
        products = ops.multiply_no_nan(logs, probabilities)
        each = -ops.sum(products if spread is None else ops.multiply_no_nan(products, spread), axis)
        return narrowed(_reduced(each, reduction), dtype)
    loss = ops.nn.nll_loss(logs, targets, weights, reduction, ignore_index)
    if label_smoothing:
        t = _Targets(const(1.0, logs.dtype), logs, targets, weights, "sum", ignore_index)
        each = masked(t.valid, -ops.sum(logs if spread is None else ops.multiply_no_nan(logs, spread), axis))
        smooth = each if reduction == "none" else ops.sum(each)
        smooth = t.per_total(smooth) if reduction == "mean" else smooth
        loss = loss * (1.0 - label_smoothing) + smooth * (share * label_smoothing)
    return narrowed(loss, dtype)


def _reduced(each: Any, reduction: str) -> Any:
    return each if reduction == "none" else ops.sum(each) if reduction == "sum" else ops.mean(each)


def _cross_entropy_divisor(
    predictions: Any, targets: Any, weights: Any = None, *, label_smoothing: float, **attrs: Any
) -> Any:
    """Of class indices the sum of their weights, of probabilities the number of rows."""
    if _of_indices(targets):
        return _nll_divisor(predictions, targets, weights, **attrs)
    others = [a for a in range(len(predictions.shape)) if a != _class_axis(predictions)]
    return 1 if attrs["reduction"] == "sum" else count(predictions.shape, others)


def _cross_entropy_array(
    predictions: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None = None,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
) -> np.ndarray:
    """The row's Σ_c q[c]·w[c]·-l[c] for the smoothed distribution q of its target, 0 if that is ignored."""
    axis, kind = _class_axis(predictions), predictions.dtype.type
    logs = np.moveaxis(log_softmax_array(predictions, axis), axis, -1)
    classes = logs.shape[-1]
    w = np.ones(classes, kind) if weights is None else weights
    if _of_indices(targets):
        nll_array("nn.cross_entropy", predictions, targets, None, "sum", ignore_index)  # checks the targets
        valid = targets != ignore_index
        index = np.where(valid, targets, 0).astype(np.int64)
        chosen = np.where(valid, w[index], kind(0))
        q = np.eye(classes, dtype=kind)[index]
    else:
        valid, chosen = np.asarray(True), np.ones(logs.shape[:-1], kind)
        q = np.moveaxis(targets, axis, -1)
    q = q * kind(1 - label_smoothing) + kind(label_smoothing) / kind(classes) if label_smoothing else q
    with np.errstate(invalid="ignore"):
        each = np.where(valid, -np.sum(np.where(q * w == 0, kind(0), q * w * logs), -1, dtype=kind), kind(0))
        if reduction == "none":
            return each
        total = np.sum(each, dtype=kind)
        return total if reduction == "sum" else total / np.sum(chosen, dtype=kind)


def _cross_entropy_check(
    predictions: te.Tensor,
    targets: te.Tensor,
    weights: te.Tensor | None = None,
    *,
    label_smoothing: float = 0.0,
    **attrs: Any,
) -> te.Tensor | None:
    return _target_check(predictions, targets, weights, **attrs) if _of_indices(targets) else None


composite(
    "nn.cross_entropy",
    "predictions, targets, weights? | reduction='mean', ignore_index=-100, label_smoothing=0.0",
    expect=_cross_entropy_expect,
    decompose=_cross_entropy,
    numpy=in_wide(_cross_entropy_array),
    divisor=_cross_entropy_divisor,
    check=_cross_entropy_check,
    check_message=f"nn.cross_entropy: {_TARGET_CHECK}",
    family="class loss",
    doc="nll_loss of the log softmax of logits along the class axis (1, or 0 for a single example), with the same\n"
    "arguments. Float targets in the shape of the logits are a probability q for each class: -Σ_c q·w[c]·log_softmax,\n"
    "and 'mean' divides by the number of rows. label_smoothing e takes (1 - e)·q + e/C for q. PyTorch's cross_entropy.",
    samples=[
        *_NLL_SAMPLES,
        sample((5, 4), Ints((5,), 0, 4), label_smoothing=0.1),
        sample((5, 3), Ints((5,), 0, 3), Floats((3,), 0.5, 2.0), ignore_index=1, label_smoothing=0.2),
        sample((2, 3, 4), Ints((2, 4), 0, 3), Floats((3,), 0.5, 2.0), reduction="sum", label_smoothing=1.0),
        sample((2, 3, 4), Ints((2, 4), 0, 3), reduction="none", label_smoothing=0.3),
        sample((5, 4), Floats((5, 4), 0.0, 1.0)),
        sample((5, 4), Floats((5, 4), 0.0, 1.0), Floats((4,), 0.5, 2.0), label_smoothing=0.2),
        sample((2, 3, 4), Floats((2, 3, 4), 0.0, 1.0), Floats((3,), 0.5, 2.0), reduction="sum"),
        sample((2, 3, 4), Floats((2, 3, 4), 0.0, 1.0), reduction="none", label_smoothing=0.1),
        sample((4,), Floats((4,), 0.0, 1.0), Floats((4,), 0.5, 2.0)),
    ],
)

# -- cross entropy with probabilities


def _logits_infer(predictions: TensorStructInfo, labels: TensorStructInfo) -> TensorStructInfo:
    name = "nn.cross_entropy_with_logits"
    a, b = known_shape(name, predictions, "predictions"), known_shape(name, labels, "labels")
    expect_dtype(name, predictions, "float", "predictions")
    if not same_shape(a, b):
        raise ShapeError(
            f"{name}: predictions and labels must have one shape, got {format_shape(a)}, {format_shape(b)}"
        )
    return TensorStructInfo((), expect_same_dtype(name, predictions, labels))


def _logits_te(predictions: te.Tensor, labels: te.Tensor) -> te.Tensor:
    kind = wide(predictions.dtype)
    n = predictions.shape[0] if predictions.ndim > 1 else 1
    product = te.compute(
        predictions.shape, lambda *i: tir.cast(kind, predictions[i]) * tir.cast(kind, labels[i]), "product"
    )
    total = te_sum(product, range(predictions.ndim), False)
    mean = te.compute((), lambda: -(total[()] / tir.cast(kind, tir.as_expr(n))), "cross_entropy")
    return te_cast(mean, predictions.dtype)


def _logits(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    n = predictions.shape[0] if predictions.ndim > 1 else 1
    with np.errstate(invalid="ignore"):
        return -(np.sum(predictions * labels, dtype=predictions.dtype) / predictions.dtype.type(n))


def _logits_gradient(dy: Any, y: Any, predictions: Any, labels: Any) -> tuple[Any, Any]:
    n = predictions.shape[0] if len(predictions.shape) > 1 else 1
    scale = -(dy / (float(n) if isinstance(n, int) else ops.full((), n, dy.dtype)))
    return scale * labels, scale * predictions


define(
    "nn.cross_entropy_with_logits",
    "predictions, labels",
    infer=_logits_infer,
    te=_logits_te,
    numpy=in_wide(_logits),
    gradient=rule_in_wide(_logits_gradient),
    divisor=lambda predictions, labels: predictions.shape[0] if len(predictions.shape) > 1 else 1,
    family="probability loss",
    doc="-Σ predictions·labels / N over all elements, with N the first size (1 for rank 1). As in TVM, the\n"
    "predictions are taken as they are: give it log-probabilities, R.nn.log_softmax(logits).",
    samples=[sample((5, 4), (5, 4)), sample((3,), (3,)), sample((2, 3, 4), (2, 3, 4)), sample((1, 1), (1, 1))],
)
