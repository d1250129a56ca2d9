"""Losses of a distance between predictions and targets."""

from __future__ import annotations

from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.training.loss.base import Loss, check_alike


class L1Loss(Loss):
    """|predictions - targets|, reduced over all elements.

    Both are of one float dtype and of the same shape; nothing is broadcast. Formula: ``torch.nn.L1Loss``.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.

    Examples:
        >>> float(nn.L1Loss()(np.zeros(4, "float32"), np.full(4, 3.0, "float32")))
        3.0
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return self._with_reduction(op.abs(op.subtract(predictions, targets)))


class MSELoss(Loss):
    """(predictions - targets)², reduced over all elements.

    Both are of one float dtype and of the same shape; nothing is broadcast. Formula: ``torch.nn.MSELoss``.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.

    Examples:
        >>> float(nn.MSELoss()(np.zeros(4, "float32"), np.full(4, 3.0, "float32")))
        9.0
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        difference = op.subtract(predictions, targets)
        return self._with_reduction(op.multiply(difference, difference))


class SmoothL1Loss(Loss):
    """(p - t)² / (2·beta) where |p - t| < beta, else |p - t| - beta/2, reduced over all elements.

    Both are of one float dtype and of the same shape; ``beta`` is ≥ 0. Formula: ``torch.nn.SmoothL1Loss``.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        beta: the distance at which the square becomes linear.
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__("smooth_l1_loss", 1, reduction)
        self.beta = beta

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.smooth_l1_loss(predictions, targets, self._reduction, self.beta)


class HuberLoss(Loss):
    """(p - t)² / 2 where |p - t| ≤ delta, else delta·(|p - t| - delta/2), reduced over all elements.

    Both are of one float dtype and of the same shape; ``delta`` is positive. Formula: ``torch.nn.HuberLoss``.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        delta: the distance at which the square becomes linear.
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__("huber_loss", 1, reduction)
        self.delta = delta

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.huber_loss(predictions, targets, self._reduction, self.delta)
