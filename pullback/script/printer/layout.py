"""Lines of text: indentation, and brackets spread over lines where one line is too short."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

WIDTH = 100
INDENT = "    "

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[()\[\]{},]')


class Group(NamedTuple):
    """A line in pieces: what stands up to an opening bracket, the items inside, and the rest from the closing one."""

    head: str
    items: list[str]
    tail: str


def last_group(text: str) -> Group | None:
    """The brackets that a line ends with, if it does and several items stand in them."""
    open_groups: list[tuple[int, list[int]]] = []
    last: tuple[int, list[int], int] | None = None
    for token in _TOKEN.finditer(text):
        if token.group() in "([{":
            open_groups.append((token.end(), []))
        elif token.group() in ")]}" and open_groups:  # a line may begin with a closing one
            start, commas = open_groups.pop()
            last = (start, commas, token.start())
        elif token.group() == "," and open_groups:
            open_groups[-1][1].append(token.start())
    if last is None or text[last[2] + 1 :] not in ("", ":", ","):
        return None
    start, commas, end = last
    cuts = [start - 1, *commas, end]
    items = [text[a + 1 : b].strip() for a, b in pairwise(cuts)]
    items = items[:-1] if not items[-1] else items
    if len(items) > 1:
        return Group(text[:start], items, text[end:])
    inner = last_group(items[0]) if items else None
    if inner is None:
        return None
    return Group(text[:start] + inner.head, inner.items, inner.tail + ("," if commas else "") + text[end:])


class Lines:
    """Lines under construction."""

    def __init__(self, level: int = 0) -> None:
        self.lines: list[str] = []
        self.level = level

    @property
    def room(self) -> int:
        return WIDTH - len(INDENT) * self.level

    def add(self, text: str, one_per_line: bool = False) -> None:
        """One line, or, when that is too long, the brackets at its end spread over several."""
        group = last_group(text) if len(text) > self.room else None
        if group is None or any(len(t.group()) > WIDTH for t in _TOKEN.finditer(text)):
            self.lines.append(INDENT * self.level + text)
        else:
            self.spread(group, one_per_line)

    def spread(self, group: Group, one_per_line: bool = False) -> None:
        """The items on indented lines of their own."""
        self.lines.append(INDENT * self.level + group.head)
        with indented(self):
            for row in group.items if one_per_line else self._rows(group.items):
                self.add(f"{row},")
        self.add(group.tail)

    def _rows(self, items: Sequence[str]) -> Iterator[str]:
        """As many items a row as fit."""
        row = items[0]
        for item in items[1:]:
            if len(row) + len(item) + 3 <= self.room:
                row += f", {item}"
            else:
                yield row
                row = item
        yield row

    def extend(self, other: Lines) -> None:
        self.lines.extend(other.lines)

    def text(self) -> str:
        return "\n".join(self.lines)


class indented:  # noqa: N801  reads as a statement
    """``with indented(lines):`` one level deeper."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines

    def __enter__(self) -> None:
        self.lines.level += 1

    def __exit__(self, *_: object) -> None:
        self.lines.level -= 1
