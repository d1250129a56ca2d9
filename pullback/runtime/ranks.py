"""Ranks: processes that compute one training together. Every process knows which one it is and how many there are.

:func:`current` gives the ranks that the calling thread belongs to: those that mpirun started (:func:`start`), or some
that are threads of one process (:func:`run_local`), with which everything can be tried and tested on one machine, or
none but itself.

What all ranks call is *collective*: each waits for the others there, and all have to call it in the same order.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.forks import in_child, renewed
from pullback.runtime import collectives, mpi
from pullback.runtime.affinity import share_cpus
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
        given: list[Any] = self.exchange(value if self.rank == root else None)
        return given[root]

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
    def table(self) -> int:
        return runtime_table()

    def check(self) -> None:
        pass


class _Meeting:
    """Where the threads of :func:`run_local` meet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.values: list[Any] = [None] * size
        self.failure: str | None = None
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._here = self._times = 0  # how many wait now, and how often all of them have met
        self._ended: list[tuple[int, str | None]] = []
        self._engines: list[Engine] = []

    def wait(self) -> None:
        """Wait for all ranks; a RankError when one fails, or has ended."""
        with self._changed:
            times = self._times
            self._here += 1
            if self._here == self.size:
                self._here, self._times = 0, times + 1
                self._changed.notify_all()
            while self._times == times:
                if self.failure is None and self._ended:
                    self.failure = f"rank {self._ended[0][0]} ended, and others wait for it"
                if self.failure is not None:
                    raise RankError(self.failure)
                self._changed.wait()

    @property
    def engines(self) -> list[Engine]:
        """Those of all ranks, for compiled code; made when it is first asked for."""
        with self.lock:
            if not self._engines:
                self._engines = Engine.local(self.size)
                for rank, message in self._ended:
                    self._tell(rank, message)
            return self._engines

    def _tell(self, rank: int, message: str | None) -> None:
        """Tell the engines that a rank ended, or failed with a message."""
        engine = self._engines[rank]
        if message is None:
            engine.leave()
        else:
            engine.fail(message)

    def end(self, rank: int, message: str | None) -> None:
        """A rank has come to its end, or failed with a message."""
        with self._changed:
            self._ended.append((rank, message))
            if message is not None:
                self.failure = self.failure or f"rank {rank} failed: {message}"
            if self._engines:
                self._tell(rank, message)
            self._changed.notify_all()

    def check(self, rank: int) -> None:
        found = self.failure or (self._engines[rank].failure if self._engines else None)
        if found is not None:
            raise RankError(found)

    def waited(self, rank: int) -> float:
        return self._engines[rank].waited if self._engines else 0.0

    def close(self) -> None:
        for engine in self._engines:
            engine.close()


class Local(Ranks):
    """One of several ranks that are threads of this process."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, meeting.size, meeting
        self._waited = 0.0

    def waited(self) -> float:
        return self._waited + self._meeting.waited(self.rank)

    def exchange(self, value: T) -> list[T]:
        self._meeting.values[self.rank] = value
        self._wait()
        result: list[T] = list(self._meeting.values)
        self._wait()  # before anybody gives the next value
        return result

    def _wait(self) -> None:
        began = time.perf_counter()
        try:
            self._meeting.wait()
        finally:
            self._waited += time.perf_counter() - began

    def fail(self, message: str) -> None:
        self._meeting.end(self.rank, message)

    @functools.cached_property
    def table(self) -> int:
        return self._meeting.engines[self.rank].table

    def check(self) -> None:
        self._meeting.check(self.rank)


class Native(Ranks):
    """This process, of those that a launcher of MPI started."""

    def __init__(self, engine: Engine) -> None:
        self.rank, self.size, self._engine = engine.rank, engine.size, engine

    def waited(self) -> float:
        return self._engine.waited

    def exchange(self, value: T) -> list[T]:
        data = np.frombuffer(pickle.dumps(value), np.uint8)
        (sizes,) = self._run("gather_pieces", [np.array([data.size])], [(self.size,)])
        most = int(sizes.max())
        (texts,) = self._run("gather_pieces", [np.pad(data, (0, most - data.size))], [(self.size, most)])
        return [pickle.loads(text[:size]) for text, size in zip(texts, sizes, strict=True)]

    def broadcast(self, value: T, root: int = 0) -> T:
        data = np.frombuffer(pickle.dumps(value), np.uint8) if self.rank == root else np.zeros(0, np.uint8)
        (size,) = self._run("broadcast", [np.array(data.size)], [()], root=root)
        data = data if self.rank == root else np.zeros(int(size), np.uint8)
        (text,) = self._run("broadcast", [data], [data.shape], root=root)
        return value if self.rank == root else pickle.loads(text.tobytes())

    def barrier(self) -> None:
        self._run("reduce", [np.zeros((), np.uint8)], [()])

    def collective(
        self, kind: str, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], **options: Any
    ) -> list[np.ndarray]:
        if kind != "rank" and len({a.dtype for a in arrays}) != 1:
            return super().collective(kind, arrays, shapes, **options)
        return self._run(kind, arrays, shapes, **options)

    def _run(
        self, kind: str, arrays: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]], **options: Any
    ) -> list[np.ndarray]:
        result = self._engine.collective(kind, arrays, shapes, **options)
        self.check()
        return result

    def fail(self, message: str) -> None:
        self._engine.fail(message)

    @property
    def table(self) -> int:
        return self._engine.table

    def check(self) -> None:
        if self._engine.failure is not None:
            raise RankError(self._engine.failure)


_alone = Alone()
_process: list[Ranks] = []  # those that a launcher started, once start() has been called
_mine: ContextVar[Ranks | None] = ContextVar("ranks", default=None)  # deep recursion goes on in another thread
_starting = threading.Lock()
_LAST_WORDS = 0.5  # seconds in which other ranks hear why, until their processes are ended


def current() -> Ranks:
    """The ranks that the calling thread belongs to."""
    mine = _mine.get()
    return mine if mine is not None else _process[0] if _process else _alone


def start() -> Ranks:
    """Join the job that mpirun, mpiexec or srun started, once; returns the :func:`current` ranks.

    Without a launcher there is one rank, and no MPI is loaded. Collective, the first time. When the program ends, the
    job does: a rank that ends by an error ends all of them.

    Raises UserError where several processes were started but cannot know each other: without a library of MPI, or with
    another one than the launcher's.
    """
    with _starting:
        if _mine.get() is None and not _process:
            started = mpi.launcher()
            if started is not None or mpi.is_begun():
                _begin(mpi.join(started))
            elif (others := mpi.started_otherwise()) is not None:
                raise UserError(f"{others}, which do not know each other", hint=mpi.HOW_TO_START)
    return current()


def _begin(job: mpi.Job) -> None:
    """Make a job the process's ranks, and have it end with the process."""
    mine, process, before = Native(job.engine), os.getpid(), sys.excepthook

    def end_by_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if mine.size == 1 or os.getpid() != process:
            before(kind, error, trace)
            return
        where = f"rank {mine.rank} of {mine.size}"
        if isinstance(error, RankError) and job.engine.failure is not None:  # another one says where it was
            print(f"{where} ends: {job.engine.failure}", file=sys.stderr)
        else:
            before(kind, error, trace)
            print(f"{where} failed: {kind.__name__}: {error}", file=sys.stderr)
            mine.fail(f"{kind.__name__}: {error}")
        time.sleep(_LAST_WORDS)
        abort(130 if isinstance(error, KeyboardInterrupt) else 1)

    def abort(code: int) -> None:
        atexit.unregister(end)  # MPICH calls exit
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        job.abort(code)

    def end() -> None:
        if os.getpid() != process:
            return
        if job.engine.failure is not None and mine.size > 1:  # others wait for what this one has left
            abort(1)
        job.end()

    sys.excepthook = end_by_error
    atexit.register(end)
    _process.append(mine)
    share_cpus(mine)


def _forget() -> None:
    """The child of a fork is alone."""
    _process.clear()
    _mine.set(None)


in_child(_forget)
renewed(sys.modules[__name__], "_starting")


@contextlib.contextmanager
def using(ranks: Ranks) -> Iterator[Ranks]:
    """Make these the calling thread's ranks, as long as the block runs."""
    token = _mine.set(ranks)
    try:
        yield ranks
    finally:
        _mine.reset(token)


def run_local(size: int, function: Callable[[int], T]) -> list[T]:
    """Call ``function(rank)`` in ``size`` threads that are ranks of each other; returns what each returned.

    Where one raises or returns, the others get a RankError where they wait for it; what was raised is raised.

    Args:
        size: how many ranks there are, at least 1.
        function: what each of them runs, of its number.

    Returns:
        the results, by rank.

    Raises:
        ArgumentError: for another number of ranks.

    Examples:
        >>> from pullback.distributed import exchange, run_local
        >>> run_local(4, lambda rank: sum(exchange(rank)))
        [6, 6, 6, 6]
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ArgumentError(f"the number of ranks must be an int of at least 1, got {size!r}")
    meeting = _Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []  # the first comes first

    def run(rank: int) -> None:
        with using(Local(rank, meeting)):
            try:
                results[rank] = function(rank)
                meeting.end(rank, None)
            except BaseException as error:
                errors.append(error)
                meeting.end(rank, f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    meeting.close()
    if errors:
        raise next((e for e in errors if not isinstance(e, RankError)), errors[0])
    return results
