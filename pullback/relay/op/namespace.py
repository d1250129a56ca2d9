"""The operators as Python calls them: ``relay.nn.dense``, ``relay.op.transform.reshape``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pullback.ir.errors import NoAttribute, suggestion
from pullback.relay.op.registry import Op


class Namespace:
    """Operators whose names begin with ``prefix.``, and functions that call several.

    ``names`` are those that the namespace has, by default all of the prefix; ``functions`` come before operators.
    """

    def __init__(
        self,
        title: str,
        prefix: str = "",
        names: Iterable[str] | None = None,
        functions: Mapping[str, Any] | None = None,
    ) -> None:
        self._title, self._start = title, f"{prefix}." if prefix else ""
        self._names = None if names is None else frozenset(names)
        self._functions = dict(functions or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._functions:
            return self._functions[name]
        op = Op.registry.get(self._start + name)
        if op is None or (self._names is not None and name not in self._names):
            raise NoAttribute(f"there is no {self._title}.{name}{suggestion(name, self.__dir__())}")
        return op

    def __dir__(self) -> list[str]:
        start = self._start
        found = {n.removeprefix(start) for n in Op.registry if n.startswith(start)}
        found = {n for n in found if "." not in n} if self._names is None else set(self._names)
        return sorted(found | set(self._functions))

    def __repr__(self) -> str:
        return f"<{self._title}>"
