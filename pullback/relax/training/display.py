"""What ``fit`` shows: a bar in a terminal, a live table in a notebook, a line for each epoch elsewhere, or nothing.

A display is told how far compiling and training have come. It may be told much more often than it draws.
"""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from typing import Any

from pullback.ir.environment import switch
from pullback.ir.errors import UserError
from pullback.relax.training.history import EpochRecord, History
from pullback.relax.training.notebook import Area, cell, in_notebook
from pullback.runtime.rank_times import RankTimes

BAR_INTERVAL = 0.1  # seconds between two drawings
NOTEBOOK_INTERVAL = 0.3
FLICKER = 0.3  # seconds in which what is compiled, or only loaded, is not worth being shown
WORTH_A_LINE = 1.0  # seconds of compiling that a line tells of


class Display:
    """Shows nothing; the base of the others."""

    def compiling(self, done: int, count: int, seconds: float) -> None:
        """So many kernels of those known of are compiled."""

    def compiled(self, count: int, seconds: float) -> None:
        """All is compiled: so many kernels."""

    def begin(self, epochs: int, rows: int | None) -> None:
        """Training begins: epochs of so many rows, if that is known."""

    def advance(self, epoch: int, done: int, loss: float) -> None:
        """Of the epoch, counted from 1, so many rows are done; the loss of the last batch."""

    def epoch(self, record: EpochRecord) -> None:
        """An epoch has ended."""

    def ranks(self, times: RankTimes) -> None:
        """How long steps have taken on each rank so far."""

    def ended(self, note: str) -> None:
        """Training has ended early; the note says why."""

    def close(self) -> None:
        """All is over, by an exception perhaps."""


class Lines(Display):
    """A line for each epoch, for log files and for output that is read by programs."""

    def compiled(self, count: int, seconds: float) -> None:
        if seconds >= WORTH_A_LINE:
            self._print(_compiled(count, seconds))

    def epoch(self, record: EpochRecord) -> None:
        self._print(record.line)

    def ranks(self, times: RankTimes) -> None:
        self._print(times.line)

    def ended(self, note: str) -> None:
        self._print(note)

    @staticmethod
    def _print(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Bar(Display):
    """A bar below the lines of the epochs."""

    def __init__(self) -> None:
        self._console = _console()
        self._live: Any = None
        self._bar: Any = None
        self._next = 0.0

    def compiling(self, done: int, count: int, seconds: float) -> None:
        now = time.perf_counter()
        if seconds < FLICKER or now < self._next:
            return
        from rich.live import Live
        from rich.text import Text

        self._next = now + BAR_INTERVAL
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        text = _so_far(done, count, seconds)
        ascii_only = self._console.options.ascii_only
        self._live.update(Text(text.replace("…", "...") if ascii_only else text), refresh=True)

    def compiled(self, count: int, seconds: float) -> None:
        self._stop(self._live)
        self._live, self._next = None, 0.0
        if seconds >= WORTH_A_LINE:
            self._console.print(_compiled(count, seconds), highlight=False, markup=False)

    def begin(self, epochs: int, rows: int | None) -> None:
        from rich import progress

        self._epochs, self._rows = epochs, rows
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=self._console,
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=rows)
        self._bar.start()

    def advance(self, epoch: int, done: int, loss: float) -> None:
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + BAR_INTERVAL
            description = f"epoch {epoch}/{self._epochs}  loss {loss:.4f}"
            self._bar.update(self._task, completed=done, description=description, refresh=True)

    def epoch(self, record: EpochRecord) -> None:
        self._console.print(record.line, highlight=False, markup=False)
        self._bar.reset(self._task, total=self._rows, description="")
        self._next = 0.0

    def ended(self, note: str) -> None:
        self._console.print(note, highlight=False, markup=False)

    def close(self) -> None:
        self._stop(self._live)
        self._stop(self._bar)

    @staticmethod
    def _stop(drawn: Any) -> None:
        if drawn is not None:
            drawn.stop()


class NotebookTable(Display):
    """A table of the epochs under the cell, with a bar of the epoch that runs below it."""

    def __init__(self, history: History) -> None:
        self._history, self._area = history, Area()
        self._next = 0.0
        self._note = ""

    def compiling(self, done: int, count: int, seconds: float) -> None:
        self._show(_so_far(done, count, seconds))

    def compiled(self, count: int, seconds: float) -> None:
        self._note = _compiled(count, seconds) if seconds >= WORTH_A_LINE else ""

    def begin(self, epochs: int, rows: int | None) -> None:
        self._epochs, self._rows = epochs, rows

    def advance(self, epoch: int, done: int, loss: float) -> None:
        share = f' value="{done}" max="{self._rows}"' if self._rows else ""
        place = f"epoch {epoch}/{self._epochs}"
        rows = f"{done}/{self._rows} rows" if self._rows else f"{done} rows"
        shown = "" if math.isnan(loss) else f", loss {loss:.4f}"
        self._show(f"{place}: {rows}{shown}", f"{place} <progress{share}></progress> {rows}{shown}")

    def epoch(self, record: EpochRecord) -> None:
        self._show("")

    def close(self) -> None:
        self._next = 0.0
        self._show(self._note)
        self._history._shown_in = cell()

    def _show(self, text: str, html: str | None = None) -> None:
        now = time.perf_counter()
        if now < self._next:
            return
        self._next = now + NOTEBOOK_INTERVAL
        table = self._history._repr_html_() if len(self._history) else ""
        lines = [repr(self._history)] if len(self._history) else []
        below = text if html is None else html
        self._area.show(
            table + (f"<div>{below}</div>" if below else ""), "\n".join([*lines, *([text] if text else [])])
        )


def display_for(verbose: Any, history: History) -> Display:
    """The display that fits the output: ``verbose`` is "auto", or 0, 1 or 2."""
    if verbose in (0, False) or sys.stdout is None:
        return Display()
    if verbose == 2 and verbose is not True:
        return Lines()
    if in_notebook():
        return NotebookTable(history)
    return Bar() if _is_terminal() else Lines()


def _so_far(done: int, count: int, seconds: float) -> str:
    kernels = f", {done} of {count} kernels" if count else ""
    return f"compiling … {seconds:.1f} s{kernels}"


def _compiled(count: int, seconds: float) -> str:
    what = f"{count} kernel{'' if count == 1 else 's'}" if count else "no kernel, all were in the cache,"
    return f"compiled {what} in {seconds:.1f} s"


def _console() -> Any:
    """A console of one's own: that of the process has a lock and one bar, which a fork's child cannot use. Output that
    fails is an error, where rich would end the process."""
    try:
        from rich import console
    except ImportError:
        raise UserError(
            "the progress bar needs the package rich, which is missing",
            hint="`pip install rich`, or fit(…, verbose=0)",
        ) from None

    class _Console(console.Console):
        def on_broken_pipe(self) -> None:
            raise

    return _Console()


def _is_terminal() -> bool:
    """Whether a bar can be drawn. Loading rich takes a thirtieth of what the demo trains for, so it is asked only where
    it might say yes."""
    if switch("PULLBACK_LAUNCHED"):  # Open MPI gives its ranks terminals, which nobody sees
        return False
    with suppress(AttributeError, ValueError):  # no output, or a closed one
        if sys.stdout.isatty():
            return bool(_console().is_terminal)
    return any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE")) and bool(_console().is_terminal)
