"""Where a loss that is no number comes from: the step's adjoint is run again, op by op, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from pullback.ir.errors import UserError
from pullback.ir.op import Op
from pullback.relax.convention import ADJOINT
from pullback.relax.expr import Binding, Call
from pullback.relax.interpreter import evaluate
from pullback.relax.training.data import Batch
from pullback.relax.training.interface import Interface
from pullback.relax.training.program import Program
from pullback.relax.training.step import Values
from pullback.relax.training.together import raise_first
from pullback.relax.transform import RaiseOps
from pullback.runtime.ranks import Ranks

_HINT = "the trainer is as it was before that step; a smaller learning rate or scaled inputs often help"


def check_finite(
    program: Program, batch: Batch, values: Values, loss: float, where: Callable[[int], str], ranks: Ranks
) -> NoReturn:
    """Raise a UserError that names the step, and the first value that is not finite in it, on all ranks.

    ``values``: what the trainer held before the step; ``where``: says where a row of the batch came from. The first NaN
    is named, or else the first infinity.
    """
    step = int(values.optimizer_states[0].item()) + 1
    problem = f"the loss of step {step} is {loss}"
    raise_first(ranks, lambda: _check_tensors(program.interface, batch, values, problem, where))
    raise_first(ranks, lambda: _check_ops(program, batch, values, problem))
    raise UserError(f"{problem}, but every value is finite in the interpreter", hint=_HINT)


def _check_tensors(
    interface: Interface, batch: Batch, values: Values, problem: str, where: Callable[[int], str]
) -> None:
    """Raise a UserError for the first value that the step takes and that is not finite."""
    for slot, tensor in zip(interface.inputs + interface.targets, [*batch.inputs, *batch.targets], strict=True):
        array = np.asarray(tensor)
        worst = _worst(array)
        if worst is not None:
            place = _place(array, worst)
            row = f" in {where(place[0])}" if interface.has_rows(slot) else ""
            at = f", at index {place[1:] if row else place}" if place[1:] or not row else ""
            raise UserError(
                f"{problem}: {slot} holds {worst}{row}{at}", hint="look at the data: np.isfinite finds them"
            )
    for slot, value in zip(interface.params + interface.states, [*values.params, *values.states], strict=True):
        worst = _worst(np.asarray(value))
        if worst is not None:
            raise UserError(f"{problem}: {slot} holds {worst}", hint="load other values")


def _check_ops(program: Program, batch: Batch, values: Values, problem: str) -> None:
    """Raise a UserError for the first value that the step computes and that is not finite."""
    found: dict[str, Binding] = {}

    def observe(binding: Binding, value: Any) -> None:
        for array in _arrays(value):
            worst = _worst(array)
            if worst is not None:
                found.setdefault(worst, binding)

    arguments = values.arguments(program.interface, ADJOINT, batch.inputs, batch.targets)
    evaluate(RaiseOps()(program.module), ADJOINT, [np.asarray(a) for a in arguments], observe)
    for worst in ("NaN", "infinity"):
        if worst in found:
            binding = found[worst]
            because = f"{problem}: the first {worst} is {binding.var.name} = {_text(binding)}"
            raise UserError(because, span=binding.span, hint=_HINT)


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


def _place(array: np.ndarray, worst: str) -> tuple[int, ...]:
    """The index of the first such value."""
    found = np.isnan(array) if worst == "NaN" else np.isinf(array)
    return tuple(int(i) for i in np.argwhere(found)[0])


def _text(binding: Binding) -> str:
    """The bound call in short: ``divide(m, s)``."""
    value = binding.value
    if not isinstance(value, Call):
        return type(value).__name__
    name = value.op.short if isinstance(value.op, Op) else getattr(value.op, "name", "function")
    return f"{name}({', '.join(getattr(a, 'name', '…') for a in value.args)})"
