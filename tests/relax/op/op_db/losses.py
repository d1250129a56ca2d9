"""Losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.relax.op.namespace import ops
from tests.relax.op.op_db.table import Skip, translate


@translate("nn.cross_entropy", "nn.functional.cross_entropy")
def cross_entropy(
    x: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    return ops.nn.cross_entropy(x, target, weight, reduction, ignore_index, label_smoothing)


@translate("nn.nll_loss", "nn.functional.nll_loss")
def nll_loss(
    x: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    return ops.nn.nll_loss(x, target, weight, reduction, ignore_index)


def plain(name: str, theirs: str) -> None:
    @translate(f"nn.{name}", f"nn.functional.{theirs}")
    def loss(x: Any, target: Any, reduction: str = "mean") -> Any:
        return getattr(ops.nn, name)(x, target, reduction)


for _name in ("l1_loss", "mse_loss", "soft_margin_loss"):
    plain(_name, _name)


@translate("nn.smooth_l1_loss", "nn.functional.smooth_l1_loss")
def smooth_l1_loss(x: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    return ops.nn.smooth_l1_loss(x, target, reduction, beta)


@translate("nn.huber_loss", "nn.functional.huber_loss")
def huber_loss(x: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Any:
    if weight is not None:
        raise Skip("a weighted Huber loss")
    return ops.nn.huber_loss(x, target, reduction, delta)


@translate("nn.hinge_embedding_loss", "nn.functional.hinge_embedding_loss")
def hinge_embedding_loss(x: Any, target: Any, margin: float = 1.0, reduction: str = "mean") -> Any:
    return ops.nn.hinge_embedding_loss(x, target, reduction, margin)


@translate("nn.binary_cross_entropy", "nn.functional.binary_cross_entropy")
def binary_cross_entropy(
    x: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
) -> Any:
    return ops.nn.binary_cross_entropy(x, target, weight, reduction)


@translate("nn.binary_cross_entropy_with_logits", "nn.functional.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    pos_weight: Any = None,
) -> Any:  # fmt: skip
    if weight is None and pos_weight is not None:
        weight = ops.ones((), x.dtype)
    return ops.nn.binary_cross_entropy_with_logits(x, target, weight, pos_weight, reduction)


@translate("nn.kl_div", "nn.functional.kl_div")
def kl_div(x: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    if reduction == "batchmean":
        total = ops.nn.kl_div(x, target, "sum", log_target)
        return total if x.shape == () else ops.divide(total, float(x.shape[0]))
    return ops.nn.kl_div(x, target, reduction, log_target)


@translate("nn.margin_ranking_loss", "nn.functional.margin_ranking_loss")
def margin_ranking_loss(x: Any, y: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    return ops.nn.margin_ranking_loss(x, y, target, reduction, margin)


@translate("nn.cosine_embedding_loss", "nn.functional.cosine_embedding_loss")
def cosine_embedding_loss(x: Any, y: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Any:
    return ops.nn.cosine_embedding_loss(x, y, target, reduction, margin)


@translate("nn.triplet_margin_loss", "nn.functional.triplet_margin_loss")
def triplet_margin_loss(
    a: Any, p_: Any, n: Any, margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
    reduction: str = "mean",
) -> Any:  # fmt: skip
    return ops.nn.triplet_margin_loss(a, p_, n, reduction, margin, float(p), eps, swap)


@translate("nn.multi_margin_loss", "nn.functional.multi_margin_loss")
def multi_margin_loss(
    x: Any, target: Any, p: int = 1, margin: float = 1.0, weight: Any = None, reduction: str = "mean"
) -> Any:
    if x.shape == () or target.shape != x.shape[:-1]:
        raise Skip("a single example whose target has rank 1, or a single class")
    return ops.nn.multi_margin_loss(x, target, weight, reduction, p, margin)


@translate("nn.poisson_nll_loss", "nn.functional.poisson_nll_loss")
def poisson_nll_loss(
    x: Any, target: Any, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Any:
    return ops.nn.poisson_nll_loss(x, target, reduction, log_input, full, eps)


@translate("nn.gaussian_nll_loss", "nn.functional.gaussian_nll_loss")
def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any:
    if x.shape != target.shape:
        raise Skip("a loss that broadcasts")
    return ops.nn.gaussian_nll_loss(x, target, var, reduction, full, eps)


@translate("nn.multilabel_margin_loss", "nn.functional.multilabel_margin_loss")
def multilabel_margin_loss(x: Any, target: Any, reduction: str = "mean") -> Any:
    if x.shape == ():
        raise Skip("a single class")
    return ops.nn.multilabel_margin_loss(x, target, reduction)


@translate("nn.multilabel_soft_margin_loss", "nn.functional.multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(x: Any, target: Any, weight: Any = None, reduction: str = "mean") -> Any:
    if weight is not None and weight.shape != x.shape[-1:]:
        raise Skip("weights that are not one for each class")
    return ops.nn.multilabel_soft_margin_loss(x, target, weight, reduction)


@translate("nn.ctc_loss", "nn.functional.ctc_loss")
def ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """PyTorch's gradient is that of scores whose log_softmax the arguments are: exp(p) more than that of p itself."""
    if len(targets.shape) != 2 or len(log_probs.shape) != 3:
        raise Skip("targets of all rows joined, or a single row")
    lengths, counts = (np.array(x) if isinstance(x, (list, tuple)) else x for x in (input_lengths, target_lengths))
    each = ops.nn.ctc_loss(log_probs, targets, lengths, counts, blank, "none", zero_infinity)
    times = ops.reshape(ops.arange(log_probs.shape[0]), (-1, 1, 1))
    inside = ops.less(times, ops.reshape(ops.astype(lengths, "int64"), (1, -1, 1)))
    more = ops.sum(ops.where(inside, ops.exp(log_probs), ops.zeros_like(log_probs)), (0, 2))
    each = each + (more - ops.grad.no_grad(more))
    if reduction == "mean":
        return ops.mean(each / ops.maximum(ops.astype(counts, each.dtype), 1.0))
    return each if reduction == "none" else ops.sum(each)
