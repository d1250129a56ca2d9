"""The text that is read, and the mistakes found in it: all of them are reported together."""

from __future__ import annotations

import bisect
import re
from typing import NoReturn

from pullback.ir.errors import ScriptError
from pullback.ir.node import Span

NAMELESS = "from_string"  # what a text is called that is only a string
MOST_SHOWN = 20  # mistakes that one error shows


class Source:
    """A text by name; places in it are offsets, and spans for those who read messages."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.starts = [0, *(line.end() for line in re.finditer("\n", text))]

    def span(self, start: int, end: int) -> Span:
        """From ``start`` to ``end``, or to the end of the line."""
        line = bisect.bisect_right(self.starts, start) - 1
        first = self.starts[line]
        after = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
        shown = self.text[first:after].rstrip("\r\n")
        return Span(self.name, line + 1, start - first, max(start - first + 1, min(end - first, len(shown))), shown)


class Mistakes:
    """The mistakes in one text, in the order of their places."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int, str], ScriptError] = {}

    def add(self, error: ScriptError) -> None:
        """Keep one; the same at the same place counts once."""
        span = error.span
        key = (span.line, span.column) if span is not None else (0, 0)
        self.found.setdefault((*key, error.message), error)

    def report(self) -> None:
        """Raise what was found: one error, or one that lists them all."""
        errors = [self.found[key] for key in sorted(self.found)]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            self._raise_all(errors)

    @staticmethod
    def _raise_all(errors: list[ScriptError]) -> NoReturn:
        shown = "\n\n".join(str(e) for e in errors[:MOST_SHOWN])
        more = f"\n\nand {len(errors) - MOST_SHOWN} more" if len(errors) > MOST_SHOWN else ""
        combined = ScriptError(f"{len(errors)} mistakes in the text:\n\n{shown}{more}")
        combined.span, combined.hint = errors[0].span, errors[0].hint
        raise combined
