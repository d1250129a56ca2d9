"""Where a loss that is no number comes from: the step's adjoint is run again, op by op, in the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relax.convention import ADJOINT
from pullback.relax.expr import Binding, Call
from pullback.relax.interpreter import evaluate
from pullback.relax.training.data import Batch
from pullback.relax.training.interface import Interface
from pullback.relax.training.step import Values
from pullback.relax.transform import RaiseOps

_HINT = "the trainer is as it was before that step; a smaller learning rate or scaled inputs often help"


def check_finite(module: IRModule, interface: Interface, batch: Batch, values: Values, loss: float) -> NoReturn:
    """Raise a UserError that names the step, and the first value that is not finite in it.

    ``values``: what the trainer held before the step. The first NaN is named, or else the first infinity.
    """
    step = int(values.optimizer_states[0].item()) + 1
    problem = f"the loss of step {step} is {loss}"
    slots = interface.inputs + interface.targets + interface.params + interface.states
    tensors = [*batch.inputs, *batch.targets, *values.params, *values.states]
    for slot, tensor in zip(slots, tensors, strict=True):
        worst = _worst(np.asarray(tensor))
        if worst is not None:
            raise UserError(f"{problem}: {slot} holds {worst}", hint="look at the data, or load other values")
    found: dict[str, Binding] = {}

    def observe(binding: Binding, value: Any) -> None:
        for array in _arrays(value):
            worst = _worst(array)
            if worst is not None:
                found.setdefault(worst, binding)

    arguments = values.arguments(interface, ADJOINT, batch.inputs, batch.targets)
    evaluate(RaiseOps()(module), ADJOINT, [np.asarray(a) for a in arguments], observe)
    for worst in ("NaN", "infinity"):
        if worst in found:
            binding = found[worst]
            because = f"{problem}: the first {worst} is {binding.var.name} = {_text(binding)}"
            raise UserError(because, span=binding.span, hint=_HINT)
    raise UserError(f"{problem}, but every value is finite in the interpreter", hint=_HINT)


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
    elif isinstance(value, np.ndarray):
        yield value


def _worst(array: np.ndarray) -> str | None:
    """ "NaN" or "infinity" when the array holds it; None when all its values are finite."""
    if array.dtype.kind in "iub" or np.isfinite(array).all():
        return None
    return "NaN" if np.isnan(array).any() else "infinity"


def _text(binding: Binding) -> str:
    """The bound call in short: ``divide(m, s)``."""
    value = binding.value
    if not isinstance(value, Call):
        return type(value).__name__
    name = value.op.short if isinstance(value.op, Op) else getattr(value.op, "name", "function")
    return f"{name}({', '.join(getattr(a, 'name', '…') for a in value.args)})"
