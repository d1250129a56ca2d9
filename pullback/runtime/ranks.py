"""Ranks: processes that compute one training together. Every process knows which one it is and how many there are.

:func:`current` gives the ranks that the calling thread belongs to: those that mpirun started (:func:`start`), or some
that are threads of one process (:func:`run_local`), with which everything can be tried and tested on one machine, or
none but itself.

What all ranks call is *collective*: each waits for the others there, and all have to call it in the same order.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime import collectives
from pullback.runtime.engine import Engine
from pullback.runtime.library import runtime_table

T = TypeVar("T")


class RankError(UserError):
    """Another rank ended, failed, or is not where this one is."""


class Ranks(ABC):
    """The ranks of a training, seen from one of them: number ``rank`` of ``size``."""

    rank: int
    size: int

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which tells people what goes on."""
        return self.rank == 0

    @abstractmethod
    def exchange(self, value: T) -> list[T]:
        """The values of all ranks, by rank: anything that pickles. Collective."""

    @abstractmethod
    def fail(self, message: str) -> None:
        """End what the other ranks do: they get a RankError that names this rank, or their processes end."""

    @property
    @abstractmethod
    def table(self) -> int:
        """The address of the ``pb_runtime`` by which compiled code reaches these ranks."""

    @abstractmethod
    def check(self) -> None:
        """Raise a RankError if the ranks have failed: then what compiled code received is undefined."""

    def waited(self) -> float:
        """For how many seconds this rank has waited for others, in all."""
        return 0.0

    def broadcast(self, value: T, root: int = 0) -> T:
        """The value of one rank. Collective."""
        return self.exchange(value if self.rank == root else None)[root]  # type: ignore[return-value]

    def barrier(self) -> None:
        """Wait until all ranks are here. Collective."""
        self.exchange(None)

    def agree(self, what: str, value: Any) -> None:
        """Raise a RankError, on all ranks, unless all give an equal value. Collective."""
        found = self.exchange(value)
        other = next((r for r, v in enumerate(found) if v != found[0]), None)
        if other is not None:
            raise RankError(
                f"{what} is {found[0]!r} on rank 0 and {found[other]!r} on rank {other}",
                hint="all ranks run the same program on the same data, and differ by their number alone",
            )

    def collective(
        self, kind: str, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], **options: Any
    ) -> list[np.ndarray]:
        """What :func:`collectives.collective` gives this rank. Collective."""
        own = [np.array(a) for a in arrays]  # others read them while this rank goes on
        if kind in collectives.LOCAL:
            given: list[list[np.ndarray]] = [[] for _ in range(self.size)]
            given[self.rank] = own
        else:
            given = self.exchange(own)
        return collectives.collective(kind, given, self.rank, shapes, **options)


class Alone(Ranks):
    """One rank: nothing is sent."""

    rank, size = 0, 1

    def exchange(self, value: T) -> list[T]:
        return [value]

    def fail(self, message: str) -> None:
        pass

    @functools.cached_property
    def table(self) -> int:  # type: ignore[override]
        return runtime_table()

    def check(self) -> None:
        pass


class _Meeting:
    """Where the threads of :func:`run_local` meet."""

    def __init__(self, size: int) -> None:
        self.size, self.values = size, [None] * size
        self.barrier = threading.Barrier(size)
        self.failure: str | None = None
        self.lock = threading.Lock()
        self._engines: list[Engine] = []

    @property
    def engines(self) -> list[Engine]:
        """Those of all ranks, for compiled code; made when it is first asked for."""
        with self.lock:
            if not self._engines:
                self._engines = Engine.local(self.size)
                if self.failure is not None:
                    self._engines[0].fail(self.failure)
            return self._engines

    def fail(self, rank: int, message: str) -> None:
        with self.lock:
            self.failure = self.failure or f"rank {rank} failed: {message}"
            for engine in self._engines[rank : rank + 1]:
                engine.fail(message)
        self.barrier.abort()

    def check(self, rank: int) -> None:
        found = self.failure or (self._engines[rank].failure if self._engines else None)
        if found is not None:
            raise RankError(found)

    def close(self) -> None:
        for engine in self._engines:
            engine.close()


class Local(Ranks):
    """One of several ranks that are threads of this process."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting
        self._waited = 0.0

    def waited(self) -> float:
        return self._waited

    def exchange(self, value: T) -> list[T]:
        self._meeting.values[self.rank] = value  # type: ignore[call-overload]
        self._wait()
        result: list[T] = list(self._meeting.values)  # type: ignore[arg-type]
        self._wait()  # before anybody gives the next value
        return result

    def _wait(self) -> None:
        began = time.perf_counter()
        try:
            self._meeting.barrier.wait()
        except threading.BrokenBarrierError:
            raise RankError(self._meeting.failure or "another rank ended") from None
        finally:
            self._waited += time.perf_counter() - began

    def fail(self, message: str) -> None:
        self._meeting.fail(self.rank, message)

    @functools.cached_property
    def table(self) -> int:  # type: ignore[override]
        return self._meeting.engines[self.rank].table

    def check(self) -> None:
        self._meeting.check(self.rank)


_alone = Alone()
_process: list[Ranks] = []  # those that mpirun started, once they are
_mine = threading.local()


def current() -> Ranks:
    """The ranks that the calling thread belongs to."""
    mine = getattr(_mine, "ranks", None)
    return mine if mine is not None else _process[0] if _process else _alone


@contextlib.contextmanager
def using(ranks: Ranks) -> Iterator[Ranks]:
    """Make these the calling thread's ranks, as long as the block runs."""
    before = getattr(_mine, "ranks", None)
    _mine.ranks = ranks
    try:
        yield ranks
    finally:
        _mine.ranks = before


def run_local(size: int, function: Callable[[int], T]) -> list[T]:
    """Call ``function(rank)`` in ``size`` threads that are ranks of each other; returns what each returned.

    Where one raises, the others get a RankError at their next collective, and its error is raised.

    >>> run_local(4, lambda rank: sum(current().exchange(rank)))
    [6, 6, 6, 6]
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"the number of ranks must be an int of at least 1, got {size!r}")
    meeting = _Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def run(rank: int) -> None:
        with using(Local(rank, meeting)):
            try:
                results[rank] = function(rank)
            except BaseException as error:
                errors[rank] = error
                meeting.fail(rank, f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meeting.close()
    found = [e for e in errors if e is not None]
    if found:
        raise next((e for e in found if not isinstance(e, RankError)), found[0])
    return results
