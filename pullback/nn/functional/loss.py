"""Losses of graph values. Formulas, shapes and dtypes are those of the losses of the same names in ``pullback.nn``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.nn.functional.embedding import pairwise_distance
from pullback.relax import op
from pullback.relax.expr import Expr, as_relax
from pullback.relax.training import loss as losses

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cross_entropy", "ctc_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip


def _weight(weight: Any, like: Any) -> Any:
    """A weight in the dtype of the predictions: a graph value as it is, numbers and arrays as a constant."""
    return None if weight is None else weight if isinstance(weight, Expr) else losses.constant_like(weight, like)


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """(input - target)².

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return losses.MSELoss(reduction).expression(input, as_relax(target))


def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """|input - target|.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return losses.L1Loss(reduction).expression(input, as_relax(target))


def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    """(input - target)² / (2·beta) where |input - target| < beta, else |input - target| - beta/2.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "sum" or "none".
        beta: the distance at which the square becomes linear.

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.smooth_l1_loss(input, target, reduction, beta)


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    """(input - target)² / 2 where |input - target| ≤ delta, else delta·(|input - target| - delta/2).

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "sum" or "none".
        delta: the distance at which the square becomes linear.

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.huber_loss(input, target, reduction, delta)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """-log of the softmax of the right class: logits (N, C, …), class indices (N, …) or probabilities (N, C, …).

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        weight: a factor for each class, (C,).
        ignore_index: targets of this class count for nothing.
        reduction: "mean", "sum" or "none".
        label_smoothing: in [0, 1]: how much of the target is spread evenly over all classes.

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.

    Examples:
        >>> float(F.cross_entropy(np.zeros((2, 4), "float32"), np.array([0, 3])))     # log 4
        1.386294...
    """
    loss = losses.CrossEntropyLoss(reduction, ignore_index, label_smoothing)
    return loss.expression(input, as_relax(target), _weight(weight, input))


def nll_loss(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """-weight[t] · input[n, t] for the right class t: log-probabilities (N, C, …), class indices (N, …).

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        weight: a factor for each class, (C,).
        ignore_index: targets of this class count for nothing.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.nll_loss(input, target, _weight(weight, input), reduction, ignore_index)


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    """-weight·(t·log p + (1 - t)·log(1 - p)) of probabilities p.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        weight: a factor of each element, which broadcasts.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.binary_cross_entropy(input, target, _weight(weight, input), reduction)


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    """-weight·(pos_weight·t·log s + (1 - t)·log(1 - s)) with s = sigmoid(input).

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        weight: a factor of each element, which broadcasts.
        reduction: "mean", "sum" or "none".
        pos_weight: a factor of the positive terms, which broadcasts.

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    weights = _weight(weight, input), _weight(pos_weight, input)
    return op.nn.binary_cross_entropy_with_logits(input, target, *weights, reduction)


def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    """t·(log t - input) of log-probabilities and probabilities t; "batchmean" divides by the rows.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "batchmean", "sum" or "none".
        log_target: whether targets are logarithms too.

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.kl_div(input, target, reduction, log_target)


def poisson_nll_loss(
    input: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Any:
    """e^input - t·input of logarithms of rates and counts t; input - t·log(input + eps) of rates.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        log_input: whether the input is logarithms of rates.
        full: whether Stirling's approximation of log t! is added where t > 1.
        eps: what keeps log from 0, of rates.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.poisson_nll_loss(input, target, reduction, log_input, full, eps)


def gaussian_nll_loss(
    input: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    """(log v + (input - target)² / v) / 2 with v = max(var, eps).

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        var: variances.
        full: whether the constant (log 2π) / 2 is added.
        eps: the least variance.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.gaussian_nll_loss(input, target, var, reduction, full, eps)


def hinge_embedding_loss(input: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Any:
    """input where the target is 1, max(margin - input, 0) where it is -1.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        margin: the distance from which on there is no loss.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.hinge_embedding_loss(input, target, reduction, margin)


def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    """max(margin - t·(input1 - input2), 0) for targets t of 1 and -1.

    Args:
        input1: scores.
        input2: scores.
        target: of the input's shape, or class indices.
        margin: by how much the right one has to lead.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.margin_ranking_loss(input1, input2, target, reduction, margin)


def cosine_embedding_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    """1 - cos(x1, x2) where the target is 1, max(cos(x1, x2) - margin, 0) where it is -1, for each row.

    Args:
        input1: (N, D).
        input2: (N, D).
        target: of the input's shape, or class indices.
        margin: the cosine up to which a pair with the target -1 costs nothing.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.cosine_embedding_loss(input1, input2, target, reduction, margin)


def triplet_margin_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) with distances d of norm ``p``, for each row.

    Args:
        anchor: (N, D).
        positive: (N, D).
        negative: (N, D).
        margin: how much farther the negative has to be.
        p: of the p-norm.
        eps: what is added to each difference.
        swap: whether the distance of positive and negative takes the place of that of the anchor, where it is smaller.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.triplet_margin_loss(anchor, positive, negative, reduction, margin, p, eps, swap)


def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) with a function d of two tensors, by default
    ``pairwise_distance``; with ``swap`` d(positive, negative) takes the place of d(anchor, negative) where it is less.

    Args:
        anchor: (N, D).
        positive: (N, D).
        negative: (N, D).
        distance_function: of two tensors; by default ``pairwise_distance``.
        margin: how much farther the negative has to be.
        swap: whether the distance of positive and negative takes the place of that of the anchor, where it is smaller.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    distance = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    far = op.minimum(far, distance(positive, negative)) if swap else far
    each = op.maximum(near - far + margin, 0.0)
    if reduction not in losses.REDUCTIONS:
        raise ArgumentError(f"reduction must be one of {', '.join(losses.REDUCTIONS)}, got {reduction!r}")
    return each if reduction == "none" else op.sum(each) if reduction == "sum" else op.mean(each)


def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """log(1 + e^(-input·t)) for targets t of 1 and -1.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.soft_margin_loss(input, target, reduction)


def multi_margin_loss(
    input: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    """weight[t] · Σ max(margin - input[t] + input[c], 0)ᵖ / C over the classes c other than the right class t.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        p: 1 or 2.
        margin: by how much the right class has to lead.
        weight: a factor for each class, (C,).
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.multi_margin_loss(input, target, _weight(weight, input), reduction, p, margin)


def multilabel_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Any:
    """Σ max(1 - input[t] + input[c], 0) / C over the labels t of a row and the classes c that are none of them.

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.multilabel_margin_loss(input, target, reduction)


def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    """The mean over classes of -weight · (t · log s + (1 - t) · log(1 - s)) with s = sigmoid(input).

    Args:
        input: a tensor, or an array.
        target: of the input's shape, or class indices.
        weight: a factor for each class, (C,).
        reduction: "mean", "sum" or "none".

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.multilabel_soft_margin_loss(input, target, _weight(weight, input), reduction)


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """-log of the probability of all alignments of labels (N, L) with log-probabilities (T, N, C).

    Args:
        log_probs: (T, N, C).
        targets: labels, (N, L).
        input_lengths: how many of the T count, (N,).
        target_lengths: how many of the L count, (N,).
        blank: the class of no label.
        reduction: "mean", "sum" or "none".
        zero_infinity: whether the loss of a row without an alignment is 0, not ∞.

    Returns:
        a scalar, or with the reduction "none" the loss of each element or row.
    """
    return op.nn.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
