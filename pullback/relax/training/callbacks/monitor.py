"""Callbacks that compare a metric of epochs: what stops a training, and what lowers its learning rate."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from pullback.ir.errors import ArgumentError, UserError, suggestion
from pullback.relax.training.callbacks.arguments import count, flag, number
from pullback.relax.training.callbacks.base import Callback, Logs


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
        self.monitor, self.mode, self.min_delta = monitor, mode, number("min_delta", min_delta)
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
        self.patience, self.restore_best = count("patience", patience), flag("restore_best", restore_best)
        self.start_from_epoch = count("start_from_epoch", start_from_epoch)
        self.baseline = None if baseline is None else number("baseline", baseline, negative=True)
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
        self.factor, self.min_lr = number("factor", factor), number("min_lr", min_lr)
        if not 0 < self.factor < 1:
            raise ArgumentError(f"factor must lie between 0 and 1, got {factor!r}", hint="such as 0.1 or 0.5")
        self.patience, self.cooldown = count("patience", patience), count("cooldown", cooldown)
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
