"""The output of several ranks, as one: which rank wrote what, and what several wrote, once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

HOLD = 1.0  # seconds for which a line waits for ranks that write the same
HOLD_FIRST = 0.2  # one of rank 0, which people look at
_LONGEST = 1 << 20  # bytes of a line: a longer one is cut


class Lines:
    """Finds the lines of each rank in what a launcher writes, whose pieces begin with a label.

    The pieces of ranks may be interleaved in the middle of lines. What has no label at the beginning of a line is the
    launcher's own, which counts as rank None. Without a label all is rank 0's.
    """

    def __init__(self, label: re.Pattern[bytes] | None) -> None:
        self._label, self._rest = label, b""
        self._begun: dict[int | None, bytes] = {}  # lines that have not ended yet

    def feed(self, data: bytes) -> list[tuple[int | None, str]]:
        """The lines that end in the next bytes."""
        *raw, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            raw.append(self._rest)
            self._rest = b""
        return [line for text in raw for line in self._lines(text, ended=True)]

    def rest(self) -> list[tuple[int | None, str]]:
        """The lines that never ended."""
        found = self._lines(self._rest, ended=False)
        found += [(rank, _text(begun)) for rank, begun in self._begun.items() if begun]
        self._rest, self._begun = b"", {}
        return found

    def _lines(self, text: bytes, ended: bool) -> list[tuple[int | None, str]]:
        rank: int | None = 0
        if self._label is not None:
            own, *pieces = self._label.split(text)
            rank = None
            if own or not pieces:
                self._begun[None] = self._begun.get(None, b"") + own
            for number, piece in zip(pieces[::2], pieces[1::2], strict=True):
                rank = int(number)
                self._begun[rank] = self._begun.get(rank, b"") + piece
            if pieces and own:
                return [(None, _text(self._begun.pop(None))), *self._end(rank, ended)]
        else:
            self._begun[0] = text
        return self._end(rank, ended)

    def _end(self, rank: int | None, ended: bool) -> list[tuple[int | None, str]]:
        return [(rank, _text(self._begun.pop(rank, b"")))] if ended else []


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").removesuffix("\r")


@dataclass
class _Entry:
    text: str
    since: float
    ranks: set[int] = field(default_factory=set)

    def wait(self, size: int) -> float:
        """How many seconds it waits for others."""
        return 0.0 if len(self.ranks) == size else HOLD_FIRST if 0 in self.ranks else HOLD


class Together:
    """Shows the lines of ranks, those of each in their order; a line that several write within a moment stands once.

    What all ranks write, or rank 0, stands as it is; before other lines stand their ranks: ``[ranks 1-3] ready``.
    """

    def __init__(self, size: int, show: Callable[[str], None]) -> None:
        self._size, self._show = size, show
        self._waiting: list[_Entry] = []

    def add(self, rank: int, text: str, now: float) -> None:
        """A line of a rank at a time in seconds."""
        last = max((i for i, entry in enumerate(self._waiting) if rank in entry.ranks), default=-1)
        entry = next((entry for entry in self._waiting[last + 1 :] if entry.text == text), None)
        if entry is None:
            entry = _Entry(text, now)
            self._waiting.append(entry)
        entry.ranks.add(rank)

    def flush(self, now: float) -> None:
        """Show what has waited long enough."""
        while self._waiting and now >= self._waiting[0].since + self._waiting[0].wait(self._size):
            entry = self._waiting.pop(0)
            is_plain = len(entry.ranks) == self._size or entry.ranks == {0}
            self._show(entry.text if is_plain else f"[{named(entry.ranks)}] {entry.text}")


def named(ranks: set[int]) -> str:
    """``rank 2``, ``ranks 1-3, 7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(texts)}"
