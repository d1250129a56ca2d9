"""Losses: from the types of predictions and targets to a graph function that returns the loss.

    >>> func = CrossEntropyLoss("sum")(TensorStructInfo((64, 10), "float32"), TensorStructInfo((64,), "int64"))

The formulas are PyTorch's. A loss of one's own is a subclass that overrides :meth:`Loss.expression`:

    class LogCoshLoss(Loss):
        def __init__(self, reduction="mean"):
            super().__init__("log_cosh_loss", 1, reduction)

        def expression(self, predictions, targets):
            return self._with_reduction(op.log(op.cosh(predictions - targets)))

Overriding ``__call__`` itself, with a BlockBuilder of one's own, works as well.

A loss is a sum over the batch divided by its *divisor*: how many elements it counts, or the sum of their weights.
Batches are combined as Σ divisor·loss / Σ divisor, which is the loss of one big batch, in ``fit``, ``evaluate`` and
``optimizer.Accumulate``. The divisor is read off the formula (``relax/transform/loss_divisor.py``): ``op.mean(x)`` has
the number of x's elements, ``op.sum(w * l) / op.sum(w)`` the sum of weights, and PyTorch's losses what PyTorch divides
by. Where a formula says nothing, it is the number of rows; ``op.nn.with_divisor(loss, divisor)`` says another one. The
losses of batches whose ``reduction`` is "sum" add up.
"""

from __future__ import annotations

from pullback.ir.words import missing_from
from pullback.relax.training.loss.base import REDUCTIONS, Loss, class_axis, constant_like, factor
from pullback.relax.training.loss.classification import (
    CategoricalCrossEntropyLoss,
    CrossEntropyLoss,
    MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    NLLLoss,
)
from pullback.relax.training.loss.comparison import (
    CosineEmbeddingLoss,
    HingeEmbeddingLoss,
    HingeLoss,
    MarginRankingLoss,
    SoftMarginLoss,
    TripletMarginLoss,
)
from pullback.relax.training.loss.distribution import (
    BCELoss,
    BCEWithLogitsLoss,
    GaussianNLLLoss,
    KLDivLoss,
    PoissonNLLLoss,
)
from pullback.relax.training.loss.function import FunctionLoss
from pullback.relax.training.loss.regression import HuberLoss, L1Loss, MSELoss, SmoothL1Loss
from pullback.relax.training.loss.sequence import CTCLoss

__all__ = [
    "REDUCTIONS", "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CategoricalCrossEntropyLoss", "CosineEmbeddingLoss",
    "CrossEntropyLoss", "FunctionLoss", "GaussianNLLLoss", "HingeEmbeddingLoss", "HingeLoss", "HuberLoss",
    "KLDivLoss", "L1Loss", "Loss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "class_axis", "constant_like", "factor",
]  # fmt: skip

__getattr__ = missing_from(globals())
