"""Where the values of a trainer of several ranks are: whole on every rank, or in pieces."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.relax.training.interface import Interface, Slot

WHOLE, PIECE = "whole", "piece"


@dataclass(frozen=True)
class Placement:
    """What a rank holds of each value: of names in ``pieces`` its piece, a flat array, of others all."""

    pieces: frozenset[tuple[str, str]] = frozenset()  # kinds and names of slots

    @staticmethod
    def of(interface: Interface) -> Placement:
        return Placement()

    def kind(self, slot: Slot) -> str:
        return PIECE if (slot.kind, slot.name) in self.pieces else WHOLE
