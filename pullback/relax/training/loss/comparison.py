"""Losses that ask for a margin: of scores, between two vectors, or among three."""

from __future__ import annotations

from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training.loss.base import Loss, check_alike


class HingeLoss(Loss):
    """max(margin - p·t, 0) for targets 1 and -1, reduced over all elements: the loss of support vector machines.

    Both are of one float dtype and of the same shape.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
        margin: the distance beyond which the loss is 0.
    """

    def __init__(self, reduction: str = "mean", margin: float = 1.0) -> None:
        super().__init__("hinge_loss", 1, reduction)
        self.margin = margin

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.hinge_loss(predictions, targets, self._reduction, self.margin)


class SoftMarginLoss(Loss):
    """log(1 + e^(-p·t)) for targets 1 and -1, reduced over all elements.

    Both are of one float dtype and of the same shape. Formula: ``torch.nn.SoftMarginLoss``.

    Args:
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("soft_margin_loss", 1, reduction)

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.soft_margin_loss(predictions, targets, self._reduction)


class HingeEmbeddingLoss(Loss):
    """The distance p where the target is 1, max(margin - p, 0) where it is -1, reduced over all elements.

    Both are of one float dtype and of the same shape. Formula: ``torch.nn.HingeEmbeddingLoss``.
    """

    def __init__(self, reduction: str = "mean", margin: float = 1.0) -> None:
        super().__init__("hinge_embedding_loss", 1, reduction)
        self.margin = margin

    def expression(self, predictions: Expr, targets: Expr) -> Expr:
        check_alike(type(self).__name__, predictions, targets)
        return op.nn.hinge_embedding_loss(predictions, targets, self._reduction, self.margin)


class MarginRankingLoss(Loss):
    """max(margin - t·(x1 - x2), 0): the target 1 asks for x1 > x2, -1 for x1 < x2; reduced over all elements.

    The backbone has two outputs, x1 and x2; all are of one float dtype and of the same shape. Formula:
    ``torch.nn.MarginRankingLoss``.
    """

    def __init__(self, reduction: str = "mean", margin: float = 0.0) -> None:
        super().__init__("margin_ranking_loss", 2, reduction)
        self.margin = margin

    def expression(self, x1: Expr, x2: Expr, targets: Expr) -> Expr:
        return op.nn.margin_ranking_loss(x1, x2, targets, self._reduction, self.margin)


class CosineEmbeddingLoss(Loss):
    """1 - cos(x1, x2) where the target is 1, max(cos(x1, x2) - margin, 0) where it is -1, reduced over the rows.

    The backbone has two outputs, x1 and x2, of one float dtype: rows of vectors, (N, D), with a target for each row,
    (N,), of any number type; or two vectors. Formula: ``torch.nn.CosineEmbeddingLoss``.
    """

    def __init__(self, reduction: str = "mean", margin: float = 0.0) -> None:
        super().__init__("cosine_embedding_loss", 2, reduction)
        self.margin = margin

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return [TensorStructInfo((predictions.shape or ())[:-1], "int64")]

    def expression(self, x1: Expr, x2: Expr, targets: Expr) -> Expr:
        return op.nn.cosine_embedding_loss(x1, x2, targets, self._reduction, self.margin)


class TripletMarginLoss(Loss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) with d(x, y) = |x - y + eps| in the norm ``p`` along
    the last axis, reduced over the rows.

    The backbone has three outputs, of one float dtype and of the same shape; there are no targets. ``swap`` takes
    d(positive, negative) where that is less. Formula: ``torch.nn.TripletMarginLoss``.
    """

    def __init__(
        self, reduction: str = "mean", margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False
    ) -> None:
        super().__init__("triplet_margin_loss", 3, reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return []

    def expression(self, anchor: Expr, positive: Expr, negative: Expr) -> Expr:
        return op.nn.triplet_margin_loss(
            anchor, positive, negative, self._reduction, self.margin, self.p, self.eps, self.swap
        )
