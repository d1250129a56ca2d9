"""Losses of Keras: their formulas are traced, so that any of them, and functions of the user, are what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keras import losses as keras_losses

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax import op
from pullback.relax.expr import Expr
from pullback.relax.frontend.converters import check_supported
from pullback.relax.frontend.keras.table import KERAS, cast
from pullback.relax.frontend.keras.trace import Trace
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training.loss.base import Loss

__all__ = ["KerasLoss", "Penalized", "loss_of"]

_REDUCTIONS = {"sum_over_batch_size": "mean", "mean": "mean", "mean_with_sample_weight": "mean", "sum": "sum"}


@dataclass(frozen=True)
class _Term:
    """The loss of one output: a loss of Keras, the factor that ``loss_weights`` gives it, and the output's number."""

    loss: Any
    factor: float
    output: int

    @property
    def is_sparse(self) -> bool:
        """Whether its targets are class indices."""
        function = getattr(self.loss, "fn", None)
        name = getattr(function, "__name__", "")
        return type(self.loss).__name__.startswith("Sparse") or name.startswith("sparse_")


class KerasLoss(Loss):
    """The loss that a model of Keras is compiled with, as Keras computes it.

    ``terms``: the loss of each output that has one, in the order of the targets. The reduction of each is its own.
    """

    def __init__(self, terms: Sequence[_Term], outputs: int) -> None:
        sums = {_REDUCTIONS.get(t.loss.reduction) for t in terms}
        if None in sums or len(sums) != 1:
            kinds = ", ".join(str(t.loss.reduction) for t in terms)
            raise UserError(
                f"losses with the reductions {kinds} are not taken over", hint="all of them must be means, or sums"
            )
        super().__init__("keras_loss", outputs, sums.pop() or "mean")
        self._terms = tuple(terms)
        self.classification = len(terms) == 1 and outputs == 1 and terms[0].is_sparse
        self.formula = "; ".join(f"{t.factor} {t.loss.name} {t.loss.get_config()}" for t in terms)

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        if len(self._terms) != 1:
            raise ArgumentError(
                "a model with several losses needs the types of its targets",
                hint="pullback.trainer(net, net.loss, net.optimizer, targets=net.targets)",
            )
        return [_target(self._terms[0], predictions)]

    def targets(self, outputs: Sequence[TensorStructInfo]) -> list[StructInfo]:
        """The types of the targets for outputs of these types."""
        return [_target(term, outputs[term.output]) for term in self._terms]

    def expression(self, *values: Expr) -> Expr:
        """The loss of the model's outputs and the targets, one for each loss."""
        outputs, targets = values[: self.num_backbone_outputs], values[self.num_backbone_outputs :]
        if len(targets) != len(self._terms):
            raise ArgumentError(f"the loss takes {len(self._terms)} targets, got {len(targets)}")
        parts = []
        for term, target in zip(self._terms, targets, strict=True):
            found = self._reduced(_values(term.loss, target, outputs[term.output]), len(self._terms) > 1)
            parts.append(found if term.factor == 1 else found * term.factor)
        return sum(parts[1:], parts[0])

    def _reduced(self, values: Expr, is_one_of_several: bool) -> Expr:
        if self._reduction != "none":
            return self._with_reduction(values)
        axes = list(range(1, len(values.shape)))
        return op.mean(values, axes) if is_one_of_several and axes else values


def _target(term: _Term, output: TensorStructInfo) -> StructInfo:
    if term.is_sparse:
        return TensorStructInfo((output.shape or ())[:-1], "int64")
    return output


def _values(loss: Any, target: Expr, output: Expr) -> Expr:
    """A loss of Keras before its reduction."""
    trace = Trace()
    dtype = str(loss.dtype)
    mask: list[Any] = []

    def call(y_true: Any, y_pred: Any) -> Any:
        found = loss.call(y_true, y_pred)
        mask.append(getattr(found, "_keras_mask", None))
        return found

    found = trace.function(call, cast(target, dtype), cast(output, dtype))
    check_supported(KERAS, trace.missing)
    if mask[0] is not None:
        raise UserError(
            f"the loss {loss.name} leaves targets out (ignore_class), and is not taken over",
            hint="nn.CrossEntropyLoss(ignore_index=…) of logits does: pullback.trainer(net, loss, net.optimizer)",
        )
    if not isinstance(found, Expr):
        raise UserError(f"the loss {loss.name} returns a {type(found).__name__}, not a tensor")
    return found


def loss_of(model: Any, outputs: int, has_mask: bool) -> KerasLoss:
    """The loss with which a model is compiled."""
    given = getattr(model, "loss", None)
    if not getattr(model, "compiled", False) or given is None:
        raise UserError(
            f"the model {model.name} is not compiled with a loss",
            hint='model.compile(loss=…) in Keras; or one of pullback: pullback.trainer(net, "cross_entropy", …)',
        )
    if has_mask:
        raise UserError(
            "an output of the model has a mask, by which Keras weighs the loss: that is not taken over",
            hint="give a loss of your own, with F.with_divisor for the mean over what counts",
        )
    losses = _in_order(given, model, outputs, "loss")
    factors = _in_order(getattr(model, "_loss_weights", None) or _weights_given(model), model, outputs, "loss_weights")
    terms = []
    for number, (loss, factor) in enumerate(zip(losses, factors, strict=True)):
        if loss is not None:
            terms.append(_Term(_resolved(loss), 1.0 if factor is None else float(factor), number))
    if not terms:
        raise UserError(f"the model {model.name} is compiled without a loss of any output")
    return KerasLoss(terms, outputs)


def _weights_given(model: Any) -> Any:
    compiled = getattr(model, "_compile_loss", None)
    return getattr(compiled, "_user_loss_weights", None)


def _in_order(given: Any, model: Any, outputs: int, what: str) -> list[Any]:
    """One value for each output, in their order."""
    if isinstance(given, dict):
        names = list(getattr(model, "output_names", []))
        unknown = [name for name in given if name not in names]
        if unknown:
            raise UserError(f"{what} names {', '.join(unknown)}; the outputs are {', '.join(names)}")
        return [given.get(name) for name in names]
    if isinstance(given, (list, tuple)):
        if len(given) != outputs:
            raise UserError(f"{what} has {len(given)} entries for {outputs} outputs")
        return list(given)
    return [given] * outputs


def _resolved(given: Any) -> Any:
    """A loss of Keras from its name, a function or a loss."""
    if isinstance(given, str) and given.lower() in ("crossentropy", "ce"):
        raise UserError(
            f"the loss {given!r} depends on the targets", hint='say which: "sparse_categorical_crossentropy", …'
        )
    found = keras_losses.get(given)
    if isinstance(found, keras_losses.Loss):
        return found
    from keras.src.losses.losses import LossFunctionWrapper

    name = given if isinstance(given, str) else getattr(found, "__name__", type(found).__name__)
    return LossFunctionWrapper(found, name=name)


class Penalized(Loss):
    """A loss and what the model itself adds to it: the mean of its last output, a number for each row."""

    def __init__(self, loss: Loss, outputs: int) -> None:
        super().__init__(loss.name, outputs + 1, loss.reduction)
        self._loss, self._outputs = loss, outputs
        self.classification, self.shared_targets = loss.classification, loss.shared_targets

    @property
    def options(self) -> dict[str, Any]:
        return self._loss.options

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return self._loss.default_targets(predictions)

    def expression(self, *values: Expr) -> Expr:
        outputs, penalty, targets = values[: self._outputs], values[self._outputs], values[self._outputs + 1 :]
        taken = outputs[: self._loss.num_backbone_outputs]
        return self._loss.expression(*taken, *targets) + op.mean(cast(penalty, taken[0].dtype))

    def unreduced(self, *variables: Any) -> tuple[Expr, Expr | None]:
        raise UserError(
            "the loss of a model that adds terms of its own, such as regularizers, takes no weights of samples",
            hint="remove the regularizers, or weigh the rows in a loss of your own",
        )
