"""Losses: from the types of predictions and targets to a graph function that returns the loss.

    >>> func = CrossEntropyLoss("sum")(TensorStructInfo((64, 10), "float32"), TensorStructInfo((64,), "int64"))

The formulas are PyTorch's. A loss of one's own is a subclass that overrides :meth:`Loss.expression`:

    class HuberLoss(Loss):
        def __init__(self, reduction="mean"):
            super().__init__("huber_loss", 1, reduction)

        def expression(self, predictions, targets):
            distance = op.abs(predictions - targets)
            return self._with_reduction(op.where(op.less(distance, 1.0), distance * distance * 0.5, distance - 0.5))

Overriding ``__call__`` itself, with a BlockBuilder of one's own, works as well.
"""

from __future__ import annotations

import inspect
from typing import Any

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Expr, Function, Var
from pullback.relax.struct_info import (
    Dim,
    StructInfo,
    TensorStructInfo,
    format_info,
    format_shape,
    same_shape,
)
from pullback.tir.expr import FLOATS, INTEGERS
from pullback.tir.polynomial import same

REDUCTIONS = ("mean", "sum", "none")


class Loss:
    """Base of the losses.

    ``loss_name`` names the function; ``num_backbone_outputs`` is how many of its first parameters are outputs of the
    backbone, the others are targets; ``reduction`` is "mean", "sum" or "none" (which gives a loss per element or row,
    not a scalar, and cannot be trained on).
    """

    classification = False  # whether predictions have a class axis, so that an accuracy can be told
    shared_targets: tuple[str, ...] = ()  # targets that have no row for each row of the batch

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise ArgumentError(f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}")
        self._loss_name = loss_name
        self._num_backbone_outputs = num_backbone_outputs
        self._reduction = reduction

    @property
    def name(self) -> str:
        """The name of the loss function."""
        return self._loss_name

    @property
    def reduction(self) -> str:
        """How the losses of rows are joined: "mean", "sum" or "none"."""
        return self._reduction

    @property
    def num_backbone_outputs(self) -> int:
        """How many outputs of the backbone the loss takes."""
        return self._num_backbone_outputs

    def expression(self, *variables: Var) -> Expr:
        """The loss of the parameters; their names are those of this method's parameters."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither expression nor __call__")

    def __call__(self, *args: Var | StructInfo) -> Function:
        """The loss function for arguments of these types (a variable gives its type and its name): one dataflow block.

        Raises ArgumentError, ShapeError or DTypeError when the types are not what the loss takes.
        """
        params = [_parameter(name, arg) for name, arg in zip(self._names(len(args)), args, strict=True)]
        builder = BlockBuilder()
        with builder.function(self._loss_name, params):
            with builder.dataflow():
                loss = builder.emit_output(_shared(builder, self.expression(*params), {}), "loss")
            builder.emit_func_output(loss)
        return builder.get()[self._loss_name]

    def _names(self, count: int) -> list[str]:
        """The names of the first ``count`` parameters of :meth:`expression`."""
        declared = inspect.signature(self.expression).parameters.values()
        if any(p.kind is p.VAR_POSITIONAL for p in declared):
            return [f"arg{i}" for i in range(count)]
        names = [p.name for p in declared]
        required = sum(p.default is p.empty for p in declared)
        if not required <= count <= len(names):
            wanted = ", ".join(names[:required]) + "".join(f"[, {n}]" for n in names[required:])
            raise ArgumentError(f"{type(self).__name__} takes the types of ({wanted}), got {count} of them")
        return names[:count]

    def _with_reduction(self, expr: Expr) -> Expr:
        """``expr`` reduced to the loss: its mean, its sum, or as it is."""
        if self._reduction == "none":
            return expr
        return op.sum(expr) if self._reduction == "sum" else op.mean(expr)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._reduction!r})"


class L1Loss(Loss):
    """|predictions - targets|, reduced over all elements.

    Both are of one float dtype and of the same shape; nothing is broadcast. Formula: ``torch.nn.L1Loss``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def expression(self, predictions: Var, targets: Var) -> Expr:  # type: ignore[override]
        _check_alike(type(self).__name__, predictions, targets)
        return self._with_reduction(op.abs(op.subtract(predictions, targets)))


class MSELoss(Loss):
    """(predictions - targets)², reduced over all elements.

    Both are of one float dtype and of the same shape; nothing is broadcast. Formula: ``torch.nn.MSELoss``.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def expression(self, predictions: Var, targets: Var) -> Expr:  # type: ignore[override]
        _check_alike(type(self).__name__, predictions, targets)
        difference = op.subtract(predictions, targets)
        return self._with_reduction(op.multiply(difference, difference))


class CrossEntropyLoss(Loss):
    """-log of the softmax of the right class: log_softmax, then nll_loss.

    ``predictions`` are logits of a float dtype, (C,), (N, C) or (N, C, d…): the class axis is the second, or the only
    one. ``targets`` are either class indices of an integer dtype, (), (N,) or (N, d…), or, when their rank equals the
    predictions', a probability for each class in the predictions' shape: floats, or integers for a one-hot target. A
    target equal to ``ignore_index`` counts for nothing, in the mean's divisor too. ``weights`` are a factor for each
    class, (C,).

    Formula: ``torch.nn.CrossEntropyLoss``. With indices t and weights w, row n has l[n] = -w[t[n]] ·
    log_softmax(p[n])[t[n]], and the mean is Σ l[n] / Σ w[t[n]]. With probabilities q, l[n] = -Σ_c w[c] · q[n, c] ·
    log_softmax(p[n])[c], and the mean divides by the number of rows (all positions but the class axis).
    """

    classification = True
    shared_targets = ("weights",)

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        if isinstance(ignore_index, bool) or not isinstance(ignore_index, int):
            raise ArgumentError(f"ignore_index must be an int, got {ignore_index!r}")
        self.ignore_index = ignore_index

    def expression(self, predictions: Var, targets: Var, weights: Var | None = None) -> Expr:  # type: ignore[override]
        axis = _check_logits(type(self).__name__, predictions, weights)
        if _is_indices(type(self).__name__, predictions, targets, axis):
            return self._of_indices(predictions, targets, weights, axis)
        if self.ignore_index >= 0:
            raise ArgumentError(
                f"{type(self).__name__}: ignore_index={self.ignore_index} needs targets that are class indices,"
                f" got probabilities {format_info(targets.struct_info)}",
                hint="use CategoricalCrossEntropyLoss for one-hot targets with an ignored class",
            )
        return self._of_probabilities(predictions, targets, weights, axis)

    def _of_indices(self, predictions: Var, targets: Expr, weights: Var | None, axis: int) -> Expr:
        return op.nn.nll_loss(_log_softmax(predictions, axis), targets, weights, self._reduction, self.ignore_index)

    def _of_probabilities(self, predictions: Var, targets: Var, weights: Var | None, axis: int) -> Expr:
        probabilities = targets if targets.dtype == predictions.dtype else op.astype(targets, predictions.dtype)
        products = op.multiply(_log_softmax(predictions, axis), probabilities)
        if weights is not None:
            rank = predictions.struct_info.ndim  # type: ignore[attr-defined]
            along_axis = op.reshape(weights, tuple(-1 if k == axis else 1 for k in range(rank)))
            products = op.multiply(products, along_axis)
        return self._with_reduction(op.negative(op.sum(products, axis)))


class CategoricalCrossEntropyLoss(CrossEntropyLoss):
    """:class:`CrossEntropyLoss` for targets that are one-hot or probabilities, in the shape of the predictions.

    With ``ignore_index`` ≥ 0, the class of a target is the one of its largest value, and rows of the class
    ``ignore_index`` count for nothing. The mean divides by the number of rows, as in PyTorch.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__(reduction, ignore_index)
        self._loss_name = "categorical_cross_entropy_loss"

    def expression(self, predictions: Var, targets: Var, weights: Var | None = None) -> Expr:  # type: ignore[override]
        axis = _check_logits(type(self).__name__, predictions, weights)
        if _is_indices(type(self).__name__, predictions, targets, axis):
            raise ShapeError(
                f"{type(self).__name__}: targets must be one-hot or probabilities in the predictions' shape"
                f" {format_shape(predictions.shape)}, got {format_info(targets.struct_info)}",
                hint="use CrossEntropyLoss for class indices",
            )
        if self.ignore_index >= 0:
            return self._of_indices(predictions, op.argmax(targets, axis), weights, axis)
        return self._of_probabilities(predictions, targets, weights, axis)


def _log_softmax(predictions: Var, axis: int) -> Expr:
    """The log softmax along the class axis, which is written -1 when it is the last, as TVM does."""
    is_last = axis == predictions.struct_info.ndim - 1  # type: ignore[attr-defined]
    return op.nn.log_softmax(predictions, -1 if is_last else axis)


def class_axis(rank: int) -> int:
    """Which axis of predictions of this rank holds the classes."""
    return 1 if rank > 1 else 0


def _shared(builder: BlockBuilder, expr: Expr, bound: dict[int, tuple[Expr, Var]]) -> Expr:
    """``expr`` with its operands bound to variables; a call object that occurs in several places is bound once."""
    if not isinstance(expr, Call):
        return expr
    args = []
    for arg in expr.args:
        if isinstance(arg, Call):
            if id(arg) not in bound:
                bound[id(arg)] = arg, builder.emit(_shared(builder, arg, bound))
            arg = bound[id(arg)][1]
        args.append(arg)
    return Call(expr.op, tuple(args), expr.attrs, expr.sinfo_args, expr.info, span=expr.span)


def _parameter(name: str, arg: Any) -> Var:
    if isinstance(arg, Var):
        return Var(arg.name, arg.struct_info)
    if not isinstance(arg, StructInfo):
        raise ArgumentError(
            f"{name} must be a struct info or a variable, got {type(arg).__name__}",
            hint='such as relax.TensorStructInfo((64, 10), "float32")',
        )
    return Var(name, arg)


def _tensor(loss: str, var: Var) -> TensorStructInfo:
    info = var.struct_info
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise ShapeError(f"{loss}: {var.name} must be a tensor of known shape, got {format_info(info)}")
    return info


def _check_float(loss: str, var: Var, info: TensorStructInfo) -> None:
    if info.dtype not in FLOATS:
        hint = "cast the model's output with R.astype"
        raise DTypeError(f"{loss}: {var.name} must have a floating-point dtype, got {info.dtype}", hint=hint)


def _check_alike(loss: str, predictions: Var, targets: Var) -> None:
    """Both are tensors of the same shape and float dtype."""
    prediction, target = _tensor(loss, predictions), _tensor(loss, targets)
    _check_float(loss, predictions, prediction)
    if prediction.dtype != target.dtype:
        raise DTypeError(
            f"{loss}: predictions and targets must have the same dtype, got {prediction.dtype} and {target.dtype}",
            hint="declare the targets in the predictions' dtype; a trainer casts data when no value changes",
        )
    if not same_shape(prediction.shape, target.shape):  # type: ignore[arg-type]
        shapes = f"{format_shape(prediction.shape)} and {format_shape(target.shape)}"
        raise ShapeError(
            f"{loss}: predictions and targets must have the same shape, got {shapes}",
            hint="a loss does not broadcast: reshape one of them",
        )


def _check_logits(loss: str, predictions: Var, weights: Var | None) -> int:
    """Predictions and weights are right; returns the class axis."""
    prediction = _tensor(loss, predictions)
    _check_float(loss, predictions, prediction)
    if prediction.ndim == 0:
        raise ShapeError(f"{loss}: predictions need a class axis, got a scalar")
    axis = class_axis(prediction.ndim)
    classes: Dim = prediction.shape[axis]  # type: ignore[index]
    if weights is not None:
        weight = _tensor(loss, weights)
        if weight.ndim != 1 or not same(weight.shape[0], classes) or weight.dtype != prediction.dtype:  # type: ignore[index]
            wanted = format_info(TensorStructInfo((classes,), prediction.dtype))
            raise ShapeError(f"{loss}: weights must be one factor for each class, {wanted}, got {format_info(weight)}")
    return axis


def _is_indices(loss: str, predictions: Var, targets: Var, axis: int) -> bool:
    """Whether the targets are class indices (else they are probabilities); an error when they can be neither."""
    prediction, target = _tensor(loss, predictions), _tensor(loss, targets)
    shape = prediction.shape
    rows = (*shape[:axis], *shape[axis + 1 :])  # type: ignore[index]
    if target.ndim == prediction.ndim:
        if not same_shape(shape, target.shape):  # type: ignore[arg-type]
            raise ShapeError(
                f"{loss}: targets of the predictions' rank are probabilities and need their shape"
                f" {format_shape(shape)}, got {format_shape(target.shape)}",
                hint=f"class indices have the shape {format_shape(rows)}",
            )
        if target.dtype not in FLOATS + INTEGERS:
            raise DTypeError(f"{loss}: one-hot targets must be floats or integers, got {target.dtype}")
        return False
    if not same_shape(rows, target.shape):  # type: ignore[arg-type]
        raise ShapeError(
            f"{loss}: targets must be class indices of shape {format_shape(rows)} or probabilities of shape"
            f" {format_shape(shape)}, got {format_shape(target.shape)}"
        )
    if target.dtype not in INTEGERS:
        raise DTypeError(f"{loss}: class indices must have an integer dtype, got {target.dtype}", hint="such as int64")
    return True
