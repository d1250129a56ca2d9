"""Losses under PyTorch's names, argument order and defaults.

    >>> trainer = pullback.trainer(net, nn.CrossEntropyLoss(label_smoothing=0.1), "adam", example=x_train)

They are those of ``relax.training.loss``, whose first argument is the reduction. Weights are given to the constructor,
and are constants of the program. In a ``forward``, and in a function that computes a loss, a call returns the loss of
graph values: ``nn.MSELoss()(a, b)``. Arguments after ``weight=`` and the like are best given by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pullback.nn.functional.loss import triplet_margin_with_distance_loss
from pullback.relax.expr import Expr
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training import loss as losses
from pullback.relax.training.loss import (
    CategoricalCrossEntropyLoss,
    HingeLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    Loss,
    MSELoss,
    MultiLabelMarginLoss,
    SmoothL1Loss,
    SoftMarginLoss,
)

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CategoricalCrossEntropyLoss", "CosineEmbeddingLoss",
    "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HingeLoss", "HuberLoss", "KLDivLoss", "L1Loss",
    "Loss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _ClassWeights(Loss):
    """A loss with a factor for each class, ``weight``, that is a constant of the program: no argument."""

    weight: Any

    def expression(self, *variables: Any, **named: Any) -> Expr:
        """The loss of predictions and targets."""
        predictions, targets = variables
        weights = losses.constant_like(self.weight, predictions)
        return super().expression(predictions, targets, weights)

    def _parameters(self) -> list[inspect.Parameter]:
        declared = inspect.signature(super().expression).parameters.values()
        return [parameter for parameter in declared if parameter.name != "weights"]


class CrossEntropyLoss(_ClassWeights, losses.CrossEntropyLoss):
    """-log of the softmax of the right class.

    Logits are (C,), (N, C) or (N, C, d…); targets class indices of an integer dtype, (N, d…), or a probability for each
    class in the logits' shape. With indices the mean is Σ weight[t]·l / Σ weight[t], with probabilities that over all
    rows. Formula: ``torch.nn.CrossEntropyLoss``.

    Args:
        weight: a factor for each class, (C,).
        ignore_index: targets of this class count for nothing.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        label_smoothing: in [0, 1]: how much of the target is spread evenly over all classes.

    Examples:
        >>> logits = np.zeros((2, 4), "float32")
        >>> float(nn.CrossEntropyLoss()(logits, np.array([0, 3])))     # log 4
        1.386294...
    """

    def __init__(
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0
    ) -> None:
        super().__init__(reduction, ignore_index, label_smoothing)
        self.weight = losses.factor("weight", weight)


class NLLLoss(_ClassWeights, losses.NLLLoss):
    """-weight[t] · p[n, t] for the right class t, of log-probabilities (N, C, d…) and class indices (N, d…).

    Arguments are those of :class:`CrossEntropyLoss`. Formula: ``torch.nn.NLLLoss``.

    Args:
        weight: a factor for each class, (C,).
        ignore_index: targets of this class count for nothing.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction, ignore_index)
        self.weight = losses.factor("weight", weight)


class BCELoss(losses.BCELoss):
    """-weight·(t·log p + (1 - t)·log(1 - p)) of probabilities p. Formula: ``torch.nn.BCELoss``.

    Args:
        weight: a factor for each element, or of a shape that broadcasts to the prediction's.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction, weight)


class BCEWithLogitsLoss(losses.BCEWithLogitsLoss):
    """-weight·(pos_weight·t·log s + (1 - t)·log(1 - s)) with s = sigmoid(p). Formula: ``torch.nn.BCEWithLogitsLoss``.

    Args:
        weight: a factor for each element: a number or an array that broadcasts to the shape of the logits.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        pos_weight: a factor of the positive terms, in the same form.

    Examples:
        >>> float(nn.BCEWithLogitsLoss()(np.zeros(4, "float32"), np.ones(4, "float32")))     # log 2
        0.693147...
    """

    def __init__(self, weight: Any = None, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(reduction, weight, pos_weight)


class PoissonNLLLoss(losses.PoissonNLLLoss):
    """eᵖ - t·p of logarithms of rates p and counts t; p - t·log(p + eps) of rates.

    Formula: ``torch.nn.PoissonNLLLoss``.

    Args:
        log_input: whether predictions are logarithms of rates.
        full: adds Stirling's approximation of log t! where t > 1.
        eps: what keeps log from 0, of rates.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__(reduction, log_input, full, eps)


class GaussianNLLLoss(losses.GaussianNLLLoss):
    """(log v + (p - t)² / v) / 2 with v = max(variance, eps). Formula: ``torch.nn.GaussianNLLLoss``.

    As a trainer's loss it takes a model of two outputs, p and the variance. Called with graph values, it takes
    PyTorch's order: ``loss(p, target, variance)``.

    Args:
        full: whether the constant (log 2π) / 2 is added.
        eps: the least variance.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction, full, eps)

    def forward(self, input: Any, target: Any, var: Any) -> Expr:
        """The loss of predictions, targets and variances."""
        return self.expression(input, var, target)


class HingeEmbeddingLoss(losses.HingeEmbeddingLoss):
    """p where the target is 1, max(margin - p, 0) where it is -1. Formula: ``torch.nn.HingeEmbeddingLoss``.

    Args:
        margin: the distance from which on there is no loss.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin)


class MarginRankingLoss(losses.MarginRankingLoss):
    """max(margin - t·(x1 - x2), 0) of a model's two outputs x1 and x2. Formula: ``torch.nn.MarginRankingLoss``.

    Args:
        margin: the distance from which on there is no loss.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin)


class CosineEmbeddingLoss(losses.CosineEmbeddingLoss):
    """1 - cos(x1, x2) where the target is 1, max(cos(x1, x2) - margin, 0) where it is -1, of a model's two outputs
    (N, D) and a target for each row. Formula: ``torch.nn.CosineEmbeddingLoss``.

    Args:
        margin: the cosine up to which a pair with the target -1 costs nothing.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction, margin)


class TripletMarginLoss(losses.TripletMarginLoss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) of a model's three outputs, with d(x, y) =
    |x - y + eps| in the norm ``p``; there are no targets. Formula: ``torch.nn.TripletMarginLoss``.

    Args:
        margin: how much farther the negative has to be.
        p: of the p-norm.
        eps: what is added to each difference.
        swap: whether the distance of positive and negative takes the place of that of the anchor, where it is smaller.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction, margin, p, eps, swap)


class TripletMarginWithDistanceLoss(Loss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) of a model's three outputs, with a function d of two
    tensors, by default ``nn.functional.pairwise_distance``; there are no targets. Formula:
    ``torch.nn.TripletMarginWithDistanceLoss``.

    >>> nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: 1.0 - F.cosine_similarity(x, y))

    Args:
        distance_function: of two tensors; by default ``nn.functional.pairwise_distance``.
        margin: how much farther the negative has to be.
        swap: whether the distance of positive and negative takes the place of that of the anchor, where it is smaller.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(
        self, *, distance_function: Callable[[Any, Any], Any] | None = None, margin: float = 1.0, swap: bool = False,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__("triplet_margin_with_distance_loss", 3, reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return []

    def expression(self, anchor: Any, positive: Any, negative: Any) -> Expr:
        return triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function, margin=self.margin, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


class MultiMarginLoss(_ClassWeights, losses.MultiMarginLoss):
    """weight[t] · Σ max(margin - p[t] + p[c], 0)ᵖ / C over the classes c other than the right class t.
    Formula: ``torch.nn.MultiMarginLoss``.

    Args:
        p: 1 or 2.
        margin: by how much the right class has to lead.
        weight: a factor for each class, (C,).
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction, p, margin)
        self.weight = losses.factor("weight", weight)


class MultiLabelSoftMarginLoss(_ClassWeights, losses.MultiLabelSoftMarginLoss):
    """The mean over classes of -weight·(t·log s + (1 - t)·log(1 - s)) with s = sigmoid(p).
    Formula: ``torch.nn.MultiLabelSoftMarginLoss``.

    Args:
        weight: a factor for each class, (C,).
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, weight: Any = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = losses.factor("weight", weight)


class CTCLoss(losses.CTCLoss):
    """-log of the probability of all alignments of labels with times: connectionist temporal classification.

    Predictions are log-probabilities (T, N, C), the targets labels (N, L), lengths in time (N,) and of labels (N,).
    Formula: ``torch.nn.CTCLoss``; Graves et al. 2006.

    Args:
        blank: the class of no label.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        zero_infinity: whether the loss of a row without an alignment is 0, not ∞.
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction, blank, zero_infinity)
