"""What a rank runs in a step: kernels, and collectives that it starts and waits for."""

from __future__ import annotations

from collections.abc import Sequence
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
    name: str
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

    @property
    def collectives(self) -> list[Collective]:
        return [item.collective for item in self.items if isinstance(item, Start)]

    @property
    def sent(self) -> int:
        """Bytes of all arrays in collectives."""
        return sum(collective.nbytes for collective in self.collectives)


class Writer:
    """Writes a program in which at most ``flight`` collectives are under way: before another is started, the oldest is
    waited for, and what follows it (``then``) is done."""

    def __init__(self, flight: int) -> None:
        self.items: list[Item] = []
        self._flight, self._tickets = flight, 0
        self._under_way: list[tuple[int, Sequence[Compute]]] = []

    def compute(self, name: str, seconds: float) -> None:
        if seconds:
            self.items.append(Compute(name, seconds))

    def start(self, name: str, collective: Collective, then: Sequence[Compute] = ()) -> int:
        """Start a collective, of which ``then`` is computed when it has ended; returns its ticket."""
        while len(self._under_way) >= self._flight:
            self.wait(self._under_way[0][0])
        ticket = self._tickets
        self._tickets += 1
        self.items.append(Start(ticket, name, collective))
        self._under_way.append((ticket, then))
        return ticket

    def wait(self, ticket: int) -> None:
        """Wait for a collective, if nobody has, and do what follows it."""
        for k, (number, then) in enumerate(self._under_way):
            if number == ticket:
                del self._under_way[k]
                self.items.append(Wait(ticket))
                self.items += then
                return

    def wait_for_all(self) -> None:
        while self._under_way:
            self.wait(self._under_way[0][0])

    def program(self) -> Program:
        self.wait_for_all()
        return Program(tuple(self.items))
