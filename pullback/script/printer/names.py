"""Python names for symbols: each visible symbol has one, close to its own."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable
from typing import Any
from unicodedata import normalize

from pullback.tir.expr import Var as SizeVar

RESERVED = ("I", "R", "T", "cls", "float", "range", "Module")


class Names:
    """Names of the symbols of one function."""

    def __init__(self) -> None:
        self.taken: set[str] = set(RESERVED)
        self.of: dict[int, str] = {}
        self.symbols: dict[int, Any] = {}  # keeps the symbols alive, so that ids stay theirs
        self.owners: dict[str, tuple[Any, ...]] = {}  # the symbols of a name that may still be read

    def bind(self, symbol: Any, may_take: Callable[[Any], bool] | None = None) -> str:
        """A new name for a symbol, which hides an earlier one of the same symbol. It may be that of symbols for which
        ``may_take`` is true."""
        name = self.unique(symbol.name, may_take)
        self.owners.pop(name, None)
        return self.give(symbol, name)

    def give(self, symbol: Any, name: str) -> str:
        """Name a symbol so, whoever else has the name."""
        self.taken.add(name)
        self.of[id(symbol)], self.symbols[id(symbol)] = name, symbol
        self.owners[name] = (*self.owners.get(name, ()), symbol)
        return name

    def get(self, symbol: Any) -> str | None:
        return self.of.get(id(symbol))

    def unique(self, wanted: str, may_take: Callable[[Any], bool] | None = None) -> str:
        base = identifier(wanted)
        name, k = base, 0
        while name in self.taken:
            if may_take is not None and name in self.owners and all(map(may_take, self.owners[name])):
                break
            k += 1
            name = f"{base}_{k}"
        self.taken.add(name)
        return name

    def saved(self) -> Saved:
        """Names that are given inside of ``with names.saved():`` end with it, but for those of sizes."""
        return Saved(self)

    def scope(self, symbols: Iterable[Any]) -> Level:
        """Names that are given on entering a ``with`` block and free again after it."""
        return Level(self, list(symbols))


class Saved:
    """The names as they were before a body inside of the function."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def __enter__(self) -> None:
        names = self.names
        self.before = set(names.taken), dict(names.of), dict(names.owners)

    def __exit__(self, *_: object) -> None:
        names = self.names
        taken, of, owners = self.before
        sizes = [(n, s[0]) for n, s in names.owners.items() if isinstance(s[0], SizeVar) and owners.get(n) is not s]
        names.taken, names.of, names.owners = taken, of, owners
        for name, size in sizes:
            names.give(size, name)


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
