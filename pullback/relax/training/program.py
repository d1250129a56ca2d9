"""A trainer module, compiled: for the batch size it was made for, and for others on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relax.convention import BACKBONE, EVALUATE, OUTPUT, STEP, Convention
from pullback.relax.training.distribution import with_distribution
from pullback.relax.training.evaluation import evaluation
from pullback.relax.training.interface import Interface
from pullback.relax.training.observation import observed
from pullback.relax.training.rebatch import rebatched
from pullback.relax.training.step import BoundFunction, Values
from pullback.relax.transform import BindSizes, RaiseOps
from pullback.relax.transform.distributed import Distributed
from pullback.runtime.tensor import Tensor

Machine = Callable[[IRModule], Any]  # compiles a module and returns its virtual machine


class Program:
    """The functions of a trainer module for one number of rows, each compiled when it is first asked for.

    ``trains`` and ``infers`` give the modules with what training needs and with what predicts and evaluates; ``vm``
    holds the first of them, if it is compiled already.
    """

    def __init__(
        self, interface: Interface, trains: Callable[[], IRModule], infers: Callable[[], IRModule], load: Machine,
        vm: Any = None,
    ) -> None:  # fmt: skip
        self.interface, self._modules, self._load = interface, (trains, infers), load
        if vm is not None:
            self.training_vm = vm

    @property
    def module(self) -> IRModule:
        """The trainer module."""
        return self._modules[0]()

    @property
    def inference_module(self) -> IRModule:
        """The module with ``__evaluate`` in place of what trains."""
        return self._modules[1]()

    @cached_property
    def training_vm(self) -> Any:
        return self._load(self._modules[0]())

    @cached_property
    def inference_vm(self) -> Any:
        return self._load(self._modules[1]())

    @cached_property
    def step(self) -> BoundFunction:
        """One training step: it overwrites the tensors of the values, and returns the loss."""
        return BoundFunction(self.training_vm, self.interface, STEP)

    @cached_property
    def observed_step(self) -> BoundFunction:
        """The step that returns the model's first output, too: compiled by itself, for who asks for it."""
        module = observed(self._modules[0]())
        interface = replace(self.interface, convention=Convention.of(module))
        return BoundFunction(self._load(module), interface, STEP)

    @cached_property
    def evaluate(self) -> BoundFunction:
        """Loss and prediction."""
        return BoundFunction(self.inference_vm, self.interface, EVALUATE)

    def predict(self, inputs: Sequence[Tensor], values: Values) -> tuple[Tensor, ...]:
        """The backbone's results without the updated states."""
        vm = self.__dict__.get("training_vm") or self.inference_vm
        results = vm[BACKBONE](*values.arguments(self.interface, BACKBONE, inputs))
        results = results if isinstance(results, tuple) else (results,)
        return tuple(results[i] for i in self.interface.convention[BACKBONE].returned(OUTPUT))


class Programs:
    """The programs of a trainer by number of rows, derived from its module. ``load`` compiles a module."""

    def __init__(self, module: IRModule, interface: Interface, vm: Any, load: Machine) -> None:
        self._module, self.interface, self._load = module, interface, load
        self.main = Program(interface, lambda: module, lambda: evaluation(module), load, vm)
        self._others: dict[Any, Program] = {}
        self._modules: dict[Distributed, IRModule] = {}  # for batches that ranks divide otherwise

    def of(self, rows: int | None, whole: int | None = None) -> Program:
        """The program for batches of ``rows`` rows; the module's own for None. ``whole``: the rows of the batch that
        several ranks compute together, of which its step takes ``rows``."""
        module, shards = self._of_part(rows, whole)
        batch = self.interface.batch
        is_own = module is self._module
        if rows is None or (is_own and shards == 1 and (not isinstance(batch, int) or rows == batch)):
            return self.main
        key = rows if is_own and shards == 1 else (rows, whole)
        if key not in self._others:
            self._others[key] = self._derived(module, rows, shards)
        return self._others[key]

    def _derived(self, module: IRModule, rows: int, shards: int) -> Program:
        """The program for so many rows, of which the functions of the step's module take one of ``shards``."""
        batch = self.interface.batch
        if isinstance(batch, int):
            return Program(
                self.interface.with_rows(rows),
                lambda: self._rebatched(module, rows // shards, True),
                lambda: evaluation(self._rebatched(self._module, rows, False)),
                self._load,
            )
        bound = module if shards == 1 else BindSizes({batch: rows // shards})(RaiseOps()(module))
        return Program(self.interface, lambda: bound, lambda: evaluation(self._module), self._load)

    def _of_part(self, rows: int | None, whole: int | None) -> tuple[IRModule, int]:
        """The module whose step takes so many rows of a batch, and into how many shards it cuts them."""
        distributed = self.interface.distributed
        if distributed is None or rows is None or whole is None:
            return self._module, 1
        wanted = distributed.of_batch(whole)
        if wanted == distributed:
            return self._module, wanted.micro_batches
        if wanted not in self._modules:
            self._modules[wanted] = with_distribution(self._module, wanted)
        return self._modules[wanted], wanted.micro_batches

    def _rebatched(self, module: IRModule, rows: int, trains: bool) -> IRModule:
        if rows == self.interface.batch and trains:
            return module
        try:
            return rebatched(module, self.interface, rows, trains)
        except UserError as error:
            message = f"the model cannot be compiled for batches of {rows} rows: {error.message}"
            raise type(error)(message, span=error.span, hint=error.hint) from error
