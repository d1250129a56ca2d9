"""A trainer module, compiled: for the batch size it was made for, and for others on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relax.training.interface import Interface
from pullback.relax.training.rebatch import rebatched
from pullback.relax.training.setup_trainer import BACKBONE, LOSS
from pullback.relax.training.step import StepFunction, Values
from pullback.runtime.tensor import Tensor


class Program:
    """The compiled functions of one trainer module on one virtual machine."""

    def __init__(self, vm: Any, interface: Interface) -> None:
        self.vm, self.interface = vm, interface
        self.step = StepFunction(vm, interface)

    def predict(self, inputs: Sequence[Tensor], values: Values) -> tuple[Tensor, ...]:
        """The backbone's results without the updated states."""
        results = self.vm[BACKBONE](*inputs, *values.params, *values.states)
        results = results if isinstance(results, tuple) else (results,)
        return results[: len(results) - len(values.states)]

    def loss(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], values: Values) -> Tensor:
        """The loss, nothing else changes."""
        result = self.vm[LOSS](*inputs, *values.params, *values.states, *targets)
        return result[0] if isinstance(result, tuple) else result


class Programs:
    """The programs of a trainer by number of rows. ``load`` compiles a module and returns its virtual machine."""

    def __init__(self, module: IRModule, main: Program, load: Callable[[IRModule], Any]) -> None:
        self.module, self.main, self._load = module, main, load
        self._others: dict[tuple[int, bool], Program] = {}

    def of(self, rows: int, trains: bool) -> Program:
        """The program for batches of ``rows`` rows, compiled when it is first asked for."""
        batch = self.main.interface.batch
        if not isinstance(batch, int) or batch == rows:
            return self.main  # the very size, or any size
        found = self._others.get((rows, True)) or self._others.get((rows, trains))
        if found is None:
            found = self._others[rows, trains] = self._compile(rows, trains)
        return found

    def _compile(self, rows: int, trains: bool) -> Program:
        module = rebatched(self.module, self.main.interface, rows, trains)
        interface = self.main.interface.with_rows(rows)
        try:
            return Program(self._load(module), interface)
        except UserError as error:
            message = f"the model cannot be compiled for batches of {rows} rows: {error.message}"
            raise type(error)(message, span=error.span, hint=error.hint) from error
