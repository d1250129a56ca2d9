"""`python -m pullback train`: a training from a configuration, or from a function of the user's, with its checkpoints.

A folder holds what a run leaves: ``last.safetensors``, ``best.safetensors``, ``history.csv``.
"""

from __future__ import annotations

import csv
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.command.configuration import Job, call, change, check_fit, module_of, read, setting
from pullback.ir.errors import ArgumentError, suggestion
from pullback.relax.training.callbacks import CSVLogger, Monitor
from pullback.relax.training.trainer import Trainer

LAST, BEST, HISTORY = "last.safetensors", "best.safetensors", "history.csv"
DEFAULT_FUNCTION = "make"
_RETURNS = "return (trainer, x, y), or (trainer, arguments) with a dict of arguments of fit, x and y among them"


def job_of(source: str, texts: Sequence[str]) -> Job:
    """The job of ``CONFIG.toml`` or ``FILE.py:make``, with settings ``name=value``."""
    settings = [setting(text) for text in texts]
    path, function = Path(source), ""
    if not path.exists() and ":" in source:
        file, _, function = source.rpartition(":")
        path = Path(file)
    if not path.is_file():
        hint = "name a configuration (CONFIG.toml) or a function (FILE.py:make)"
        raise ArgumentError(f"there is no file {path}", hint=hint)
    if path.suffix == ".toml" and not function:
        return read(path, settings)
    if path.suffix == ".py":
        return _made(path, function or DEFAULT_FUNCTION, settings)
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
    the validation rows, or else the loss)."""

    def __init__(self, folder: Path, monitor: str | None, mode: str | None) -> None:
        super().__init__("loss" if monitor is None else monitor, "auto" if mode is None else mode)
        self.folder, self._asked = folder, monitor is not None
        self.earlier: list[dict[str, str]] = []  # the lines of the history that the run goes on with

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        if not self._asked:
            self.monitor = "val_loss" if "val_loss" in known else "loss"
        super().check(known, modes)

    def on_train_begin(self, logs: dict[str, float]) -> None:
        if (self.folder / BEST).exists():
            for value in (float(line[self.monitor]) for line in self.earlier if line.get(self.monitor)):
                self.best = value if self.is_better(value, self.best) else self.best

    def on_epoch_end(self, epoch: int, logs: dict[str, float]) -> None:
        self.trainer.save(self.folder / LAST)
        if self.is_better(logs[self.monitor], self.best):
            self.best = logs[self.monitor]
            self.trainer.save(self.folder / BEST)


class Run:
    """One training, and the files that it leaves in a folder."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.trainer, self.fit, self.folder = job.trainer, dict(job.fit), folder
        self.files = Files(folder, job.output.get("monitor"), job.output.get("mode"))
        self.goes_on = False  # with what is in the folder

    def prepare(self, resume: Path | None, overwrite: bool) -> None:
        """Load what the run goes on from, and look at what there is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.goes_on = resume is not None and resume.resolve().parent == self.folder.resolve()
        there = [name for name in (LAST, BEST, HISTORY) if (self.folder / name).exists()]
        if there and not self.goes_on and not overwrite:
            hint = f"--resume {self.folder} goes on, --out names another folder, --overwrite replaces them"
            raise ArgumentError(f"{self.folder} has {', '.join(there)} of an earlier training", hint=hint)
        if resume is not None:
            self.trainer.load(resume)
        if self.goes_on and HISTORY in there:
            with (self.folder / HISTORY).open(newline="") as file:
                self.files.earlier = list(csv.DictReader(file))
        elif not self.goes_on:
            for name in there:
                (self.folder / name).unlink()

    def train(self, epochs: int | None) -> int:
        """Train until the trainer has seen so many epochs, those before it was resumed among them; returns how many
        there were to do."""
        fit, seed = dict(self.fit), self.fit.get("seed")
        asked = fit.pop("epochs", 1)
        total = asked if epochs is None else epochs
        if isinstance(total, bool) or not isinstance(total, int) or total < 1:
            raise ArgumentError(f"fit.epochs must be an int ≥ 1, got {total!r}")
        left = total - self.trainer.epochs
        if left <= 0:
            return 0
        if seed is not None and self.trainer.epochs:  # it has had its effect
            del fit["seed"]
        own = fit.pop("callbacks", None)
        log = CSVLogger(self.folder / HISTORY, append=self.goes_on)
        callbacks = [*(own if isinstance(own, (list, tuple)) else [own] if own is not None else []), log, self.files]
        begun = self.trainer.steps
        try:
            self.trainer.fit(**fit, epochs=left, callbacks=callbacks)
        except BaseException:
            if self.trainer.steps != begun:  # the steps of an epoch that did not end
                self.trainer.save(self.folder / LAST)
            raise
        return left


def checkpoint_of(path: Path) -> Path:
    """The checkpoint that --resume names: a file, or the last one of a run's folder."""
    file = path / LAST if path.is_dir() else path
    if file.is_file():
        return file
    if path.is_dir():
        raise ArgumentError(f"{path} has no {LAST}", hint="name the folder of a run, or a checkpoint")
    raise ArgumentError(f"there is no checkpoint {path}", hint="name the folder of a run, or a checkpoint")


def folder_of(job: Job, source: str, out: Path | None, resume: Path | None) -> Path:
    """Where the run leaves its files: --out, or the folder of what it resumes, or [output] folder, or runs/NAME."""
    if out is not None:
        return out
    if resume is not None:
        return resume.parent
    return Path(job.output.get("folder") or Path("runs") / Path(source.rpartition(":")[0] or source).stem)
