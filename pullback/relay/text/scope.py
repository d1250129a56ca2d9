"""Which names stand for what, while a definition is read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


class Scope:
    """Names of one kind; those bound inside ``with scope.inner():`` are forgotten after it."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}
        self._undo: list[tuple[str, Any]] = []

    def bind(self, name: str, value: Any) -> Any:
        """Let the name stand for the value; returns the value."""
        self._undo.append((name, self.bound.get(name)))
        self.bound[name] = value
        return value

    @contextlib.contextmanager
    def inner(self) -> Iterator[None]:
        mark = len(self._undo)
        try:
            yield
        finally:
            while len(self._undo) > mark:
                name, old = self._undo.pop()
                if old is None:
                    del self.bound[name]
                else:
                    self.bound[name] = old
