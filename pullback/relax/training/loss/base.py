"""What all losses are made of: the base class, and checks of what they are given."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.ir.module import IRModule
from pullback.ir.words import guided
from pullback.relax import op
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Call, Constant, Expr, Function, Var, as_relax, const
from pullback.relax.interpreter import evaluate, value_info
from pullback.relax.struct_info import (
    StructInfo,
    TensorStructInfo,
    format_info,
    format_shape,
    same_shape,
)
from pullback.runtime.interchange import array_of
from pullback.runtime.tensor import Tensor, tensor
from pullback.tir.expr import FLOATS

REDUCTIONS = ("mean", "sum", "none")
_composing: ContextVar[bool] = ContextVar("pullback_composing", default=False)


@contextlib.contextmanager
def composing() -> Iterator[None]:
    """Losses that are called inside return the loss of their arguments, which are graph values."""
    token = _composing.set(True)
    try:
        yield
    finally:
        _composing.reset(token)


class Loss:
    """Base of the losses.

    ``loss_name`` names the function; ``num_backbone_outputs`` is how many of its first parameters are outputs of the
    backbone, the others are targets; ``reduction`` is "mean", "sum" or "none" (which gives a loss per element or row,
    not a scalar, and cannot be trained on). Batches whose reduction is "sum" are added up; of other losses, the formula
    says what a batch weighs (see the package).

    Args:
        loss_name: of the function that is made.
        num_backbone_outputs: how many of its first parameters are outputs of the backbone; the others are targets.
        reduction: "mean", "sum", or "none" for a loss of each element, which cannot be trained on.
    """

    classification = False  # whether predictions have a class axis, so that an accuracy can be told
    shared_targets: tuple[str, ...] = ()  # targets that have no row for each row of the batch
    reductions: tuple[str, ...] = REDUCTIONS

    def __init_subclass__(cls) -> None:
        guided(cls)

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if not isinstance(reduction, str) or reduction not in self.reductions:
            allowed = ", ".join(map(repr, self.reductions))
            raise ArgumentError(
                f"reduction must be one of {allowed}, got {reduction!r}",
                hint="a mean divides by what is counted, none keeps a loss for each row",
            )
        self._loss_name = loss_name
        self._num_backbone_outputs = num_backbone_outputs
        self._reduction = reduction

    @property
    def name(self) -> str:
        """The name of the loss function."""
        return self._loss_name

    @property
    def _title(self) -> str:
        """What messages call it."""
        return type(self).__name__

    @property
    def reduction(self) -> str:
        """How the losses of rows are joined: "mean", "sum" or "none"."""
        return self._reduction

    @property
    def num_backbone_outputs(self) -> int:
        """How many outputs of the backbone the loss takes."""
        return self._num_backbone_outputs

    @property
    def options(self) -> dict[str, Any]:
        """What the loss was made with besides its reduction, by name; of arrays a digest."""
        return {name: _plain(value) for name, value in vars(self).items() if not name.startswith("_")}

    def expression(self, *variables: Any, **named: Any) -> Expr:
        """The loss of the parameters, which are expressions; their names are those of this method's parameters."""
        raise NotImplementedError(f"{type(self).__name__} overrides neither expression nor __call__")

    def forward(self, *values: Any, **named: Any) -> Expr:
        """The loss of graph values, in the order in which PyTorch's loss takes them."""
        return self.expression(*values)

    def unreduced(self, *variables: Expr) -> tuple[Expr, Expr | None]:
        """The terms of which the loss is a mean or a sum, rows first, and what each adds to the mean's divisor: of the
        same shape, or None where that is 1."""
        terms = copy.copy(self)
        terms._reduction = "none"
        with composing():
            return terms.expression(*variables), None

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        """The types of the targets that the loss is commonly given when its (first) predictions are of this type: class
        indices for a classification, else the predictions' type."""
        if not self.classification:
            return [predictions]
        shape, axis = predictions.shape or (), class_axis(predictions.ndim or 0)
        return [TensorStructInfo((*shape[:axis], *shape[axis + 1 :]), "int64")]

    def __call__(self, *args: Any) -> Any:
        """The loss function for arguments of these types (a variable gives its type and its name): one dataflow block.

        In the expression of another loss, and in the ``forward`` of a module: the loss of these graph values. Of
        arrays: its value, a tensor, computed by the interpreter.

        Raises ArgumentError, ShapeError or DTypeError when the types are not what the loss takes.
        """
        names = self._names(len(args))
        if _composing.get():
            return self.forward(*_graph_values(args))
        if args and all(_is_array(arg) for arg in args):
            arrays = [np.asarray(arg) if isinstance(arg, Tensor) else array_of(arg, None) for arg in args]
            params = [Var(name, value_info(array)) for name, array in zip(names, arrays, strict=True)]
            return tensor(evaluate(IRModule({self.name: self._function(params, self.forward)}), self.name, arrays))
        return self._function([_parameter(name, arg) for name, arg in zip(names, args, strict=True)], self.expression)

    def _function(self, params: list[Var], expression: Callable[..., Expr]) -> Function:
        """The function that returns an expression of its parameters."""
        builder = BlockBuilder()
        with builder.function(self._loss_name, params):
            with builder.dataflow():
                with composing():
                    value = expression(*params)
                _check_expression(self, value)
                loss = builder.emit_output(_shared(builder, value, {}), "loss")
            builder.emit_func_output(loss)
        return builder.get()[self._loss_name]

    def _names(self, count: int) -> list[str]:
        """The names of the first ``count`` parameters of :meth:`expression`."""
        declared = self._parameters()
        if any(p.kind is p.VAR_POSITIONAL for p in declared):
            return [f"arg{i}" for i in range(count)]
        places = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        names = [p.name for p in places]
        required = sum(p.default is p.empty for p in places)
        if not required <= count <= len(names):
            wanted = ", ".join(names[:required]) + "".join(f"[, {n}]" for n in names[required:])
            raise ArgumentError(
                f"{self._title} takes the types of ({wanted}), got {count} of them",
                hint="loss_args of SetupTrainer, or targets= of pullback.trainer, has one type for each",
            )
        return names[:count]

    def _parameters(self) -> list[inspect.Parameter]:
        """The parameters of :meth:`expression`."""
        return list(inspect.signature(self.expression).parameters.values())

    def _with_reduction(self, expr: Expr) -> Expr:
        """``expr`` reduced to the loss: its mean, its sum, or as it is."""
        if self._reduction == "none":
            return expr
        return op.sum(expr) if self._reduction == "sum" else op.mean(expr)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._reduction!r})"


def _check_expression(loss: Loss, value: Any) -> None:
    if not isinstance(value, Expr):
        given = "None" if value is None else type(value).__name__
        raise ArgumentError(
            f"{loss.name} returns {given}, not a graph value", hint="a loss is computed with ops: return op.mean(…)"
        )


def _plain(value: Any) -> Any:
    """A value as a module attribute holds it."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype}{value.shape}, {hashlib.sha256(value.tobytes()).hexdigest()[:8]}"
    return type(value).__name__


def factor(name: str, value: Any) -> np.ndarray | None:
    """A weight as users give it, numbers, as an array."""
    if value is None:
        return None
    try:
        array = array_of(value, None)
    except UserError:
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        raise ArgumentError(f"{name} must be a number or an array of numbers, got {value!r}")
    return array


def constant_like(value: Any, like: Expr) -> Constant | None:
    """Numbers as a constant in the dtype of ``like``."""
    array = factor("weight", value)
    return None if array is None else const(array, like.dtype)


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


def _is_array(value: Any) -> bool:
    return not isinstance(value, (Expr, StructInfo)) and hasattr(value, "shape") and hasattr(value, "dtype")


def _graph_values(args: Sequence[Any]) -> list[Expr]:
    """Arrays as constants, and numbers in the dtype of the first tensor."""
    dtype = next((a.dtype for a in args if isinstance(a, Expr) and isinstance(a.struct_info, TensorStructInfo)), None)
    return [as_relax(arg, dtype) for arg in args]


def _parameter(name: str, arg: Any) -> Var:
    if isinstance(arg, Var):
        return Var(arg.name, arg.struct_info)
    if not isinstance(arg, StructInfo):
        raise ArgumentError(
            f"{name} must be a struct info or a variable, got {type(arg).__name__}",
            hint='such as relax.TensorStructInfo((64, 10), "float32")',
        )
    return Var(name, arg)


def _label(value: Expr) -> str:
    return value.name if isinstance(value, Var) else "an operand"


def tensor_info(loss: str, value: Expr) -> TensorStructInfo:
    """The type of a tensor of known shape, or a ShapeError."""
    info = value.struct_info
    if not isinstance(info, TensorStructInfo) or info.shape is None:
        raise ShapeError(
            f"{loss}: {_label(value)} must be a tensor of known shape, got {format_info(info)}",
            hint='declare the shape, such as R.Tensor(("n", 10), "float32")',
        )
    return info


def check_float(loss: str, value: Expr, info: TensorStructInfo) -> None:
    """A DTypeError unless the tensor is one of floats."""
    if info.dtype not in FLOATS:
        hint = "cast the model's output with R.astype"
        raise DTypeError(f"{loss}: {_label(value)} must have a floating-point dtype, got {info.dtype}", hint=hint)


def check_alike(loss: str, predictions: Expr, targets: Expr) -> None:
    """Both are tensors of the same shape and float dtype."""
    prediction, target = tensor_info(loss, predictions), tensor_info(loss, targets)
    check_float(loss, predictions, prediction)
    if prediction.dtype != target.dtype:
        raise DTypeError(
            f"{loss}: predictions and targets must have the same dtype, got {prediction.dtype} and {target.dtype}",
            hint="declare the targets in the predictions' dtype; a trainer casts data when no value changes",
        )
    if not same_shape(prediction.sizes, target.sizes):
        shapes = f"{format_shape(prediction.shape)} and {format_shape(target.shape)}"
        raise ShapeError(
            f"{loss}: predictions and targets must have the same shape, got {shapes}",
            hint="a loss does not broadcast: reshape one of them",
        )
