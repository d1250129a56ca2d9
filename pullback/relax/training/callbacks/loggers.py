"""Callbacks that write the metrics of epochs: to a file, to a logger, for TensorBoard."""

from __future__ import annotations

import csv
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.training.callbacks.arguments import flag
from pullback.relax.training.callbacks.base import Callback, Logs


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
        self.path, self.append = Path(path), flag("append", append)
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
        self.dir, self.batches = os.fspath(dir), flag("batches", batches)
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
