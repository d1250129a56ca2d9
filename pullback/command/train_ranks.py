"""`python -m pullback train … --ranks N --restarts K`: the training that ranks are started for, and its folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pullback.command.hosts import hosts_of
from pullback.command.launch import Ending, Ranks, Restarts
from pullback.command.mpirun import find
from pullback.command.train import LAST, checkpoint_of, folder_of, output_of, place_in, steps_in
from pullback.ir.errors import ArgumentError, UserError
from pullback.runtime import mpi


class TrainingOfRanks:
    """A training as ``train`` is asked for it, which other processes do; the arguments are those of ``train``."""

    def __init__(
        self, source: str, settings: Sequence[str], resume: Path | None, epochs: int | None, out: Path | None,
        overwrite: bool, go_on: bool,
    ) -> None:  # fmt: skip
        if os.name != "posix":
            raise UserError("--ranks and --restarts need a POSIX system", hint="train without them, or in WSL")
        if mpi.launcher() is not None:
            hint = "leave them out under mpirun and srun, or start this command by itself"
            raise ArgumentError("--ranks and --restarts start ranks, and this process is one already", hint=hint)
        checkpoint = None if resume is None else checkpoint_of(resume)
        self.folder = folder_of(output_of(source, settings), source, out, checkpoint)
        self._given = [source, "--out", str(self.folder)]
        self._given += [word for text in settings for word in ("--set", text)]
        self._given += [] if epochs is None else ["--epochs", str(epochs)]
        self._begin = [] if checkpoint is None else ["--resume", str(checkpoint)]
        self._begin += ["--continue"] * go_on
        self._overwrite = overwrite
        is_own = go_on or (checkpoint is not None and checkpoint.resolve().parent == self.folder.resolve())
        self._earlier = None if is_own else self._stamp()  # the last checkpoint of a training that is none of ours

    def train(
        self, count: int, restarts: int, fewest: int | None, hosts: str | None, mpirun: Path | None,
        note: Callable[[str], None], first_wait: float = 1.0,
    ) -> int:  # fmt: skip
        """Train with so many ranks, and return the code to end with. Raises UserError for what cannot be started, and
        when ranks died and may not be started again."""
        if fewest is not None and fewest > count:
            raise ArgumentError(f"--min-ranks {fewest} is more than --ranks {count}")
        places = hosts_of(hosts, count)
        launcher = find(mpirun) if count > 1 or places or mpirun is not None else None
        job = Restarts(
            Ranks(count, launcher, places), restarts, count if fewest is None else fewest, self._program,
            self._steps, self._place, note, first_wait,
        )  # fmt: skip
        return self._code(job.run())

    def _code(self, ending: Ending) -> int:
        if ending.stopped_by is not None:
            print(f"interrupted: --resume {self.folder} goes on", file=sys.stderr)
            return 128 + ending.stopped_by
        if ending.code and not ending.is_refused:
            there = f"--resume {self.folder} goes on, {self._place()}" if self._steps() >= 0 else None
            raise UserError(ending.reason, hint=there)
        return 1 if ending.code else 0

    def _program(self, is_restart: bool) -> list[str]:
        """The command line of a rank."""
        begin = self._begin + ["--overwrite"] * self._overwrite
        if is_restart:
            begin = ["--continue"] if self._steps() >= 0 else [*self._begin, "--overwrite"]
        return [sys.executable, "-m", "pullback", "train", *self._given, *begin]

    def _stamp(self) -> tuple[int, int] | None:
        """Which file the last checkpoint is."""
        try:
            found = (self.folder / LAST).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def _steps(self) -> int:
        """How far the training has come: the steps of its last checkpoint, -1 without one."""
        return -1 if self._stamp() == self._earlier else steps_in(self.folder)

    def _place(self) -> str:
        return f"from {place_in(self.folder)}" if self._steps() >= 0 else "from the beginning"
