"""Losses of predictions that have an axis of classes."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.relax import op
from pullback.relax.expr import Expr, const
from pullback.relax.struct_info import (
    Dim,
    StructInfo,
    TensorStructInfo,
    as_tensor,
    format_info,
    format_shape,
    same_shape,
)
from pullback.relax.training.loss.base import Loss, check_alike, check_float, class_axis, tensor_info
from pullback.tir.expr import FLOATS, INTEGERS
from pullback.tir.polynomial import same


class CrossEntropyLoss(Loss):
    """-log of the softmax of the right class: log_softmax, then nll_loss.

    ``predictions`` are logits of a float dtype, (C,), (N, C) or (N, C, d…): the class axis is the second, or the only
    one. ``targets`` are either class indices of an integer dtype, (), (N,) or (N, d…), or, when their rank equals the
    predictions', a probability for each class in the predictions' shape: floats, or integers for a one-hot target. A
    target equal to ``ignore_index`` counts for nothing, in the mean's divisor too. ``weights`` are a factor for each
    class, (C,).

    Formula: ``torch.nn.CrossEntropyLoss``. With indices t and weights w, row n has l[n] = -w[t[n]] ·
    log_softmax(p[n])[t[n]], and the mean is Σ l[n] / Σ w[t[n]]. With probabilities q, l[n] = -Σ_c w[c] · q[n, c] ·
    log_softmax(p[n])[c], and the mean divides by the number of rows (all positions but the class axis). With
    ``label_smoothing`` e, a target is (1 - e) of what it is and e of the uniform distribution.
    """

    classification = True
    shared_targets = ("weights",)

    def __init__(self, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        _check_ignore_index(ignore_index)
        if isinstance(label_smoothing, bool) or not isinstance(label_smoothing, (int, float)):
            raise ArgumentError(f"label_smoothing must be a number, got {label_smoothing!r}")
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(f"label_smoothing must be from 0 to 1, got {label_smoothing!r}")
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def expression(self, predictions: Expr, targets: Expr, weights: Expr | None = None) -> Expr:
        axis = _check_logits(type(self).__name__, predictions, weights)
        if _is_indices(type(self).__name__, predictions, targets, axis):
            return self._of_indices(predictions, targets, weights, axis)
        if self.ignore_index >= 0:
            raise ArgumentError(
                f"{type(self).__name__}: ignore_index={self.ignore_index} needs targets that are class indices,"
                f" got probabilities {format_info(targets.struct_info)}",
                hint="use CategoricalCrossEntropyLoss for one-hot targets with an ignored class",
            )
        return self._of_probabilities(predictions, targets, weights, axis)

    def unreduced(self, *variables: Expr) -> tuple[Expr, Expr | None]:
        terms, _ = super().unreduced(*variables)
        predictions, targets, *weights = variables
        axis = class_axis(as_tensor(predictions.struct_info).ndim)
        if _is_indices(type(self).__name__, predictions, targets, axis):
            return terms, _counts(predictions, targets, weights, self.ignore_index)
        return terms, None

    def _of_indices(self, predictions: Expr, targets: Expr, weights: Expr | None, axis: int) -> Expr:
        if self.label_smoothing:
            return self._smoothed(predictions, targets, weights)
        return op.nn.nll_loss(_log_softmax(predictions, axis), targets, weights, self._reduction, self.ignore_index)

    def _smoothed(self, predictions: Expr, targets: Expr, weights: Expr | None) -> Expr:
        return op.nn.cross_entropy(
            predictions, targets, weights, self._reduction, self.ignore_index, self.label_smoothing
        )

    def _of_probabilities(self, predictions: Expr, targets: Expr, weights: Expr | None, axis: int) -> Expr:
        probabilities = targets if targets.dtype == predictions.dtype else op.astype(targets, predictions.dtype)
        if self.label_smoothing:
            return self._smoothed(predictions, probabilities, weights)
        products = op.multiply(_log_softmax(predictions, axis), probabilities)
        if weights is not None:
            rank = as_tensor(predictions.struct_info).ndim
            along_axis = op.reshape(weights, tuple(-1 if k == axis else 1 for k in range(rank)))
            products = op.multiply(products, along_axis)
        return self._with_reduction(op.negative(op.sum(products, axis)))


class CategoricalCrossEntropyLoss(CrossEntropyLoss):
    """:class:`CrossEntropyLoss` for targets that are one-hot or probabilities, in the shape of the predictions.

    With ``ignore_index`` ≥ 0, the class of a target is the one of its largest value, and rows of the class
    ``ignore_index`` count for nothing. The mean divides by the number of rows, as in PyTorch.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        ignore_index: targets of this class count for nothing.
        label_smoothing: in [0, 1]: how much of the target is spread evenly over all classes.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100, label_smoothing: float = 0.0) -> None:
        super().__init__(reduction, ignore_index, label_smoothing)
        self._loss_name = "categorical_cross_entropy_loss"

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return [predictions]

    def expression(self, predictions: Expr, targets: Expr, weights: Expr | None = None) -> Expr:
        axis = _check_logits(type(self).__name__, predictions, weights)
        if _is_indices(type(self).__name__, predictions, targets, axis):
            raise ShapeError(
                f"{type(self).__name__}: targets must be one-hot or probabilities in the predictions' shape"
                f" {format_shape(predictions.shape)}, got {format_info(targets.struct_info)}",
                hint="use CrossEntropyLoss for class indices",
            )
        if self.ignore_index >= 0:
            return self._of_indices(predictions, op.argmax(targets, axis), weights, axis)
        return self._of_probabilities(predictions, targets, weights, axis)

    def unreduced(self, *variables: Expr) -> tuple[Expr, Expr | None]:
        terms, _ = super().unreduced(*variables)
        predictions, targets, *weights = variables
        if self.ignore_index < 0:
            return terms, None
        classes = op.argmax(targets, class_axis(as_tensor(predictions.struct_info).ndim))
        return terms, _counts(predictions, classes, weights, self.ignore_index)


class NLLLoss(Loss):
    """-weights[t] · p[n, t] for the right class t: the negative log-likelihood of log-probabilities.

    Types and reductions are those of :class:`CrossEntropyLoss` with class indices; ``predictions`` are logarithms of
    probabilities, as ``R.nn.log_softmax`` gives them. Formula: ``torch.nn.NLLLoss``.
    """

    classification = True
    shared_targets = ("weights",)

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("nll_loss", 1, reduction)
        _check_ignore_index(ignore_index)
        self.ignore_index = ignore_index

    def expression(self, predictions: Expr, targets: Expr, weights: Expr | None = None) -> Expr:
        _check_logits(type(self).__name__, predictions, weights)
        return op.nn.nll_loss(predictions, targets, weights, self._reduction, self.ignore_index)

    def unreduced(self, *variables: Expr) -> tuple[Expr, Expr | None]:
        predictions, targets, *weights = variables
        return super().unreduced(*variables)[0], _counts(predictions, targets, weights, self.ignore_index)


class MultiMarginLoss(Loss):
    """weights[t] · Σ max(margin - p[t] + p[c], 0)ᵖ / C over the classes c other than the right class t.

    ``predictions`` are scores of a float dtype, (N, C) or (C,); ``targets`` are class indices, (N,) or (); ``p`` is 1
    or 2. Formula: ``torch.nn.MultiMarginLoss``.
    """

    classification = True
    shared_targets = ("weights",)

    def __init__(self, reduction: str = "mean", p: int = 1, margin: float = 1.0) -> None:
        super().__init__("multi_margin_loss", 1, reduction)
        self.p, self.margin = p, margin

    def expression(self, predictions: Expr, targets: Expr, weights: Expr | None = None) -> Expr:
        _check_logits(type(self).__name__, predictions, weights)
        return op.nn.multi_margin_loss(predictions, targets, weights, self._reduction, self.p, self.margin)


class MultiLabelMarginLoss(Loss):
    """Σ max(1 - p[t] + p[c], 0) / C over the labels t of a row and the classes c that are none of them.

    ``predictions`` are scores of a float dtype, (N, C) or (C,); ``targets`` are class indices of an integer dtype in
    the same shape: the labels of a row stand before its first negative number. Formula:
    ``torch.nn.MultiLabelMarginLoss``.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("multilabel_margin_loss", 1, reduction)

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return [TensorStructInfo(predictions.shape, "int64")]

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        return op.nn.multilabel_margin_loss(predictions, targets, self._reduction)


class MultiLabelSoftMarginLoss(Loss):
    """The mean over classes of -w · (t · log s + (1 - t) · log(1 - s)) with s = sigmoid(p).

    ``predictions`` are logits of a float dtype, (…, C); ``targets`` are of the same type, 1 for each class that a row
    belongs to, else 0; ``weights`` are a factor for each class, (C,). Formula: ``torch.nn.MultiLabelSoftMarginLoss``.
    """

    shared_targets = ("weights",)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("multilabel_soft_margin_loss", 1, reduction)

    def expression(self, predictions: Expr, targets: Expr, weights: Expr | None = None) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.multilabel_soft_margin_loss(predictions, targets, weights, self._reduction)


def _counts(predictions: Expr, targets: Expr, weights: list[Expr], ignore_index: int) -> Expr:
    """What each target counts: the weight of its class, or 0 where it is ignored; the loss of logarithms of -1."""
    ones = op.full_like(predictions, const(-1.0, predictions.dtype))
    return op.nn.nll_loss(ones, targets, weights[0] if weights else None, "none", ignore_index)


def _check_ignore_index(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"ignore_index must be an int, got {value!r}", hint="such as -100, which no class has")


def _log_softmax(predictions: Expr, axis: int) -> Expr:
    """The log softmax along the class axis, which is written -1 when it is the last, as TVM does."""
    is_last = axis == as_tensor(predictions.struct_info).ndim - 1
    return op.nn.log_softmax(predictions, -1 if is_last else axis)


def _check_logits(loss: str, predictions: Expr, weights: Expr | None) -> int:
    """Predictions and weights are right; returns the class axis."""
    prediction = tensor_info(loss, predictions)
    check_float(loss, predictions, prediction)
    if prediction.ndim == 0:
        raise ShapeError(f"{loss}: predictions need a class axis, got a scalar")
    axis = class_axis(prediction.ndim)
    classes: Dim = prediction.sizes[axis]
    if weights is not None:
        weight = tensor_info(loss, weights)
        if weight.ndim != 1 or not same(weight.sizes[0], classes) or weight.dtype != prediction.dtype:
            wanted = format_info(TensorStructInfo((classes,), prediction.dtype))
            raise ShapeError(
                f"{loss}: weights must be one factor for each class, {wanted}, got {format_info(weight)}",
                hint='such as np.ones(10, "float32") for ten classes',
            )
    return axis


def _is_indices(loss: str, predictions: Expr, targets: Expr, axis: int) -> bool:
    """Whether the targets are class indices (else they are probabilities); an error when they can be neither."""
    prediction, target = tensor_info(loss, predictions), tensor_info(loss, targets)
    shape = prediction.sizes
    rows = (*shape[:axis], *shape[axis + 1 :])
    if target.ndim == prediction.ndim:
        if not same_shape(shape, target.sizes):
            raise ShapeError(
                f"{loss}: targets of the predictions' rank are probabilities and need their shape"
                f" {format_shape(shape)}, got {format_shape(target.shape)}",
                hint=f"class indices have the shape {format_shape(rows)}",
            )
        if target.dtype not in FLOATS + INTEGERS:
            raise DTypeError(f"{loss}: one-hot targets must be floats or integers, got {target.dtype}")
        return False
    if not same_shape(rows, target.sizes):
        raise ShapeError(
            f"{loss}: targets must be class indices of shape {format_shape(rows)} or probabilities of shape"
            f" {format_shape(shape)}, got {format_shape(target.shape)}",
            hint="class indices are one int a row: labels of shape (N, 1) need reshape(-1), one-hot ones argmax(1)",
        )
    if target.dtype not in INTEGERS:
        raise DTypeError(f"{loss}: class indices must have an integer dtype, got {target.dtype}", hint="such as int64")
    return True
