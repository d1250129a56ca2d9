"""``Executor`` and ``Runtime``: options of a build, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from pullback.ir.errors import ArgumentError, NameNotFound, suggestion


class _Options:
    """A name, and options with their values; equal where both are."""

    kinds: ClassVar[Mapping[str, Mapping[str, type]]]
    what: ClassVar[str]
    default: ClassVar[str]

    def __init__(self, name: Any = None, options: Mapping[str, Any] | None = None) -> None:
        if isinstance(name, type(self)):
            name, options = name.name, {**name.options, **(options or {})}
        self.name: str = self.default if name is None else name
        if self.name not in self.kinds:
            hint = f"there are {', '.join(self.kinds)}"
            raise ArgumentError(f"there is no {self.what} {name!r}{suggestion(str(name), self.kinds)}", hint=hint)
        known = self.kinds[self.name]
        given = dict(options or {})
        for key, value in given.items():
            if key not in known:
                hint = f"it has {', '.join(known) or 'none'}"
                raise ArgumentError(f"{self.what} {self.name!r} has no option {key!r}", hint=hint)
            if not isinstance(value, known[key]):
                raise ArgumentError(f"option {key!r} must be of type {known[key].__name__}, got {value!r}")
        self.options: Mapping[str, Any] = MappingProxyType(given)

    def __getitem__(self, key: str) -> Any:
        if key not in self.options:
            raise NameNotFound(f"option {key!r} of {self.what} {self.name!r} is not set")
        return self.options[key]

    def __contains__(self, key: str) -> bool:
        return key in self.options

    def get(self, key: str, default: Any = None) -> Any:
        return self.options.get(key, default)

    @classmethod
    def list_registered(cls) -> list[str]:
        """The names that there are."""
        return list(cls.kinds)

    @classmethod
    def list_registered_options(cls, name: str) -> dict[str, str]:
        """The options of a name, with their types."""
        if name not in cls.kinds:
            raise ArgumentError(f"there is no {cls.what} {name!r}{suggestion(name, cls.kinds)}")
        return {option: kind.__name__ for option, kind in cls.kinds[name].items()}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Options) or type(other) is not type(self):
            return False
        return (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.options.items()))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {dict(self.options)!r})"


class Executor(_Options):
    """How a build is to be run: "graph" or "aot". Both compile a whole function; their options change nothing here.

    >>> Executor("aot", {"unpacked-api": True})["unpacked-api"]
    True
    """

    what, default = "executor", "graph"
    kinds: ClassVar[Mapping[str, Mapping[str, type]]] = {
        "graph": {"link-params": bool},
        "aot": {"link-params": bool, "unpacked-api": bool, "interface-api": str, "workspace-byte-alignment": int,
                "constant-byte-alignment": int},
    }  # fmt: skip


class Runtime(_Options):
    """What a build runs on: "cpp" or "crt". There is one runtime here; both names are taken for it."""

    what, default = "runtime", "cpp"
    kinds: ClassVar[Mapping[str, Mapping[str, type]]] = {"cpp": {"system-lib": bool}, "crt": {"system-lib": bool}}
