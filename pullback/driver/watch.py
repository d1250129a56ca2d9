"""Who watches compiling: how many kernels there are to compile, and how many are done.

    with watched(lambda kernels: print(kernels.done, kernels.all)):
        vm["main"](x)                        # the first call compiles

The function is called in the thread that compiles, often enough to draw how far it has come. Kernels that the cache
has are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Kernels:
    """Those that are compiled while somebody watches."""

    def __init__(self, watcher: Callable[[Kernels], None]) -> None:
        self._watcher = watcher
        self._done: list[int] = []
        self.all = 0

    @property
    def done(self) -> int:
        """How many are compiled."""
        return len(self._done)

    def begin(self, count: int) -> None:
        """There are so many more to compile."""
        self.all += count

    def finish(self, number: int) -> None:
        """One is compiled; any thread may say so."""
        self._done.append(number)

    def look(self) -> None:
        """Give the watcher a look."""
        self._watcher(self)


_watched: ContextVar[Kernels | None] = ContextVar("watched", default=None)


def look() -> None:
    """Give whoever watches this thread a look: what takes long is to call it now and then."""
    count = _watched.get()
    if count is not None:
        count.look()


def kernels() -> Kernels | None:
    """What counts the kernels that this thread compiles, if anybody watches."""
    return _watched.get()


@contextmanager
def watched(watcher: Callable[[Kernels], None]) -> Iterator[Kernels]:
    """Watch what this thread compiles."""
    kernels = Kernels(watcher)
    token = _watched.set(kernels)
    try:
        yield kernels
    finally:
        _watched.reset(token)
