"""Where the time of a call went, kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KernelTime:
    """One kernel call: its name and its wall time in microseconds."""

    name: str
    microseconds: float


@dataclass(frozen=True)
class Report:
    """The kernel calls of one run of a function, in order. Printing it gives a table; ``total`` is in microseconds."""

    function: str
    calls: tuple[KernelTime, ...]

    @staticmethod
    def of(function: str, names: Sequence[str], stamps: Sequence[int]) -> Report:
        """From the times in nanoseconds before each call and after the last."""
        pairs = zip(names, stamps, stamps[1:], strict=False)
        return Report(function, tuple(KernelTime(n, (b - a) / 1000) for n, a, b in pairs))

    @property
    def total(self) -> float:
        return sum(call.microseconds for call in self.calls)

    def __str__(self) -> str:
        width = max([len("kernel"), *(len(c.name) for c in self.calls)])
        lines = [f"{self.function}: {self.total:.1f} µs in {len(self.calls)} kernels"]
        lines.append(f"{'kernel':<{width}}  {'µs':>10}  {'share':>6}")
        total = self.total or 1.0
        for call in self.calls:
            lines.append(f"{call.name:<{width}}  {call.microseconds:>10.2f}  {call.microseconds / total:>6.1%}")
        return "\n".join(lines)
