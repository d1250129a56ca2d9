"""Where a trainer's values are: whole on every rank, or each rank a piece.

Modules, interfaces and checkpoints know whole tensors. What a trainer of several ranks holds may be pieces (ZeRO): of
optimizer states that belong to a parameter and have its shape from stage 1 on, of parameters in stage 3. A rank's piece
of a tensor of N elements is a flat one of ⌈N / n⌉: see ``runtime/collectives.py``. Only this file turns the one into
the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from pullback.relax.training.initialize import static_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.shares import ALONE, Share
from pullback.relax.training.step import Values
from pullback.runtime.collectives import piece, piece_length
from pullback.runtime.ranks import Alone, RankError, Ranks, current
from pullback.runtime.tensor import Tensor, tensor

WHOLE, PIECE = "whole", "piece"
_ALONE = Alone()
Value = TypeVar("Value", Tensor, Tensor | None)


@dataclass(frozen=True)
class Placement:
    """Of a trainer module, what each rank holds."""

    interface: Interface

    @staticmethod
    def of(interface: Interface) -> Placement:
        """That of a trainer module, as its attribute ``distributed`` says."""
        return Placement(interface)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return 1 if self.interface.distributed is None else self.interface.distributed.ranks

    @property
    def has_pieces(self) -> bool:
        return bool(self.interface.pieces)

    @cached_property
    def params(self) -> frozenset[int]:
        """The numbers of the parameters of which a rank holds a piece."""
        return frozenset(i for i in self.interface.pieces if i < len(self.interface.params))

    @cached_property
    def optimizer_states(self) -> frozenset[int]:
        """The numbers of such optimizer states."""
        first = len(self.interface.kept) - len(self.interface.optimizer_states)
        return frozenset(i - first for i in self.interface.pieces if i >= first)

    @property
    def ranks(self) -> Ranks:
        """The ranks of the calling thread. A RankError where they are not those that the trainer was made for."""
        if self.size == 1:
            return _ALONE
        ranks = current()
        if ranks.size != self.size:
            here = "there is one alone" if ranks.size == 1 else f"there are {ranks.size}"
            raise RankError(
                f"the trainer was made for {self.size} ranks, and here {here}",
                hint="make it anew with pullback.trainer(…, distributed=…), and load(path) what the other one saved",
            )
        return ranks

    @property
    def share(self) -> Share:
        """What this rank takes of batches."""
        if self.interface.distributed is None:
            return ALONE
        return Share(self.ranks.rank, self.size, self.interface.distributed)

    def kind(self, slot: Slot) -> str:
        """Whether a rank holds the WHOLE tensor or a PIECE."""
        return PIECE if (slot.kind, slot.name) in self._pieces else WHOLE

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """The shape of what a rank holds."""
        shape = static_shape(slot)
        return (piece_length(math.prod(shape), self.size),) if self.kind(slot) == PIECE else shape

    def run(self, slot: Slot, rank: int) -> tuple[int, int]:
        """The first of the elements of the whole tensor that a rank holds, and how many they are."""
        elements = math.prod(static_shape(slot))
        if self.kind(slot) == WHOLE:
            return 0, elements
        first = min(rank * piece_length(elements, self.size), elements)
        return first, min(piece_length(elements, self.size), elements - first)

    def whole(self, values: Values, optimizer_states: bool = True) -> Values:
        """Held values with whole tensors in place of pieces: of parameters, and of ``optimizer_states`` unless those do
        not matter. Collective where there are pieces of them."""
        interface = self.interface
        params = self._joined(interface.params, values.params, self.params)
        found = values if params is values.params else replace(values, params=params)
        if not optimizer_states:
            return found
        states = self._joined(interface.optimizer_states, values.optimizer_states, self.optimizer_states)
        return found if states is values.optimizer_states else replace(found, optimizer_states=states)

    def whole_tensor(self, slot: Slot, value: Tensor) -> Tensor:
        """One held tensor as a whole. Collective where it is a piece."""
        return self._joined((slot,), (value,), [0] if self.kind(slot) == PIECE else ())[0]

    def held(self, values: Values) -> Values:
        """What this rank holds of whole values."""
        if not self.has_pieces:
            return values
        params = self.held_params(dict(enumerate(values.params)))
        states = self.held_states(dict(enumerate(values.optimizer_states)))
        return Values(tuple(params.values()), values.states, values.random, tuple(states.values()))

    def held_params(self, whole: Mapping[int, Value]) -> dict[int, Value]:
        """What this rank holds of whole parameters, by their numbers."""
        return self._cut(whole, self.params)

    def held_states(self, whole: Mapping[int, Value]) -> dict[int, Value]:
        """What this rank holds of whole optimizer states, by their numbers."""
        return self._cut(whole, self.optimizer_states)

    def of_first(self, values: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The first rank's values of those that all ranks give, of the same shapes. Collective."""
        ranks = self.ranks
        if ranks.size == 1 or not values:
            return dict(values)
        return {n: self._each("broadcast", np.asarray(value), value.shape) for n, value in values.items()}

    @cached_property
    def _pieces(self) -> frozenset[tuple[str, str]]:
        slots = [self.interface.kept[i] for i in self.interface.pieces]
        return frozenset((slot.kind, slot.name) for slot in slots)

    def _cut(self, whole: Mapping[int, Value], numbers: frozenset[int]) -> dict[int, Value]:
        rank = self.ranks.rank if numbers else 0
        return {
            i: tensor(piece(np.asarray(value), rank, self.size)) if i in numbers and value is not None else value
            for i, value in whole.items()
        }

    def _joined(
        self, slots: Sequence[Slot], values: tuple[Value, ...], numbers: Sequence[int] | frozenset[int]
    ) -> tuple[Value, ...]:
        """The values with those of these numbers as wholes."""
        there = [i for i in sorted(numbers) if values[i] is not None]
        if not there:
            return values
        joined = {i: self._each("gather_pieces", np.asarray(values[i]), static_shape(slots[i])) for i in there}
        return tuple(joined.get(i, value) for i, value in enumerate(values))

    def _each(self, kind: str, array: np.ndarray, shape: tuple[int, ...]) -> Tensor:
        """What a collective gives for one array. Of many at a time the engine would make one message: memory that it
        keeps, as much as all parameters take."""
        return tensor(self.ranks.collective(kind, [array], [shape])[0])
