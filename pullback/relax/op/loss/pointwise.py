"""Losses of one number for each element: a formula in ops, then a mean, a sum, or none.

Names, formulas and the order of arguments are those of torch.nn.functional. A loss does not broadcast; only weights do.
Half-precision types are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import Op
from pullback.relax.expr import const
from pullback.relax.op.family import (
    broadcast_shapes,
    collapse_to_operands,
    composite,
    expect_dtype,
    expect_member,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    narrowed,
    specialize,
    widened,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import count, scalar_count
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, format_shape, same_shape

REDUCTIONS = ("mean", "sum", "none")

# -- what all share


def check_reduction(name: str, reduction: Any, allowed: Sequence[str] = REDUCTIONS) -> None:
    """Raise a UserError unless ``reduction`` is one of those allowed."""
    expect_member(name, "reduction", reduction, allowed)


def check_alike(name: str, **infos: TensorStructInfo) -> None:
    """Raise unless all are tensors of one shape and one float dtype."""
    shapes = {label: known_shape(name, i, label) for label, i in infos.items()}
    for label, info in infos.items():
        expect_dtype(name, info, "float", label)
    expect_same_dtype(name, *infos.values())
    first = next(iter(shapes.values()))
    if not all(same_shape(first, s) for s in shapes.values()):
        listed = " and ".join(format_shape(s) for s in shapes.values())
        hint = "a loss does not broadcast: reshape one of them"
        raise ShapeError(f"{name}: {' and '.join(shapes)} must have the same shape, got {listed}", hint=hint)


def check_positive(name: str, attribute: str, value: float) -> None:
    """Raise a UserError unless an attribute is above 0."""
    if not value > 0:
        raise UserError(f"{name}: {attribute} must be positive, got {value!r}")


def reduced(each: Any, reduction: str) -> Any:
    """The mean of all elements, their sum, the sum divided by the first size, or all of them."""
    if reduction == "none":
        return each
    if reduction == "batchmean":
        return ops.sum(each) / scalar_count(each, 0)
    return ops.sum(each) if reduction == "sum" else ops.mean(each)


def reduced_array(each: np.ndarray, reduction: str) -> np.ndarray:
    """:func:`reduced` of an array."""
    if reduction == "none":
        return each
    count = {"sum": 1, "mean": each.size, "batchmean": each.shape[0] if each.ndim else 1}[reduction]
    with np.errstate(all="ignore"):
        return np.asarray(np.sum(each, dtype=each.dtype) / each.dtype.type(count))


def divisor_of_shape(shape: Sequence[Dim], reduction: str) -> Dim:
    """What :func:`reduced` divides the sum of elements of this shape by."""
    axes = {"mean": range(len(shape)), "batchmean": range(len(shape))[:1]}
    return count(shape, axes.get(reduction, ()))


def unreduced(dy: Any, each: Any, reduction: str) -> Any:
    """The adjoint of :func:`reduced`, in the shape of ``each`` (a tensor of that shape)."""
    if reduction == "none":
        return dy
    if reduction != "sum":
        dy = dy / scalar_count(each, None if reduction == "mean" else 0)
    return ops.broadcast_to(dy, each.shape)


def at_least_zero(x: Any) -> Any:
    """max(x, 0) whose derivative at 0 is 1, as in PyTorch's clamp_min; NaN stays."""
    return ops.where(x < 0.0, const(0.0, x.dtype), x)


def pointwise(
    name: str,
    tensors: str,
    attrs: str = "",
    *,
    element: Callable[..., Any],
    numpy: Callable[..., Any],
    expect: Callable[..., None],
    gradient: Callable[..., tuple[Any, ...]] | None = None,
    reductions: Sequence[str] = REDUCTIONS,
    **rules: Any,
) -> Op:
    """A loss whose elements are ``element(tensors…, **attrs)``, an expression in ops, and ``numpy`` of the arrays.
    ``expect(infos…, **attrs)`` raises what users are to read. ``gradient(dy, tensors…, **attrs)``, where it is not that
    of ``element``, gets the adjoints of the elements and gives those of the tensors."""

    def checked(*infos: TensorStructInfo, reduction: str, **own: Any) -> None:
        expect(*infos, **own)
        check_reduction(name, reduction, reductions)

    def decompose(*args: Any, training: bool, reduction: str, **own: Any) -> Any:
        return narrowed(reduced(element(*map(widened, args), **own), reduction), args[0].dtype)

    def meaning(*arrays: np.ndarray, reduction: str, **own: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            return reduced_array(np.asarray(numpy(*arrays, **own)), reduction)

    def divisor(*args: Any, reduction: str, **own: Any) -> Any:
        shape = element(*map(widened, args), **own).shape
        return divisor_of_shape(shape, reduction)

    if gradient is not None:

        def adjoint(dy: Any, y: Any, *args: Any, reduction: str, **own: Any) -> tuple[Any, ...]:
            each = unreduced(widened(dy), args[0], reduction)
            found = gradient(each, *map(widened, args), **own)
            return tuple(None if g is None else narrowed(g, a.dtype) for g, a in zip(found, args, strict=True))

        rules["gradient"] = adjoint
    return composite(
        name,
        f"{tensors} | reduction='mean'" + (f", {attrs}" if attrs else ""),
        expect=checked,
        decompose=decompose,
        divisor=divisor,
        numpy=in_wide(meaning),
        family="loss",
        **rules,
    )


def _alike(name: str, *positive: str) -> Callable[..., None]:
    """The check of predictions and targets, and of attributes that must be positive."""

    def check(predictions: TensorStructInfo, targets: TensorStructInfo, **attrs: Any) -> None:
        check_alike(name, predictions=predictions, targets=targets)
        for attribute in positive:
            check_positive(name, attribute, attrs[attribute])

    return check


def _samples(*extra: Any, low: float = -3.0, high: float = 3.0) -> list[Any]:
    """Predictions from [-3, 3), targets from [low, high)."""
    return [
        sample((5, 4), Floats((5, 4), low, high)),
        sample((17,), Floats((17,), low, high), reduction="sum"),
        sample((2, 3, 4), Floats((2, 3, 4), low, high), reduction="none"),
        sample((), Floats((), low, high)),
        sample((0, 3), Floats((0, 3), low, high), reduction="sum"),
        *extra,
    ]


_SIGNS = [[1.0, -1.0, -1.0, 1.0], [-1.0, 1.0, -1.0, 1.0]]

# -- regression

pointwise(
    "nn.l1_loss",
    "predictions, targets",
    element=lambda p, t: ops.abs(p - t),
    numpy=lambda p, t: np.abs(p - t),
    expect=_alike("nn.l1_loss"),
    doc="|p - t|, reduced: its mean, its sum, or none. The derivative at p = t is 0. PyTorch's l1_loss.",
    samples=_samples(sample([1.0, 2.0], [1.0, 3.0], smooth=False)),
)
pointwise(
    "nn.mse_loss",
    "predictions, targets",
    element=lambda p, t: ops.square(p - t),
    numpy=lambda p, t: np.square(p - t),
    expect=_alike("nn.mse_loss"),
    doc="(p - t)², reduced: its mean, its sum, or none. PyTorch's mse_loss.",
    samples=_samples(),
)


def _smooth_l1(p: Any, t: Any, beta: float) -> Any:
    difference = p - t
    size = ops.abs(difference)
    if beta == 0:
        return size
    return ops.where(size < beta, ops.square(difference) * (0.5 / beta), size - 0.5 * beta)


def _smooth_l1_array(p: np.ndarray, t: np.ndarray, beta: float) -> np.ndarray:
    size = np.abs(p - t)
    return size if beta == 0 else np.where(size < beta, size * size / (2 * beta), size - beta / 2).astype(p.dtype)


def _smooth_l1_check(predictions: TensorStructInfo, targets: TensorStructInfo, beta: float) -> None:
    check_alike("nn.smooth_l1_loss", predictions=predictions, targets=targets)
    if not beta >= 0:
        raise UserError(f"nn.smooth_l1_loss: beta cannot be negative, got {beta!r}")


pointwise(
    "nn.smooth_l1_loss",
    "predictions, targets",
    "beta=1.0",
    element=_smooth_l1,
    numpy=_smooth_l1_array,
    expect=_smooth_l1_check,
    doc="(p - t)² / (2·beta) where |p - t| < beta, else |p - t| - beta/2, reduced; l1_loss for beta = 0.\n"
    "PyTorch's smooth_l1_loss.",
    samples=_samples(sample((5, 4), (5, 4), beta=0.3), sample((3,), (3,), beta=0.0)),
)


def _huber(p: Any, t: Any, delta: float) -> Any:
    difference = p - t
    size = ops.abs(difference)
    return ops.where(size <= delta, ops.square(difference) * 0.5, (size - 0.5 * delta) * delta)


def _huber_array(p: np.ndarray, t: np.ndarray, delta: float) -> np.ndarray:
    size = np.abs(p - t)
    return np.where(size <= delta, size * size / 2, delta * (size - delta / 2)).astype(p.dtype)


pointwise(
    "nn.huber_loss",
    "predictions, targets",
    "delta=1.0",
    element=_huber,
    numpy=_huber_array,
    expect=_alike("nn.huber_loss", "delta"),
    doc="(p - t)² / 2 where |p - t| ≤ delta, else delta·(|p - t| - delta/2), reduced. PyTorch's huber_loss.",
    samples=_samples(sample((5, 4), (5, 4), delta=0.3)),
)

# -- probabilities


def _check_weighted(name: str, predictions: TensorStructInfo, targets: TensorStructInfo, *weights: Any) -> None:
    check_alike(name, predictions=predictions, targets=targets)
    shape = known_shape(name, predictions)
    for weight in weights:
        own = known_shape(name, weight, "a weight")
        expect_same_dtype(name, predictions, weight)
        if not same_shape(broadcast_shapes(name, shape, own), shape):
            raise ShapeError(
                f"{name}: a weight of shape {format_shape(own)} does not broadcast to {format_shape(shape)}"
            )


_LEAST_LOG = -100.0


def _binary_cross_entropy(p: Any, t: Any, weight: Any = None) -> Any:
    yes = ops.maximum(ops.log(p), _LEAST_LOG)
    no = ops.maximum(ops.log1p(-p), _LEAST_LOG)
    each = -(t * yes + (1.0 - t) * no)
    return each if weight is None else each * weight


def _binary_cross_entropy_array(p: np.ndarray, t: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    yes, no = np.maximum(np.log(p), _LEAST_LOG), np.maximum(np.log1p(-p), _LEAST_LOG)
    each = -(t * yes + (1 - t) * no)
    return (each if weight is None else each * weight).astype(p.dtype)


def _binary_cross_entropy_gradient(dy: Any, p: Any, t: Any, weight: Any = None) -> tuple[Any, ...]:
    each = dy if weight is None else dy * weight
    dp = each * (p - t) / ops.maximum((1.0 - p) * p, 1e-12)
    dt = each * (ops.maximum(ops.log1p(-p), _LEAST_LOG) - ops.maximum(ops.log(p), _LEAST_LOG))
    if weight is None:
        return dp, dt
    return dp, dt, collapse_to_operands([dy * _binary_cross_entropy(p, t)], weight)[0]


_PROBABILITY, _INSIDE = Floats((5, 4), 0.0, 1.0), Floats((5, 4), 0.1, 0.9)

pointwise(
    "nn.binary_cross_entropy",
    "predictions, targets, weight?",
    element=_binary_cross_entropy,
    numpy=_binary_cross_entropy_array,
    gradient=_binary_cross_entropy_gradient,
    expect=lambda p, t, *weights: _check_weighted("nn.binary_cross_entropy", p, t, *weights),
    doc="-weight·(t·log p + (1 - t)·log(1 - p)), reduced, for probabilities p and t; logarithms are at least -100,\n"
    "and the derivative for p is (p - t) / max(p·(1 - p), 10⁻¹²). Weights broadcast. PyTorch's binary_cross_entropy.",
    samples=[
        sample(_INSIDE, _PROBABILITY),
        sample(_INSIDE, _PROBABILITY, Floats((4,), 0.5, 2.0), reduction="sum"),
        sample(_INSIDE, _PROBABILITY, Floats((5, 1), 0.5, 2.0), reduction="none"),
        sample(Floats((), 0.2, 0.8), Floats((), 0.0, 1.0)),
        sample([0.0, 1.0, 1.0, 0.0, 0.5], [0.0, 1.0, 0.0, 1.0, 1.0], smooth=False),
    ],
)


def _with_logits(x: Any, t: Any, weight: Any = None, pos_weight: Any = None) -> Any:
    log = ops.nn.logsigmoid(x)
    each = (1.0 - t) * x - (log if pos_weight is None else ((pos_weight - 1.0) * t + 1.0) * log)
    return each if weight is None else each * weight


def _with_logits_array(
    x: np.ndarray, t: np.ndarray, weight: np.ndarray | None = None, pos_weight: np.ndarray | None = None
) -> np.ndarray:
    soft = np.maximum(-x, 0) + np.log1p(np.exp(-np.abs(x)))  # -log sigmoid(x)
    each = (1 - t) * x + (1 + ((1 if pos_weight is None else pos_weight) - 1) * t) * soft
    return (each if weight is None else each * weight).astype(x.dtype)


class _WithLogits(Op):  # as users call it: pos_weight may be given without weight
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(self.signature.tensors, args, strict=False)) | kwargs
        if given.get("pos_weight") is not None and given.get("weight") is None:
            one = const(1.0, given["predictions"].dtype)
            args, kwargs = ((*args[:2], one, *args[3:]), kwargs) if len(args) > 2 else (args, kwargs | {"weight": one})
        return super().__call__(*args, **kwargs)


specialize(
    pointwise(
        "nn.binary_cross_entropy_with_logits",
        "predictions, targets, weight?, pos_weight?",
        element=_with_logits,
        numpy=_with_logits_array,
        expect=lambda p, t, *weights: _check_weighted("nn.binary_cross_entropy_with_logits", p, t, *weights),
        doc="-weight·(pos_weight·t·log s + (1 - t)·log(1 - s)) with s = sigmoid(p), reduced, for any logits p.\n"
        "Weights broadcast. PyTorch's binary_cross_entropy_with_logits.",
        samples=[
            sample((5, 4), _PROBABILITY),
            sample((5, 4), _PROBABILITY, Floats((4,), 0.5, 2.0), reduction="sum"),
            sample((5, 4), _PROBABILITY, Floats((), 0.5, 2.0), Floats((4,), 0.5, 3.0)),
            sample((5, 4), _PROBABILITY, Floats((5, 1), 0.5, 2.0), Floats((4,), 0.5, 3.0), reduction="none"),
            sample((), Floats((), 0.0, 1.0)),
            sample([500.0, -500.0, 0.0], [0.0, 1.0, 0.5]),
        ],
    ),
    _WithLogits,
)


def _times_log(t: Any) -> Any:
    """t·log t, 0 at 0."""
    zero = ops.equal(t, 0.0)
    return masked(ops.logical_not(zero), t * ops.log(ops.where(zero, ops.ones_like(t), t)))


def _kl_div(p: Any, t: Any, log_target: bool) -> Any:
    return ops.exp(t) * (t - p) if log_target else _times_log(t) - t * p


def _kl_div_array(p: np.ndarray, t: np.ndarray, log_target: bool) -> np.ndarray:
    if log_target:
        return np.exp(t) * (t - p)
    return np.where(t == 0, p.dtype.type(0), t * np.log(np.where(t == 0, p.dtype.type(1), t))) - t * p


pointwise(
    "nn.kl_div",
    "predictions, targets",
    "log_target=False",
    element=_kl_div,
    numpy=_kl_div_array,
    expect=lambda p, t, log_target: check_alike("nn.kl_div", predictions=p, targets=t),
    reductions=(*REDUCTIONS, "batchmean"),
    doc="t·(log t - p), reduced, for log-probabilities p and probabilities t; with log_target, eᵗ·(t - p). The\n"
    "reduction 'batchmean' divides the sum by the first size: the divergence itself. PyTorch's kl_div.",
    samples=[
        sample((5, 4), Floats((5, 4), 0.05, 1.0)),
        sample((5, 4), Floats((5, 4), 0.05, 1.0), reduction="batchmean"),
        sample((2, 3, 4), (2, 3, 4), reduction="sum", log_target=True),
        sample((17,), (17,), reduction="none", log_target=True),
        sample([1.0, -1.0], [0.0, 0.5], smooth=False),
    ],
)


def _poisson(p: Any, t: Any, log_input: bool, full: bool, eps: float) -> Any:
    each = ops.exp(p) - t * p if log_input else p - t * ops.log(p + eps)
    if not full:
        return each
    large = t > 1.0
    safe = ops.where(large, t, ops.full_like(t, 2.0))
    return each + masked(large, safe * ops.log(safe) - safe + ops.log(safe * (2 * math.pi)) * 0.5)


def _poisson_array(p: np.ndarray, t: np.ndarray, log_input: bool, full: bool, eps: float) -> np.ndarray:
    each = np.exp(p) - t * p if log_input else p - t * np.log(p + p.dtype.type(eps))
    stirling = t * np.log(t) - t + np.log(2 * math.pi * t) / 2
    return (each + np.where(t > 1, stirling, 0) if full else each).astype(p.dtype)


pointwise(
    "nn.poisson_nll_loss",
    "predictions, targets",
    "log_input=True, full=False, eps=1e-8",
    element=_poisson,
    numpy=_poisson_array,
    expect=_alike("nn.poisson_nll_loss", "eps"),
    doc="eᵖ - t·p, reduced, for logarithms of rates p and counts t; without log_input, p - t·log(p + eps). full adds\n"
    "Stirling's t·log t - t + log(2πt)/2 where t > 1. PyTorch's poisson_nll_loss.",
    samples=_samples(
        sample(Floats((5, 4), 0.1, 4.0), Floats((5, 4), 0.0, 5.0), log_input=False),
        sample((5, 4), Floats((5, 4), 0.0, 5.0), full=True, reduction="sum"),
        low=0.0,
    ),
)


def _gaussian_check(
    p: TensorStructInfo, t: TensorStructInfo, variance: TensorStructInfo, full: bool, eps: float
) -> None:
    name = "nn.gaussian_nll_loss"
    check_alike(name, predictions=p, targets=t)
    expect_same_dtype(name, p, variance)
    shape, own = known_shape(name, p), known_shape(name, variance, "variance")
    own = _rows(own, shape)
    if not same_shape(broadcast_shapes(name, shape, own), shape):
        raise ShapeError(f"{name}: variance of shape {format_shape(own)} does not broadcast to {format_shape(shape)}")
    check_positive(name, "eps", eps)


def _rows(own: Sequence[Any], shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape of a variance that broadcasts: one without the last axis has a number for each row."""
    return (*own, 1) if shape and same_shape(tuple(own), tuple(shape[:-1])) else tuple(own)


def _gaussian(p: Any, t: Any, variance: Any, full: bool, eps: float) -> Any:
    v = ops.maximum(ops.reshape(variance, _rows(variance.shape, p.shape)), eps)
    each = (ops.log(v) + ops.square(p - t) / v) * 0.5
    return each + 0.5 * math.log(2 * math.pi) if full else each


def _gaussian_array(p: np.ndarray, t: np.ndarray, variance: np.ndarray, full: bool, eps: float) -> np.ndarray:
    v = np.maximum(variance.reshape(_rows(variance.shape, p.shape)), p.dtype.type(eps))
    each = (np.log(v) + np.square(p - t) / v) / 2
    return (each + math.log(2 * math.pi) / 2 if full else each).astype(p.dtype)


def _gaussian_gradient(dy: Any, p: Any, t: Any, variance: Any, full: bool, eps: float) -> tuple[Any, ...]:
    rows = ops.reshape(variance, _rows(variance.shape, p.shape))
    v = ops.maximum(rows, eps)
    dp = dy * (p - t) / v
    dv = dy * (1.0 - ops.square(p - t) / v) / v * 0.5
    return dp, -dp, ops.reshape(collapse_to_operands([dv], rows)[0], variance.shape)


pointwise(
    "nn.gaussian_nll_loss",
    "predictions, targets, variance",
    "full=False, eps=1e-6",
    element=_gaussian,
    numpy=_gaussian_array,
    gradient=_gaussian_gradient,
    expect=_gaussian_check,
    doc="(log v + (p - t)² / v) / 2 with v = max(variance, eps), reduced; full adds log(2π)/2. The variance\n"
    "broadcasts, or lacks the last axis: a number for each row; its derivative is that for v, also where it is below\n"
    "eps. PyTorch's gaussian_nll_loss.",
    samples=[
        sample((5, 4), (5, 4), Floats((5, 4), 0.2, 3.0)),
        sample((5, 4), (5, 4), Floats((5, 1), 0.2, 3.0), full=True, reduction="sum"),
        sample((7,), (7,), Floats((), 0.2, 3.0), reduction="none"),
        sample((4, 4), (4, 4), Floats((4,), 0.2, 3.0), reduction="none"),
        sample([1.0, 2.0], [0.5, 2.0], [0.0, 1.0], smooth=False),
    ],
)

# -- margins, with targets 1 and -1

pointwise(
    "nn.hinge_loss",
    "predictions, targets",
    "margin=1.0",
    element=lambda p, t, margin: at_least_zero(margin - p * t),
    numpy=lambda p, t, margin: np.maximum(p.dtype.type(margin) - p * t, p.dtype.type(0)),
    expect=lambda p, t, margin: check_alike("nn.hinge_loss", predictions=p, targets=t),
    doc="max(margin - p·t, 0), reduced, for targets 1 and -1: the loss of support vector machines.",
    samples=[
        sample((2, 4), _SIGNS),
        sample((2, 4), _SIGNS, reduction="sum", margin=0.5),
        sample((2, 4), _SIGNS, reduction="none"),
        sample([1.0, -1.0], [1.0, -1.0], smooth=False),
    ],
)
pointwise(
    "nn.soft_margin_loss",
    "predictions, targets",
    element=lambda p, t: -ops.nn.logsigmoid(p * t),
    numpy=lambda p, t: np.maximum(-p * t, 0) + np.log1p(np.exp(-np.abs(p * t))),
    expect=_alike("nn.soft_margin_loss"),
    doc="log(1 + e^(-p·t)), reduced, for targets 1 and -1. PyTorch's soft_margin_loss.",
    samples=[sample((2, 4), _SIGNS), sample((2, 4), _SIGNS, reduction="sum"), sample((2, 4), _SIGNS, reduction="none")],
)


def _hinge_embedding(p: Any, t: Any, margin: float) -> Any:
    near = masked(ops.not_equal(t, -1.0), p)
    return near + masked(ops.not_equal(t, 1.0), at_least_zero(margin - p))


def _hinge_embedding_array(p: np.ndarray, t: np.ndarray, margin: float) -> np.ndarray:
    zero = p.dtype.type(0)
    return np.where(t != -1, p, zero) + np.where(t != 1, np.maximum(p.dtype.type(margin) - p, zero), zero)


pointwise(
    "nn.hinge_embedding_loss",
    "predictions, targets",
    "margin=1.0",
    element=_hinge_embedding,
    numpy=_hinge_embedding_array,
    expect=lambda p, t, margin: check_alike("nn.hinge_embedding_loss", predictions=p, targets=t),
    doc="p where the target is 1, max(margin - p, 0) where it is -1, reduced. PyTorch's hinge_embedding_loss.",
    samples=[
        sample((2, 4), _SIGNS, smooth=False),
        sample((2, 4), _SIGNS, reduction="sum", margin=0.5, smooth=False),
        sample((2, 4), _SIGNS, reduction="none", smooth=False),
    ],
)

# -- what a loss is divided by


def _check_divisor(loss: TensorStructInfo, divisor: TensorStructInfo) -> None:
    for label, info in (("loss", loss), ("divisor", divisor)):
        expect_dtype("nn.with_divisor", info, "float", label)
        if known_shape("nn.with_divisor", info, label):
            raise ShapeError(f"nn.with_divisor: {label} must be a scalar, got shape {format_shape(info.shape)}")


composite(
    "nn.with_divisor",
    "loss, divisor",
    expect=_check_divisor,
    decompose=lambda loss, divisor: loss,
    te=lambda loss, divisor: te.compute((), lambda: loss[()], "loss"),
    numpy=lambda loss, divisor: loss,
    gradient=lambda dy, y, loss, divisor: (dy, None),
    divisor=lambda loss, divisor: divisor,
    family="loss",
    doc="The loss as it is, a scalar, said to be a sum over the batch divided by a scalar, which is 0 where nothing\n"
    "counts: whoever combines batches weighs this one by it. The divisor gets no adjoint.",
    samples=[sample((), Floats((), 1.0, 9.0)), sample((), Floats((), 0.5, 1.0)), sample((), Floats((), 9.0, 99.0))],
)
