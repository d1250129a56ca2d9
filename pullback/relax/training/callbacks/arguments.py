"""Numbers and flags that callbacks are made with, checked."""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.errors import ArgumentError


def count(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} must be an int ≥ {least}, got {value!r}")
    return value


def number(name: str, value: Any, negative: bool = False) -> float:
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (number < 0 and not negative):
        raise ArgumentError(f"{name} must be a finite number{'' if negative else ' ≥ 0'}, got {value!r}")
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, got {value!r}")
    return value
