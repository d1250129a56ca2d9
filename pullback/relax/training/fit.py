"""Training over whole data sets: ``fit`` and ``evaluate`` of the trainer."""

from __future__ import annotations

import itertools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, NameNotFound, UserError, suggestion
from pullback.ir.words import guided
from pullback.relax.convention import DIVISOR_VALUE, EVALUATE, LOSS_VALUE, OUTPUT, Value
from pullback.relax.training.callbacks import Callbacks
from pullback.relax.training.data import Batch, DataSet
from pullback.relax.training.diagnose import check_finite
from pullback.relax.training.history import VALIDATION, EpochRecord, History, counted
from pullback.relax.training.initialize import generator
from pullback.relax.training.interface import Interface
from pullback.relax.training.lr_find import LRCurve, lr_curve
from pullback.relax.training.metrics import Metrics, Running
from pullback.relax.training.program import Program, Programs
from pullback.relax.training.progress import Progress, check_verbose
from pullback.relax.training.step import Values
from pullback.runtime.epoch import Epoch

SLICE_SECONDS = 0.05  # how long steps may run before Python looks after signals, other threads and the progress bar


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found on ``count`` rows: the mean loss, and the metrics by name. ``found["f1"]`` reads them."""

    loss: float
    metrics: dict[str, float]
    count: int

    @property
    def accuracy(self) -> float | None:
        """The share of right predictions; None without classes, and where no row counts."""
        return counted(self.metrics.get("accuracy"))

    def __getitem__(self, name: str) -> float:
        values = {"loss": self.loss, **self.metrics}
        if name not in values:
            raise NameNotFound(f"there is no metric {name!r}; there are: {', '.join(values)}{suggestion(name, values)}")
        return values[name]

    def __repr__(self) -> str:
        values = "".join(f", {name}={value:.6g}" for name, value in self.metrics.items())
        return f"Evaluation(loss={self.loss:.6g}{values}, count={self.count})"


@dataclass
class _Run:
    """What a call of ``fit`` goes through its epochs with."""

    data: Any
    validation: Any
    size: int
    shuffle: bool
    drop_last: bool
    detect_nan: bool
    metrics: Metrics
    of_steps: bool  # whether metrics are computed from the steps' own predictions
    callbacks: Callbacks
    progress: Progress
    history: History
    called: int = -1  # the number of steps when callbacks were called within an epoch
    next_call: float = 0.0


@guided
class Fitting:
    """The part of a trainer that runs over data sets."""

    _interface: Interface
    _programs: Programs
    _values: Values
    _generator: np.random.Generator
    _epochs: int
    _turn: threading.RLock
    _history: History
    mod: Any
    seed: Callable[[int], None]
    steps: int
    stop_training = False  # set by callbacks: fit ends after the slice of steps, or the epoch, that runs

    @property
    def history(self) -> History:
        """The epochs of all calls of ``fit`` so far, those that were interrupted too. Checkpoints do not hold it."""
        return self._history

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
        callbacks: Any = (),
        metrics: Any = None,
        train_metrics: bool = False,
        logger: Any = None,
        verbose: Any = "auto",
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
        which each epoch is evaluated: they give the history's "val_loss", and "val_accuracy" where the loss has
        classes.

        ``callbacks``: Callbacks (``pullback.callbacks``), such as ``EarlyStopping(patience=3)``. ``metrics``: what is
        measured on the validation rows besides loss and accuracy: names ("f1", "top5", "r2", …) and functions
        ``f(y_true, y_pred)`` (``pullback.training.metrics``). ``train_metrics`` measures the same on the training rows,
        accuracy included, from the predictions of the steps themselves: each row's is that of the moment before its
        batch was trained on. Steps return their predictions then, so another program is compiled, and Python runs
        between them. ``logger``: gets the metrics of each epoch (MLflow, Weights & Biases, ``logging``: see
        ``callbacks.Logger``); several are a list. ``verbose``: "auto" or 1 shows a bar in a terminal, a table in a
        notebook, and elsewhere a line for each epoch; 2 lines anywhere, 0 nothing. ``detect_nan`` stops at the first
        loss that is not finite, with the trainer as it was before that step, and says which op is to blame; it makes
        steps slower. Without it, the first epoch whose loss is not finite gives a RuntimeWarning, and training goes on.

        Returns the epochs' history: ``history["val_loss"]``. ``trainer.history`` has those of earlier calls too.

        The loss of an epoch is the mean over all that its batches count, as if they were one: each batch's loss weighs
        as much as what it was divided by, such as the number of targets that are not ignored, or the sum of their
        weights. A batch that counts nothing weighs 0; where none counts anything, the loss is NaN. Losses that reduce
        by "sum" are summed, then divided by the rows. ``relax.training.loss`` says how a loss of one's own is read.
        Steps run in a native loop, which comes back to Python twenty times a second. Ctrl-C (KeyboardInterrupt) leaves
        the last complete step, and so does a step that fails, since a value of its batch is out of range: an
        ArgumentError names it.
        """
        _check_count("epochs", epochs, may_be_none=False)
        for name, value in (("shuffle", shuffle), ("train_metrics", train_metrics), ("detect_nan", detect_nan)):
            if not isinstance(value, (bool, np.bool_, int)):
                raise ArgumentError(f"{name} must be True or False, got {type(value).__name__}")
        check_verbose(verbose)
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
        history = History()
        measured = Metrics.of(metrics, self._interface)
        called = Callbacks(callbacks, logger, self, history)
        called.check(self._names(measured, bool(train_metrics), validation_data is not None), measured.modes)
        with Progress(verbose, history) as progress:
            run = _Run(
                data, validation_data, size, bool(shuffle), drop_last, bool(detect_nan), measured, bool(train_metrics),
                called, progress, history,
            )  # fmt: skip
            with progress.compiling():
                self._prepare(run)
            if seed is not None:
                self.seed(seed)
            self.stop_training = False
            called.train_begin()
            progress.begin(epochs, _rows(data.rows, size, drop_last))
            try:
                for _ in range(epochs):
                    self._epoch(run)
                    if self.stop_training:
                        break
                called.train_end(history[-1].metrics)
            finally:
                self._history.best_epoch = history.best_epoch or self._history.best_epoch
                self._history.stopped_epoch = history.stopped_epoch or self._history.stopped_epoch
        return history

    def _epoch(self, run: _Run) -> None:
        """One epoch: its steps, validation, record and callbacks."""
        started = time.perf_counter()
        run.progress.begin_epoch()
        run.callbacks.epoch_begin(self._epochs + 1)
        order = self._generator.permutation(run.data.rows) if run.shuffle else None
        measured = run.metrics.start() if run.of_steps else None
        total = divisor = last = 0.0
        rows = 0
        for batch, epoch in run.data.epochs(run.size, order, run.drop_last):
            self._train(batch, epoch, run, measured)
            total, divisor = total + epoch.loss_sum, divisor + epoch.divisor_sum
            rows, last = rows + epoch.done * batch.rows, epoch.loss
            if self.stop_training:
                break
        if run.callbacks.watch_batches and run.called != self.steps:
            run.callbacks.batch_end(self.steps, last)
        loss = self._mean(total, divisor, rows)
        self._epochs += 1
        if not math.isfinite(loss) and all(math.isfinite(e.loss) for e in run.history):
            _warn_of(self._epochs, loss, divisor)
        found = {"loss": loss, **(measured.results() if measured is not None else {})}
        if run.validation is not None:
            evaluation = self._evaluate(run.validation, run.size, run.metrics)
            found |= {f"{VALIDATION}loss": evaluation.loss}
            found |= {f"{VALIDATION}{name}": value for name, value in evaluation.metrics.items()}
        if "lr" in self._interface.record.run_time:
            found["lr"] = float(self.hyperparameters["lr"])
        record = EpochRecord(self._epochs, found, time.perf_counter() - started)
        for history in (run.history, self._history):
            history.epochs.append(record)
        run.callbacks.epoch_end(record)
        run.progress.epoch(record)

    def _names(self, metrics: Metrics, of_steps: bool, validates: bool) -> list[str]:
        """What each epoch's record will hold."""
        if of_steps and not metrics.names:
            message = "train_metrics=True measures nothing: the loss has no classes, and no metrics are given"
            raise ArgumentError(message, hint='write metrics=["mae", "r2"], say')
        names = ["loss", *(metrics.names if of_steps else ())]
        if validates:
            names += [f"{VALIDATION}{name}" for name in ("loss", *metrics.names)]
        elif metrics.chosen and not of_steps and metrics.asked:
            message = f"there are no rows on which {', '.join(metrics.names)} could be measured"
            hint = "fit(…, validation=(x_test, y_test)) measures validation rows, train_metrics=True training rows"
            raise ArgumentError(message, hint=hint)
        return names + (["lr"] if "lr" in self._interface.record.run_time else [])

    def evaluate(
        self, x: Any, y: Any, batch_size: int | None = None, *, metrics: Any = None, averaged: bool = False
    ) -> Evaluation:
        """The mean loss over all rows, and the accuracy when the loss has classes; nothing is updated.

        Arguments are as for :meth:`fit`, and so is the mean: the loss of all rows in one batch, NaN where none counts.
        The accuracy is the share of rows (pixels, tokens, …) whose largest prediction is at the right class; ignored
        targets do not count. Of binary losses, it is the share of right zeros and ones. ``metrics``: others, which
        ``found["f1"]`` reads: names, and functions ``f(y_true, y_pred)``, which are called once, with all rows
        (``pullback.training.metrics``). ``averaged`` takes the parameters' averages, which the optimizer ``EMA`` keeps.
        """
        _check_count("batch_size", batch_size)
        if not isinstance(averaged, (bool, np.bool_)):
            raise ArgumentError(f"averaged must be True or False, got {averaged!r}")
        measured = Metrics.of(metrics, self._interface)
        data = self._data_set(x, y)
        self._values.check_complete(self._interface)
        return self._evaluate(data, self._batch_size(batch_size, data.rows), measured, averaged)

    def lr_find(
        self,
        x: Any,
        y: Any,
        *,
        start: float = 1e-7,
        end: float = 1.0,
        steps: int = 100,
        batch_size: int | None = None,
    ) -> LRCurve:
        """How the loss goes with the learning rate: so many steps on a copy of the trainer, with rates that grow from
        ``start`` to ``end`` in equal ratios; this trainer stays as it is.

        Batches are drawn as by :meth:`fit`, all of the same size. It stops before ``end`` where the loss has risen to
        four times its least, or is not finite. Unless the optimizer's ``lr`` is a run-time value, the step is compiled
        anew with one. The optimizer's own states begin anew; groups of parameters with a rate of their own keep it.

        >>> found = trainer.lr_find(x, y)
        >>> found.suggestion, found.lrs, found.losses
        >>> found.plot()

        Raises a UserError when the optimizer has no ``lr``, and when the trainer, as the copy of another, does not hold
        what it was made from and its ``lr`` is no ``RunTime``.
        """
        _check_count("batch_size", batch_size)
        self._data_set(x, y)  # an error comes before anything is compiled
        self._values.check_complete(self._interface)
        return lr_curve(self, x, y, start, end, steps, batch_size)

    def _steps_one_by_one(
        self, x: Any, y: Any, batch_size: int | None, before: Callable[[int], None]
    ) -> Iterator[float]:
        """The losses of steps, without an end; ``before`` is called with the number of each, from 0 on."""
        data = self._data_set(x, y)
        size = min(self._batch_size(batch_size, data.rows), data.rows)
        numbers = itertools.count()
        while True:
            for batch, epoch in data.epochs(size, self._generator.permutation(data.rows), drop_last=True):
                program = self._program(data, batch.rows)
                while epoch.left:
                    before(next(numbers))
                    self._steps(program, batch, epoch, None, 0.0)
                    yield epoch.loss

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

    def _program(self, data: Any, rows: int) -> Program:
        """The program for batches of a data set."""
        return self._programs.of(rows)

    def _prepare(self, run: _Run) -> None:
        """Compile for all sizes of batches before the first step: what cannot be compiled fails early."""
        for batch, _ in run.data.epochs(run.size, drop_last=run.drop_last):
            program = self._program(run.data, batch.rows)
            try:
                step = program.observed_step if run.of_steps else program.step
                step.bind(batch.inputs, batch.targets, self._values)
            except UserError as error:
                if batch.rows == run.size:
                    raise
                raise _of_the_last_batch(error, batch.rows, run.data.rows, run.size) from error
        for batch, _ in run.validation.epochs(run.size) if run.validation is not None else ():
            program = self._program(run.validation, batch.rows)
            program.evaluate.bind(batch.inputs, batch.targets, self._values)

    def _train(self, batch: Batch, epoch: Epoch, run: _Run, measured: Running | None) -> None:
        """Train on all batches of a loop, unless somebody stops the training."""
        program = self._program(run.data, batch.rows)
        while epoch.left:
            done = epoch.done
            if run.detect_nan:
                self._watched_step(program, batch, epoch, measured)
            else:
                self._steps(program, batch, epoch, measured, SLICE_SECONDS)
            run.progress.advance((epoch.done - done) * batch.rows, epoch.loss)
            if run.callbacks.watch_batches:
                self._batch_end(run, epoch.loss)
            if self.stop_training:
                return

    def _batch_end(self, run: _Run, loss: float) -> None:
        """Callbacks within the epoch, about as often as the native loop comes back."""
        now = time.perf_counter()
        if now >= run.next_call:
            run.next_call, run.called = now + 0.8 * SLICE_SECONDS, self.steps
            run.callbacks.batch_end(run.called, loss)

    def _mean(self, total: float, divisor: float, rows: int) -> float:
        """The loss of all batches, given their sum and their divisors': NaN where nothing counts."""
        if (DIVISOR_VALUE, 0) not in self._interface.convention[EVALUATE].returns:  # it adds up
            divisor = rows
        return total / divisor if divisor else math.nan

    def _steps(self, program: Program, batch: Batch, epoch: Epoch, measured: Running | None, seconds: float) -> None:
        """Train on the batches that are left of an epoch, for about so long, and on one at least; on one where its
        predictions are measured."""
        with self._turn:
            self._values = self._values.unpinned()
            try:
                if measured is None:
                    program.step.bind(batch.inputs, batch.targets, self._values).repeat(epoch, seconds)
                else:
                    self._measured_step(program, batch, epoch, measured)
            except ArgumentError as error:
                step = int(self._values.optimizer_states[0].item()) + 1  # a failed step changes nothing
                raise ArgumentError(f"step {step}: {error.message}", span=error.span, hint=error.hint) from None

    def _measured_step(self, program: Program, batch: Batch, epoch: Epoch, measured: Running) -> None:
        epoch.gather()
        step = program.observed_step
        results = step(batch.inputs, batch.targets, self._values)
        found = dict(zip(step.returns, results, strict=True))
        epoch.count(float(found[LOSS_VALUE, 0].item()), _divisor(found))
        measured.update(batch.targets, found[OUTPUT, 0])

    def _watched_step(self, program: Program, batch: Batch, epoch: Epoch, measured: Running | None) -> None:
        """One step, which is undone when its loss is not finite; the error says which op is to blame."""
        with self._turn:
            before = self._values.copy()
            self._steps(program, batch, epoch, measured, 0.0)
            if np.isfinite(epoch.loss_sum):
                return
            self._values = before
        check_finite(self.mod, self._interface, batch, before, epoch.loss)

    def _evaluate(self, data: DataSet, size: int, metrics: Metrics, averaged: bool = False) -> Evaluation:
        total, divisor, measured = 0.0, 0.0, metrics.start()
        for batch in data.batches(size):
            evaluate = self._program(data, batch.rows).evaluate
            with self._turn:
                values = self._values.averaged(self._interface) if averaged else self._values
                results = evaluate(batch.inputs, batch.targets, values)
            found = dict(zip(evaluate.returns, results, strict=True))
            own = _divisor(found)
            if own:  # a batch that counts nothing has no loss
                total, divisor = total + found[LOSS_VALUE, 0].item() * own, divisor + own
            measured.update(batch.targets, found[OUTPUT, 0])
        return Evaluation(self._mean(total, divisor, data.rows), measured.results(), data.rows)


def _divisor(found: dict[Value, Any]) -> float:
    """What the loss of a batch is divided by; 1 for one that adds up."""
    return float(found[DIVISOR_VALUE, 0].item()) if (DIVISOR_VALUE, 0) in found else 1.0


def _rows(rows: int, size: int, drop_last: bool) -> int:
    """How many rows an epoch trains on."""
    return rows - (rows % size if drop_last else 0)


def _warn_of(epoch: int, loss: float, divisor: float) -> None:
    message = (
        f"no row of epoch {epoch} counts, so that its loss is {loss}: all targets are ignored, or all weights are 0"
        if not divisor
        else f"the loss of epoch {epoch} is {loss}; fit(…, detect_nan=True) stops before the first such step,"
        " keeps what was trained until then, and says which op is to blame"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=5)  # the call of fit, which words.py wraps


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
