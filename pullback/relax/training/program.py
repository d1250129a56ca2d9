"""A trainer module, compiled: for the batch size it was made for, and for others on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relax.convention import BACKBONE, EVALUATE, OUTPUT, STEP
from pullback.relax.training.evaluation import evaluation
from pullback.relax.training.interface import Interface
from pullback.relax.training.rebatch import rebatched
from pullback.relax.training.step import BoundFunction, Values
from pullback.runtime.tensor import Tensor


class Program:
    """The compiled functions of one trainer module on one virtual machine."""

    def __init__(self, vm: Any, interface: Interface) -> None:
        self.vm, self.interface = vm, interface
        self._step = BoundFunction(vm, interface, STEP)

    def step(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], values: Values) -> Tensor:
        """Run one training step: the tensors of ``values`` are overwritten, the loss is returned."""
        return self._step(inputs, targets, values)[0]

    def bind(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], values: Values) -> Any:
        """The step, compiled and with its arguments set, to be repeated: see ``driver.native.BoundCall``."""
        return self._step.bind(inputs, targets, values)

    def predict(self, inputs: Sequence[Tensor], values: Values) -> tuple[Tensor, ...]:
        """The backbone's results without the updated states."""
        results = self.vm[BACKBONE](*values.arguments(self.interface, BACKBONE, inputs))
        results = results if isinstance(results, tuple) else (results,)
        return tuple(results[i] for i in self.interface.convention[BACKBONE].returned(OUTPUT))


class Programs:
    """The programs of a trainer by number of rows. ``load`` compiles a module and returns its virtual machine."""

    def __init__(self, module: IRModule, main: Program, load: Callable[[IRModule], Any]) -> None:
        self.module, self.main, self._load = module, main, load
        self._trains: dict[int, Program] = {}
        self._evaluates: dict[int | None, BoundFunction] = {}

    def training(self, rows: int) -> Program:
        """The program for training on batches of ``rows`` rows, made when it is first asked for."""
        if self._fits(rows):
            return self.main
        if rows not in self._trains:
            module, interface = self._rebatched(rows, True)
            self._trains[rows] = Program(self._load(module), interface)
        return self._trains[rows]

    def evaluation(self, rows: int) -> BoundFunction:
        """The function that gives loss and prediction of batches of ``rows`` rows, made when it is first asked for."""
        key = None if self._fits(rows) else rows
        if key not in self._evaluates:
            module, interface = (self.module, self.main.interface) if key is None else self._rebatched(rows, False)
            self._evaluates[key] = BoundFunction(self._load(evaluation(module)), interface, EVALUATE)
        return self._evaluates[key]

    def _fits(self, rows: int) -> bool:
        """Whether the module itself takes batches of ``rows`` rows."""
        batch = self.main.interface.batch
        return not isinstance(batch, int) or batch == rows  # any size, or the very size

    def _rebatched(self, rows: int, trains: bool) -> tuple[IRModule, Interface]:
        try:
            return rebatched(self.module, self.main.interface, rows, trains), self.main.interface.with_rows(rows)
        except UserError as error:
            message = f"the model cannot be compiled for batches of {rows} rows: {error.message}"
            raise type(error)(message, span=error.span, hint=error.hint) from error
