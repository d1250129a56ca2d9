"""Copies of trainers: ``pickle``, ``copy.deepcopy`` and ``copy.copy``.

A copy goes on bit for bit as the original would. It has values and a random generator of its own, those of a whole
step whatever other threads do, and a copy of the ``nn.Module`` that it trains, if there is one, whose values are read
from the trainer's copy: they are kept once. A pickle leaves out a module that cannot be pickled, with a warning.
Compiled code is no part of a pickle: it is compiled again, or comes from the cache. A pickle holds whole values, and a
copy of a trainer over several ranks what each rank holds: all ranks pickle, and all copy.
"""

from __future__ import annotations

import copy
import pickle
import threading
import warnings
from dataclasses import replace
from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.forks import renewed
from pullback.relax.training.interface import Interface
from pullback.relax.training.placement import Placement
from pullback.relax.training.program import Programs

_DERIVED = ("_turn", "_interface", "_placement", "_programs", "_weighted")
_SHARED = ("mod", "vm", "device", "_weighted_mod")  # nobody changes them


class Copies:
    """The part of a trainer that is copied and pickled."""

    _turn: threading.RLock
    _values: Any
    _interface: Interface
    _setup: Any
    _seed: int
    _epochs: int
    _layers: Any
    _placement: Placement
    _generator: Any
    mod: Any
    vm: Any
    device: Any
    _load_module: Any
    model: Any
    _weighted: Programs | None
    _weighted_programs: Any

    def __getstate__(self) -> dict[str, Any]:
        state = self._state()
        if "_values" in state:
            state["_whole_values"] = self._placement.whole(state.pop("_values"))
        if state.get("model") is not None:
            try:
                pickle.dumps(state["model"])
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                state["model"] = None
                message = f"the module is left out of the trainer's pickle, which holds its values: {error}"
                warnings.warn(f"{message}. Functions and classes at the top level can be pickled", stacklevel=2)
        return state

    def _state(self) -> dict[str, Any]:
        """What a copy has, values and module copied."""
        with self._turn:
            state = {name: value for name, value in vars(self).items() if name not in _DERIVED}
            state["_generator"] = copy.deepcopy(self._generator)
            if self.model is not None:
                state["model"] = self.model.without_values()
            if "_values" in state:  # it is built: no longer of use is what it was built from
                state["_values"], state["_setup"] = self._values.copy(), None
                state["_weighted_mod"] = self._weighted and self._weighted.main.module
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        weighted = state.pop("_weighted_mod", None)
        whole = state.pop("_whole_values", None)
        vars(self).update({"_position": None, **state})  # older pickles have no position
        self._turn = threading.RLock()
        renewed(self, "_turn", "_generator")
        if whole is not None or "_values" in state:
            self._interface = Interface.of(self.mod)
            self._placement = Placement.of(self._interface)
            self._values = state["_values"] if whole is None else self._placement.held(whole)
            self._programs = Programs(self.mod, self._interface, self.vm, self._load_module)
            self._weighted = weighted and self._weighted_programs(weighted)
        if self.model is not None:
            self.model.held_by(self)

    def without_ranks(self) -> Any:
        """A trainer of one process that goes on from here: with the same values, and the same order of rows. All ranks
        call it, and get one each. Of a trainer without ``distributed=`` it is a copy.

        Returns:
            the trainer.

        Raises:
            UserError: when the trainer, as the copy of another, does not hold what it was made from.
        """
        if self._interface.distributed is None:
            return copy.deepcopy(self)
        if self._setup is None:
            raise UserError(
                "a trainer of one process cannot be made: this one does not know its model, only the finished module",
                hint="ask the trainer itself, not a copy of it; a checkpoint can be loaded by one process",
            )
        model, setup = self._setup
        make: Any = type(self)  # the class of the whole trainer
        result = make(model, int(model.attrs["param_num"]), replace(setup, distributed=None))
        result.build("debug" if self.vm.executable.target is None else self.vm.executable.target, self.device)
        with self._turn:
            result._values = self._placement.whole(self._values).copy()
            result._generator, result._seed = copy.deepcopy(self._generator), self._seed
            result._epochs, result._layers = self._epochs, self._layers
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        result = memo[id(self)] = type(self).__new__(type(self))
        state = self._state()
        result.__setstate__({k: v if k in _SHARED else copy.deepcopy(v, memo) for k, v in state.items()})
        return result

    def __copy__(self) -> Any:
        """As deep as any: two trainers that overwrite the same values would be of no use."""
        return copy.deepcopy(self)
