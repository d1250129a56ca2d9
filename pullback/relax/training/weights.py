"""Weights of rows: the loss that takes them, and those that follow from classes.

    loss = Σ w·l / Σ w·d

over what the loss l of a model is a mean of: l and d, what each of these terms counts, are the loss's own
(:meth:`Loss.unreduced`), so class weights and ignored targets count as they do without weights. A loss that is a sum
becomes Σ w·l.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax import op
from pullback.relax.expr import Expr, Var, const
from pullback.relax.op.family import wide, widened
from pullback.relax.struct_info import StructInfo, TensorStructInfo, as_tensor
from pullback.relax.training.data import has_labels
from pullback.relax.training.interface import Interface
from pullback.relax.training.loss import Loss, class_axis
from pullback.relax.training.setup_trainer import SetupTrainer
from pullback.tir.polynomial import same

WEIGHTS = "sample_weight"  # the name of the target that is a row's weight


class Weighted(Loss):
    """A loss with one more target, (rows,): what each row's loss weighs."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(
            f"weighted_{loss.name}", loss.num_backbone_outputs, "sum" if loss.reduction == "sum" else "mean"
        )
        self._loss = loss
        self.classification, self.shared_targets = loss.classification, loss.shared_targets
        if hasattr(loss, "ignore_index"):
            self.ignore_index = loss.ignore_index

    def _names(self, count: int) -> list[str]:
        return [*self._loss._names(count - 1), WEIGHTS]

    def expression(self, *variables: Var) -> Expr:
        *given, weights = variables
        losses, counts = self._loss.unreduced(*given)
        dtype, sizes = losses.dtype, as_tensor(losses.struct_info).sizes
        along_rows = op.reshape(weights, (-1, *(1 for _ in sizes[1:])))
        total = op.sum(op.multiply(widened(losses), along_rows))
        if self._reduction == "mean":
            total = op.divide(total, _not_zero(_counted(weights, along_rows, losses, counts)))
        return total if total.dtype == dtype else op.astype(total, dtype)

    def weight_info(self, *arguments: StructInfo) -> StructInfo:
        """The type of the weights when the loss's arguments are of these types; a UserError when it gives no loss for
        each row."""
        name = type(self._loss).__name__
        hint = "a loss of one's own leaves the reduction to self._with_reduction(…) in its method expression"
        if type(self._loss).__call__ is not Loss.__call__:
            raise UserError(f"rows cannot be weighted: {name} makes its loss function itself", hint=hint)
        names = self._loss._names(len(arguments))
        variables = [Var(n, info) for n, info in zip(names, arguments, strict=True)]
        info: Any = self._loss.unreduced(*variables)[0].struct_info
        first = arguments[self.num_backbone_outputs] if len(arguments) > self.num_backbone_outputs else arguments[0]
        rows = info.sizes[0] if info.ndim else None
        if rows is None or not isinstance(first, TensorStructInfo) or not first.ndim or not same(rows, first.sizes[0]):
            raise UserError(f"rows cannot be weighted: {name} has no loss for each of them", hint=hint)
        return TensorStructInfo((rows,), wide(info.dtype))


def _counted(weights: Expr, along_rows: Expr, losses: Expr, counts: Expr | None) -> Expr:
    """What all rows count, each as much as it weighs."""
    if counts is not None:
        return op.sum(op.multiply(widened(counts), along_rows))
    sizes = as_tensor(losses.struct_info).sizes[1:]
    if all(isinstance(size, int) for size in sizes):
        return op.multiply(op.sum(weights), const(float(math.prod(sizes)), weights.dtype))
    return op.sum(op.multiply(widened(op.ones_like(losses)), along_rows))


def _not_zero(total: Expr) -> Expr:
    """A divisor, or 1 where nothing counts: a batch of no weight has the loss 0, and gradients of 0."""
    dtype = total.dtype
    return op.where(op.equal(total, const(0.0, dtype)), const(1.0, dtype), total)


def weighted_setup(setup: SetupTrainer) -> SetupTrainer:
    """The pass that makes the same trainer module with weights."""
    loss = Weighted(setup.loss)
    arguments = [*setup.loss_args, loss.weight_info(*setup.loss_args)]
    return replace(setup, loss=loss, loss_args=arguments)


# ---- what users give -------------------------------------------------------------------------------------------------


def check_weights(weights: Any, rows: int) -> np.ndarray:
    """The weights of rows as an array; an ArgumentError unless each has one, finite and not negative."""
    try:
        array = np.asarray(weights)
        array = array if array.dtype.kind == "f" else array.astype(np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(f"weights must be numbers, got {type(weights).__name__}") from None
    if array.shape != (rows,):
        raise ArgumentError(
            f"there must be one weight for each row, ({rows},), got an array of shape {array.shape}",
            hint="weights.ravel() of a column; class_weight= weighs rows by their class",
        )
    wrong = ~(np.isfinite(array) & (array >= 0))
    if wrong.any():
        place = int(wrong.argmax())
        raise ArgumentError(
            f"weights must be finite and not negative, got {array[place]} for row {place}",
            hint="a weight of 0 leaves a row out",
        )
    return array


def class_weights(given: Any, labels: np.ndarray, interface: Interface, weights: Any) -> np.ndarray:
    """The weights of rows by their classes, times their own ``weights`` if they have some.

    ``given``: a dict from a class to its weight (1 where there is none), or "balanced": rows / (classes that occur ·
    rows of the class), as in scikit-learn.
    """
    numbers, classes = _classes(labels, interface)
    counted = (numbers >= 0) & (numbers < classes)  # others are ignored targets, or errors that their check tells
    table = np.ones(classes)
    if isinstance(given, str) and given == "balanced":
        counts = np.bincount(numbers[counted], minlength=classes)
        occur = counts > 0
        table[occur] = counts.sum() / (occur.sum() * counts[occur])
    else:
        for number, weight in check_class_weight(given).items():
            if not 0 <= number < classes:
                raise ArgumentError(
                    f"class_weight has the class {number}, but classes are from 0 to {classes - 1}",
                    hint="count classes from 0",
                )
            table[number] = weight
    result = np.where(counted, table[np.where(counted, numbers, 0)], 1.0)
    return result if weights is None else result * check_weights(weights, len(result))


def check_class_weight(given: Any) -> dict[int, float]:
    """A dict from classes to weights as plain numbers; an ArgumentError for what is none."""
    if not isinstance(given, Mapping):
        hint = 'write {0: 1.0, 1: 5.0}, or "balanced"'
        raise ArgumentError(f'class_weight must be a dict or "balanced", got {given!r}', hint=hint)
    for number, weight in given.items():
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)):
            raise ArgumentError(f"the keys of class_weight must be classes, which are ints, got {number!r}")
        is_number = isinstance(weight, (int, float, np.integer, np.floating)) and not isinstance(weight, bool)
        if not is_number or not math.isfinite(weight) or weight < 0:
            raise ArgumentError(f"class_weight must be finite and not negative, got {weight!r} for class {number}")
    return {int(number): float(weight) for number, weight in given.items()}


def _classes(labels: np.ndarray, interface: Interface) -> tuple[np.ndarray, int]:
    """The class of each row, and how many classes there are."""
    shape, hint = interface.prediction.shape or (), "weigh the rows yourself: sample_weight="
    if interface.record.classification and interface.prediction.ndim == 2:
        classes: Any = shape[class_axis(2)]
        numbers = labels if has_labels(interface) else labels.argmax(1)
        if isinstance(classes, int):
            return _whole(numbers), classes
    elif interface.record.classification:
        hint = "a loss with a weight for each class, such as CrossEntropyLoss, takes them as a target of its own"
    elif labels.ndim == 1 or (labels.ndim == 2 and labels.shape[1] == 1):
        numbers = labels.reshape(len(labels))
        if ((numbers == 0) | (numbers == 1)).all():
            return numbers.astype(np.int64), 2
    raise ArgumentError("class_weight needs one class for each row of the targets", hint=hint)


def _whole(numbers: np.ndarray) -> np.ndarray:
    """Class labels as integers; what is none is told by who checks the targets."""
    with np.errstate(invalid="ignore"):
        return numbers.astype(np.int64)
