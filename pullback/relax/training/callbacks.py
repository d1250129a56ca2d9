"""Callbacks: what ``fit`` calls between epochs, and within them twenty times a second.

    trainer.fit(x, y, epochs=100, validation=(x_test, y_test), callbacks=[
        EarlyStopping(patience=5, restore_best=True),
        ModelCheckpoint("checkpoints/{epoch:03d}-{val_loss:.4f}.safetensors", save_top_k=3),
        LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["val_loss"])),
    ])

One's own is a subclass of :class:`Callback` with some of its hooks. ``logs`` holds the epoch's metrics by name, as the
history does: "loss", "val_loss", "val_accuracy" and so on. Callbacks are called in their order, with the same ``logs``;
a number that one adds is in the history, and those behind it see it.

An exception in a callback ends ``fit`` and comes out of it. The trainer is left after a whole step, and goes on from
there; epochs that were completed are in ``trainer.history``.
"""

from __future__ import annotations

import csv
import inspect
import logging
import math
import operator
import os
import string
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.ir.words import guided, missing_from
from pullback.relax.training.file_names import FileNames
from pullback.relax.training.history import EpochRecord, History
from pullback.relax.training.placement import Placement
from pullback.relax.training.shared_file import on_first

__all__ = [
    "CSVLogger", "Callback", "Checkpoint", "EarlyStopping", "LambdaCallback", "Logger", "ModelCheckpoint", "Monitor",
    "ReduceLROnPlateau", "TensorBoard",
]  # fmt: skip

HOOKS = {  # what each is called with
    "on_train_begin": ("logs",),
    "on_train_end": ("logs",),
    "on_epoch_begin": ("epoch", "logs"),
    "on_epoch_end": ("epoch", "logs"),
    "on_batch_end": ("step", "logs"),
    "on_steps": ("step", "logs"),
}
_ELSEWHERE = {
    "on_train_batch_end": "on_batch_end", "on_batch_begin": "on_epoch_begin", "on_train_batch_begin": "on_epoch_begin",
    "on_epoch_start": "on_epoch_begin", "on_train_epoch_start": "on_epoch_begin", "on_train_epoch_end": "on_epoch_end",
    "on_validation_end": "on_epoch_end", "on_validation_epoch_end": "on_epoch_end", "on_test_end": "on_epoch_end",
    "on_fit_start": "on_train_begin", "on_fit_end": "on_train_end", "on_train_start": "on_train_begin",
    "on_step_end": "on_batch_end", "on_log": "on_epoch_end", "on_evaluate": "on_epoch_end", "on_save": "on_epoch_end",
    "on_step": "on_steps",
}  # fmt: skip
Logs = dict[str, float]


class Callback:
    """Base of the callbacks: override the hooks that are wanted.

    ``self.trainer`` is the trainer; ``self.trainer.stop_training = True`` ends the training: after the epoch, if it is
    set at its end, and in an epoch after the slice of steps that runs (within about a twentieth of a second), or in
    ``on_epoch_begin`` after the first slice; that epoch ends then as any other, with validation and a record of the
    rows that were trained on. ``self.history`` is the history of this call of ``fit``; what it holds of the epoch,
    ``logs`` holds too.

    ``adds``: the names of the metrics that the callback will put into ``logs``, so that others may monitor them.
    ``every_n_steps``: after how many steps of the trainer ``on_steps`` is called; None: never.

    Of a trainer over several ranks (``distributed=``), each rank calls its callbacks, after the same steps and with the
    same ``logs``, and they do the same everywhere: what one does with the trainer, the others do too.
    ``on_every_rank = False``: only the first rank's is called, as is right for what writes and prints.
    """

    trainer: Any = None
    history: Any = None
    adds: tuple[str, ...] = ()
    on_every_rank = True
    every_n_steps: int | None = None

    def __init_subclass__(cls) -> None:
        guided(cls)

    def on_train_begin(self, logs: Logs) -> None:
        """Before the first epoch, when all is compiled; ``logs`` is empty."""

    def on_train_end(self, logs: Logs) -> None:
        """After the last epoch, also when it was the last since somebody stopped the training; not after an exception.
        ``logs`` are the last epoch's."""

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        """Before an epoch; ``epoch`` counts from 1 over all calls of ``fit``, ``logs`` is empty."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """After an epoch and its validation."""

    def on_batch_end(self, step: int, logs: Logs) -> None:
        """Twenty times a second, and once at the end of each epoch: not for every batch, since steps run in native
        code. ``step`` is how many steps the trainer has made, ``logs["loss"]`` the loss of the last one."""

    def on_steps(self, step: int, logs: Logs) -> None:
        """After each ``every_n_steps`` steps of the trainer, at just these: ``step`` is a multiple of that. Of several
        ranks all are called at the same step."""

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        """Before anything is compiled: raise an error for what cannot work. ``known`` are the names that logs will
        have, ``modes`` says of metrics whether "min" or "max" is best; ``self.trainer`` is set."""


class LambdaCallback(Callback):
    """Hooks that are functions.

    Args:
        on_train_begin: called with logs.
        on_train_end: called with logs.
        on_epoch_begin: called with the epoch and logs.
        on_epoch_end: called with the epoch and logs, which hold its metrics.
        on_batch_end: called with the step and logs.
        on_steps: called with the step and logs, after each ``every_n_steps`` steps.
        every_n_steps: after how many steps.

    Examples:
        >>> show = callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, sorted(logs)))
        >>> history = trainer.fit(x, y, epochs=1, callbacks=[show], verbose=0)
        1 ['loss']
    """

    def __init__(
        self,
        on_train_begin: Callable[[Logs], Any] | None = None,
        on_train_end: Callable[[Logs], Any] | None = None,
        on_epoch_begin: Callable[[int, Logs], Any] | None = None,
        on_epoch_end: Callable[[int, Logs], Any] | None = None,
        on_batch_end: Callable[[int, Logs], Any] | None = None,
        on_steps: Callable[[int, Logs], Any] | None = None,
        every_n_steps: int | None = None,
    ) -> None:
        if every_n_steps is not None:
            self.every_n_steps = _count("every_n_steps", every_n_steps, least=1)
        given = (on_train_begin, on_train_end, on_epoch_begin, on_epoch_end, on_batch_end, on_steps)
        for name, function in zip(HOOKS, given, strict=True):
            if function is not None and not callable(function):
                raise ArgumentError(
                    f"{name} must be a function of ({', '.join(HOOKS[name])}), got {type(function).__name__}"
                )
            if function is not None:
                setattr(self, name, function)


class Monitor(Callback):
    """Base of callbacks that compare a metric of epochs.

    Args:
        monitor: the name of the metric: "val_loss", "accuracy", ….
        mode: "min" where less is better, "max" where more is, "auto" to tell from the name: less of losses and errors,
            more of accuracies and scores; a name that does not tell is an error. A NaN is never better.
        min_delta: by how much a value has to be better.
    """

    def __init__(self, monitor: str, mode: str, min_delta: float = 0.0) -> None:
        if not isinstance(monitor, str) or not monitor:
            raise ArgumentError(f"monitor must be the name of a metric, got {monitor!r}", hint='such as "val_loss"')
        if not isinstance(mode, str) or mode not in ("auto", "min", "max"):
            raise ArgumentError(f'mode must be "auto", "min" or "max", got {mode!r}')
        self.monitor, self.mode, self.min_delta = monitor, mode, _number("min_delta", min_delta)
        self._best_is = mode if mode != "auto" else ""
        self.best = math.nan

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        kind = type(self).__name__
        if self.monitor not in known:
            hint = None
            if self.monitor.startswith("val_") and not any(name.startswith("val_") for name in known):
                hint = 'fit(…, validation=(x_test, y_test)) measures it; monitor="loss" is that of the training rows'
            elif f"val_{self.monitor}" in known:
                hint = f'monitor="val_{self.monitor}" is that of the validation rows;' + (
                    f' fit(…, train_metrics=True) measures "{self.monitor}" on the training rows'
                )
            raise ArgumentError(
                f"{kind}: there will be no {self.monitor!r}; there will be: {', '.join(known)}"
                f"{suggestion(self.monitor, known)}",
                hint=hint,
            )
        if self.mode == "auto":
            self._best_is = modes.get(self.monitor.removeprefix("val_")) or _mode_of(self.monitor)
        if not self._best_is:
            raise ArgumentError(
                f"{kind}: the name {self.monitor!r} does not tell whether less or more is better",
                hint='write mode="min" or mode="max"',
            )

    def is_better(self, value: float, than: float) -> bool:
        """By more than ``min_delta``; anything is better than a NaN, which is none yet."""
        if math.isnan(value) or math.isnan(than):
            return not math.isnan(value)
        better = operator.lt if self._best_is == "min" else operator.gt
        return bool(better(value + (self.min_delta if self._best_is == "min" else -self.min_delta), than))


class EarlyStopping(Monitor):
    """Stops when ``monitor`` has not become better for ``patience`` epochs (0 and 1: at the first that is no better).

    ``history.best_epoch`` and ``history.stopped_epoch`` tell the epochs.

    Args:
        monitor: the name of the metric: "val_loss", "accuracy", ….
        patience: epochs without a better value.
        min_delta: by how much a value has to be better.
        mode: "min" where less is better, "max" where more is, "auto" to tell from the name.
        restore_best: gives parameters and states the values of the best epoch at the end, whether the training was
            stopped or not (the optimizer's states stay).
        baseline: what a value has to be better than, too.
        start_from_epoch: so many first epochs of a fit do not count.

    Examples:
        >>> stop = callbacks.EarlyStopping("val_loss", patience=3, restore_best=True)
        >>> history = trainer.fit(x, y, epochs=50, validation_split=0.25, callbacks=[stop], verbose=0)
        >>> history.best_epoch <= len(history.epochs)
        True
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 0,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = False,
        baseline: float | None = None,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience, self.restore_best = _count("patience", patience), _flag("restore_best", restore_best)
        self.start_from_epoch = _count("start_from_epoch", start_from_epoch)
        self.baseline = None if baseline is None else _number("baseline", baseline, negative=True)
        self._kept: tuple[Any, Any] | None = None
        self._waited = self._begun = 0

    def on_train_begin(self, logs: Logs) -> None:
        self._waited = self._begun = 0
        self.best, self._kept = math.nan, None

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._begun += 1
        if self._begun <= self.start_from_epoch:
            return
        value = logs[self.monitor]
        self._waited += 1
        if self.is_better(value, self.best):
            self.best = value
            self.history.best_epoch = epoch
            if self.restore_best:
                self._kept = self.trainer.export_params(), self.trainer.export_states()
            if self.baseline is None or self.is_better(value, self.baseline):
                self._waited = 0
        if self._waited >= max(1, self.patience):
            self.history.stopped_epoch = epoch
            self.history.stopped_because = self._reason()
            self.trainer.stop_training = True

    def _reason(self) -> str:
        better = "better" if self.baseline is None else f"better than {self.baseline:g}"
        epochs = f"{self._waited} epoch" + ("" if self._waited == 1 else "s")
        back = f"; the values of epoch {self.history.best_epoch} are restored" if self._kept is not None else ""
        return f"{self.monitor} has not become {better} for {epochs}{back}"

    def on_train_end(self, logs: Logs) -> None:
        if self._kept is not None:
            self.trainer.load_params(self._kept[0])
            self.trainer.load_states(self._kept[1])
            self._kept = None


class ModelCheckpoint(Monitor):
    """Saves the trainer after epochs, and keeps the best files.

    Files are written by ``trainer.save``: whole, or not at all. ``best_path`` and ``best`` tell which is the best.

    Args:
        path: may name the epoch and metrics: ``"checkpoints/{epoch:03d}-{val_loss:.4f}.safetensors"``; folders that are
            missing are made.
        monitor: the metric by which files are compared; None keeps the latest.
        mode: "min" where less is better, "max" where more is, "auto" to tell from the name.
        save_top_k: how many of the files that this fit wrote stay, the best; -1 keeps all, 0 none.
        save_last: writes "last" with the path's suffix into the same folder, too.
        every_n_epochs: saves after each so many epochs of the fit.

    Examples:
        >>> best = callbacks.ModelCheckpoint("runs/{epoch:03d}.safetensors", monitor="loss")
        >>> history = trainer.fit(x, y, epochs=2, callbacks=[best], verbose=0)
        >>> best.best_path.name
        '002.safetensors'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str | None = "val_loss",
        mode: str = "auto",
        save_top_k: int = 1,
        save_last: bool = False,
        every_n_epochs: int = 1,
    ) -> None:
        super().__init__("loss" if monitor is None else monitor, mode)
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ArgumentError(f"path must be a path, got {path!r}", hint='such as "best.safetensors"')
        self.path = os.fspath(path)
        self._latest = monitor is None
        self.save_top_k = _count("save_top_k", save_top_k, least=-1)
        self.save_last = _flag("save_last", save_last)
        self.every_n_epochs = _count("every_n_epochs", every_n_epochs, least=1)
        try:
            self._fields = [name for _, name, _, _ in string.Formatter().parse(self.path) if name is not None]
        except ValueError as error:
            raise ArgumentError(f"the path {self.path!r} is no template: {error}", hint=_TEMPLATE) from None
        if save_top_k not in (0, 1) and not self._fields:
            raise ArgumentError(
                f"save_top_k={save_top_k} keeps several files, and the path {self.path!r} names one",
                hint=_TEMPLATE,
            )
        self.best_path: Path | None = None
        self._saved: list[tuple[float, Path]] = []  # the best first
        self._begun = 0

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        if not self._latest:
            super().check(known, modes)
        unknown = [name for name in self._fields if name != "epoch" and name not in known]
        if unknown:
            names = ", ".join(["epoch", *known])
            message = f"ModelCheckpoint: the path {self.path!r} names {unknown[0]!r}; there will be: {names}"
            raise ArgumentError(message + suggestion(unknown[0], known), hint=_TEMPLATE)
        try:
            self._path(1, dict.fromkeys(known, 0.5))
        except (ValueError, IndexError, KeyError, AttributeError) as error:
            raise ArgumentError(f"the path {self.path!r} is no template: {error}", hint=_TEMPLATE) from None

    def on_train_begin(self, logs: Logs) -> None:
        self._saved, self._begun = [], 0
        self.best, self.best_path = math.nan, None

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._begun += 1
        if self._begun % self.every_n_epochs:
            return
        path = self._path(epoch, logs)
        value = float(epoch) if self._latest else logs[self.monitor]
        place = next((i for i, (v, _) in enumerate(self._saved) if self._beats(value, v)), len(self._saved))
        if self.save_top_k == -1 or place < self.save_top_k:
            self._save(path)
            self._saved = [entry for entry in self._saved if entry[1] != path]
            self._saved.insert(min(place, len(self._saved)), (value, path))
            self._remove_others()
            self.best, self.best_path = self._saved[0]
        if self.save_last:
            self._save(path.with_name(f"last{path.suffix}"))

    def _save(self, path: Path) -> None:
        _on_first(self.trainer, path, partial(path.parent.mkdir, parents=True, exist_ok=True))
        self.trainer.save(path)

    def _beats(self, value: float, other: float) -> bool:
        if self._latest:
            return value > other
        return self.is_better(value, other) if not math.isnan(value) else False

    def _remove_others(self) -> None:
        if self.save_top_k >= 0:
            others, self._saved = self._saved[self.save_top_k :], self._saved[: self.save_top_k]
            for _, path in others:
                _on_first(self.trainer, path, partial(path.unlink, missing_ok=True))

    def _path(self, epoch: int, logs: Logs) -> Path:
        return Path(self.path.format(epoch=epoch, **logs))


_TEMPLATE = 'such as "checkpoints/{epoch:03d}-{val_loss:.4f}.safetensors"'


class Checkpoint(Callback):
    """Saves all that a training needs to go on, after each so many steps or epochs, and at its end.

    The same lines go on when they are run again: ``fit(…, resume=True)`` loads what was saved last, in the middle of an
    epoch too. ``saved`` is the latest file. :class:`ModelCheckpoint` keeps the best ones.

    Args:
        path: may name the step and the epoch, ``"runs/{step:08d}.safetensors"``; folders that are missing are made.
        every_n_steps: saves after each so many steps of the trainer.
        every_n_epochs: saves after each so many of the trainer's epochs; without either, every epoch is saved.
        keep: how many of the files that the path names stay, those of earlier runs among them; older ones are removed.

    Examples:
        >>> keep = callbacks.Checkpoint("runs/last.safetensors", every_n_steps=1000)
        >>> history = trainer.fit(x, y, epochs=2, callbacks=[keep], resume=True, verbose=0)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        every_n_steps: int | None = None,
        every_n_epochs: int | None = None,
        keep: int = 1,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ArgumentError(f"path must be a path, got {path!r}", hint='such as "last.safetensors"')
        self.path = os.fsdecode(os.fspath(path))
        self._names = FileNames(self.path)
        for name, number in (("every_n_steps", every_n_steps), ("every_n_epochs", every_n_epochs)):
            if number is not None:
                _count(name, number, least=1)
        self.every_n_steps = every_n_steps
        self.every_n_epochs = 1 if every_n_steps is None and every_n_epochs is None else every_n_epochs
        self.keep = _count("keep", keep, least=1)
        if keep > 1 and not self._names.has_fields:
            raise ArgumentError(
                f"keep={keep} keeps several files, and the path {self.path!r} names one",
                hint='such as "runs/{step:08d}.safetensors"',
            )
        self.saved: Path | None = None
        self._at: tuple[int, int] | None = None  # steps and epochs of what was saved last

    def on_train_begin(self, logs: Logs) -> None:
        self.saved = self._at = None

    def on_steps(self, step: int, logs: Logs) -> None:
        self._save()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.every_n_epochs is not None and epoch % self.every_n_epochs == 0:
            self._save()

    def on_train_end(self, logs: Logs) -> None:
        self._save()

    def _save(self) -> None:
        at = self.trainer.steps, self.trainer.epochs
        if at == self._at:
            return
        path = self._names.path(*at)
        _on_first(self.trainer, path, partial(path.parent.mkdir, parents=True, exist_ok=True))
        self.trainer.save(path)
        self.saved, self._at = path, at
        if self._names.has_fields:
            _on_first(self.trainer, path, self._remove_others)

    def _remove_others(self) -> None:
        others = [path for path in self._names.there() if path != self.saved]
        for path in others[self.keep - 1 :]:
            path.unlink(missing_ok=True)


class ReduceLROnPlateau(Monitor):
    """Multiplies the learning rate by ``factor`` when ``monitor`` has not become better for ``patience`` epochs.

    The learning rate must be a run-time value: ``Adam(RunTime(1e-3))``.

    Args:
        monitor: the name of the metric: "val_loss", "accuracy", ….
        factor: by what the rate is multiplied.
        patience: epochs without a better value.
        min_delta: by how much a value has to be better.
        cooldown: epochs after a reduction that do not count.
        min_lr: below which it does not fall.
        mode: "min" where less is better, "max" where more is, "auto" to tell from the name.
        hyperparameter: the name of the run-time value, if not lr.

    Examples:
        >>> trainer = pullback.trainer(net, "cross_entropy", optim.Adam(optim.RunTime(1e-3)), example=x)
        >>> slower = callbacks.ReduceLROnPlateau("loss", patience=2)
        >>> history = trainer.fit(x, y, epochs=3, callbacks=[slower], verbose=0)
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        mode: str = "auto",
        hyperparameter: str = "lr",
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.factor, self.min_lr = _number("factor", factor), _number("min_lr", min_lr)
        if not 0 < self.factor < 1:
            raise ArgumentError(f"factor must lie between 0 and 1, got {factor!r}", hint="such as 0.1 or 0.5")
        self.patience, self.cooldown = _count("patience", patience), _count("cooldown", cooldown)
        if not isinstance(hyperparameter, str):
            raise ArgumentError(f"hyperparameter must be the name of a run-time value, got {hyperparameter!r}")
        self.hyperparameter = hyperparameter
        self._waited = self._resting = 0

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        super().check(known, modes)
        value, record = self.trainer.hyperparameters.get(self.hyperparameter), self.trainer._interface.record
        if self.hyperparameter not in record.run_time:
            there = ", ".join(record.run_time) or "none"
            given = "it is not there" if value is None else f"it is {value}, which is compiled into the step"
            rate = value if isinstance(value, float) else 1e-3
            raise UserError(
                f"ReduceLROnPlateau: the optimizer has no run-time value {self.hyperparameter!r} ({given}); it has:"
                f" {there}",
                hint=f"make it one: {record.optimizer or 'Adam'}(RunTime({rate})), with RunTime of pullback.optim",
            )

    def on_train_begin(self, logs: Logs) -> None:
        self._waited = self._resting = 0
        self.best = math.nan

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        rests = self._resting > 0
        self._resting -= rests
        if self.is_better(logs[self.monitor], self.best):
            self.best, self._waited = logs[self.monitor], 0
        elif not rests:
            self._waited += 1
            if self._waited >= self.patience:
                self._reduce()

    def _reduce(self) -> None:
        old = float(self.trainer.hyperparameters[self.hyperparameter])
        if old > self.min_lr:
            self.trainer.set_hyperparameter(self.hyperparameter, max(old * self.factor, self.min_lr))
            self._waited, self._resting = 0, self.cooldown


class CSVLogger(Callback):
    """Writes a line for each epoch to a CSV file: its number, then the metrics in the order of the first epoch's.

    Each line is written as soon as the epoch ends.

    Args:
        path: of the file; folders that are missing are made.
        append: goes on in a file that is there, whose heading must name the same metrics.

    Examples:
        >>> history = trainer.fit(x, y, callbacks=[callbacks.CSVLogger("runs/log.csv")], verbose=0)
        >>> open("runs/log.csv").readline().strip()
        'epoch,loss'
    """

    on_every_rank = False

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise ArgumentError(f"path must be a path, got {path!r}", hint='such as "training.csv"')
        self.path, self.append = Path(path), _flag("append", append)
        self._columns: list[str] | None = None

    def on_train_begin(self, logs: Logs) -> None:
        self._columns = None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.append and self.path.exists():
            with self.path.open(newline="") as file:
                self._columns = next(csv.reader(file), None)
        else:
            self.path.write_text("")

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        row = {"epoch": epoch, **logs}
        is_new = self._columns is None
        columns = self._columns = list(row) if self._columns is None else self._columns
        if set(columns) != set(row):
            apart = ", ".join(sorted(set(columns) ^ set(row)))
            raise UserError(
                f"CSVLogger: {self.path} has the columns {', '.join(columns)}; this epoch differs in {apart}",
                hint="write to another file, or a new one with append=False",
            )
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, columns)
            if is_new:
                writer.writeheader()
            writer.writerow(row)


class Logger(Callback):
    """Gives each epoch's metrics, and "epoch", to a logger: ``fit(…, logger=…)`` makes one.

    A logger has ``log_metrics(values, step)`` (MLflow, Lightning's loggers), ``log(values, step=…)`` (a run of Weights
    & Biases) or ``add_scalar(name, value, step)`` (a writer of TensorBoard); the first that it has is called. The step
    is the number of steps that the trainer has made. A logger of Python's ``logging`` gets the epoch's line.

    Args:
        logger: where the metrics go.
    """

    on_every_rank = False

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        if isinstance(logger, logging.Logger):
            self._send: Callable[[dict[str, float], int], Any] = lambda values, step: logger.info(self.history[-1].line)
        elif callable(getattr(logger, "log_metrics", None)):
            self._send = lambda values, step: logger.log_metrics(values, step=step)
        elif callable(getattr(logger, "log", None)):
            self._send = lambda values, step: logger.log(values, step=step)
        elif callable(getattr(logger, "add_scalar", None)):
            self._send = self._add_scalars
        else:
            raise ArgumentError(
                f"a logger has log_metrics(values, step), log(values, step=…) or add_scalar(name, value, step); a"
                f" {type(logger).__name__} has none of them",
                hint="such as mlflow, wandb.init(…) or logging.getLogger()",
            )

    def _add_scalars(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._logger.add_scalar(name, value, step)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._send({**logs, "epoch": epoch}, self.trainer.steps)


class TensorBoard(Callback):
    """Writes the metrics of each epoch to a folder that TensorBoard shows (``tensorboard --logdir runs``).

    Curves of training and validation rows share a chart: "loss/train" and "loss/validation". The horizontal axis counts
    epochs. Needs ``pip install "pullback[tensorboard]"``.

    Args:
        dir: the folder.
        batches: whether "loss/step" has the losses of single steps too, twenty a second, by their number.
    """

    on_every_rank = False

    def __init__(self, dir: str | os.PathLike[str] = "runs", batches: bool = False) -> None:
        if not isinstance(dir, (str, os.PathLike)) or not os.fspath(dir):
            raise ArgumentError(f"dir must be a path, got {dir!r}", hint='such as "runs/first"')
        self.dir, self.batches = os.fspath(dir), _flag("batches", batches)
        self._writer: Any = None

    def check(self, known: Sequence[str], modes: dict[str, str]) -> None:
        self._writer_class()

    @staticmethod
    def _writer_class() -> Any:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError(
                "TensorBoard needs the package tensorboardX, which is missing",
                hint='`pip install "pullback[tensorboard]"`; to look at what it wrote, `pip install tensorboard`',
            ) from None
        return SummaryWriter

    def on_train_begin(self, logs: Logs) -> None:
        self._writer = self._writer_class()(self.dir)

    def on_batch_end(self, step: int, logs: Logs) -> None:
        if self.batches:
            self._writer.add_scalar("loss/step", logs["loss"], step)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        for name, value in logs.items():
            part = "validation" if name.startswith("val_") else "train"
            self._writer.add_scalar(f"{name.removeprefix('val_')}/{part}", value, epoch)
        self._writer.flush()

    def on_train_end(self, logs: Logs) -> None:
        self._writer.close()


# ---- what fit uses ---------------------------------------------------------------------------------------------------


class Callbacks:
    """The callbacks of a call of ``fit``, checked."""

    def __init__(self, given: Any, loggers: Any, trainer: Any, history: History, is_first: bool = True) -> None:
        everywhere = [*_listed(given), *(Logger(one) for one in _loggers(loggers))]
        for callback in everywhere:
            _check_hooks(callback)
        self._everywhere = everywhere
        self._all = [callback for callback in everywhere if is_first or callback.on_every_rank]
        self._at_batches = [c for c in self._all if _overrides(c, "on_batch_end")]
        self._at_steps = [c for c in self._all if c.every_n_steps is not None]
        self._trainer = trainer
        self._step = -1  # at which they were called last
        self.decide_within = any(
            callback.on_every_rank and (_overrides(callback, "on_batch_end") or _overrides(callback, "on_epoch_begin"))
            for callback in everywhere
        )
        for callback in everywhere:
            callback.trainer, callback.history = trainer, history

    def check(self, known: Iterable[str], modes: dict[str, str]) -> None:
        names = list(dict.fromkeys([*known, *(name for c in self._everywhere for name in c.adds)]))
        for callback in self._everywhere:
            callback.check(names, modes)

    @property
    def names(self) -> list[str]:
        """The kinds of those that all ranks call."""
        return [type(callback).__name__ for callback in self._everywhere if callback.on_every_rank]

    @property
    def watch_batches(self) -> bool:
        """Whether any wants to be called within epochs."""
        return bool(self._at_batches)

    def train_begin(self) -> None:
        self._step = self._trainer.steps
        for callback in self._all:
            callback.on_train_begin({})

    def train_end(self, logs: Logs) -> None:
        for callback in self._all:
            callback.on_train_end(logs)

    def epoch_begin(self, epoch: int) -> None:
        for callback in self._all:
            callback.on_epoch_begin(epoch, {})

    def epoch_end(self, record: EpochRecord) -> None:
        for callback in self._all:
            before = set(record.metrics)
            callback.on_epoch_end(record.epoch, record.metrics)
            for name in set(record.metrics) - before:
                record.metrics[name] = _added(callback, name, record.metrics.pop(name))

    def steps_left(self, step: int) -> int | None:
        """How many steps there are until one that somebody wants to be called after; None where nobody does."""
        return min((c.every_n_steps - step % c.every_n_steps for c in self._at_steps if c.every_n_steps), default=None)

    def after_steps(self, step: int, loss: float) -> bool:
        """Some steps were made: call those who want to be called after this one. Returns whether there are any: all
        ranks stop at the same steps for them, so what they decide may be looked at."""
        if step == self._step:
            return False
        self._step = step
        called = [c for c in self._at_steps if c.every_n_steps and step % c.every_n_steps == 0]
        for callback in called:
            callback.on_steps(step, {"loss": loss})
        return any(callback.on_every_rank for callback in called)

    def batch_end(self, step: int, loss: float) -> None:
        for callback in self._at_batches:
            callback.on_batch_end(step, {"loss": loss})


def _on_first(trainer: Any, path: Path, action: Callable[[], None]) -> None:
    """Do something with a trainer's files on its first rank alone."""
    on_first(Placement.of(trainer._interface).ranks, path, action)


def _listed(given: Any) -> list[Callback]:
    if given is None or isinstance(given, Callback):
        return [given] if given is not None else []
    if isinstance(given, (list, tuple)):
        for one in given:
            if not isinstance(one, Callback):
                raise _no_callback(one)
        return list(given)
    raise _no_callback(given)


def _no_callback(one: Any) -> ArgumentError:
    if isinstance(one, type) and issubclass(one, Callback):
        hint = f"make one: {one.__name__}(…)"
        return ArgumentError(f"a callback is an object, got the class {one.__name__}", hint=hint)
    if callable(one):
        hint = "LambdaCallback(on_epoch_end=f) makes one of a function"
        return ArgumentError("a callback is a Callback, got a function", hint=hint)
    hint = "one's own are subclasses of pullback.callbacks.Callback"
    return ArgumentError(f"callbacks is a list of Callbacks, got {type(one).__name__}", hint=hint)


def _loggers(given: Any) -> list[Any]:
    return [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]


def _overrides(callback: Callback, hook: str) -> bool:
    return hook in vars(callback) or getattr(type(callback), hook) is not getattr(Callback, hook)


def _check_hooks(callback: Callback) -> None:
    """The hooks take what they are called with, and those that it has are some that there are."""
    kind = type(callback).__name__
    for name in dir(callback):
        if name.startswith("on_") and name not in HOOKS and callable(getattr(callback, name)):
            meant = _ELSEWHERE.get(name)
            close = f": did you mean {meant}?" if meant else suggestion(name, HOOKS)
            raise ArgumentError(
                f"{kind}: there is no hook {name}{close}",
                hint=f"the hooks are {', '.join(HOOKS)}; a method that is none is called otherwise than on_…",
            )
    for hook, arguments in HOOKS.items():
        if not _overrides(callback, hook):
            continue
        function = getattr(callback, hook)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # what is built in need not tell
            continue
        try:
            signature.bind(*arguments)
        except TypeError:
            own = f"{kind}.{hook}" if hook not in vars(callback) else hook
            raise ArgumentError(
                f"{own} is called with ({', '.join(arguments)}), and takes {signature}",
                hint=f"write def {hook}(self, {', '.join(arguments)})",
            ) from None


def _added(callback: Callback, name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{type(callback).__name__} put {name!r} = {value!r} into logs, which holds numbers"
        ) from None


_LESS = ("loss", "error", "mae", "mse", "rmse", "mape", "perplexity", "seconds", "deviance", "distance", "divergence")
_MORE = (
    "accuracy", "acc", "auc", "f1", "r2", "precision", "recall", "score", "iou", "dice", "kappa", "mcc", "bleu", "psnr",
    "ssim", "corrcoef", "jaccard",
)  # fmt: skip


def _mode_of(name: str) -> str:
    """What is best of a metric, by its name; nothing where that does not tell."""
    parts = name.lower().split("_")
    if any(part in _LESS for part in parts):
        return "min"
    return "max" if any(part in _MORE or part.startswith("top") for part in parts) else ""


def _count(name: str, value: Any, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} must be an int ≥ {least}, got {value!r}")
    return value


def _number(name: str, value: Any, negative: bool = False) -> float:
    try:
        number = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or (number < 0 and not negative):
        raise ArgumentError(f"{name} must be a finite number{'' if negative else ' ≥ 0'}, got {value!r}")
    return number


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be True or False, got {value!r}")
    return value


__getattr__ = missing_from(globals())
