"""The mutants of ``table.txt``, which says how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mutant:
    """In ``file``, the text ``old``, which stands there once, becomes ``new``; some of ``tests`` (arguments of pytest)
    must fail. ``equal``: why nothing can fail, where the change turned out to make no difference."""

    file: str
    tests: str
    old: str
    new: str
    equal: str = ""

    @property
    def room(self) -> str:
        """``tir`` or ``relax/op``."""
        folders = self.file.split("/")[:-1]
        return "/".join(folders[: 2 if folders[0] == "relax" else 1])

    def applied(self, text: str) -> str:
        """The changed text of the file; a ValueError when ``old`` does not stand in it just once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} holds {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.file}: {self.old}   →   {self.new}"


def parsed(text: str) -> tuple[Mutant, ...]:
    """The mutants of a table."""
    found: list[list[str]] = []
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "@":
            found.append(rest.split(": ", 1))
        elif kind in ("-", "+", "="):
            found[-1].append(rest)
        elif line and kind != "#":
            raise ValueError(f"not a line of a table of mutants: {line}")
    return tuple(Mutant(*fields) for fields in found)


TABLE = parsed((Path(__file__).parent / "table.txt").read_text())
