"""Calls of a compiled trainer module that are made again and again: a training step, and the evaluation of a batch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from pullback.ir.errors import UserError
from pullback.relax.convention import (
    INPUT,
    KEPT,
    STEP,
    TARGET,
)
from pullback.relax.training.initialize import random_state
from pullback.relax.training.interface import Interface
from pullback.runtime.tensor import Tensor


@dataclass(frozen=True)
class Values:
    """What a trainer keeps; None is a parameter or state without a value. Steps overwrite the tensors in place."""

    params: tuple[Tensor | None, ...]
    states: tuple[Tensor | None, ...]
    random: tuple[Tensor, ...]
    optimizer_states: tuple[Tensor, ...]

    @property
    def groups(self) -> tuple[tuple[Tensor | None, ...], ...]:
        return self.params, self.states, self.random, self.optimizer_states

    @cached_property
    def all(self) -> tuple[Tensor, ...]:
        """In the order of the interface, of values that are complete: see :meth:`check_complete`."""
        return cast(tuple[Tensor, ...], tuple(itertools.chain(*self.groups)))

    @cached_property
    def is_complete(self) -> bool:
        return all(value is not None for value in itertools.chain(*self.groups))

    def check_complete(self, interface: Interface) -> None:
        """Raise a UserError that names the first parameter or state without a value."""
        if self.is_complete:
            return
        for slot, value in zip(interface.kept, itertools.chain(*self.groups), strict=True):
            if value is None:
                raise UserError(
                    f"{slot} has no value yet",
                    hint="call xavier_uniform_init_params() or load_params(…); zero_init_states() or load_states(…)",
                )

    def copy(self) -> Values:
        """The same values in new memory."""
        return self._mapped(lambda value: value.copy())

    def unpinned(self) -> Values:
        """These values, those that somebody else sees replaced by copies: a step must not change what others hold."""
        if not any(value._memory.is_pinned() for value in self.all):
            return self
        return self._mapped(lambda value: value.copy() if value.is_pinned() else value)

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Values:
        params, states = (tuple(v if v is None else change(v) for v in group) for group in (self.params, self.states))
        random, optimizer_states = (tuple(map(change, group)) for group in (self.random, self.optimizer_states))
        return Values(params, states, random, optimizer_states)

    def with_seed(self, seed: int) -> Values:
        """With random numbers that begin anew."""
        return replace(self, random=tuple(random_state(seed) for _ in self.random))

    def with_params(self, changed: Mapping[int, Tensor | None]) -> Values:
        return replace(self, params=tuple(changed.get(i, v) for i, v in enumerate(self.params)))

    def with_optimizer_states(self, changed: Mapping[int, Tensor]) -> Values:
        states = tuple(changed.get(i, v) for i, v in enumerate(self.optimizer_states))
        return replace(self, optimizer_states=states)

    def arguments(
        self, interface: Interface, name: str, inputs: Sequence[Tensor], targets: Sequence[Tensor] = ()
    ) -> list[Tensor]:
        """The arguments of a function of the trainer module: of these values, those that it takes."""
        # Optimizer states come last: what takes none does not mind that others are trained meanwhile.
        given = dict(zip(interface.convention.kept, self.all, strict=False))
        given |= {(INPUT, i): t for i, t in enumerate(inputs)} | {(TARGET, i): t for i, t in enumerate(targets)}
        return interface.convention[name].arrange(given)

    def averaged(self, interface: Interface) -> Values:
        """With the averages that the optimizer keeps in place of the parameters; a UserError when it keeps none.

        Before the first average, the parameters are as they are.
        """
        places = interface.record.averages
        if not places:
            raise UserError(
                f"the optimizer {interface.record.optimizer or 'of this trainer'} keeps no averages of parameters",
                hint="wrap it: EMA(Adam(1e-3), 0.999)",
            )
        if not self.optimizer_states[places[""]].item():  # how many were averaged
            return self
        named = ((i, places.get(slot.name)) for i, slot in enumerate(interface.params))
        return self.with_params({i: self.optimizer_states[place] for i, place in named if place is not None})

    def with_states(self, changed: Mapping[int, Tensor | None]) -> Values:
        return replace(self, states=tuple(changed.get(i, v) for i, v in enumerate(self.states)))


class BoundFunction:
    """A function of a trainer module on a virtual machine, bound to a trainer's values.

    ``__step`` overwrites all that the trainer keeps. Binding is done once for each set of argument shapes; a call then
    sets the inputs and targets that changed.
    """

    def __init__(self, vm: Any, interface: Interface, name: str) -> None:
        self._vm, self._interface, self._name = vm, interface, name
        self.returns = tuple(v for v in interface.convention[name].returns if name != STEP or v[0] not in KEPT)
        places = {value: i for i, value in enumerate(interface.convention[name].takes)}
        self._given = interface.convention[name].taken(INPUT) + interface.convention[name].taken(TARGET)
        kept = ((number, places.get(value)) for number, value in enumerate(interface.convention.kept))
        self._kept = [(number, place) for number, place in kept if place is not None]
        self._bound: dict[tuple[tuple[int, ...], ...], _Bound] = {}

    def __call__(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], values: Values) -> list[Tensor]:
        """Run it: returns the results that overwrite nothing, of which the first is the loss.

        A failing check raises ArgumentError before anything is written.
        """
        return self.bind(inputs, targets, values)()

    def bind(self, inputs: Sequence[Tensor], targets: Sequence[Tensor], values: Values) -> Any:
        """The call, compiled and with its arguments set."""
        key = tuple([t.shape for t in inputs])
        bound = self._bound.get(key)
        if bound is None:
            arguments = values.arguments(self._interface, self._name, inputs, targets)
            bound = self._bound[key] = _Bound(self._vm.bind(self._name, arguments), values, [*inputs, *targets])
        elif bound.values is not values:
            for number, place in self._kept:
                bound.call.set(place, values.all[number])
            bound.values = values
        arguments = bound.arguments
        for position, given in enumerate((*inputs, *targets)):
            if arguments[position] is not given:
                bound.call.set(self._given[position], given)
                arguments[position] = given
        return bound.call

    def release(self) -> None:
        """Let go of the values that calls are bound to; the next call of each shape is bound anew."""
        self._bound.clear()


@dataclass
class _Bound:
    """A bound call, and what it is bound to."""

    call: Any
    values: Values
    arguments: list[Tensor]  # inputs, then targets
