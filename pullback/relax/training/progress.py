"""The progress bar of ``fit``: redrawn at most ten times a second, and free of cost in between."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any

from pullback.ir.errors import UserError

INTERVAL = 0.1  # seconds between two drawings


class Progress:
    """A context in which a bar is shown, when wanted and where the output is a terminal."""

    def __init__(self, wanted: bool, epochs: int, rows: int) -> None:
        self._bar: Any = None
        self._rows, self._epochs, self._epoch = rows, epochs, 1
        self._done, self._next = 0, 0.0
        if wanted:
            self._bar = _bar()
            self._task = self._bar.add_task("", total=rows) if self._bar is not None else None

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, rows: int, loss: float) -> None:
        """Count the rows of a step."""
        if self._bar is None:
            return
        self._done += rows
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + INTERVAL
            description = f"epoch {self._epoch}/{self._epochs}  loss {loss:.4f}"
            self._bar.update(self._task, completed=self._done, description=description, refresh=True)

    def epoch(self, line: str) -> None:
        """End an epoch: print its line, begin the bar anew."""
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
            self._done, self._epoch = 0, min(self._epoch + 1, self._epochs)
            self._bar.update(self._task, completed=0 if self._epoch < self._epochs else self._rows)


def _bar() -> Any:
    """A bar that is drawn only when told to; None where the output is no terminal."""
    if not _may_be_a_terminal():
        return None
    try:
        from rich import console, progress
    except ImportError:
        raise UserError(
            "the progress bar needs the package rich, which is missing",
            hint="`pip install rich`, or fit(…, progress=False)",
        ) from None
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=console.Console(),  # that of the process has a lock and one bar: a fork's child cannot use it
        auto_refresh=False,
        transient=True,
    )
    return bar if bar.console.is_terminal else None


def _may_be_a_terminal() -> bool:
    """Whether rich is worth asking: loading it takes a thirtieth of what the demo trains for."""
    with suppress(AttributeError, ValueError):  # no output, or a closed one
        if sys.stdout.isatty():
            return True
    return any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
