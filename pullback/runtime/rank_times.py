"""How long the steps of a training take on each rank, without waiting for the others: which one is slow."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pullback.ir.words import guided
from pullback.runtime.tables import Table

_SLOW = 1.1  # times what a step takes on most ranks


@guided
@dataclass(frozen=True)
class RankTimes:
    """``seconds``: the mean time of a step on each rank, by rank, without waiting for others; over ``steps`` steps."""

    seconds: tuple[float, ...]
    steps: int

    @property
    def slowest(self) -> int:
        """The rank that the others wait for."""
        return max(range(len(self.seconds)), key=self.seconds.__getitem__)

    @property
    def line(self) -> str:
        """``a step takes 9.10 ms on most ranks, 12.30 ms on rank 3, the slowest``."""
        usual, most = statistics.median_low(self.seconds), self.seconds[self.slowest]
        if most <= _SLOW * usual:
            return f"a step takes {usual * 1e3:.2f} ms on each rank"
        slow = f"{most * 1e3:.2f} ms on rank {self.slowest}, the slowest"
        return f"a step takes {usual * 1e3:.2f} ms on most ranks, {slow}"

    def table(self) -> Table:
        """A row for each rank."""
        rows = [[str(rank), f"{seconds * 1e3:.3f}"] for rank, seconds in enumerate(self.seconds)]
        return Table(["rank", "ms a step"], rows, f"{self.line}; {self.steps:,} steps")

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.table().html()


class StepClock:
    """Adds up how long a rank's own steps take."""

    def __init__(self) -> None:
        self.seconds, self.steps = 0.0, 0

    def add(self, seconds: float, steps: int) -> None:
        self.seconds += max(seconds, 0.0)
        self.steps += steps
