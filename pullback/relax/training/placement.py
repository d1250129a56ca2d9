"""Where the values of a trainer of several ranks are: whole on every rank, or in pieces."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.relax.training.initialize import static_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.runtime.ranks import Ranks, current

WHOLE, PIECE = "whole", "piece"


@dataclass(frozen=True)
class Placement:
    """Of a trainer module, what each rank holds: all of every value."""

    interface: Interface

    @staticmethod
    def of(interface: Interface) -> Placement:
        return Placement(interface)

    @property
    def ranks(self) -> Ranks:
        """The ranks of the calling thread."""
        return current()

    def kind(self, slot: Slot) -> str:
        """Whether a rank holds the WHOLE tensor or a PIECE."""
        return WHOLE

    def shape(self, slot: Slot) -> tuple[int, ...]:
        """The shape of what a rank holds."""
        return static_shape(slot)
