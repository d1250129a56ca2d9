"""Python names for symbols: each visible symbol has one, close to its own."""

from __future__ import annotations

import keyword
from collections.abc import Iterable
from typing import Any
from unicodedata import normalize

RESERVED = ("I", "R", "T", "cls", "float", "range", "Module")


class Names:
    """Names of the symbols of one function."""

    def __init__(self) -> None:
        self.taken: set[str] = set(RESERVED)
        self.of: dict[int, str] = {}
        self.symbols: dict[int, Any] = {}  # keeps the symbols alive, so that ids stay theirs

    def bind(self, symbol: Any) -> str:
        """A new name for a symbol, which hides an earlier one of the same symbol."""
        name = self.unique(symbol.name)
        self.of[id(symbol)], self.symbols[id(symbol)] = name, symbol
        return name

    def get(self, symbol: Any) -> str | None:
        return self.of.get(id(symbol))

    def unique(self, wanted: str) -> str:
        base = identifier(wanted)
        name, k = base, 0
        while name in self.taken:
            k += 1
            name = f"{base}_{k}"
        self.taken.add(name)
        return name

    def scope(self, symbols: Iterable[Any]) -> Level:
        """Names that are given on entering a ``with`` block and free again after it."""
        return Level(self, list(symbols))


class Level:
    """Symbols that are visible inside a block."""

    def __init__(self, names: Names, symbols: list[Any]) -> None:
        self.names, self.pending = names, symbols
        self.outer: list[tuple[Any, str | None]] = []

    def __enter__(self) -> Level:
        for symbol in self.pending:
            self.bind(symbol)
        return self

    def bind(self, symbol: Any) -> str:
        """One more symbol, until the block ends."""
        self.outer.append((symbol, self.names.get(symbol)))
        return self.names.bind(symbol)

    def __exit__(self, *_: object) -> None:
        for symbol, before in reversed(self.outer):
            self.names.taken.discard(self.names.of.pop(id(symbol)))
            if before is not None:
                self.names.of[id(symbol)] = before


def identifier(name: str) -> str:
    """``name`` made a Python identifier, in the form in which Python reads it (NFKC)."""
    if not (name.isascii() and name.isidentifier()):
        name = "".join(c if f"v{c}".isidentifier() else "_" for c in normalize("NFKC", name)) or "v"
        name = normalize("NFKC", name if name.isidentifier() else f"v{name}")
    return f"{name}_" if keyword.iskeyword(name) or name == "_" else name
