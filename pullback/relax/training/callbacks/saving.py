"""Callbacks that save the trainer: the best epochs, and all that a training needs to go on."""

from __future__ import annotations

import math
import os
import string
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pullback.ir.errors import ArgumentError, suggestion
from pullback.relax.training.callbacks.arguments import count, flag
from pullback.relax.training.callbacks.base import Callback, Logs
from pullback.relax.training.callbacks.monitor import Monitor
from pullback.relax.training.file_names import FileNames
from pullback.relax.training.placement import Placement
from pullback.relax.training.shared_file import on_first

_TEMPLATE = 'such as "checkpoints/{epoch:03d}-{val_loss:.4f}.safetensors"'


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
        self.save_top_k = count("save_top_k", save_top_k, least=-1)
        self.save_last = flag("save_last", save_last)
        self.every_n_epochs = count("every_n_epochs", every_n_epochs, least=1)
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
                count(name, number, least=1)
        self.every_n_steps = every_n_steps
        self.every_n_epochs = 1 if every_n_steps is None and every_n_epochs is None else every_n_epochs
        self.keep = count("keep", keep, least=1)
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


def _on_first(trainer: Any, path: Path, action: Callable[[], None]) -> None:
    """Do something with a trainer's files on its first rank alone."""
    on_first(Placement.of(trainer._interface).ranks, path, action)
