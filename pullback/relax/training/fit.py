"""Training over whole data sets: ``fit`` and ``evaluate`` of the trainer."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.words import guided
from pullback.relax.convention import DIVISOR_VALUE, EVALUATE, LOSS_VALUE, OUTPUT
from pullback.relax.training.data import Batch, DataSet
from pullback.relax.training.diagnose import check_finite
from pullback.relax.training.initialize import generator
from pullback.relax.training.interface import Interface
from pullback.relax.training.program import Programs
from pullback.relax.training.progress import Progress
from pullback.relax.training.step import Values
from pullback.runtime.epoch import Epoch

SLICE_SECONDS = 0.05  # how long steps may run before Python looks after signals, other threads and the progress bar


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of ``fit``: the mean loss of its rows, each at the moment it was trained on.

    Of the validation rows, the ``validation_loss`` is None where fit got none, the ``validation_accuracy`` also where
    the loss knows no classes. The accuracy on the training rows is not measured, since a step gives no predictions.
    """

    epoch: int  # counted from 1 over all calls of fit
    loss: float
    validation_loss: float | None
    validation_accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class History:
    """What ``fit`` did."""

    epochs: list[EpochRecord] = field(default_factory=list)

    def __repr__(self) -> str:
        return "\n".join(["History:", *(f"  {_line(record)}" for record in self.epochs)])


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found on ``count`` rows: the mean loss, and the share of right predictions (None: no classes,
    or no row that counts)."""

    loss: float
    accuracy: float | None
    count: int


@guided
class Fitting:
    """The part of a trainer that runs over data sets."""

    _interface: Interface
    _programs: Programs
    _values: Values
    _generator: np.random.Generator
    _epochs: int
    _turn: threading.RLock
    mod: Any
    seed: Callable[[int], None]

    def fit(
        self,
        x: Any,
        y: Any,
        *,
        epochs: int = 1,
        batch_size: int | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        validation: tuple[Any, Any] | None = None,
        progress: bool = True,
        detect_nan: bool = False,
    ) -> History:
        """Train on all rows of ``x`` and ``y``, ``epochs`` times.

        ``x``, ``y``: arrays with one row for each example (a list of arrays when the model takes several), of the
        declared dtypes or such that a cast changes no value. Images of uint8 are cast batch by batch, so that no float
        copy of them all is made; their values stay as they are: scale them in the model, or beforehand.
        ``batch_size``: by default the model's own; the last batch of an epoch has the rows that are left, and the model
        is compiled for that number of rows once. ``drop_last`` leaves these out (others in each epoch, if it shuffles);
        validation takes all rows in any case. ``shuffle`` draws a new order for each epoch from the trainer's
        generator. ``seed`` restarts it, and the random numbers of the model, such as dropout's. Both are saved with
        the trainer: training goes on after ``load`` as if it had never stopped. ``validation``: inputs and targets on
        which each epoch is evaluated: they give the history's ``validation_loss`` and ``validation_accuracy``. The
        accuracy on the training rows is not measured: for it, call :meth:`evaluate` on them. ``progress`` shows a bar
        where the output is a terminal. ``detect_nan`` stops at the first loss that is not finite, with the trainer as
        it was before that step, and says which op is to blame; it makes steps slower. Without it, the first epoch whose
        loss is not finite gives a RuntimeWarning, and training goes on.

        The loss of an epoch is the mean over all that its batches count, as if they were one: each batch's loss weighs
        as much as what it was divided by, such as the number of targets that are not ignored, or the sum of their
        weights. A batch that counts nothing weighs 0; where none counts anything, the loss is NaN. Losses that reduce
        by "sum" are summed, then divided by the rows. ``relax.training.loss`` says how a loss of one's own is read.
        Steps run in a native loop, which comes back to Python twenty times a second. Ctrl-C (KeyboardInterrupt) leaves
        the last complete step, and so does a step that fails, since a value of its batch is out of range: an
        ArgumentError names it.
        """
        _check_count("epochs", epochs, may_be_none=False)
        for name, value in (("shuffle", shuffle), ("progress", progress), ("detect_nan", detect_nan)):
            if not isinstance(value, (bool, np.bool_, int)):
                raise ArgumentError(f"{name} must be True or False, got {type(value).__name__}")
        _check_count("batch_size", batch_size)
        if seed is not None:
            generator(seed)  # an error comes before anything is compiled
        data = self._data_set(x, y)
        if validation is not None and (not isinstance(validation, (tuple, list)) or len(validation) != 2):
            raise ArgumentError(
                f"validation must be a pair (inputs, targets), got {type(validation).__name__}",
                hint="write validation=(x_test, y_test)",
            )
        validation_data = None if validation is None else self._data_set(*validation)
        size = self._batch_size(batch_size, data.rows)
        _check_drop_last(drop_last, data.rows, size)
        self._values.check_complete(self._interface)
        self._prepare(data, validation_data, size, drop_last)
        if seed is not None:
            self.seed(seed)
        history = History()
        rows = data.rows - (data.rows % size if drop_last else 0)
        with Progress(progress, epochs, rows) as bar:
            for _ in range(epochs):
                started = time.perf_counter()
                order = self._generator.permutation(data.rows) if shuffle else None
                total = divisor = 0.0
                for batch, epoch in data.epochs(size, order, drop_last):
                    self._train(batch, epoch, bar, detect_nan)
                    total, divisor = total + epoch.loss_sum, divisor + epoch.divisor_sum
                loss = self._mean(total, divisor, rows)
                self._epochs += 1
                if not math.isfinite(loss) and all(math.isfinite(e.loss) for e in history.epochs):
                    _warn_of(self._epochs, loss, divisor)
                found = self._evaluate(validation_data, size) if validation_data is not None else None
                record = EpochRecord(
                    self._epochs, loss, found and found.loss, found and found.accuracy, time.perf_counter() - started
                )
                history.epochs.append(record)
                bar.epoch(_line(record))
        return history

    def evaluate(self, x: Any, y: Any, batch_size: int | None = None, *, averaged: bool = False) -> Evaluation:
        """The mean loss over all rows, and the accuracy when the loss is a cross entropy; nothing is updated.

        Arguments are as for :meth:`fit`, and so is the mean: the loss of all rows in one batch, NaN where none counts.
        The accuracy is the share of rows (pixels, tokens, …) whose largest prediction is at the right class; ignored
        targets do not count. ``averaged`` takes the parameters' averages, which the optimizer ``EMA`` keeps.
        """
        _check_count("batch_size", batch_size)
        if not isinstance(averaged, (bool, np.bool_)):
            raise ArgumentError(f"averaged must be True or False, got {type(averaged).__name__}")
        data = self._data_set(x, y)
        self._values.check_complete(self._interface)
        return self._evaluate(data, self._batch_size(batch_size, data.rows), averaged)

    def _data_set(self, x: Any, y: Any) -> DataSet:
        if not self._interface.record.reduction:
            raise UserError(
                "this trainer module does not tell how its loss reduces, so that no mean over batches can be taken",
                hint="such a module was not made by SetupTrainer: set it up, or use update(…)",
            )
        return DataSet(x, y, self._interface)

    def _batch_size(self, asked: int | None, rows: int) -> int:
        """The batch size asked for, else the model's own, else all rows up to 64."""
        if asked is not None:
            return asked
        batch = self._interface.batch
        return batch if isinstance(batch, int) else min(64, rows)

    def _prepare(self, data: DataSet, validation: DataSet | None, size: int, drop_last: bool) -> None:
        """Compile for all sizes of batches before the first step: what cannot be compiled fails early."""
        for batch, _ in data.epochs(size, drop_last=drop_last):
            try:
                self._programs.of(batch.rows).step.bind(batch.inputs, batch.targets, self._values)
            except UserError as error:
                if batch.rows == size:
                    raise
                raise _of_the_last_batch(error, batch.rows, data.rows, size) from error
        for batch, _ in validation.epochs(size) if validation is not None else ():
            self._programs.of(batch.rows).evaluate.bind(batch.inputs, batch.targets, self._values)

    def _train(self, batch: Batch, epoch: Epoch, bar: Progress, detect_nan: bool) -> None:
        """Train on all batches of a loop."""
        while epoch.left:
            done = epoch.done
            if detect_nan:
                self._watched_step(batch, epoch)
            else:
                self._steps(batch, epoch, SLICE_SECONDS)
            bar.advance((epoch.done - done) * batch.rows, epoch.loss)

    def _mean(self, total: float, divisor: float, rows: int) -> float:
        """The loss of all batches, given their sum and their divisors': NaN where nothing counts."""
        if (DIVISOR_VALUE, 0) not in self._interface.convention[EVALUATE].returns:  # it adds up
            divisor = rows
        return total / divisor if divisor else math.nan

    def _steps(self, batch: Batch, epoch: Epoch, seconds: float) -> None:
        """Train on the batches that are left of an epoch, for about so long, and on one at least."""
        step = self._programs.of(batch.rows).step
        with self._turn:
            self._values = self._values.unpinned()
            call = step.bind(batch.inputs, batch.targets, self._values)
            try:
                call.repeat(epoch, seconds)
            except ArgumentError as error:
                step = int(self._values.optimizer_states[0].item()) + 1  # a failed step changes nothing
                raise ArgumentError(f"step {step}: {error.message}", span=error.span, hint=error.hint) from None

    def _watched_step(self, batch: Batch, epoch: Epoch) -> None:
        """One step, which is undone when its loss is not finite; the error says which op is to blame."""
        with self._turn:
            before = self._values.copy()
            self._steps(batch, epoch, 0.0)
            if np.isfinite(epoch.loss_sum):
                return
            self._values = before
        check_finite(self.mod, self._interface, batch, before, epoch.loss)

    def _evaluate(self, data: DataSet, size: int, averaged: bool = False) -> Evaluation:
        total, divisor, right, counted = 0.0, 0.0, 0, 0
        for batch in data.batches(size):
            evaluate = self._programs.of(batch.rows).evaluate
            with self._turn:
                values = self._values.averaged(self._interface) if averaged else self._values
                results = evaluate(batch.inputs, batch.targets, values)
            found = dict(zip(self._interface.convention[EVALUATE].returns, results, strict=True))
            own = float(found[DIVISOR_VALUE, 0].item()) if (DIVISOR_VALUE, 0) in found else 1.0
            if own:  # a batch that counts nothing has no loss
                total, divisor = total + found[LOSS_VALUE, 0].item() * own, divisor + own
            if self._interface.record.classification:
                correct = data.correct(batch, found[OUTPUT, 0])
                right, counted = right + correct[0], counted + correct[1]
        loss = self._mean(total, divisor, data.rows)
        return Evaluation(loss, right / counted if counted else None, data.rows)


def _warn_of(epoch: int, loss: float, divisor: float) -> None:
    message = (
        f"no row of epoch {epoch} counts, so that its loss is {loss}: all targets are ignored, or all weights are 0"
        if not divisor
        else f"the loss of epoch {epoch} is {loss}; fit(…, detect_nan=True) stops before the first such step,"
        " keeps what was trained until then, and says which op is to blame"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=4)  # the call of fit, which words.py wraps


def _of_the_last_batch(error: UserError, left: int, rows: int, size: int) -> UserError:
    """The error, saying that it is the rows left at the end of an epoch that the model cannot be trained on."""
    batch = f"the last batch of an epoch has {left} row{'' if left == 1 else 's'} ({rows} rows in batches of {size})"
    hints = ["fit(…, drop_last=True) leaves that batch out", *([error.hint] if error.hint else [])]
    other = next((s for s in range(size - 1, 1, -1) if rows % s != 1), None)
    if left == 1 and other:
        hints.insert(1, f"with batch_size={other} the last one has {rows % other or other}")
    return type(error)(f"{batch}: {error.message}", span=error.span, hint="; ".join(hints))


def _check_drop_last(drop_last: Any, rows: int, size: int) -> None:
    if not isinstance(drop_last, (bool, np.bool_)):
        raise ArgumentError(f"drop_last must be True or False, got {drop_last!r}")
    if drop_last and rows < size:
        message = f"drop_last leaves no batch: there are {rows} rows, and batches have {size}"
        raise ArgumentError(message, hint="give a smaller batch_size, or leave drop_last out")


def _check_count(name: str, number: int | None, may_be_none: bool = True) -> None:
    if number is None and may_be_none:
        return
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{name} must be an int ≥ 1, got {number!r}", hint="give a whole number, 1 or more")


def _line(record: EpochRecord) -> str:
    """``epoch 3: loss 0.4321, validation loss 0.4512, validation accuracy 0.8412, 1.20 s``."""
    parts = [f"loss {record.loss:.4f}"]
    if record.validation_loss is not None:
        parts.append(f"validation loss {record.validation_loss:.4f}")
    if record.validation_accuracy is not None:
        parts.append(f"validation accuracy {record.validation_accuracy:.4f}")
    return f"epoch {record.epoch}: {', '.join(parts)}, {record.seconds:.2f} s"
