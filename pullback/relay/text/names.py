"""Names of variables, type variables and sizes in printed text: hints, made unique."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pullback.relay.text.literals import quoted
from pullback.relay.text.tokens import is_plain


class Names:
    """Names that are given out once: ``x``, ``x1``, ``x2``, …"""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.next: dict[str, int] = dict.fromkeys(taken, 0)

    def unique(self, hint: str) -> str:
        """The hint, or the hint with the next free number."""
        name = hint
        while name in self.next:
            self.next[hint] += 1
            name = f"{hint}{self.next[hint]}"
        self.next[name] = 0
        return name


def begun_by_letter(hint: str, prefix: str) -> str:
    """The hint; one that is empty or begins with no letter, after the prefix."""
    return hint if hint[:1].isascii() and hint[:1].isalpha() else prefix + hint


def identifier(hint: str, prefix: str) -> str:
    """The hint as a name of letters, digits and ``_`` that begins with a letter."""
    return begun_by_letter(re.sub(r"\W", "_", hint, flags=re.ASCII), prefix)


def written(mark: str, name: str) -> str:
    """``%name`` or ``@name``, in quotes where it is no plain name."""
    return mark + (name if is_plain(name) else quoted(name))
