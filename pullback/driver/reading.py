"""Programs that are read for what they define: nothing that is compiled runs meanwhile.

`python -m pullback show FILE` runs a file to find its modules. A script that trains at its top level would train, and
write over files of its user. So the first call of a compiled function ends the reading there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_is_on = False  # for all threads: a program may train in one of its own


class Computing(BaseException):
    """A program that is only read is about to compute. No Exception: programs catch these."""


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Raise :class:`Computing` where a compiled function would be called."""
    global _is_on
    before, _is_on = _is_on, True
    try:
        yield
    finally:
        _is_on = before


def stop_if_reading(function: str) -> None:
    """Of a compiled function, before it is called."""
    if _is_on:
        raise Computing(function)
