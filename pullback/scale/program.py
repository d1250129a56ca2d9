"""What a rank runs in a step: kernels, and collectives that it starts and waits for."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.scale.engine import Collective


@dataclass(frozen=True)
class Compute:
    """Kernels that take so many seconds of the rank's threads."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Start:
    """Begin a collective; the rank goes on."""

    ticket: int
    collective: Collective


@dataclass(frozen=True)
class Wait:
    """Go on when the collective of that ticket has ended."""

    ticket: int


Item = Compute | Start | Wait


@dataclass(frozen=True)
class Program:
    """The items of a step, in order: each ticket is started once, and waited for afterwards."""

    items: tuple[Item, ...]

    @property
    def compute(self) -> float:
        """Seconds of all kernels."""
        return sum(item.seconds for item in self.items if isinstance(item, Compute))

    def faster(self, times: float) -> Program:
        """The same on threads that are so many times as fast."""
        items = (Compute(i.name, i.seconds / times) if isinstance(i, Compute) else i for i in self.items)
        return Program(tuple(items))

    @property
    def collectives(self) -> list[Collective]:
        return [item.collective for item in self.items if isinstance(item, Start)]

    @property
    def sent(self) -> int:
        """Bytes of all arrays in collectives."""
        return sum(collective.nbytes for collective in self.collectives)
