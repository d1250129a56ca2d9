"""How far an epoch has come, and how ``fit`` goes on from a checkpoint that was saved in the middle of one.

A checkpoint that is saved within an epoch has a :class:`Position` among its metadata: the state of the random generator
when the epoch began, from which its order of rows follows, how many batches were done, and what their losses add up to.
``fit(…, resume=…)`` takes it up there, so that a training that was killed gives what it would have given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, CheckpointError
from pullback.relax.training.callbacks import Checkpoint
from pullback.relax.training.checkpoint_file import Record
from pullback.relax.training.file_names import FileNames
from pullback.runtime.epoch import Epoch
from pullback.runtime.files import path_of, shown
from pullback.runtime.ranks import Ranks


@dataclass(frozen=True)
class Sums:
    """Of a run of batches: their losses, each times its divisor, their divisors, how many and how many rows."""

    loss: float = 0.0
    divisor: float = 0.0
    batches: int = 0
    rows: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @staticmethod
    def of(epoch: Epoch, rows: int) -> Sums:
        """Of the batches that are done, each of so many rows on all ranks together."""
        return Sums(epoch.loss_sum, epoch.divisor_sum, epoch.done, epoch.done * rows)


@dataclass(frozen=True)
class Position:
    """Where an epoch is: ``closed`` are the loops over batches of it that are over, ``open`` the one that runs.

    ``random``: the generator's state when it began. ``steps``: those of the trainer by now. ``fit``: what a ``fit`` has
    to be alike to go on from here.
    """

    random: Mapping[str, Any]
    fit: Mapping[str, int | bool | None]
    steps: int
    closed: Sums = field(default_factory=Sums)
    open: Sums = field(default_factory=Sums)

    @property
    def done(self) -> Sums:
        return self.closed + self.open

    def at(self, epoch: Epoch, steps: int, rows: int) -> Position:
        """After some steps of a loop over batches of so many rows."""
        return replace(self, open=Sums.of(epoch, rows), steps=steps)

    def after_loop(self) -> Position:
        return replace(self, closed=self.done, open=Sums())

    def order(self, rows: int) -> np.ndarray:
        """The epoch's order of rows."""
        source = np.random.Generator(np.random.PCG64())
        source.bit_generator.state = self.random
        return source.permutation(rows)

    def text(self) -> str:
        """As the metadata of a checkpoint have it."""
        return json.dumps(
            {
                "random": self.random,
                "fit": self.fit,
                "closed": astuple(self.closed),
                "open": astuple(self.open),
            },
            separators=(",", ":"),
        )

    @staticmethod
    def of(record: Record) -> Position | None:
        """That of a checkpoint; None where it was saved between two epochs."""
        found = record.position
        if found is None:
            return None
        return Position(found["random"], found["fit"], record.steps, Sums(*found["closed"]), Sums(*found["open"]))

    def check(self, path: str, fit: Mapping[str, int | bool | None]) -> None:
        """Raise a CheckpointError unless a ``fit`` can go on from here."""
        for name, value in fit.items():
            if self.fit.get(name) != value:
                raise CheckpointError(
                    f"{shown(path)}: was saved in the middle of an epoch of a fit whose {name} was"
                    f" {self.fit.get(name)}; that of this one is {value}",
                    hint="go on with the same data and batches, or load(…) it, and begin an epoch with fit(…)",
                )


def file_to_resume(given: Any, callbacks: Any, ranks: Ranks) -> str | None:
    """The checkpoint that ``fit`` was told to go on from, for all ranks the same; None where there is none yet.

    ``given`` is a path or, with True, that of the callback ``Checkpoint``. Where it names the step or the epoch
    ("{step}"), it is the latest file of such a name. Raises ArgumentError for anything else.
    """
    names = FileNames(path_of(_path_of_callback(callbacks) if given is True else given))
    found = names.there() if ranks.is_first else []
    return ranks.broadcast(str(found[0]) if found else None)


def _path_of_callback(callbacks: Any) -> str:
    listed = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    paths = [callback.path for callback in listed if isinstance(callback, Checkpoint)]
    if len(paths) != 1:
        raise ArgumentError(
            f"resume=True goes on from what the callback Checkpoint has saved, and there are {len(paths)} of it",
            hint='write callbacks=[Checkpoint("last.safetensors", every_n_steps=1000)], or resume="last.safetensors"',
        )
    return paths[0]
