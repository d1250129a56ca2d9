"""Losses."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import number, same_size, shape_of
from pullback.relay.ty import TensorType, Type


def _total(predictions: Any, targets: Any) -> Any:
    """-Σ predictions · targets / N, with N the first size."""
    if len(shape_of(predictions)) != 2 or len(shape_of(targets)) != 2:
        raise ShapeError("cross entropy: predictions and targets must be (N, classes)")
    product = ops.negative(ops.sum(ops.multiply(predictions, targets)))
    return ops.divide(product, number(predictions, float(shape_of(predictions)[0])))


def _scalar(types: list[TensorType], attrs: Attrs) -> Type | None:
    if all(t.is_concrete for t in types):
        return None
    for sizes in zip(types[0].shape, types[1].shape, strict=True):
        same_size("cross entropy", sizes)
    return TensorType((), types[0].dtype)


define(
    "nn.cross_entropy",
    "predictions, targets",
    lambda p, t: _total(ops.log(p), t),
    relation=_scalar,
    doc="-Σ log(predictions) · targets / N of probabilities, both of shape (N, classes).",
)
define(
    "nn.cross_entropy_with_logits",
    "predictions, targets",
    _total,
    relation=_scalar,
    doc="-Σ predictions · targets / N, both of shape (N, classes): the predictions are logarithms of probabilities.",
)


def _nll(predictions: Any, targets: Any, weights: Any, *, reduction: str, ignore_index: int) -> Any:
    return ops.nn.nll_loss(predictions, targets, weights, reduction=reduction, ignore_index=ignore_index)


def _nll_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    if all(t.is_concrete for t in types):
        return None
    return TensorType(types[1].shape if attrs["reduction"] == "none" else (), types[0].dtype)


def _weights(types: list[Type], attrs: Attrs) -> list[Type]:
    types = list(types)
    if isinstance(types[0], TensorType) and types[0].ndim and not isinstance(types[2], TensorType):
        types[2] = TensorType((types[0].shape[1 if types[0].ndim > 1 else 0],), types[0].dtype)
    return types


define(
    "nn.nll_loss",
    "predictions, targets, weights | reduction='mean', ignore_index=-100",
    _nll,
    relation=_nll_type,
    complete=_weights,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    doc="-weights[t] · predictions[n, t, …] with t = targets[n, …]; reduction mean (by the weights), sum or none.",
)
