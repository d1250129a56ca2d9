"""Containers that programs of relay return."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class ADT(list[Any]):
    """The fields of a tuple (tag 0), or of what a constructor of a data type made; a list of values.

    >>> result = tuple_object([1, 2])
    >>> result[0], len(result), result.tag
    (1, 2, 0)
    """

    def __init__(self, tag: int, fields: Iterable[Any]) -> None:
        super().__init__(fields)
        self.tag = tag


def tuple_object(fields: Iterable[Any] | None = None) -> ADT:
    """A tuple of these values."""
    return ADT(0, () if fields is None else fields)
