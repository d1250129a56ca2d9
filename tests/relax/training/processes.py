"""Ranks that are processes, whose exchanges go through the one that started them: for tests of what they share."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from pullback.runtime.ranks import RankError, Ranks, using

_END_SECONDS = 60


class ProcessRanks(Ranks):
    """One of them."""

    def __init__(self, rank: int, size: int, to_parent: Connection) -> None:
        self.rank, self.size, self._to_parent = rank, size, to_parent

    def exchange(self, value: Any) -> list[Any]:
        self._to_parent.send(("exchange", value))
        kind, found = self._to_parent.recv()
        if kind == "ended":
            raise RankError(f"rank {found} failed: its process ended")
        return found

    def fail(self, message: str) -> None:
        raise AssertionError(message)

    def check(self) -> None:
        """Whether another one ended is seen at the next exchange."""

    @property
    def table(self) -> int:
        raise AssertionError("nothing that is compiled runs here")


def _run(function: Callable[..., Any], rank: int, size: int, to_parent: Connection, arguments: Sequence[Any]) -> None:
    with using(ProcessRanks(rank, size, to_parent)):
        try:
            to_parent.send(("returned", function(rank, *arguments)))
        except BaseException as error:
            to_parent.send(("raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))


def run_processes(size: int, function: Callable[..., Any], *arguments: Any) -> list[tuple[str, Any]]:
    """Call ``function(rank, …)`` in so many processes: for each "returned", "raised" or "ended", and what."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(size)]
    started = [
        context.Process(target=_run, args=(function, rank, size, pipe[1], arguments), daemon=True)
        for rank, pipe in enumerate(pipes)
    ]
    for process, (_, theirs) in zip(started, pipes, strict=True):
        process.start()
        theirs.close()
    outcomes: dict[int, tuple[str, Any]] = {}
    while len(outcomes) < size:
        given = {}
        for rank, (ours, _) in enumerate(pipes):
            if rank not in outcomes:
                try:
                    assert ours.poll(_END_SECONDS), f"rank {rank} does nothing"
                    kind, value = ours.recv()
                except (EOFError, ConnectionResetError):
                    kind, value = "ended", None
                if kind == "exchange":
                    given[rank] = value
                else:
                    outcomes[rank] = kind, value
        gone = next(iter(outcomes), None)
        for rank in given:
            pipes[rank][0].send(("values", [given[r] for r in range(size)]) if gone is None else ("ended", gone))
    for process in started:
        process.join(_END_SECONDS)
        assert process.exitcode is not None
    return [outcomes[rank] for rank in range(size)]
