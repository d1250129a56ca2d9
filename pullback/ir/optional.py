"""Several things that may each be missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def all_known(items: Iterable[T | None]) -> list[T] | None:
    """The items; None where one of them is None.

    >>> all_known([1, 2]), all_known([1, None])
    ([1, 2], None)
    """
    found = []
    for item in items:
        if item is None:
            return None
        found.append(item)
    return found
