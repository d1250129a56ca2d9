"""What the ranks of a training do alike: they agree on what they train, look up from their steps after the same step,
and raise the same errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from typing import TypeVar, cast

from pullback.ir.errors import UserError
from pullback.runtime.ranks import RankError, Ranks

_LONGEST = 1 << 20  # steps of a slice

T = TypeVar("T")


def agree(ranks: Ranks, values: Mapping[str, str]) -> None:
    """Raise a RankError, on all ranks, unless all have equal values, each by what it is called. Collective."""
    if ranks.size == 1:
        return
    found = ranks.exchange(dict(values))
    for what in dict.fromkeys(name for own in found for name in own):
        several = [own.get(what, "missing") for own in found]
        others = [r for r, value in enumerate(several) if value != several[0]]
        if others:
            more = f" (and others on {len(others) - 1} more ranks)" if len(others) > 1 else ""
            raise RankError(
                f"{what}: {several[0]} on rank 0, {several[others[0]]} on rank {others[0]}{more}",
                hint="all ranks run the same program on the same data, and each takes its rows of every batch; what is"
                " drawn or shuffled needs the same seed everywhere",
            )


def raise_first(ranks: Ranks, check: Callable[[], None]) -> None:
    """Call what raises an error on some ranks, maybe: the first rank's that has one is raised on all. Collective."""
    own: Exception | None = None
    try:
        check()
    except Exception as error:
        own = error
    found = ranks.exchange(None if own is None else _told(own))
    told = [(rank, *one) for rank, one in enumerate(found) if one is not None]
    if not told:
        return
    first, message, hint = told[0]
    if own is not None and first == ranks.rank:
        raise own
    raise RankError(f"rank {first}: {message}", hint=hint)


def _told(error: Exception) -> tuple[str, str | None]:
    """What an error says, and how to mend it."""
    return (error.message, error.hint) if isinstance(error, UserError) else (f"{type(error).__name__}: {error}", None)


def on_first(ranks: Ranks, action: Callable[[], T]) -> T:
    """What the first rank's call returned, or the error that it raised. Collective."""
    result: list[T] = []

    def run() -> None:
        if ranks.is_first:
            result.append(action())

    raise_first(ranks, run)
    return cast(T, ranks.broadcast(result[0] if result else None))  # the first rank has one


def telling(ranks: Ranks, items: Generator[T, None, None]) -> Generator[T, None, None]:
    """The same; an error that they raise ends the other ranks too, which wait for what this one makes of them."""
    try:
        yield from items
    except Exception as error:
        ranks.fail(_told(error)[0])
        raise


class Pace:
    """When steps stop for Python: alone after about ``seconds``; several ranks after the same step, where somebody
    watches who may decide something there (``watched``), else each by itself, and nobody decides.

    ``seconds``: for how long steps are made before :meth:`looks_up` is asked; 0 for one step.
    """

    def __init__(self, ranks: Ranks, watched: bool, seconds: float) -> None:
        self._ranks, self._slice, self._watched = ranks, seconds, watched
        self.together = ranks.size > 1
        self.seconds = 0.0 if self.together and watched else seconds
        self._left, self._length, self._begun = 1, 1, time.perf_counter()

    def looks_up(self) -> bool:
        """Whether callbacks may be called, and the training be stopped, after the step that was made last."""
        if not self.together or not self._watched:
            return not self.together
        self._left -= 1
        if self._left:
            return False
        now = time.perf_counter()
        step = max(now - self._begun, 1e-9) / self._length
        length = min(max(1, round(self._slice / step)), 2 * self._length, _LONGEST)  # the first steps may be slow
        self._left = self._length = self._ranks.broadcast(length)
        self._begun = time.perf_counter()
        return True
