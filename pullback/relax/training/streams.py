"""Data that comes batch by batch: a thread reads it into a ring of rows, while steps run on those that are there.

    user's iterator → thread: read, check, cast → ring → native loop: gather, step

The native loop goes on as long as the ring holds batches (``Epoch.extend``), so no step waits for Python while the
iterator is fast enough. Batches of another number of rows have a ring of their own.
"""

from __future__ import annotations

import itertools
import os
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.ir.forks import renewed
from pullback.relax.training.data import Batch, Source, described, parts
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.shares import Part
from pullback.relax.training.values import as_tensor
from pullback.runtime.epoch import Column, Epoch
from pullback.runtime.ranks import current, using
from pullback.runtime.tensor import Tensor

CACHE_BYTES = 1 << 21  # a ring is to stay in a CPU's cache,
FEW_BATCHES, MOST_BATCHES, MOST_BYTES = 8, 256, 1 << 26  # unless these are too few; it has room for two at least
_FEW_SECONDS = 0.002  # how long steps that had to wait for a batch wait for some more
_LOOK_SECONDS = 0.02  # how often a thread that waits for room looks whether it is still wanted
_END_SECONDS = 1.0  # how long who stops a thread waits for the user's iterator, before it is left to end by itself


@dataclass(frozen=True)
class Rows:
    """A batch as it was read: an array for each input and target, and which of them may be rounded. ``part``: what of
    the batch it is, if not all."""

    arrays: list[np.ndarray]
    exact: list[bool]
    part: Part | None = None


class Ring:
    """Room for some batches of the same shapes, used again and again, and the batch on which steps are made."""

    def __init__(self, first: Rows, interface: Interface) -> None:
        slots = (*interface.inputs, *interface.targets)
        self._rooms: list[tuple[int, Tensor, np.ndarray, str]] = []  # of what has rows: which, the room, its name
        given: list[Tensor] = []
        self.columns: list[Column] = []  # from the room to the batch
        self.rows = next(len(a) for a, s in zip(first.arrays, slots, strict=True) if interface.has_rows(s))
        batch_bytes = sum(a.size * s.numpy_dtype.itemsize for a, s in zip(first.arrays, slots, strict=True))
        few = min(FEW_BATCHES, MOST_BYTES // max(1, batch_bytes))
        self.capacity = max(2, few, min(MOST_BATCHES, CACHE_BYTES // max(1, batch_bytes)))
        for number, (array, slot) in enumerate(zip(first.arrays, slots, strict=True)):
            if not interface.has_rows(slot):
                given.append(as_tensor(array.copy(), slot, exact=first.exact[number]))
                continue
            given.append(Tensor(array.shape, slot.info.dtype))
            room = Tensor((self.capacity * self.rows, *array.shape[1:]), slot.info.dtype)
            self._rooms.append((number, room, np.asarray(room), str(slot)))
            self.columns.append(Column(np.asarray(room), given[-1]))
        count = len(interface.inputs)
        part = first.part or Part(0, self.rows, self.rows)
        self.batch = Batch(given[:count], given[count:], part)
        self.put = self.taken = 0  # how many batches came into it, and how many of these are done with

    def write(self, rows: Rows) -> None:
        """Copy a batch to the place after the last, which is free."""
        place = self.put % self.capacity * self.rows
        for number, room, view, name in self._rooms:
            array = rows.arrays[number]
            if array.dtype == view.dtype:
                view[place : place + self.rows] = array
            else:
                Column(array, room, rows.exact[number], name).copy(0, self.rows, place)

    def epoch(self, batches: int) -> Epoch:
        """A loop over the batches that are there, which may be extended."""
        epoch = Epoch(self.columns, None, self.taken % self.capacity * self.rows, self.rows, 0)
        epoch.extend(batches)
        return epoch


@dataclass
class _Run:
    """Batches of one ring that follow each other."""

    ring: Ring
    batches: int  # that are there and not done with
    epoch: Epoch | None = None  # the loop that is over them now


class _Feed:
    """One pass of a thread over batches. All but ``_read`` is called by the thread that makes steps."""

    def __init__(self, batches: Iterable[Rows], ring: Callable[[Rows], Ring]) -> None:
        self._batches, self._ring = batches, ring
        self._changed = threading.Condition()
        renewed(self, "_changed")
        self._process = os.getpid()
        self._runs: deque[_Run] = deque()  # the first is stepped on, the last written to
        self._stopped = self._ended = False
        self._error: BaseException | None = None
        self._ranks = current()  # that the user's iterator finds in the thread, too
        self._thread = threading.Thread(target=self._read, name="pullback-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with using(self._ranks):
                for rows in self._batches:
                    if not self._put(rows):
                        break
        except BaseException as error:  # it is raised in the thread that makes steps
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, rows: Rows) -> bool:
        """Write a batch as soon as there is room; returns whether more are wanted."""
        ring = self._ring(rows)
        while True:
            with self._changed:
                if self._stopped:
                    return False
                run = next((r for r in self._runs if r.ring is ring and r.epoch is not None), None)
                epoch = run.epoch if run is not None else None
                done = epoch.done if epoch is not None else 0
                if ring.put - ring.taken - done < ring.capacity:
                    break
                if epoch is None:
                    self._changed.wait(_LOOK_SECONDS)
            if epoch is not None:
                epoch.wait(done + ring.capacity // 2, _LOOK_SECONDS)
        ring.write(rows)
        with self._changed:
            ring.put += 1
            if not self._runs or self._runs[-1].ring is not ring:
                self._runs.append(_Run(ring, 0))
            last = self._runs[-1]
            last.batches += 1
            if last.epoch is not None:
                last.epoch.extend(1)
            self._changed.notify_all()
        return True

    def take(self) -> tuple[Batch, Epoch] | None:
        """A loop over the batches that are there, when there are some; None after the last. Raises UserError in the
        child of a fork, which has no thread that reads."""
        if os.getpid() != self._process:
            raise UserError(
                "data that comes batch by batch is read by a thread, which the child of a fork does not have",
                hint="end the epoch in the parent; in the child call fit anew",
            )
        with self._changed:
            if not self._runs and not self._ended:
                self._changed.wait_for(lambda: self._runs or self._ended)
                self._changed.wait_for(self._has_some, _FEW_SECONDS)
            if not self._runs:
                if self._error is not None:
                    raise self._error
                return None
            run = self._runs[0]
            run.epoch = run.ring.epoch(run.batches)
            return run.ring.batch, run.epoch

    def _has_some(self) -> bool:
        """Whether it would not do to wait for more batches."""
        return self._ended or len(self._runs) > 1 or self._runs[0].batches > self._runs[0].ring.capacity // 2

    def done(self) -> None:
        """The loop that was taken is over."""
        with self._changed:
            run = self._runs[0]
            assert run.epoch is not None
            run.ring.taken += run.epoch.done
            run.batches -= run.epoch.done
            run.epoch = None
            if not run.batches:
                self._runs.popleft()
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread, as soon as the user's iterator lets it."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(_END_SECONDS)


class Stream(Source):
    """Batches that are read when they are due, in a thread of its own."""

    def __init__(self, interface: Interface, weighted: bool, steps: int | None) -> None:
        self.interface, self.weighted, self.steps = interface, weighted, steps
        self._slots = (*interface.inputs, *interface.targets)
        self._rings: dict[Any, Ring] = {}

    @abstractmethod
    def _pass(self, size: int, order: np.ndarray | None, drop_last: bool, skip: int) -> Iterator[Rows]:
        """The batches of one epoch."""

    def epochs(
        self, size: int, order: np.ndarray | None = None, drop_last: bool = False, skip: int = 0
    ) -> Generator[tuple[Batch, Epoch], None, None]:
        feed = _Feed(map(self._own, self._pass(size, order, drop_last, skip)), self._ring)
        try:
            while (taken := feed.take()) is not None:
                yield taken
                feed.done()
        finally:
            feed.stop()
            for ring in self._rings.values():  # what was read and not stepped on
                ring.put = ring.taken = 0

    def place(self, epoch: Epoch, row: int) -> str:
        return f"row {row} of the batch"

    def _own(self, rows: Rows) -> Rows:
        """What this rank takes of a batch."""
        if self.share.size == 1 or rows.part is not None:
            return rows
        has_rows = [self.interface.has_rows(slot) for slot in self._slots]
        part = self.share.of(next(len(a) for a, has in zip(rows.arrays, has_rows, strict=True) if has))
        arrays = [a[part.slice] if has else a for a, has in zip(rows.arrays, has_rows, strict=True)]
        return Rows(arrays, rows.exact, part)

    def _ring(self, rows: Rows) -> Ring:
        """The room for batches like this one."""
        shared = [a.tobytes() for a, s in zip(rows.arrays, self._slots, strict=True) if not self.interface.has_rows(s)]
        key = (rows.part, *(a.shape for a in rows.arrays), *shared)
        if key not in self._rings:
            self._rings[key] = Ring(rows, self.interface)
        return self._rings[key]


class Batches(Stream):
    """An iterable of batches. ``begin`` gives an iterator over all of them, from the first on; ``once`` says that it
    always gives the same one. With ``steps`` an epoch goes on where the one before ended.

    The first batch has been read: ``iterator`` goes on after it.
    """

    def __init__(
        self, begin: Callable[[], Iterator[Rows]], iterator: Iterator[Rows], first: Rows, once: bool,
        interface: Interface, weighted: bool, steps: int | None,
    ) -> None:  # fmt: skip
        super().__init__(interface, weighted, steps)
        self.rows = None
        self._begin, self._first, self._once = begin, first, once
        self._iterator: Iterator[Rows] | None = itertools.chain([first], iterator)
        self._seen = 0  # batches of the iterator

    def samples(self, size: int, drop_last: bool = False) -> Iterator[Batch]:
        yield self._ring(self._own(self._first)).batch

    def identity(self) -> dict[str, str]:
        """The targets of the first batch stand for all: inputs may be changed at random, as images are."""
        count = len(self.interface.inputs) if self.interface.targets else 0
        pairs = zip(self._slots[count:], self._first.arrays[count:], strict=True)
        return {f"{slot} of the first batch": described(array) for slot, array in pairs}

    def pass_over(self, epochs: int) -> None:
        for _ in range(epochs):
            if self.steps is None:
                self._iterator = self._begin()
            else:
                deque(self._some(self.steps), maxlen=0)

    def _pass(self, size: int, order: np.ndarray | None, drop_last: bool, skip: int) -> Iterator[Rows]:
        least = len(self._first.arrays[0]) if drop_last else 0
        given = self._some(self.steps) if self.steps is not None else self._all()
        return itertools.islice((rows for rows in given if len(rows.arrays[0]) >= least), skip, None)

    def _all(self) -> Iterator[Rows]:
        iterator, self._iterator = self._iterator or self._begin(), None
        number = 0
        for number, rows in enumerate(iterator, 1):  # noqa: B007  how many there were
            yield rows
        if not number:
            raise ArgumentError(
                "the data can be read only once: another epoch got no batch of it",
                hint="give what can be read again: a list, a DataLoader, or a function that returns a new generator",
            )

    def _some(self, steps: int) -> Iterator[Rows]:
        for step in range(steps):
            if self._iterator is None:
                self._iterator = self._begin()
            rows = next(self._iterator, None)
            if rows is None and not self._once and self._seen >= steps:
                self._iterator, self._seen = self._begin(), 0
                rows = next(self._iterator, None)
            if rows is None:
                raise ArgumentError(
                    f"the data ended after {step} of the epoch's {steps} batches",
                    hint="give a smaller steps_per_epoch, or data that goes on; what was trained until then is kept",
                )
            self._seen += 1
            yield rows


class Items(Stream):
    """Examples by their number: ``fetch`` reads some of them as a batch."""

    def __init__(
        self, fetch: Callable[[Sequence[int]], Rows], rows: int, interface: Interface, weighted: bool, steps: int | None
    ) -> None:
        super().__init__(interface, weighted, steps)
        self.rows: int = rows
        self._fetch = fetch

    def samples(self, size: int, drop_last: bool = False) -> Iterator[Batch]:
        for first, rows, _ in parts(self.rows, size, drop_last, self.steps):
            yield self._ring(self._part(range(first, first + rows))).batch

    def identity(self) -> dict[str, str]:
        return {"the data set's rows": str(self.rows)}

    def _part(self, numbers: Sequence[int]) -> Rows:
        """Those examples of a batch that this rank takes."""
        if self.share.size == 1:
            return self._fetch(numbers)
        part = self.share.of(len(numbers))
        return replace(self._fetch(numbers[part.slice]), part=part)

    def _pass(self, size: int, order: np.ndarray | None, drop_last: bool, skip: int) -> Iterator[Rows]:
        numbers = np.arange(self.rows) if order is None else order
        for first, rows, batches in parts(self.rows, size, drop_last, self.steps):
            for k in range(first, first + rows * batches, rows):
                if skip:
                    skip -= 1
                else:
                    yield self._part(numbers[k : k + rows].tolist())


def numbered(batches: Iterator[Any], read: Callable[[Any], Rows], start: int = 1) -> Iterator[Rows]:
    """The batches as they are read; errors say which it is."""
    for number, batch in enumerate(batches, start):
        try:
            yield read(batch)
        except UserError as error:
            raise type(error)(f"batch {number}: {error.message}", hint=error.hint) from None


def stacked(columns: Sequence[Sequence[np.ndarray]], slots: Sequence[Slot], numbers: Sequence[int]) -> list[np.ndarray]:
    """For each slot, the arrays of some examples as one."""
    for column, slot in zip(columns, slots, strict=True):
        for number, array in zip(numbers, column, strict=True):
            if array.shape != column[0].shape:
                raise ShapeError(
                    f"{slot} has shape {array.shape} in example {number}, {column[0].shape} in example {numbers[0]}",
                    hint="examples of one batch have one shape: pad or crop them",
                )
    return [np.stack(column) for column in columns]
