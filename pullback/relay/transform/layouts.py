"""Layouts: the order of a tensor's axes by letters, ``NCHW``, with blocks of some, ``NCHW4c``.

A capital is an axis, a small letter after a number the places inside blocks of that many. None stands for a layout that
is not known, "" for a scalar's.
"""

from __future__ import annotations

import re

Layout = str | None


def parts(layout: str) -> list[str]:
    """The axes, each with the size of its blocks if it is one: ``["N", "C", "H", "W", "4c"]``."""
    return re.findall(r"\d*[A-Za-z]", layout)


def letters(layout: str) -> str:
    """The axes by letter only."""
    return "".join(part[-1] for part in parts(layout))


def primal(layout: str) -> str:
    """The capital letters."""
    return "".join(letter for letter in letters(layout) if letter.isupper())


def last(layout: str, count: int) -> str:
    """The layout of the last ``count`` axes."""
    return "".join(parts(layout)[len(parts(layout)) - count :])


def expanded(layout: str, to: str) -> str:
    """The layout with the axes in front that ``to`` has and it lacks."""
    return "".join(letter for letter in primal(to) if letter not in primal(layout)) + layout


def is_plain(layout: str) -> bool:
    """Whether no axis is cut into blocks."""
    return layout == primal(layout)
