"""Choices: how contractions are cut up on a machine where that was measured, in place of the analytical answer.

A choice says how large register tiles are and what a task covers. It never says in what order a sum is taken, so
results are the same, bit for bit, with and without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Choice:
    """Of one contraction, its axes by their number among those of the result: ``rows`` of the register tile along an
    axis, outermost first; its ``columns``; and what a task ``covers`` of each axis."""

    rows: tuple[tuple[int, int], ...]
    columns: int
    covers: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"rows": [list(r) for r in self.rows], "columns": self.columns, "covers": list(self.covers)}

    @staticmethod
    def from_json(data: Any) -> Choice:
        """The inverse of :meth:`to_json`; a ValueError for anything else."""
        try:
            rows = tuple((axis, count) for axis, count in data["rows"])
            choice = Choice(rows, data["columns"], tuple(data["covers"]))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{data!r} is no choice") from None
        numbers = [choice.columns, *choice.covers, *(count for _, count in rows)]
        sizes = all(type(n) is int and n > 0 for n in numbers)
        if not sizes or not all(type(axis) is int and 0 <= axis < len(choice.covers) for axis, _ in rows):
            raise ValueError(f"{data!r} is no choice")
        return choice


@dataclass(frozen=True, eq=False)
class Choices:
    """Choices by key: the digest of a group's tensor expressions, and the number of the contraction in the group."""

    by_key: Mapping[str, Choice] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def find(self, digest: bytes, part: int) -> Choice | None:
        return self.by_key.get(self.key(digest, part))

    @staticmethod
    def key(digest: bytes, part: int) -> str:
        return f"{digest.hex()}/{part}"
