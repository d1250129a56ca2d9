"""Losses of predictions that are probabilities, or parameters of a distribution of each element."""

from __future__ import annotations

from typing import Any

from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.struct_info import as_tensor
from pullback.relax.training.loss.base import Loss, check_alike, constant_like, factor


class BCELoss(Loss):
    """-weight·(t·log p + (1 - t)·log(1 - p)) of probabilities p, reduced over all elements.

    Both are of one float dtype and of the same shape. ``weight``, a number or an array that broadcasts to that shape,
    is a constant of the program. Formula: ``torch.nn.BCELoss``, with logarithms of at least -100.
    """

    def __init__(self, reduction: str = "mean", weight: Any = None) -> None:
        super().__init__("bce_loss", 1, reduction)
        self.weight = factor("weight", weight)

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        weight = constant_like(self.weight, predictions)
        return op.nn.binary_cross_entropy(predictions, targets, weight, self._reduction)


class BCEWithLogitsLoss(Loss):
    """-weight·(pos_weight·t·log s + (1 - t)·log(1 - s)) with s = sigmoid(p), reduced over all elements.

    ``predictions`` are logits; both are of one float dtype and of the same shape. The weights are numbers or arrays
    that broadcast to that shape, and constants of the program. Formula: ``torch.nn.BCEWithLogitsLoss``.
    """

    def __init__(self, reduction: str = "mean", weight: Any = None, pos_weight: Any = None) -> None:
        super().__init__("bce_with_logits_loss", 1, reduction)
        self.weight, self.pos_weight = factor("weight", weight), factor("pos_weight", pos_weight)

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        weights = (constant_like(w, predictions) for w in (self.weight, self.pos_weight))
        return op.nn.binary_cross_entropy_with_logits(predictions, targets, *weights, self._reduction)


class KLDivLoss(Loss):
    """t·(log t - p) of log-probabilities p and probabilities t, reduced over all elements.

    Both are of one float dtype and of the same shape; with ``log_target`` the targets are logarithms too. The mean is
    over all elements; the reduction "batchmean" divides the sum by the number of rows, which is the divergence itself.
    Formula: ``torch.nn.KLDivLoss``.

    Args:
        reduction: "mean" over all elements, "batchmean" (the sum divided by the number of rows, which is the divergence
            itself), "sum" or "none".
        log_target: whether targets are logarithms too.
    """

    reductions = (*Loss.reductions, "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__("kl_div_loss", 1, reduction)
        self.log_target = log_target

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.kl_div(predictions, targets, self._reduction, self.log_target)

    def unreduced(self, *variables: Expr) -> tuple[Expr, Expr | None]:
        terms, _ = super().unreduced(*variables)
        rank = as_tensor(terms.struct_info).ndim
        return op.sum(terms, tuple(range(1, rank))) if self._reduction == "batchmean" and rank > 1 else terms, None


class PoissonNLLLoss(Loss):
    """eᵖ - t·p of logarithms of rates p and counts t, reduced over all elements; p - t·log(p + eps) of rates.

    Both are of one float dtype and of the same shape. ``full`` adds Stirling's approximation of log t! where t > 1.
    Formula: ``torch.nn.PoissonNLLLoss``.
    """

    def __init__(self, reduction: str = "mean", log_input: bool = True, full: bool = False, eps: float = 1e-8) -> None:
        super().__init__("poisson_nll_loss", 1, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.poisson_nll_loss(predictions, targets, self._reduction, self.log_input, self.full, self.eps)


class GaussianNLLLoss(Loss):
    """(log v + (p - t)² / v) / 2 with v = max(variance, eps), reduced over all elements.

    The backbone has two outputs: the predictions, and the variances, of the predictions' shape or one that broadcasts
    to it. All are of one float dtype. ``full`` adds log(2π)/2. Formula: ``torch.nn.GaussianNLLLoss``.
    """

    def __init__(self, reduction: str = "mean", full: bool = False, eps: float = 1e-6) -> None:
        super().__init__("gaussian_nll_loss", 2, reduction)
        self.full, self.eps = full, eps

    def expression(self, predictions: Expr, variances: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.gaussian_nll_loss(predictions, targets, variances, self._reduction, self.full, self.eps)
