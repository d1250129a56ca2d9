"""Trainer: runs a trainer module, and keeps parameters, states and optimizer states between steps.

    >>> module = SetupTrainer(loss, optimizer, [prediction_info, target_info])(model)
    >>> vm = relax.VirtualMachine(pullback.compile(module, "llvm"), device)
    >>> trainer = Trainer(module, vm, device)
    >>> trainer.xavier_uniform_init_params()
    >>> loss = trainer.update(x, y)

The older form, ``Trainer(model, param_num, setup_trainer)`` and then ``.build(target=…, device=…)``, does the first two
lines itself. ``fit``, ``evaluate``, ``save`` and ``load`` come from the files fit.py and checkpoint.py, copies and
pickles from copies.py, and what concerns adapters from finetuning.py.
"""

from __future__ import annotations

import contextlib
import html
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from pullback.ir.errors import ArgumentError, CallError, NameNotFound, UserError
from pullback.ir.forks import renewed
from pullback.ir.module import IRModule
from pullback.ir.words import guided, no_attribute
from pullback.relax.convention import ADJOINT, BACKBONE, LOSS, LOSS_SCALE, OPTIMIZER, STEP
from pullback.relax.training.checkpoint import Checkpoints
from pullback.relax.training.copies import Copies
from pullback.relax.training.data import Source, check_labels
from pullback.relax.training.feeding import checked_cast
from pullback.relax.training.finetuning import FineTuning
from pullback.relax.training.fit import Fitting
from pullback.relax.training.history import History
from pullback.relax.training.initialize import full, generator, random_state, static_shape, xavier_uniform, zeros
from pullback.relax.training.interchange import Interchange
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.optimizer.value import number
from pullback.relax.training.placement import Placement
from pullback.relax.training.position import Position
from pullback.relax.training.program import Program, Programs
from pullback.relax.training.setup_trainer import SetupTrainer, check_model, with_backbone
from pullback.relax.training.shares import ALONE, Part
from pullback.relax.training.state_dict import LoadedKeys, fitting, matching_keys
from pullback.relax.training.step import Values
from pullback.relax.training.subset import carried, matching, patterns, trained_by, with_frozen
from pullback.relax.training.summary import Layer, Summary, show, summarize
from pullback.relax.training.together import agree, on_first
from pullback.relax.training.values import as_tensor, copies_by_name, for_each, fresh_copy
from pullback.runtime.device import Device, cpu
from pullback.runtime.rank_times import StepClock
from pullback.runtime.report import Report
from pullback.runtime.tensor import Tensor, tensor

FEW = 4  # parameters that a trainer's text names
_BUILT = ("mod", "vm", "device", "_interface", "_placement", "_programs", "_values")  # what build() makes


@guided
class Trainer(Fitting, FineTuning, Checkpoints, Copies, Interchange):
    """Trains the model of a trainer module.

    Whatever fails, fails before anything changes: after an error the trainer is as it was. Threads may share a trainer:
    they take turns, ``fit`` gives others theirs twenty times a second, and nobody sees half a step.

    Args:
        train_mod: what :class:`SetupTrainer` returned.
        vm: a virtual machine with that module compiled.
        device: where parameters and states live.
        zero_init_param_state: whether parameters and states begin with what ``R.Param`` and ``R.State`` declare, by
            default as zeros (moving variances too: see :meth:`init_states`); else they have no values until they are
            initialised or loaded.
    """

    model: Any = None  # the nn.Module that it trains, if it was made of one
    _layers: tuple[Layer, ...] = ()  # the calls of its modules
    _profiled: tuple[int | None, Report] | None = None  # of the last profiled step: its rows, the report

    def __init__(
        self,
        train_mod: IRModule,
        vm: Any,
        device: Device | SetupTrainer | None = None,
        zero_init_param_state: bool = True,
    ) -> None:
        self._generator = np.random.Generator(np.random.PCG64())
        self._seed = int(self._generator.integers(2**63))
        self._epochs = 0
        self._position: Position | None = None
        self._history, self._clock = History(), StepClock()
        self._turn = threading.RLock()  # held while a compiled function reads or overwrites the values
        renewed(self, "_turn", "_generator")
        self._zero_init = zero_init_param_state
        self._setup: tuple[IRModule, SetupTrainer] | None = None
        check_model(train_mod)
        if isinstance(device, SetupTrainer):  # the older form: the model, how many parameters it has, the pass
            train_mod = with_backbone(train_mod)
            _check_param_num(train_mod, vm)
            attrs = {"param_num": vm, "state_num": train_mod.get_attr("state_num", 0)}
            self._setup = train_mod.with_attrs(attrs), device
            return
        if device is not None and not isinstance(device, Device):
            raise ArgumentError(f"expected a Device, got {device!r}", hint="pullback.cpu() is one")
        self._start(train_mod, vm, device)

    def build(self, target: Any = "llvm", device: Device | None = None, profile: bool = False) -> Trainer:
        """Set up and compile the model, in the older form of the constructor; returns the trainer.

        Args:
            target: what is compiled for: "llvm" (this machine), a Target or its text, or "debug" (the interpreter).
            device: where values live; ``pullback.cpu()`` by default.
            profile: accepted as in other packages, without effect.

        Returns:
            the trainer.
        """
        if self._setup is None:
            raise UserError(
                "this trainer was made with a virtual machine: there is nothing to build",
                hint="use it as it is: trainer.fit(x, y)",
            )
        from pullback.driver import compile
        from pullback.runtime.vm import VirtualMachine

        model, setup = self._setup
        module = setup(model)
        device = cpu() if device is None else device
        self._start(module, VirtualMachine(compile(module, target), device, profile=profile), device)
        return self

    def _start(self, module: IRModule, vm: Any, device: Device | None) -> None:
        """Take a module and its virtual machine into use."""
        interface = Interface.of(module)
        _check_machine(vm, module)
        self.mod, self.vm, self.device = module, vm, device or cpu()
        self._interface, self._placement = interface, Placement.of(interface)
        self._programs = Programs(module, interface, vm, self._load_module)
        if self._placement.size > 1:
            self._begin_together()
        initial = module.attrs["optim_state"]
        states = tuple(fresh_copy(v, s) for v, s in zip(initial, interface.optimizer_states, strict=True))
        random = tuple(random_state(self._seed) for _ in interface.random)
        values = Values((None,) * len(interface.params), (None,) * len(interface.states), random, states)
        self._values = self._placement.held(values)
        if self._zero_init:
            self.zero_init_params()
            self.zero_init_states()
            self._begin_as_declared()

    def _begin_as_declared(self) -> None:
        """Give parameters and states the initial values that the model declares."""
        known, interface = self._interface.record.declared, self._interface
        params, states = (
            {i: full(slot, known[slot.name]) for i, slot in enumerate(slots) if slot.name in known}
            for slots in (interface.params, interface.states)
        )
        self._keep(params, states)

    def _begin_together(self) -> None:
        """See that all ranks train the same, from the same random numbers."""
        if self._interface.batch is None:
            message = "the model's first input has no batch axis, whose rows ranks could share"
            raise ArgumentError(message, hint="leave distributed= out, or declare a batch axis")
        agree(self._placement.ranks, _identity(self._interface))
        self._seed = self._placement.ranks.broadcast(self._seed)
        self._generator = generator(self._seed)

    def _keep(
        self, params: Mapping[int, Tensor] | None = None, states: Mapping[int, Tensor] | None = None,
        optimizer_states: Mapping[int, Tensor] | None = None,
    ) -> None:  # fmt: skip
        """Keep these whole values, by number, in the place of those that there are: of pieces, this rank's."""
        held, values = self._placement, self._values
        values = values.with_params(held.held_params(params)) if params else values
        values = values.with_states(states) if states else values
        if optimizer_states:
            values = values.with_optimizer_states(held.held_states(optimizer_states))
        self._values = values

    def _whole(self) -> Values:
        """All that the trainer keeps, in whole tensors. Collective where ranks hold pieces."""
        return self._placement.whole(self._values)

    def _seen(self, averaged: bool) -> Values:
        """What predictions and losses are computed from: parameters, or their averages, and states in whole tensors.
        Collective where ranks hold pieces of them."""
        values = self._placement.whole(self._values, optimizer_states=averaged)
        return values.averaged(self._interface) if averaged else values

    def _load_module(self, module: IRModule) -> Any:
        """A virtual machine with a module compiled as the trainer's own was."""
        from pullback.driver import compile

        target = self.vm.executable.target  # None for the interpreter
        return type(self.vm)(compile(module, "debug" if target is None else target), self.device, self.vm.profiling)

    def __getattr__(self, name: str) -> Any:
        if name in _BUILT and self.__dict__.get("_setup"):
            raise UserError("this trainer is not built yet", hint="call trainer.build(target=…, device=…) first")
        raise no_attribute("the trainer", name, dir(Trainer))

    # ---- parameters and states ---------------------------------------------------------------------------------------

    @property
    def params(self) -> Mapping[str, Tensor]:
        """The parameters by name: copies, which later steps do not change."""
        return self.export_params()

    @property
    def states(self) -> Mapping[str, Tensor]:
        """The states by name: copies, which later steps do not change."""
        return self.export_states()

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and states by name: copies. Those of an ``nn.Module`` have PyTorch's names and shapes; one that
        the module holds in two places comes under both names.

        Returns:
            tensors by name, copies.

        Examples:
            >>> trainer.state_dict()["0.weight"].shape
            (32, 16)
        """
        with self._turn:
            values = self._export(self._interface.params, self._seen(False).params)
            values |= self._export(self._interface.states, self._values.states)
        return values | {name: values[own].copy() for name, own in self._aliases.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> LoadedKeys:
        """Take parameters and states from a mapping by name: NumPy arrays, PyTorch tensors, anything with DLPack. They
        are cast to the declared dtypes; optimizer states stay as they are.

        Returns the names that were missing and that were unexpected; with ``strict`` it is an ArgumentError if there
        are any.

        Args:
            state_dict: values by name.
            strict: whether names that are missing or unexpected are an ArgumentError.

        Returns:
            the names that were missing and that were unexpected.

        Raises:
            ShapeError, DTypeError: with nothing changed, when a value does not fit.
        """
        slots = {slot.name: slot for slot in (*self._interface.params, *self._interface.states)}
        own = {name: slots[name] for name in slots} | {name: slots[n] for name, n in self._aliases.items()}
        keys = matching_keys(own, state_dict, strict, self._aliases)
        given = {slot.name: (name, slot) for name, slot in own.items() if name in state_dict}
        new = {
            slot.name: tensor(fitting(name, state_dict[name], static_shape(slot), slot.info.dtype))
            for name, slot in given.values()
        }
        with self._turn:
            params = {i: new[s.name] for i, s in enumerate(self._interface.params) if s.name in new}
            states = {i: new[s.name] for i, s in enumerate(self._interface.states) if s.name in new}
            self._keep(self._placement.of_first(params), self._placement.of_first(states))
        return keys

    def value_of(self, name: str) -> Tensor:
        """The value of one parameter or state: a copy.

        Args:
            name: of the parameter or state.

        Returns:
            a copy.

        Raises:
            NameNotFound: for any other name.
        """
        slots = (*self._interface.params, *self._interface.states)
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a parameter or state is a string, got {type(name).__name__}")
        with self._turn:
            for slot, value in zip(slots, (*self._values.params, *self._values.states), strict=True):
                if slot.name == name and value is not None:
                    return self._placement.whole_tensor(slot, value).copy()
        known = ", ".join(slot.name for slot in slots)
        raise NameNotFound(f"there is no parameter or state {name!r}; they are: {known}")

    @property
    def _aliases(self) -> Mapping[str, str]:
        """Other names of parameters and states."""
        return self.mod.attrs.get("aliases", {})

    @property
    def optimizer_states(self) -> tuple[Tensor, ...]:
        """The optimizer states, first the number of steps: copies."""
        with self._turn:
            return self._whole().copy().optimizer_states

    @property
    def averages(self) -> Mapping[str, Tensor]:
        """The averages of the parameters that the optimizer keeps (``EMA``) by name: copies. Frozen parameters are
        their own averages. Raises UserError when it keeps none.
        """
        with self._turn:
            return self._export(self._interface.params, self._seen(True).params)

    @property
    def hyperparameters(self) -> Mapping[str, float | str]:
        """Those of the optimizer, by name: run-time values as they are now, schedules as text."""
        with self._turn:
            return {**self._interface.record.hyperparameters, **self._run_time()}

    def set_hyperparameter(self, name: str, value: float) -> None:
        """Give a run-time value (``Adam(lr=RunTime(1e-3))``: "lr") another number, from the next step on.

        Nothing is compiled: the value is one of the optimizer's states, so :meth:`save` keeps it.

        Args:
            name: of the run-time value.
            value: the number.

        Raises:
            ArgumentError: when there is no such run-time value, or the number is out of the bounds of the
                hyperparameter.
        """
        record = self._interface.record
        if not isinstance(name, str):
            raise ArgumentError(f"the name of a run-time value must be a string, got {type(name).__name__}")
        if name not in record.run_time:
            known = ", ".join(record.run_time) or "none"
            given = record.hyperparameters.get(name)
            hint = "RunTime(0.1) in the place of a number, SGD(RunTime(0.1)), can be set between steps"
            hint = hint if given is None else f"it is {given}; RunTime({given}) in its place would be one"
            hint = f"it follows from the step: {given}" if isinstance(given, str) else hint
            raise ArgumentError(f"the optimizer has no run-time value {name!r}; it has: {known}", hint=hint)
        entry = record.run_time[name]
        given = number(name, value, entry["least"], entry["below"])
        with self._turn:
            changed = {i: tensor(np.array(given)) for i in entry["states"]}
            self._keep(optimizer_states=self._placement.of_first(changed))

    def _run_time(self) -> dict[str, float]:
        states, entries = self._values.optimizer_states, self._interface.record.run_time
        return {name: states[entry["states"][0]].item() for name, entry in entries.items()}

    @property
    def loss_scale(self) -> float:
        """By what the loss is multiplied in the next step before it is differentiated: 1 unless the optimizer keeps a
        scale, as in float16."""
        with self._turn:
            kept = zip(self._interface.convention.kept, self._values.all, strict=True)
            return next((float(t.item()) for (kind, _), t in kept if kind == LOSS_SCALE), 1.0)

    @property
    def steps(self) -> int:
        """How many steps were made."""
        return int(self._values.optimizer_states[0].item())

    @property
    def epochs(self) -> int:
        """How many epochs ``fit`` has completed."""
        return self._epochs

    def seed(self, seed: int) -> None:
        """Restart the generator from which ``fit`` draws the order of rows, and the random numbers of the model: what
        dropout drops follows from the seed and the number of steps made since.

        Args:
            seed: a whole number.
        """
        made = generator(seed)
        if "_values" in self.__dict__:  # it is built
            agree(self._placement.ranks, {"the seed": str(seed)})
            self._values = self._values.with_seed(seed)
        self._generator, self._seed = made, seed

    def xavier_uniform_init_params(self, seed: int | None = None) -> None:
        """Draw weights from Glorot and Bengio's uniform distribution; parameters of rank one or zero, and biases of
        any rank (added, with at most one size other than 1), become zeros, but scales of normalisation layers ones.

        Without a seed, one is drawn from NumPy's global generator, so that ``np.random.seed`` has its usual effect.

        Args:
            seed: of the generator; None: one is drawn from NumPy's global generator.
        """
        source = generator(self._placement.ranks.broadcast(np.random.randint(2**31)) if seed is None else seed)
        known = self._interface.record.initial
        drawn = {
            i: full(slot, known[slot.name]) if slot.name in known else xavier_uniform(slot, source)
            for i, slot in enumerate(self._interface.params)
        }
        self._keep(drawn)

    xaiver_uniform_init_params = xavier_uniform_init_params  # the reference's spelling

    def zero_init_params(self) -> None:
        """Make all parameters zeros."""
        self._keep({i: zeros(s) for i, s in enumerate(self._interface.params)})

    def zero_init_states(self) -> None:
        """Make all states zeros."""
        self._keep(states={i: zeros(s) for i, s in enumerate(self._interface.states)})

    def init_states(self) -> None:
        """Give all states the values with which training begins: zeros, but ones for a batch norm's moving variance."""
        known = self._interface.record.initial
        self._keep(states={i: full(s, known.get(s.name, 0.0)) for i, s in enumerate(self._interface.states)})

    def load_params(self, params: Sequence[Any] | Mapping[str, Any]) -> None:
        """Copy parameters from a list of all, in the model's order, or from a dict of some by name.

        Args:
            params: a list of all, or a dict of some by name.

        Raises:
            ArgumentError, ShapeError, DTypeError: with all parameters unchanged, when one does not fit.
        """
        changed = copies_by_name(params, self._interface.params, "parameter")
        with self._turn:
            self._keep(self._placement.of_first(changed))

    def load_states(self, states: Sequence[Any] | Mapping[str, Any]) -> None:
        """Copy states from a list of all, in the model's order, or from a dict of some by name; errors as above.

        Args:
            states: a list of all, or a dict of some by name.
        """
        changed = copies_by_name(states, self._interface.states, "state")
        with self._turn:
            self._keep(states=self._placement.of_first(changed))

    def export_params(self) -> dict[str, Tensor]:
        """A copy of each parameter by name.

        Returns:
            tensors by name, copies.
        """
        with self._turn:
            return self._export(self._interface.params, self._seen(False).params)

    def export_states(self) -> dict[str, Tensor]:
        """A copy of each state by name.

        Returns:
            tensors by name, copies.
        """
        with self._turn:
            return self._export(self._interface.states, self._values.states)

    @staticmethod
    def _export(slots: Sequence[Slot], values: Sequence[Tensor | None]) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for slot, value in zip(slots, values, strict=True):
            if value is None:
                raise UserError(f"{slot} has no value yet", hint="initialize or load it first")
            found[slot.name] = value.copy()
        return found

    # ---- what is trained ---------------------------------------------------------------------------------------------

    @property
    def trained(self) -> tuple[str, ...]:
        """The names of the parameters that steps change."""
        return trained_by(self._interface)

    def freeze(self, *names: str) -> None:
        """Leave the parameters whose names match a pattern (``"body.*"``) as they are from now on. The step is compiled
        anew, without what only their gradients need, and the optimizer's states of them are dropped; all else stays.
        Parameters of an ``nn.Module`` get ``requires_grad=False``.

        Args:
            names: patterns of parameter names, as of a shell.

        Raises:
            ArgumentError: for a pattern that matches nothing, and where nothing would be left to train.
            UserError: when the trainer, as the copy of another, does not hold what it was made from.

        Examples:
            >>> trainer.freeze("0.*")
            >>> trainer.trained
            ('2.weight', '2.bias')
        """
        chosen = matching("freeze", patterns("freeze", names), [slot.name for slot in self._interface.params])
        self._train_only([name for name in self.trained if name not in chosen])

    def unfreeze(self, *names: str) -> None:
        """Train the parameters whose names match a pattern too, from now on; without any, all. The step is compiled
        anew. Values and optimizer states stay; states of what is trained anew begin as those of a new optimizer's, an
        average (``EMA``) as the parameter. The number of steps goes on: corrections of the first steps, as Adam's, are
        not made for single parameters, whose first updates are larger then (Adam's defaults: up to three times).

        Args:
            names: patterns of parameter names, as of a shell.

        Raises:
            ArgumentError: as :meth:`freeze` does, and for what ``ParameterGroups`` freezes.
        """
        known = [slot.name for slot in self._interface.params]
        chosen = matching("unfreeze", patterns("unfreeze", names or ("*",)), known)
        self._train_only([name for name in known if name in chosen or name in self.trained])

    def _train_only(self, names: Sequence[str]) -> None:
        """Train just these parameters from now on."""
        if tuple(names) == self.trained:
            return
        if self._setup is None:
            raise UserError(
                "what is trained cannot be changed: the trainer does not know its loss, only the finished module",
                hint="make it with pullback.trainer(…), or another one with trainable=[…], and load_params into it",
            )
        model, setup = self._setup
        model = with_frozen(model, [slot.name for slot in self._interface.params if slot.name not in names])
        setup = replace(setup, trainable=None)
        module = setup(model)
        interface = Interface.of(module)
        if trained_by(interface) != tuple(names):
            left = ", ".join(name for name in names if name not in trained_by(interface))
            raise ArgumentError(f"{left}: frozen by the optimizer's ParameterGroups", hint="make another trainer")
        vm = self._load_module(module)
        initial = [
            fresh_copy(v, s) for v, s in zip(module.attrs["optim_state"], interface.optimizer_states, strict=True)
        ]
        with self._turn:
            values = carried(self._interface, self._whole(), interface, initial)
            self._placement = Placement.of(interface)
            self._values = self._placement.held(values)
            self._setup, self._interface, self.mod, self.vm = (model, setup), interface, module, vm
            self._programs, self._weighted, self._profiled = (
                Programs(module, interface, vm, self._load_module),
                None,
                None,
            )
        if self.model is not None:
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad = name in names

    # ---- running -----------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        hint = "trainer.predict(x) computes predictions, trainer.fit(x, y) and trainer.update(x, y) train"
        raise CallError("a trainer is not called itself", hint=hint)

    def predict(
        self, *input_instances: Any, batch_size: int | None = None, averaged: bool = False, cast: bool = True
    ) -> Any:
        """The backbone's outputs for the inputs. Nothing is updated.

        Each input has the declared shape, but any number of rows, none too; each number of rows is compiled once. Other
        symbolic sizes take any value. Floats of another dtype are rounded to the declared one, unless ``cast`` is
        False; anything else is cast where that changes no value.

        Args:
            input_instances: the inputs, one by one, in one list, or in a dict by name; data as :meth:`fit` takes it
                does too.
            batch_size: rows at a time: two sizes are compiled at most, and outputs are joined. By default all rows are
                one batch, unless the inputs are larger than 256 MiB.
            averaged: whether the averages of the parameters are taken, which the optimizer ``EMA`` keeps.
            cast: whether floats are rounded to the declared type.

        Returns:
            a tensor, or a tuple of several, with a row for each row of the inputs.

        Examples:
            >>> trainer.predict(x[:5]).shape
            (5, 4)
        """
        given: Any = input_instances[0] if len(input_instances) == 1 else list(input_instances)
        self._values.check_complete(self._interface)
        source = self._predicted(given, batch_size, cast)
        if source is not None:
            return self._predict_batches(source, self._batch_size(batch_size, source), averaged)
        program, inputs = self._arguments(given, cast=cast)
        results = self._predict(program, inputs, averaged)
        return results[0] if len(results) == 1 else results

    def _predict(self, program: Program, inputs: Sequence[Tensor], averaged: bool) -> tuple[Tensor, ...]:
        with self._turn:
            return program.predict(inputs, self._seen(averaged))

    def _predict_batches(self, source: Source, size: int, averaged: bool) -> Any:
        """The outputs for all batches, joined."""
        found: list[tuple[Tensor, ...]] = []
        with contextlib.closing(source.batches(size)) as batches:
            for batch in batches:
                found.append(self._predict(self._programs.of(batch.rows), batch.inputs, averaged))
                for number, output in enumerate(found[-1]):
                    if output.shape[:1] != (batch.rows,):
                        raise ArgumentError(
                            f"output {number} has no row for each of a batch's {batch.rows} rows, but shape"
                            f" {output.shape}: outputs of several batches cannot be joined",
                            hint="predict all rows at once: leave batch_size out",
                        )
        results = tuple(tensor(np.concatenate([np.asarray(t) for t in column])) for column in zip(*found, strict=True))
        return results[0] if len(results) == 1 else results

    def update(self, input_instances: Any, targets: Any, *, cast: bool = True) -> Tensor:
        """Make one training step on a batch; returns the loss before the step, as a scalar tensor.

        Several inputs or targets are given as a list or as a dict by name, one alone may be by itself. Each has the
        declared shape, but any number of rows, at least one; each number of rows is compiled once. Other dtypes are
        cast as by :meth:`predict`. A failed step changes nothing.

        Args:
            input_instances: the inputs: arrays with one row for each example; several as a list, or a dict by name.
            targets: the targets, in the same form.
            cast: whether values of another dtype are rounded; False: they have to be the same number.

        Returns:
            the loss before the step, a scalar tensor.

        Examples:
            >>> loss = trainer.update(x, y)
            >>> loss.shape, trainer.steps
            ((), 1)
        """
        program, inputs, labels = self._arguments(input_instances, targets, cast=cast, shared=True)
        if inputs and 0 in inputs[0].shape[:1]:
            raise ArgumentError(
                f"{self._interface.inputs[0]} has 0 rows: a step needs at least one",
                hint="give a batch of one row or more",
            )
        self._values.check_complete(self._interface)
        try:
            with self._turn:
                if self._fits(program):
                    self._values = self._values.unpinned()
                    return program.step(inputs, labels, self._values)[0]
            return self.update(input_instances, targets, cast=cast)  # others are trained since a moment
        except ArgumentError as error:
            self._placement.ranks.fail(error.message)  # the others wait for this one's gradients
            labels = self._arguments(input_instances, targets, cast=cast)[2]  # those of the whole batch
            check_labels(np.asarray(labels[0]), self._interface)  # tells which label it was, if it was one
            raise

    update_params = update  # the older name

    def profile_adjoint(self, input_instances: Any, targets: Any) -> Report:
        """Run the adjoint function a few times under the profiler, print its table and return the report. Nothing is
        updated. Of several ranks each runs it on all rows.

        Args:
            input_instances: the inputs: arrays with one row for each example; several as a list, or a dict by name.
            targets: the targets, in the same form.

        Returns:
            the report: times of kernels, ``report.chrome_trace(path)``.
        """
        report, _ = self._profile(ADJOINT, self._seen(False), input_instances, targets)
        return show(report, self._placement.ranks.is_first)

    def profile_step(self, input_instances: Any, targets: Any) -> Report:
        """Run a whole training step a few times, on copies, under the profiler: prints and returns its report, the time
        of each kernel. :meth:`summary` shows the shares of the layers afterwards.

        Several ranks run it together on their rows of the batch. All get one report, which rank 0 prints: with the time
        of collectives in flight, how much of that was hidden behind kernels, and the slowest rank; ``report.ranks`` are
        those of each. The trace has all ranks.

        >>> report = trainer.profile_step(x[:64], y[:64])
        >>> report.chrome_trace("step.json")

        Args:
            input_instances: the inputs: arrays with one row for each example; several as a list, or a dict by name.
            targets: the targets, in the same form.

        Returns:
            the report: times of kernels, ``report.chrome_trace(path)``.
        """
        report, rows = self._profile(STEP, self._values.copy(), input_instances, targets)
        self._profiled = rows, report
        return show(report, self._placement.ranks.is_first)

    def _profile(self, name: str, values: Values, input_instances: Any, targets: Any) -> tuple[Report, int | None]:
        """The report of a function, and for how many rows it is."""
        is_step = name == STEP
        program, inputs, labels = self._arguments(input_instances, targets, shared=is_step)
        values.check_complete(self._interface)
        arguments = values.arguments(self._interface, name, inputs, labels)
        together = is_step and self._placement.ranks.size > 1
        report = program.training_vm.profile(name, *arguments, together=together)
        return report, inputs[0].shape[0] if inputs and inputs[0].shape else None

    # ---- without Python ----------------------------------------------------------------------------------------------

    def export(
        self,
        folder: str | os.PathLike[str],
        target: str = "host",
        name: str | None = None,
        *,
        batch_size: int | None = None,
        sizes: Mapping[str, int] | None = None,
        embed: bool = True,
        functions: Sequence[str] | str | None = None,
        fold_frozen: bool = False,
        merge: bool | None = None,
    ) -> Any:
        """Write a library that trains, predicts, saves and loads without Python, with the trainer's present values.

        ``folder`` gets ``lib<name>.a``, a shared library, ``<name>.h`` (C99) and ``<name>.hpp`` (C++17), the C sources
        that are no model's own code, initial weights, a manifest, and an example; ``docs/deploy.md`` says how to use
        it. ``target="wasm32"`` adds a WebAssembly module and its class in JavaScript (``docs/deploy-web.md``). Files
        that an export made before are replaced; another folder that is not empty is an error.

        >>> trainer.export("dist", target="aarch64", name="digits", batch_size=16)

        Args:
            folder: where the files go; those that an export made before are replaced, another folder that is not empty
                is an error.
            target: a platform (``python -m pullback targets`` lists them), by default this machine.
            name: begins the names of all functions; by default that of the module's class.
            batch_size: rows of a step; by default the model's own, else 64.
            sizes: of other symbolic axes, by name, which are fixed in a library.
            embed: whether weights are part of the library, or in ``<name>.safetensors`` alone.
            functions: what the library is to have code for, of step, predict, predict_one, evaluate and evaluate_one;
                without predict or evaluate rows are taken one by one, without predict_one or evaluate_one only whole
                batches can be. By default all, and on microcontrollers step, predict_one and evaluate_one, which take
                the least memory. These also get a folder ``image``: ``make`` there links a program that trains.
            fold_frozen: parameters and states that no step changes become constants of the code, which take no memory
                of an instance, and batch norms of frozen layers (``freeze``) become part of the weights before them.
                They cannot be set then, and checkpoints with other values of them are refused; losses are rounded
                otherwise.
            merge: low-rank updates (``nn.LoRA``) become part of the weights, and the library predicts and evaluates
                alone, by default without a step. None: where ``functions`` have no step.

        Returns:
            what was written: ``.folder``, ``.manifest``, ``.instance_bytes`` (the memory that an instance takes).

        Raises:
            UserError: without a C compiler.
            ArgumentError: for what does not fit.
        """
        from pullback.deploy.export import export

        with self._turn:
            alone = self.without_ranks() if self._interface.distributed is not None else self
            return on_first(
                self._placement.ranks,
                lambda: export(
                    alone, folder, target, name, batch_size=batch_size, sizes=sizes, embed=embed, functions=functions,
                    fold_frozen=fold_frozen, merge=merge,
                ),
            )  # fmt: skip

    # ---- what one sees -----------------------------------------------------------------------------------------------

    def summary(self, batch_size: int | None = None, *, depth: int | None = None, **sizes: int) -> Summary:
        """Print and return what the model consists of, and what a step of ``batch_size`` rows takes: for each layer
        its output (n is the batch), parameters, FLOPs of the step and, after :meth:`profile_step`, its share of the
        time; the bytes of parameters, states and optimizer states, and of the step's memory by category. All of that
        is exact.

        FLOPs and times of a layer are those of its forward part and its gradient. A kernel in which several layers are
        fused counts for that of its first matmul or convolution. What is in no layer is one row: the loss, and updates
        that are no part of a gradient's kernel. The rows of a script's model are its lines, by the variables that they
        compute.

        >>> print(trainer.summary(64).memory)

        Args:
            batch_size: by default that of the model, or of the last profile, or 64; of a trainer over several ranks the
                step, its memory and its FLOPs are those of one rank, which has a part of these rows.
            depth: modules below so many dots of a name count for those above.
            sizes: the values of other symbolic sizes, by name. The step is planned for that, which takes as long as
                compiling it without generating code.

        Returns:
            the summary, which has been printed.

        Raises:
            ArgumentError: for a batch size below 1, or a symbolic size that is missing.
        """
        rows, profile = self._profiled or (None, None)
        batch_size = rows if batch_size is None and isinstance(rows, int) else batch_size
        summary = summarize(self, self._layers, profile, batch_size, depth, sizes)
        return show(summary, self._placement.ranks.is_first)

    def _repr_html_(self) -> str:
        if self.__dict__.get("_values") is None:
            return html.escape(repr(self))
        model = "" if self.model is None else self.model._repr_html_()
        return f"<div>{html.escape(repr(self))}</div>{model}"

    def _arguments(self, inputs: Any, *targets: Any, cast: bool = True, shared: bool = False) -> tuple[Any, ...]:
        """The program for as many rows as the inputs have; then inputs and targets, if given, as lists of tensors of
        the declared types. ``shared``: of these rows, the program and the tensors of this rank's."""
        given = for_each(inputs, self._interface.inputs, "input")
        rows = self._interface.rows_of(given[0]) if given else None
        share = self._placement.share if shared else ALONE
        part = share.of(rows) if share.distributed is not None and isinstance(rows, int) else None
        program = self._programs.of(rows) if part is None else self._programs.of(part.rows, part.whole)
        interface = program.interface if part is None else self._programs.of(part.whole).interface
        sizes: dict[Any, Any] = {}
        exact = not checked_cast(cast)
        tensors = [as_tensor(v, s, sizes, exact) for v, s in zip(given, interface.inputs, strict=True)]
        if not targets:
            return program, tensors
        slots = interface.targets
        pairs = zip(for_each(targets[0], slots, "target"), slots, strict=True)
        labels = [as_tensor(v, s, sizes, exact) for v, s in pairs]
        if part is not None and part.rows < part.whole:
            tensors, labels = (self._cut(*of, part) for of in ((tensors, interface.inputs), (labels, slots)))
        return program, tensors, labels

    def _cut(self, tensors: Sequence[Tensor], slots: Sequence[Slot], part: Part) -> list[Tensor]:
        """This rank's rows of what has rows."""
        pairs = zip(tensors, slots, strict=True)
        return [tensor(np.asarray(t)[part.slice]) if self._interface.has_rows(s) else t for t, s in pairs]

    def __repr__(self) -> str:
        if self.__dict__.get("_values") is None:
            return "Trainer(not built)"
        slots, record = self._interface.params, self._interface.record
        model = "" if self.model is None else f"{type(self.model).__name__}, "
        elements = sum(math.prod(static_shape(slot)) for slot in slots)
        names = ", ".join(slot.name for slot in slots[:FEW])
        more = f", {len(slots) - FEW} more" if len(slots) > FEW else ""
        parameters = f"{elements:,} parameters ({names}{more})" if slots else "no parameters"
        ranks = f"; ranks: {self._placement.size}" if self._placement.size > 1 else ""
        training = f"loss: {record.loss}; optimizer: {record.optimizer}; steps: {self.steps}"
        return f"Trainer({model}{parameters}; {training}{ranks})"


def _identity(interface: Interface) -> dict[str, str]:
    """What ranks train, by what it is called."""
    record = interface.record
    names = ", ".join(f"{slot.name} {slot.info}" for slot in (*interface.params, *interface.states))
    data = ", ".join(f"{slot.name} {slot.info}" for slot in (*interface.inputs, *interface.targets))
    digests = " ".join(f"{name} {digest[:8]}" for name, digest in sorted(record.source.items()))
    hyperparameters = ", ".join(f"{name}={value}" for name, value in record.hyperparameters.items())
    return {
        "parameters and states": names,
        "inputs and targets": data,
        "the loss": f"{record.loss} {dict(record.loss_options)}",
        "the optimizer": f"{record.optimizer}({hyperparameters})",
        "the precision": record.precision,
        "digests of the model": f"{record.network}, {digests}",
        "the distribution": str(interface.distributed and interface.distributed.attribute),
    }


def _check_param_num(module: IRModule, given: Any) -> None:
    """The number of parameters is what the module says it is, if it says so."""
    if isinstance(given, bool) or not isinstance(given, int):
        hint = "the older form is Trainer(model, param_num, setup_trainer)"
        raise ArgumentError(f"param_num must be an int, got {type(given).__name__}", hint=hint)
    declared = module.attrs.get("param_num", given)
    declared = getattr(declared, "value", declared)
    if declared != given:
        raise ArgumentError(
            f"the trainer is told {given} parameters, but the model's attribute 'param_num' is {declared}",
            hint="inputs and states are no parameters",
        )


def _check_machine(vm: Any, module: IRModule) -> None:
    """The virtual machine holds what was compiled from the module."""
    hint = "make it with VirtualMachine(pullback.compile(train_mod, target), device)"
    if not hasattr(vm, "bind") or not hasattr(vm, "executable"):
        raise ArgumentError(f"a trainer needs a VirtualMachine, got {type(vm).__name__}", hint=hint)
    compiled = vm.executable.module
    missing = [name for name in (BACKBONE, LOSS, ADJOINT, OPTIMIZER) if name not in compiled]
    if missing:
        message = f"the virtual machine does not hold this trainer module: it lacks {', '.join(missing)}"
        raise ArgumentError(message, hint=hint)
