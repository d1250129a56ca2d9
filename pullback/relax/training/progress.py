"""How far ``fit`` has come: compiling is counted, and what is to be shown goes to a display. Output that fails, as a
pipe that was closed, ends the display and never the training."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pullback.driver.watch import Kernels, watched
from pullback.ir.errors import ArgumentError
from pullback.relax.training.display import Display, display_for
from pullback.relax.training.history import EpochRecord, History
from pullback.runtime.rank_times import RankTimes


class Progress:
    """A context in which the progress of a training is shown, as ``verbose`` says."""

    def __init__(self, verbose: Any, history: History) -> None:
        self._display = display_for(verbose, history)
        self._epoch = self._done = 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._tell(lambda display: display.close())

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Around what compiles."""
        started = time.perf_counter()

        def look(kernels: Kernels) -> None:
            seconds = time.perf_counter() - started
            self._tell(lambda display: display.compiling(kernels.done, kernels.all, seconds))

        with watched(look) as kernels:
            look(kernels)
            try:
                yield
            finally:
                seconds = time.perf_counter() - started
                self._tell(lambda display: display.compiled(kernels.done, seconds))

    def begin(self, epochs: int, rows: int | None) -> None:
        """Training begins."""
        self._tell(lambda display: display.begin(epochs, rows))

    def begin_epoch(self) -> None:
        self._epoch, self._done = self._epoch + 1, 0

    def advance(self, rows: int, loss: float) -> None:
        """So many rows of an epoch are done, and the loss of the last batch."""
        self._done += rows
        self._tell(lambda display: display.advance(self._epoch, self._done, loss))

    def epoch(self, record: EpochRecord) -> None:
        """An epoch has ended."""
        self._tell(lambda display: display.epoch(record))

    def ranks(self, times: RankTimes) -> None:
        """How long steps have taken on each rank so far."""
        self._tell(lambda display: display.ranks(times))

    def ended(self, note: str) -> None:
        """Training has ended before its last epoch; the note says why."""
        if note:
            self._tell(lambda display: display.ended(note))

    def _tell(self, what: Callable[[Display], None]) -> None:
        try:
            what(self._display)
        except (OSError, ValueError) as error:  # a pipe or file that is closed, a disk that is full
            failed, self._display = self._display, Display()
            with suppress(OSError, ValueError):
                failed.close()
            with suppress(Warning):  # which -W error makes of it
                message = f"the progress of fit cannot be shown: {error}; training goes on without"
                warnings.warn(message, RuntimeWarning, stacklevel=2)


def check_verbose(verbose: Any) -> None:
    """Raise an ArgumentError for what ``verbose`` cannot be."""
    is_number = isinstance(verbose, int) and verbose in (0, 1, 2)
    if not is_number and not (isinstance(verbose, str) and verbose == "auto"):
        raise ArgumentError(
            f'verbose must be "auto", 0, 1 or 2, got {verbose!r}',
            hint="0 shows nothing, 1 and auto a bar or table where there is a terminal or notebook, 2 lines",
        )
