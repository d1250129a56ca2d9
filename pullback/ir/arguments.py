"""Arguments of a kind, or an ArgumentError: what a function does with another kind is seldom what somebody wanted."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from pullback.ir.errors import ArgumentError


def sequence(name: str, value: Any, hint: str | None = None) -> tuple[Any, ...]:
    """The items of a list, a tuple or another collection that has an order."""
    try:
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)):
            return tuple(value)
    except TypeError:  # an array of no dimensions
        pass
    raise ArgumentError(f"{name} must be a sequence, got {_shown(value)}", hint=hint or "write [a, b], or (a,) for one")


def mapping(name: str, value: Any, hint: str | None = None) -> Mapping[Any, Any]:
    """A dictionary, or what can be read as one."""
    if isinstance(value, Mapping):
        return value
    raise ArgumentError(f"{name} must be a mapping, got {_shown(value)}", hint=hint or 'write {"name": value}')


def whole(name: str, value: Any) -> int:
    """An int, of Python or NumPy."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ArgumentError(f"{name} must be an int, got {_shown(value)}", hint="write a whole number, such as 0")


def number(name: str, value: Any, finite: bool = True) -> float:
    """A real number, of Python or NumPy, as a float."""
    if isinstance(value, Real) and not isinstance(value, bool) and (math.isfinite(value) or not finite):
        return float(value)
    raise ArgumentError(f"{name} must be a {'finite ' * finite}number, got {_shown(value)}", hint="such as 0.1")


def _shown(value: Any) -> str:
    return f"{value!r:.80}" if isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"
