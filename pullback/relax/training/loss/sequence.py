"""Losses of sequences."""

from __future__ import annotations

from pullback.ir.errors import ArgumentError
from pullback.relax import op
from pullback.relax.expr import Expr, const
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training.loss.base import Loss, check_float, tensor_info


class CTCLoss(Loss):
    """-log of the probability of all alignments of labels with times: connectionist temporal classification.

    ``predictions`` are logarithms of probabilities, (T, N, C), as ``R.nn.log_softmax`` gives them, of a float dtype.
    There are three targets of integer dtypes: the labels of each row, padded to one length, (N, L); how many of the T
    times each row takes, (N,); and how many of the L labels, (N,). Labels are classes other than ``blank``. The loss of
    a row whose labels don't fit into its times is inf, or 0 with ``zero_infinity``. The reduction "mean" divides the
    loss of each row by the number of its labels before it takes the mean.

    Formula: ``torch.nn.CTCLoss``; Graves et al. 2006.
    """

    def __init__(self, reduction: str = "mean", blank: int = 0, zero_infinity: bool = False) -> None:
        super().__init__("ctc_loss", 1, reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        hint = 'such as targets=[R.Tensor((8, 20), "int64"), R.Tensor((8,), "int64"), R.Tensor((8,), "int64")]'
        raise ArgumentError("CTCLoss: predictions do not say how many labels a row has at the most", hint=hint)

    def expression(self, predictions: Expr, targets: Expr, input_lengths: Expr, target_lengths: Expr) -> Expr:
        check_float(type(self).__name__, predictions, tensor_info(type(self).__name__, predictions))
        return op.nn.ctc_loss(
            predictions, targets, input_lengths, target_lengths, self.blank, self._reduction, self.zero_infinity
        )

    def unreduced(self, *variables: Expr) -> tuple[Expr, Expr | None]:
        terms, _ = super().unreduced(*variables)
        if self._reduction == "sum":
            return terms, None
        lengths = op.astype(variables[-1], terms.dtype)
        return op.divide(terms, op.maximum(lengths, const(1.0, terms.dtype))), None
