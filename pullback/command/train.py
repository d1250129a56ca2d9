"""`python -m pullback train`: a training from a configuration, or from a function of the user's, with its checkpoints.

A folder holds what a run leaves: ``last.safetensors``, ``best.safetensors``, ``history.csv``.
"""

from __future__ import annotations

import csv
import inspect
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pullback.command.configuration import Job, call, change, check_fit, module_of, read, setting
from pullback.ir.errors import ArgumentError, suggestion
from pullback.relax.training.trainer import Trainer
from pullback.runtime.files import write_atomically

LAST, BEST, HISTORY = "last.safetensors", "best.safetensors", "history.csv"
DEFAULT_FUNCTION = "make"
_RETURNS = "return (trainer, x, y), or (trainer, arguments) with a dict of arguments of fit, x and y among them"
_MOST = ("accuracy", "acc", "auc", "f1", "r2", "precision", "recall")  # of these more is better


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


def _trainer_and_fit(found: Any, where: str) -> tuple[Trainer, dict[str, Any]]:
    if not isinstance(found, (tuple, list)) or not found or not isinstance(found[0], Trainer):
        raise ArgumentError(f"{where} returned a {type(found).__name__} that begins with no trainer", hint=_RETURNS)
    trainer, *rest = found
    arguments = dict(rest.pop()) if rest and isinstance(rest[-1], dict) else {}
    if len(rest) > 2:
        raise ArgumentError(f"{where} returned {len(found)} values", hint=_RETURNS)
    arguments |= dict(zip(("x", "y"), rest, strict=False))
    if "x" not in arguments:
        raise ArgumentError(f"{where} returned no data", hint=_RETURNS)
    return trainer, arguments


class Run:
    """One training: its epochs, and the files that it leaves in a folder."""

    def __init__(self, job: Job, folder: Path, say: Callable[[str], None]) -> None:
        self.trainer, self.fit, self.folder, self.say = job.trainer, dict(job.fit), folder, say
        measured = "validation" in self.fit or "validation_split" in self.fit
        self.monitor = job.output.get("monitor", "val_loss" if measured else "loss")
        self.sign = _sign(self.monitor, job.output.get("mode"))
        self.best = math.nan
        self.columns: list[str] | None = None
        self.saved = self.trainer.steps  # when the last checkpoint was written, or loaded

    def prepare(self, resume: Path | None, overwrite: bool) -> None:
        """Load what the run goes on from, and look at what there is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        goes_on = resume is not None and resume.resolve().parent == self.folder.resolve()
        if resume is not None:
            self.trainer.load(resume)
            self.saved = self.trainer.steps
        there = [name for name in (LAST, BEST, HISTORY) if (self.folder / name).exists()]
        if there and not goes_on and not overwrite:
            hint = f"--resume {self.folder} goes on, --out names another folder, --overwrite replaces them"
            raise ArgumentError(f"{self.folder} has {', '.join(there)} of an earlier training", hint=hint)
        if goes_on:
            self._read_history()
        elif there:
            for name in there:
                (self.folder / name).unlink()

    def train(self, epochs: int | None) -> None:
        """Train until the trainer has seen so many epochs, those before it was resumed among them."""
        asked = self.fit.pop("epochs", 1)
        total = asked if epochs is None else epochs
        if isinstance(total, bool) or not isinstance(total, int) or total < 1:
            raise ArgumentError(f"fit.epochs must be an int ≥ 1, got {total!r}")
        if self.trainer.epochs >= total:
            self.say(f"{self.trainer.epochs} epochs are done already: --epochs says how many there are in all")
        seed = self.fit.pop("seed", None)
        try:
            while self.trainer.epochs < total:
                first = {} if seed is None or self.trainer.epochs else {"seed": seed}
                self._after(self.trainer.fit(**self.fit, **first, epochs=1).epochs[0])
        finally:
            if self.trainer.steps != self.saved:  # the steps of an epoch that did not end
                self.save_last()

    def save_last(self) -> None:
        self.trainer.save(self.folder / LAST)
        self.saved = self.trainer.steps

    def _after(self, record: Any) -> None:
        """An epoch is done: write it down, and keep what was trained."""
        known = {"loss": record.loss, "val_loss": record.validation_loss, "val_accuracy": record.validation_accuracy}
        metrics = {name: value for name, value in known.items() if value is not None}
        self._write(record.epoch, metrics, record.seconds)
        self.save_last()
        if self.monitor not in metrics:
            message = f"output.monitor: there is no {self.monitor!r}; there is: {', '.join(metrics)}"
            raise ArgumentError(message + suggestion(self.monitor, metrics), hint="what was trained is saved")
        value = metrics[self.monitor]
        if math.isnan(self.best) or self.sign * value < self.sign * self.best:
            self.best = value
            self.trainer.save(self.folder / BEST)
        told = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self.say(f"epoch {record.epoch}: {told}, {record.seconds:.2f} s")

    def _write(self, epoch: int, metrics: dict[str, float], seconds: float) -> None:
        row = {"epoch": epoch, **metrics, "seconds": round(seconds, 4)}
        if self.columns is None:
            self.columns = list(row)
            write_atomically(self.folder / HISTORY, (",".join(row) + "\r\n").encode())
        with (self.folder / HISTORY).open("a", newline="") as file:
            csv.DictWriter(file, self.columns, restval="", extrasaction="ignore").writerow(row)

    def _read_history(self) -> None:
        """The columns of an earlier part of the run, and its best epoch."""
        path = self.folder / HISTORY
        if not path.exists():
            return
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            rows, self.columns = list(reader), list(reader.fieldnames or []) or None
        values = [float(row[self.monitor]) for row in rows if row.get(self.monitor)]
        finite = [value for value in values if not math.isnan(value)]
        if finite and (self.folder / BEST).exists():
            self.best = min(finite, key=lambda value: self.sign * value)


def _sign(monitor: Any, mode: Any) -> int:
    """1 where less is better, -1 where more is."""
    if not isinstance(monitor, str) or not monitor:
        raise ArgumentError(f"output.monitor must be the name of a metric, got {monitor!r}", hint='such as "val_loss"')
    if mode not in (None, "min", "max"):
        raise ArgumentError(f'output.mode must be "min" or "max", got {mode!r}')
    if mode is None:
        return -1 if any(part in _MOST for part in monitor.split("_")) else 1
    return 1 if mode == "min" else -1


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
