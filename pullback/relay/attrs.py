"""Attributes of calls and functions: a read-only mapping whose items are attributes, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback.ir.errors import NoAttribute, suggestion
from pullback.tir.expr import FloatImm, IntImm


class Attrs(Mapping[str, Any]):
    """``attrs.units`` and ``attrs["units"]``. Lists are kept as tuples.

    >>> Attrs({"units": 10}).units
    10
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, Any] = {}) -> None:
        object.__setattr__(self, "_values", {str(k): frozen(v) for k, v in values.items()})

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._values:
            known = ", ".join(self._values) or "none"
            hint = f"there are: {known}"
            raise NoAttribute(f"there is no attribute {name!r}{suggestion(name, self._values)}", hint=hint)
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise NoAttribute(f"attribute {name!r} cannot be set: nodes do not change", hint="build a new call")

    def __reduce__(self) -> tuple[Any, ...]:
        return Attrs, (self._values,)

    def get_int(self, name: str) -> int:
        return int(self[name])

    def get_str(self, name: str) -> str:
        return str(self[name])

    def get_int_tuple(self, name: str) -> tuple[int, ...]:
        return tuple(int(v) for v in self[name])

    def __repr__(self) -> str:
        return f"Attrs({self._values})"


def frozen(value: Any) -> Any:
    """``value`` with tuples for lists, read-only mappings for dictionaries, Python's numbers for those of NumPy and
    of the loop IR."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (IntImm, FloatImm)):
        return value.value
    if isinstance(value, (list, tuple)):
        return tuple(frozen(v) for v in value)
    return Attrs(value) if isinstance(value, dict) else value
