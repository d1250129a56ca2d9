"""Losses. PyTorch's reductions are numbers: none, mean, sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.nn import functional as F
from pullback.relax import op
from pullback.relax.expr import Expr, const
from pullback.relax.frontend.torch.table import ATEN

REDUCTIONS = ("none", "mean", "sum")


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors whose last argument is the reduction."""
    return lambda *args: function(*args[:-1], reduction=REDUCTIONS[args[-1]])


_SAME: dict[str, Callable[..., Any]] = {
    "mse_loss": F.mse_loss, "l1_loss": F.l1_loss, "hinge_embedding_loss": F.hinge_embedding_loss,
    "margin_ranking_loss": F.margin_ranking_loss, "cosine_embedding_loss": F.cosine_embedding_loss,
    "triplet_margin_loss": F.triplet_margin_loss, "soft_margin_loss": F.soft_margin_loss,
    "multilabel_margin_loss": F.multilabel_margin_loss, "binary_cross_entropy": F.binary_cross_entropy,
}  # fmt: skip
for _name, _function in _SAME.items():
    ATEN.register(f"aten.{_name}")(_same(_function))


@ATEN.register("aten.smooth_l1_loss")
def smooth_l1_loss(input: Any, target: Any, reduction: int, beta: float) -> Any:
    return F.smooth_l1_loss(input, target, REDUCTIONS[reduction], beta)


@ATEN.register("aten.huber_loss")
def huber_loss(input: Any, target: Any, reduction: int, delta: float) -> Any:
    return F.huber_loss(input, target, REDUCTIONS[reduction], delta)


@ATEN.register("aten.cross_entropy_loss")
def cross_entropy_loss(
    input: Any, target: Any, weight: Any, reduction: int, ignore_index: int, label_smoothing: float
) -> Any:
    return F.cross_entropy(input, target, weight, ignore_index, REDUCTIONS[reduction], label_smoothing)


@ATEN.register("aten.nll_loss", "aten.nll_loss_nd", "aten.nll_loss2d")
def nll_loss(input: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    return F.nll_loss(input, target, weight, ignore_index, REDUCTIONS[reduction])


@ATEN.register("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def nll_loss_forward(input: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    result = F.nll_loss(input, target, weight, ignore_index, REDUCTIONS[reduction])

    def total() -> Any:
        """The weights of all targets that count."""
        if not reduction:
            return op.zeros((), input.dtype)
        counts = op.not_equal(target, const(ignore_index, target.dtype))
        if weight is None:
            return op.sum(op.astype(counts, input.dtype))
        chosen = op.take(weight, op.where(counts, target, op.zeros_like(target)), 0)
        return op.sum(op.where(counts, chosen, op.zeros_like(chosen)))

    return result, total


@ATEN.register("aten.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any, pos_weight: Any, reduction: int) -> Any:
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=REDUCTIONS[reduction], pos_weight=pos_weight
    )


@ATEN.register("aten.kl_div")
def kl_div(input: Any, target: Any, reduction: int, *, log_target: bool) -> Any:
    return F.kl_div(input, target, reduction=REDUCTIONS[reduction], log_target=log_target)


@ATEN.register("aten.poisson_nll_loss")
def poisson_nll_loss(input: Any, target: Any, log_input: bool, full: bool, eps: float, reduction: int) -> Any:
    return F.poisson_nll_loss(input, target, log_input=log_input, full=full, eps=eps, reduction=REDUCTIONS[reduction])


@ATEN.register("aten.multi_margin_loss")
def multi_margin_loss(input: Any, target: Any, p: int, margin: float, weight: Any, reduction: int) -> Any:
    return F.multi_margin_loss(
        input, target, p=int(p), margin=float(margin), weight=weight, reduction=REDUCTIONS[reduction]
    )


@ATEN.register("aten.multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(input: Any, target: Any, reduction: int) -> Any:
    return F.multilabel_margin_loss(input, target, reduction=REDUCTIONS[reduction]), lambda: _is_target(input, target)


def _is_target(input: Any, target: Any) -> Any:
    """Which classes are labels of their row: 1 and 0, in the dtype of the input."""
    counts = op.equal(op.cumsum(op.astype(op.less(target, const(0, target.dtype)), "int64"), -1), const(0, "int64"))
    classes = op.arange(input.shape[-1], dtype=target.dtype)
    named = op.equal(op.expand_dims(target, -1), classes)
    chosen = op.logical_and(named, op.expand_dims(counts, -1))
    return op.astype(op.any(chosen, -2), input.dtype)


def _lengths(values: Any) -> Any:
    return values if isinstance(values, Expr) else const(np.array(values, np.int64))


@ATEN.register("aten.ctc_loss")
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int, reduction: int,
    zero_infinity: bool,
) -> Any:  # fmt: skip
    inputs, wanted = _lengths(input_lengths), _lengths(target_lengths)
    return F.ctc_loss(log_probs, targets, inputs, wanted, blank, REDUCTIONS[reduction], zero_infinity)


@ATEN.register("aten.cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int, eps: float) -> Any:
    return F.cosine_similarity(x1, x2, dim, eps)
