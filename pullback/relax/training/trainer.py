"""Trainer: runs a trainer module, and keeps parameters, states and optimizer states between steps.

    >>> module = SetupTrainer(loss, optimizer, [prediction_info, target_info])(model)
    >>> vm = relax.VirtualMachine(pullback.compile(module, "llvm"), device)
    >>> trainer = Trainer(module, vm, device)
    >>> trainer.xavier_uniform_init_params()
    >>> loss = trainer.update(x, y)

The older form, ``Trainer(model, param_num, setup_trainer)`` and then ``.build(target=…, device=…)``, does the first two
lines itself. Values are kept in keeping.py, and steps and predictions made in stepping.py; ``fit``, ``evaluate``,
``save`` and ``load`` come from the files fit.py and checkpoint.py, copies and pickles from copies.py, and what concerns
adapters from finetuning.py.
"""

from __future__ import annotations

import html
import math
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from pullback.ir.errors import ArgumentError, CallError, UserError
from pullback.ir.forks import renewed
from pullback.ir.module import IRModule
from pullback.ir.words import guided, no_attribute
from pullback.relax.convention import ADJOINT, BACKBONE, LOSS, OPTIMIZER
from pullback.relax.training.checkpoint import Checkpoints
from pullback.relax.training.copies import Copies
from pullback.relax.training.finetuning import FineTuning
from pullback.relax.training.fit import Fitting
from pullback.relax.training.history import History
from pullback.relax.training.initialize import full, generator, random_state, static_shape
from pullback.relax.training.interchange import Interchange
from pullback.relax.training.interface import Interface
from pullback.relax.training.keeping import Keeping
from pullback.relax.training.placement import Placement
from pullback.relax.training.position import Position
from pullback.relax.training.program import Programs
from pullback.relax.training.setup_trainer import SetupTrainer, check_model, with_backbone
from pullback.relax.training.step import Values
from pullback.relax.training.stepping import Stepping
from pullback.relax.training.subset import carried, matching, patterns, trained_by, with_frozen
from pullback.relax.training.summary import Layer, Summary, show, summarize
from pullback.relax.training.together import agree, on_first
from pullback.relax.training.values import fresh_copy
from pullback.runtime.device import Device, cpu
from pullback.runtime.rank_times import StepClock

FEW = 4  # parameters that a trainer's text names
_BUILT = ("mod", "vm", "device", "_interface", "_placement", "_programs", "_values")  # what build() makes


@guided
class Trainer(Keeping, Stepping, Fitting, FineTuning, Checkpoints, Copies, Interchange):
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

    def _load_module(self, module: IRModule) -> Any:
        """A virtual machine with a module compiled as the trainer's own was."""
        from pullback.driver import compile

        target = self.vm.executable.target  # None for the interpreter
        return type(self.vm)(compile(module, "debug" if target is None else target), self.device, self.vm.profiling)

    def __getattr__(self, name: str) -> Any:
        if name in _BUILT and self.__dict__.get("_setup"):
            raise UserError("this trainer is not built yet", hint="call trainer.build(target=…, device=…) first")
        raise no_attribute("the trainer", name, dir(Trainer))

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

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        hint = "trainer.predict(x) computes predictions, trainer.fit(x, y) and trainer.update(x, y) train"
        raise CallError("a trainer is not called itself", hint=hint)

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
