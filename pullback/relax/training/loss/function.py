"""A Python function as a loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError
from pullback.relax.expr import Expr
from pullback.relax.struct_info import StructInfo, TensorStructInfo
from pullback.relax.training.loss.base import Loss


class FunctionLoss(Loss):
    """The loss that a function computes of graph values: first the model's outputs, then the targets.

    >>> def loss(reconstruction, code, x):
    ...     return F.mse_loss(reconstruction, x) + 1e-3 * code.abs().mean()

    ``outputs``: how many outputs of the model it takes; its other parameters are targets. Their types are by default
    that of the first output. It is called when the trainer is made, once for each number of rows at the most.
    """

    def __init__(self, function: Callable[..., Any], outputs: int) -> None:
        if not callable(function):
            raise ArgumentError(f"a loss is a function of graph values, got {type(function).__name__}")
        outputs = whole("outputs", outputs)
        name = getattr(function, "__name__", type(function).__name__)
        super().__init__(name if name.isidentifier() else "loss", outputs)
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # some builtins
            raise ArgumentError(f"the loss {name} does not say what it takes", hint="wrap it in a def") from None
        places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._targets = sum(p.default is p.empty for p in places) - outputs
        if self._targets < 0 or any(p.kind is p.VAR_POSITIONAL for p in parameters):
            names = ", ".join(p.name for p in places)
            taken = f"the model's {outputs} outputs" if outputs > 1 else "the model's output"
            raise ArgumentError(
                f"the loss {name}({names}) must take {taken}, then its targets, each by a name",
                hint="such as def loss(prediction, target): return ((prediction - target) ** 2).mean()",
            )
        missing = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if missing:
            raise ArgumentError(
                f"the loss {name} takes {missing[0]} by name only, and it has no default",
                hint=f"functools.partial({name}, {missing[0]}=…) says what it is",
            )
        self._computes = function

    @property
    def _title(self) -> str:
        return f"the loss {self.name}"

    @property
    def options(self) -> dict[str, Any]:
        return {}

    def expression(self, *variables: Any, **named: Any) -> Expr:
        return self._computes(*variables)

    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self._computes).parameters.values())

    def default_targets(self, predictions: TensorStructInfo) -> list[StructInfo]:
        return [predictions] * self._targets
