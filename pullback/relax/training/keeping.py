"""What a trainer keeps: parameters, states and optimizer states, set and read between steps."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, NameNotFound, UserError
from pullback.ir.words import guided
from pullback.relax.convention import LOSS_SCALE
from pullback.relax.training.initialize import full, generator, static_shape, xavier_uniform, zeros
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.optimizer.value import number
from pullback.relax.training.placement import Placement
from pullback.relax.training.state_dict import LoadedKeys, fitting, matching_keys
from pullback.relax.training.step import Values
from pullback.relax.training.together import agree
from pullback.relax.training.values import copies_by_name
from pullback.runtime.tensor import Tensor, tensor


@guided
class Keeping:
    """The part of a trainer that keeps values."""

    _interface: Interface
    _placement: Placement
    _values: Values
    _generator: np.random.Generator
    _seed: int
    _epochs: int
    _turn: threading.RLock
    mod: Any

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
