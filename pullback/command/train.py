"""`python -m pullback train`: a training from a configuration, or from a function of the user's, with its checkpoints.

A folder holds what a run leaves: ``last.safetensors``, ``best.safetensors``, ``history.csv``.
"""

from __future__ import annotations

import contextlib
import csv
import inspect
import io
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from pullback.command.configuration import Job, call, change, check_fit, module_of, read, read_output, setting
from pullback.command.launch import end_with_parent
from pullback.command.rank_reports import connect, is_launched, tell
from pullback.ir.errors import ArgumentError, CheckpointError, UserError, suggestion
from pullback.relax.training.callbacks import CSVLogger, Monitor
from pullback.relax.training.checkpoint_file import open_checkpoint
from pullback.relax.training.trainer import Trainer
from pullback.runtime import mpi, ranks
from pullback.runtime.files import write_atomically

T = TypeVar("T")

LAST, BEST, HISTORY = "last.safetensors", "best.safetensors", "history.csv"
DEFAULT_FUNCTION = "make"
_OTHERS_FIRST = 1.0  # seconds in which it is seen that another rank has died, before one that noticed it says so
_LONGEST_HEADER = 1 << 28  # bytes, of a checkpoint of any model
_RETURNS = "return (trainer, x, y), or (trainer, arguments) with a dict of arguments of fit, x and y among them"


def job_of(source: str, texts: Sequence[str]) -> Job:
    """The job of ``CONFIG.toml`` or ``FILE.py:make``, with settings ``name=value``."""
    settings = [setting(text) for text in texts]
    path, function = _parts(source)
    if function is None:
        return read(path, settings)
    return _made(path, function, settings)


def output_of(source: str, texts: Sequence[str]) -> dict[str, Any]:
    """The table ``[output]`` of such a job, without anything being made or run."""
    settings = [setting(text) for text in texts]
    path, function = _parts(source)
    if function is None:
        return read_output(path, settings)
    tables: dict[str, Any] = {"output": {}}
    for key, value in settings:
        if key.startswith("output."):
            change(tables, key, value)
    return dict(tables["output"])


def _parts(source: str) -> tuple[Path, str | None]:
    """The file of ``CONFIG.toml`` or ``FILE.py:make``, and the function's name, None of a configuration."""
    path, function = Path(source), ""
    if not path.exists() and ":" in source:
        file, _, function = source.rpartition(":")
        path = Path(file)
    if not path.is_file():
        hint = "name a configuration (CONFIG.toml) or a function (FILE.py:make)"
        raise ArgumentError(f"there is no file {path}", hint=hint)
    if path.suffix == ".toml" and not function:
        return path, None
    if path.suffix == ".py":
        return path, function or DEFAULT_FUNCTION
    raise ArgumentError(f"{source} is neither CONFIG.toml nor FILE.py:make", hint="the ending says what a file is")


def _made(path: Path, name: str, settings: Sequence[tuple[str, Any]]) -> Job:
    """The job that a function makes; settings are its arguments, but for ``fit.…`` and ``output.…``."""
    values = module_of(path)
    own = [k for k, v in values.items() if inspect.isfunction(v) and v.__module__ == f"pullback_program_{path.stem}"]
    if name not in values:
        there = ", ".join(own) or "none"
        raise ArgumentError(f"{path} has no function {name!r}{suggestion(name, own)}; it has: {there}", hint=_RETURNS)
    if not callable(values[name]) or isinstance(values[name], Trainer):
        raise ArgumentError(
            f"{path}: {name} is a {type(values[name]).__name__}, not a function", hint=f"it must {_RETURNS}"
        )
    arguments: dict[str, Any] = {}
    tables: dict[str, Any] = {"fit": {}, "output": {}}
    for key, value in settings:
        section = key.partition(".")[0]
        if section in tables and "." in key:
            change(tables, key, value)
        elif "." in key:
            hint = f"settings are arguments of {name}, fit.… and output.…"
            raise ArgumentError(f"--set {key}: there is no section {section!r}", hint=hint)
        else:
            arguments[key] = value
    found = call(values[name], arguments, str(path), path)
    trainer, fit = _trainer_and_fit(found, f"{path}: {name}")
    size = ranks.current().size
    if size > 1 and trainer._interface.distributed is None:
        message = f"{path}: {name} returned a trainer that each of the {size} ranks would train alone"
        raise ArgumentError(message, hint='pullback.trainer(…, distributed="data") is trained by all of them')
    check_fit(tables["fit"])
    return Job(trainer, fit | tables["fit"], tables["output"])


def _described(value: Any) -> str:
    if not isinstance(value, (tuple, list)):
        return f"an object of type {type(value).__name__}"
    return f"a {type(value).__name__} of {', '.join(type(v).__name__ for v in value) or 'nothing'}"


def _trainer_and_fit(found: Any, where: str) -> tuple[Trainer, dict[str, Any]]:
    if not isinstance(found, (tuple, list)) or not found or not isinstance(found[0], Trainer):
        raise ArgumentError(f"{where} returned {_described(found)}, not a trainer and its data", hint=_RETURNS)
    trainer, *rest = found
    arguments = dict(rest.pop()) if rest and isinstance(rest[-1], dict) else {}
    if len(rest) > 2:
        raise ArgumentError(f"{where} returned {len(found)} values", hint=_RETURNS)
    arguments |= dict(zip(("x", "y"), rest, strict=False))
    if "x" not in arguments:
        raise ArgumentError(f"{where} returned no data", hint=_RETURNS)
    return trainer, arguments


class Files(Monitor):
    """The callback that keeps what a run has trained: the last epoch, and the best by ``monitor`` (by default that of
    the validation rows, or else the loss); with ``every_steps`` the last of so many steps, too."""

    def __init__(self, folder: Path, monitor: str | None, mode: str | None, every_steps: int | None = None) -> None:
        super().__init__("loss" if monitor is None else monitor, "auto" if mode is None else mode)
        if every_steps is not None and (type(every_steps) is not int or every_steps < 1):
            raise ArgumentError(f"output.every_steps must be an int ≥ 1, got {every_steps!r}")
        self.folder, self._asked, self.every_n_steps = folder, monitor is not None, every_steps
        self.earlier: list[dict[str, str]] = []  # the lines of the history that the run goes on with

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        if not self._asked:
            self.monitor = "val_loss" if "val_loss" in known else "loss"
        super().check(known, modes)

    def on_train_begin(self, logs: dict[str, float]) -> None:
        if (self.folder / BEST).exists():
            for value in (float(line[self.monitor]) for line in self.earlier if line.get(self.monitor)):
                self.best = value if self.is_better(value, self.best) else self.best

    def on_steps(self, step: int, logs: dict[str, float]) -> None:
        self.trainer.save(self.folder / LAST)

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        if self.is_better(logs[self.monitor], self.best):
            self.best = logs[self.monitor]
            self.trainer.save(self.folder / BEST)
        self.trainer.save(self.folder / LAST)  # last: what a crash leaves before it is trained, and saved, again


class Run:
    """One training, and the files that it leaves in a folder."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.trainer, self.fit, self.folder = job.trainer, dict(job.fit), folder
        self.files = Files(folder, *(job.output.get(name) for name in ("monitor", "mode", "every_steps")))
        self.resume: Path | None = None
        self.goes_on = False  # with what is in the folder
        self.done = self.steps = 0  # epochs and steps of what it goes on from

    def prepare(self, resume: Path | None, overwrite: bool, go_on: bool = False) -> None:
        """Look at what there is, and at what the run goes on from. ``go_on``: from the folder's last checkpoint, where
        it has one."""
        found, there = on_first_rank(lambda: self._found(resume, overwrite, go_on))
        self.resume = found
        if found is not None:
            self.goes_on = found.resolve().parent == self.folder.resolve()
            self.done, self.steps = on_first_rank(lambda: counts_in(found))
        self.files.earlier = on_first_rank(lambda: self._history(there))

    def _found(self, resume: Path | None, overwrite: bool, go_on: bool) -> tuple[Path | None, list[str]]:
        """What the run goes on from, and the files in its folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        there = [name for name in (LAST, BEST, HISTORY) if (self.folder / name).exists()]
        if go_on:
            return (self.folder / LAST if LAST in there else None), there
        goes_on = resume is not None and resume.resolve().parent == self.folder.resolve()
        if there and not goes_on and not overwrite:
            hint = f"--resume {self.folder} goes on, --out names another folder, --overwrite replaces them"
            raise ArgumentError(f"{self.folder} has {', '.join(there)} of an earlier training", hint=hint)
        return resume, there

    def _history(self, there: Sequence[str]) -> list[dict[str, str]]:
        """The lines of the history that the run goes on with; those of epochs that are not in the checkpoint go, and
        the files of another run."""
        if not self.goes_on:
            for name in there:
                (self.folder / name).unlink()
            return []
        path = self.folder / HISTORY
        if HISTORY not in there:
            return []
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            lines, heading = list(reader), reader.fieldnames or ()
        kept = [line for line in lines if _epoch(line) <= self.done]
        if len(kept) < len(lines):
            text = io.StringIO(newline="")
            writer = csv.DictWriter(text, heading)
            writer.writeheader()
            writer.writerows(kept)
            write_atomically(path, text.getvalue().encode())
        return kept

    def train(self, epochs: int | None) -> int:
        """Train until the trainer has seen so many epochs, those before it was resumed among them; returns how many
        there were to do."""
        fit = dict(self.fit)
        asked = fit.pop("epochs", 1)
        total = asked if epochs is None else epochs
        if isinstance(total, bool) or not isinstance(total, int) or total < 1:
            raise ArgumentError(f"fit.epochs must be an int ≥ 1, got {total!r}")
        if total <= self.done:
            return 0
        own = fit.pop("callbacks", None)
        log = CSVLogger(self.folder / HISTORY, append=self.goes_on)
        callbacks = [*(own if isinstance(own, (list, tuple)) else [own] if own is not None else []), log, self.files]
        tell(batch_size=self._divided(fit))
        try:
            self.trainer.fit(**fit, epochs=total, callbacks=callbacks, resume=self.resume)
        except BaseException:
            # Ranks that fail have made different steps, and do not wait for each other: their last checkpoint stays.
            if self.trainer.steps > self.steps and ranks.current().size == 1:  # the steps of an epoch that did not end
                self.trainer.save(self.folder / LAST)
            raise
        return total - self.done

    def _divided(self, fit: dict[str, Any]) -> int | None:
        """What the number of ranks has to divide: the rows of a batch, or of one of its micro-batches, if all have as
        many."""
        own = self.trainer._interface.batch
        size = fit.get("batch_size", own if isinstance(own, int) else 64 if hasattr(fit.get("x"), "shape") else None)
        distributed = self.trainer._interface.distributed
        micro = 1 if distributed is None else distributed.micro_batches
        return size // micro if isinstance(size, int) else None


def _epoch(line: dict[str, str]) -> int:
    """The epoch of a line of a history; 0 where there is none."""
    text = line.get("epoch") or ""
    return int(text) if text.isdecimal() else 0


def checkpoint_of(path: Path) -> Path:
    """The checkpoint that --resume names: a file, or the last one of a run's folder."""
    file = path / LAST if path.is_dir() else path
    if file.is_file():
        return file
    if path.is_dir():
        raise ArgumentError(f"{path} has no {LAST}", hint="name the folder of a run, or a checkpoint")
    raise ArgumentError(f"there is no checkpoint {path}", hint="name the folder of a run, or a checkpoint")


def folder_of(output: dict[str, Any], source: str, out: Path | None, resume: Path | None) -> Path:
    """Where the run leaves its files: --out, or the folder of what it resumes, or [output] folder, or runs/NAME."""
    if out is not None:
        return out
    if resume is not None:
        return resume.parent
    return Path(output.get("folder") or Path("runs") / Path(source.rpartition(":")[0] or source).stem)


def counts_in(file: Path) -> tuple[int, int]:
    """The epochs and steps that a checkpoint has seen."""
    with open_checkpoint(str(file), _LONGEST_HEADER) as found:
        return found.record.epochs, found.record.steps


def steps_in(folder: Path) -> int:
    """The steps of the last checkpoint of a run; -1 without one."""
    try:
        return counts_in(folder / LAST)[1]
    except CheckpointError:
        return -1


def place_in(folder: Path) -> str:
    """The last checkpoint of a run, and how far it is."""
    epochs, steps = counts_in(folder / LAST)
    return f"{folder / LAST} (epoch {epochs}, step {steps})"


# ---- ranks


@contextlib.contextmanager
def as_rank() -> Iterator[None]:
    """Be one of the ranks that a launcher started, if it did: what this one raises ends the others."""
    with sigterm_as_interrupt():
        try:
            connect()
            if is_launched() and mpi.launcher() is not None:
                end_with_parent(signal.SIGKILL)  # a launcher that is killed may leave its ranks alone
            ranks.start()
            yield
            ranks.current().barrier()  # a rank that ends early looks like one that failed
        except ranks.RankError as error:
            time.sleep(_OTHERS_FIRST)
            tell(told=error.message)
            raise
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}".split("\n")[0]
            if not isinstance(error, KeyboardInterrupt):  # who sends signals knows that
                tell(failed=reason, refused=isinstance(error, UserError))
            ranks.current().fail(reason)
            raise


def on_first_rank(function: Callable[[], T]) -> T:
    """What a function returns that rank 0 alone calls; what it raises is raised on all ranks. Collective."""
    mine = ranks.current()
    if mine.size == 1:
        return function()
    outcome: tuple[Any, Exception | None] = None, None
    if mine.is_first:
        try:
            outcome = function(), None
        except (UserError, OSError) as error:
            outcome = None, error
    value, problem = mine.broadcast(outcome)
    if problem is not None:
        raise problem
    return value


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Schedulers end jobs by SIGTERM: it does what Ctrl-C does, which saves the last step."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
