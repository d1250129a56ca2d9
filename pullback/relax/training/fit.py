"""Training over whole data sets: ``fit`` and ``evaluate`` of the trainer."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, NameNotFound, UserError, suggestion
from pullback.ir.words import guided
from pullback.relax.convention import DIVISOR_VALUE, EVALUATE, LOSS_VALUE, OUTPUT, Value
from pullback.relax.training.callbacks.called import Callbacks
from pullback.relax.training.checkpoint_file import Record
from pullback.relax.training.data import Batch, DataSet, Source, check_labels
from pullback.relax.training.diagnose import check_finite
from pullback.relax.training.feeding import Feeding, check_count
from pullback.relax.training.history import VALIDATION, EpochRecord, History, counted
from pullback.relax.training.initialize import generator
from pullback.relax.training.interface import Interface
from pullback.relax.training.lr_find import LRCurve, lr_curve
from pullback.relax.training.metrics import Metrics, Running
from pullback.relax.training.placement import Placement
from pullback.relax.training.position import Position, Sums, file_to_resume
from pullback.relax.training.program import Program, Programs
from pullback.relax.training.progress import Progress, check_verbose
from pullback.relax.training.sources import gives_arrays
from pullback.relax.training.step import BoundFunction, Values
from pullback.relax.training.together import Pace, agree, telling
from pullback.relax.transform.distributed import Distributed
from pullback.runtime.epoch import Epoch
from pullback.runtime.rank_times import RankTimes, StepClock

SLICE_SECONDS = 0.05  # how long steps may run before Python looks after signals, other threads and the progress bar


@dataclass(frozen=True)
class Evaluation:
    """What ``evaluate`` found on ``count`` rows: the mean loss, and the metrics by name. ``found["f1"]`` reads them.

    Args:
        loss: the mean loss.
        metrics: by name.
        count: rows.
    """

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
    pace: Pace
    times_ranks: bool  # whether how long steps take on each rank is shown
    called: int = -1  # the number of steps when callbacks were called within an epoch
    next_call: float = 0.0

    @property
    def settings(self) -> dict[str, int | bool | None]:
        """What a fit has to be alike to go on in the middle of this one's epochs."""
        return {
            "rows": self.data.rows, "batch_size": self.size, "steps_per_epoch": self.data.steps,
            "shuffle": self.shuffle, "drop_last": bool(self.drop_last),
        }  # fmt: skip


@guided
class Fitting(Feeding):
    """The part of a trainer that runs over data sets."""

    _interface: Interface
    _programs: Programs
    _values: Values
    _placement: Placement
    _seen: Callable[[bool], Values]
    _clock: StepClock
    _generator: np.random.Generator
    _epochs: int
    _position: Position | None
    _turn: threading.RLock
    _load: Callable[..., Any]
    _history: History
    mod: Any
    model: Any
    seed: Callable[[int], None]
    stop_training = False  # set by callbacks: fit ends after the slice of steps, or the epoch, that runs

    if TYPE_CHECKING:

        @property
        def hyperparameters(self) -> Mapping[str, Any]: ...

        @property
        def steps(self) -> int: ...

    @property
    def history(self) -> History:
        """The epochs of all calls of ``fit`` so far, those that were interrupted too. Checkpoints do not hold it."""
        return self._history

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        seed: int | None = None,
        validation: Any = None,
        validation_split: float = 0.0,
        sample_weight: Any = None,
        class_weight: Any = None,
        callbacks: Any = (),
        metrics: Any = None,
        train_metrics: bool = False,
        logger: Any = None,
        verbose: Any = "auto",
        cast: bool = True,
        detect_nan: bool = False,
        resume: Any = None,
    ) -> History:
        """Train on all rows of ``x`` and ``y``, ``epochs`` times.

        Arrays of another dtype are cast batch by batch, never as a whole; their values stay as they are: scale images
        of uint8 in the model, or beforehand. Floats are rounded to the declared float type, which a warning says once
        in a process; anything else, and with ``cast=False`` everything, has to be the same number in the declared
        dtype: a DTypeError names the row.

        Of a trainer over several ranks (``distributed=``) all ranks call it with the same data: the batches are those
        of all together, of which each rank reads and computes its rows; what it returns is the same on all. Data that
        comes in batches is read by all ranks, examples by their number by one each. ``batch_size`` is a multiple of the
        number of ranks. An error in a step or in reading the data, or Ctrl-C, on one rank ends all.

        The loss of an epoch is the mean over all that its batches count, as if they were one: each batch's loss weighs
        as much as what it was divided by, such as the number of targets that are not ignored, or the sum of their
        weights. A batch that counts nothing weighs 0; where none counts anything, the loss is NaN. Losses that reduce
        by "sum" are summed, then divided by the rows. ``relax.training.loss`` says how a loss of one's own is read.
        Steps run in a native loop, which comes back to Python twenty times a second. Ctrl-C (KeyboardInterrupt) leaves
        the last complete step, and so does a step that fails, since a value of its batch is out of range: an
        ArgumentError names it.

        Args:
            x: arrays with one row for each example: NumPy's, nested lists, data frames, memory maps, what has DLPack.
                Where the model takes several inputs or targets, they are a list of arrays, or a dict by their names.
                Data that gives both comes as ``x`` alone: an object with ``__len__`` and ``__getitem__`` whose items
                are examples (a torch ``Dataset``), an iterable of batches (a torch ``DataLoader``), or a function that
                returns an iterator over batches for each epoch. A batch, and an example, is ``(x, y)``, ``(x, y,
                weight)`` or a dict by the names of inputs and targets. Such data is read by a thread, some batches
                ahead of the steps; batches come as they are, in their own order, and the model is compiled for each
                number of rows.
            y: as ``x``, for the targets.
            epochs: how many times all rows are taken.
            batch_size: by default the model's own; the last batch of an epoch has the rows that are left, and the model
                is compiled for that number of rows once.
            steps_per_epoch: how many batches an epoch takes: of arrays, the first of each epoch's order; an iterable
                goes on in the next epoch where it was, and begins anew after its end. A generator, which can be read
                only once, needs it for more than one epoch.
            drop_last: leaves out the rows of a last, smaller batch (others in each epoch, if it shuffles); validation
                takes all rows in any case.
            shuffle: draws a new order for each epoch from the trainer's generator.
            seed: restarts the generator of orders, and the random numbers of the model, such as dropout's. Both are
                saved with the trainer: training goes on after ``load`` as if it had never stopped.
            validation: inputs and targets (and weights), or any data as above, on which each epoch is evaluated: they
                give the history's "val_loss", and "val_accuracy" where the loss has classes.
            validation_split: takes this fraction of the rows of arrays for it, the last ones, before any shuffling.
            sample_weight: (rows,), what each row's loss weighs; batches bring their own. The loss is Σ w·l / Σ w then,
                where class weights and ignored targets of the loss itself count as they do without.
            class_weight: a dict from classes to the weights of their rows, 1 where it has none, or "balanced" (rows /
                (classes · rows of the class)); it is for training, not for validation.
            callbacks: Callbacks (``pullback.callbacks``), such as ``EarlyStopping(patience=3)``.
            metrics: what is measured on the validation rows besides loss and accuracy: names ("f1", "top5", "r2", …)
                and functions ``f(y_true, y_pred)`` (``pullback.training.metrics``).
            train_metrics: measures the same on the training rows, accuracy included, from the predictions of the steps
                themselves: each row's is that of the moment before its batch was trained on. Steps return their
                predictions then, so another program is compiled, and Python runs between them.
            logger: gets the metrics of each epoch (MLflow, Weights & Biases, ``logging``: see ``callbacks.Logger``);
                several are a list.
            verbose: "auto" or 1 shows a bar in a terminal, a table in a notebook, and elsewhere a line for each epoch;
                2 lines anywhere, 0 nothing.
            cast: whether floats are rounded to the declared type; False: everything has to be the same number in it.
            detect_nan: stops at the first loss that is not finite, with the trainer as it was before that step, and
                says which op is to blame; it makes steps slower. Without it, the first epoch whose loss is not finite
                gives a RuntimeWarning, and training goes on.
            resume: the path of a checkpoint to go on from, of a training that was ended or killed; with True, that of
                the callback ``Checkpoint``. It trains until the trainer has seen ``epochs`` epochs in all, and gives
                what it would have given without the interruption, bit for bit, also when the file was saved in the
                middle of an epoch: the epoch goes on at the next batch. So the same call begins a training, as long as
                there is no such file, and goes on with it. Data that comes in batches has to give the same ones again,
                and those that were done are read and left out. ``seed`` has had its effect then. Callbacks, and
                ``train_metrics`` of an epoch that goes on, begin anew.

        Returns:
            the epochs' history: ``history["val_loss"]``. ``trainer.history`` has those of earlier calls too.

        Raises:
            CheckpointError: as ``load`` does, and where the file is from within an epoch of other batches.

        Examples:
            >>> history = trainer.fit(x, y, epochs=5, batch_size=16, validation_split=0.25, verbose=0)
            >>> len(history["val_loss"])
            5
        """
        check_count("epochs", epochs, may_be_none=False)
        for name, value in (("shuffle", shuffle), ("train_metrics", train_metrics), ("detect_nan", detect_nan)):
            if not isinstance(value, (bool, np.bool_, int)):
                raise ArgumentError(f"{name} must be True or False, got {type(value).__name__}")
        check_verbose(verbose)
        check_count("batch_size", batch_size)
        if seed is not None:
            generator(seed)  # an error comes before anything is compiled
        check_count("steps_per_epoch", steps_per_epoch)
        data, validation_data = self._sources(
            x, y, sample_weight, validation, validation_split, class_weight=class_weight, cast=cast,
            steps=steps_per_epoch, epochs=epochs,
        )  # fmt: skip
        size = self._batch_size(batch_size, data)
        _check_drop_last(drop_last, data.rows, size)
        ranks = self._placement.ranks
        _check_divides(size, data.rows, self._interface.distributed)
        self._values.check_complete(self._interface)
        self._check_frozen()
        history = History()
        measured = Metrics.of(metrics, self._interface)
        called = Callbacks(callbacks, logger, self, history, ranks.is_first)
        called.check(self._names(measured, bool(train_metrics), validation_data is not None), measured.modes)
        if ranks.size > 1:
            options = f"epochs={epochs}, shuffle={bool(shuffle)}, drop_last={bool(drop_last)}, seed={seed}"
            options += f", callbacks: {', '.join(called.names) or 'none'}"
            agree(ranks, self._state_of_training(data, validation_data, size) | {"the options of fit": options})
        file = None if resume is None else file_to_resume(resume, callbacks, ranks)
        with Progress(verbose if ranks.is_first else 0, history) as progress:
            run = _Run(
                data, validation_data, size, bool(shuffle), drop_last, bool(detect_nan), measured, bool(train_metrics),
                called, progress, history, Pace(ranks, called.decide_within, SLICE_SECONDS),
                ranks.size > 1 and ranks.broadcast(verbose == 2),
            )  # fmt: skip
            with progress.compiling():
                self._prepare(run)
            position = None if file is None else self._resumed(file, run)
            if seed is not None and file is None:
                self.seed(seed)
            left = epochs if resume is None else epochs - self._epochs
            if left <= 0:  # what was to be done has been done
                return history
            self.stop_training = False
            called.train_begin()
            progress.begin(left, data.count(size, drop_last))
            try:
                for _ in range(left):
                    self._epoch(run, position)
                    position = None
                    if self.stop_training:
                        break
                called.train_end(history[-1].metrics)
                progress.ended(history.note)
            except KeyboardInterrupt:
                ranks.fail("KeyboardInterrupt")  # the others may wait for this one within a step
                raise
            finally:
                self._history.best_epoch = history.best_epoch or self._history.best_epoch
                if history.stopped_epoch is not None:
                    self._history.stopped_epoch = history.stopped_epoch
                    self._history.stopped_because = history.stopped_because
        return history

    def _resumed(self, file: str, run: _Run) -> Position | None:
        """Load what the run goes on from; returns where in an epoch that is, if it is in one."""
        found: list[Position | None] = []

        def check(record: Record) -> None:
            found.append(Position.of(record))
            if found[-1] is not None:
                found[-1].check(file, run.settings)

        self._load(file, check=check)
        run.data.pass_over(self._epochs)
        return found[-1]

    def _order(self, run: _Run, position: Position | None) -> np.ndarray | None:
        """The order of rows of an epoch; None where they come as they are."""
        if not run.shuffle or run.data.rows is None:
            return None
        return self._generator.permutation(run.data.rows) if position is None else position.order(run.data.rows)

    def _epoch(self, run: _Run, position: Position | None = None) -> None:
        """One epoch: its steps, validation, record and callbacks; where it goes on, from its position."""
        started = time.perf_counter()
        run.progress.begin_epoch()
        run.callbacks.epoch_begin(self._epochs + 1)
        if position is not None and position.done.batches:
            run.progress.advance(position.done.rows, math.nan)
            if run.of_steps:
                _warn_of_metrics(self._epochs + 1, position.done.batches)
        before = self._generator.bit_generator.state
        order = self._order(run, position)
        measured = run.metrics.start() if run.of_steps else None
        if position is None:
            position = Position(before, run.settings, self.steps)
        self._position, last = position, 0.0
        ranks = self._placement.ranks
        read = telling(ranks, run.data.epochs(run.size, order, run.drop_last, position.done.batches))
        with contextlib.closing(read) as loops:
            for batch, epoch in loops:
                if epoch.done:
                    epoch.go_on(epoch.done, position.open.loss, position.open.divisor)
                else:
                    position = position.after_loop()
                goes_on = self._train(batch, epoch, run, measured, position)
                position, last = position.at(epoch, self.steps, batch.part.whole), epoch.loss
                if not goes_on:
                    break
        if run.callbacks.watch_batches and run.called != self.steps:
            run.callbacks.batch_end(self.steps, last)
        with self._turn:
            self._position = None
            self._epochs += 1
        loss, divisor = self._mean(position.done), position.done.divisor
        if not math.isfinite(loss) and ranks.is_first and all(math.isfinite(e.loss) for e in run.history):
            _warn_of(self._epochs, loss, divisor)
        if measured is not None and ranks.size > 1:
            measured.join(ranks.exchange(measured.found))
        found = {"loss": loss, **(measured.results() if measured is not None else {})}
        if run.validation is not None:
            evaluation = self._evaluate(run.validation, self._validation_size(run), run.metrics)
            found |= {f"{VALIDATION}loss": evaluation.loss}
            found |= {f"{VALIDATION}{name}": value for name, value in evaluation.metrics.items()}
        if "lr" in self._interface.record.run_time:
            found["lr"] = float(self.hyperparameters["lr"])
        record = EpochRecord(self._epochs, found, time.perf_counter() - started)
        for history in (run.history, self._history):
            history.epochs.append(record)
        run.callbacks.epoch_end(record)
        run.progress.epoch(record)
        if run.times_ranks:
            run.progress.ranks(self.rank_times())

    def rank_times(self) -> RankTimes:
        """How long the steps of ``fit`` have taken on each rank so far, without waiting for the others, and which rank
        is the slowest. All ranks call it. ``fit(…, verbose=2)`` shows it after each epoch.

        >>> trainer.rank_times().slowest

        Returns:
            the times.
        """
        several = self._placement.ranks.exchange((self._clock.seconds, self._clock.steps))
        return RankTimes(tuple(seconds / max(1, steps) for seconds, steps in several), several[0][1])

    def _check_frozen(self) -> None:
        """Warn of parameters of the module that were frozen, or are no longer, since the step was compiled."""
        frozen = self.mod.attrs.get("frozen", ())
        parameters = () if self.model is None else self.model.named_parameters()
        changed = [name for name, p in parameters if p.requires_grad == (name in frozen)]
        if changed:
            was = f"{changed[0]} is {'frozen' if changed[0] in frozen else 'trained'}"
            message = (
                f"requires_grad of {', '.join(changed)} was changed after the trainer was made, in which {was};"
                " another trainer of the module goes on from here: pullback.trainer(net, …)"
            )
            warnings.warn(message, UserWarning, stacklevel=4)  # the call of fit, which words.py wraps

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

    def _validation_size(self, run: _Run) -> int:
        """The batches of validation rows are as large as those trained on, where both are ours to cut."""
        return run.size if run.size and isinstance(run.validation, DataSet) else self._batch_size(None, run.validation)

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        batch_size: int | None = None,
        *,
        sample_weight: Any = None,
        steps: int | None = None,
        metrics: Any = None,
        averaged: bool = False,
        cast: bool = True,
    ) -> Evaluation:
        """The mean loss over all rows, and the accuracy when the loss has classes; nothing is updated.

        The mean is that of :meth:`fit`: the loss of all rows in one batch, NaN where none counts. The accuracy is the
        share of rows (pixels, tokens, …) whose largest prediction is at the right class; ignored targets do not count.
        Of binary losses, it is the share of right zeros and ones.

        Args:
            x: inputs, as :meth:`fit` takes them.
            y: targets, as :meth:`fit` takes them.
            batch_size: rows at a time; by default the model's own.
            sample_weight: what each row's loss weighs, (rows,); it is for the loss alone.
            steps: how many batches are read, if not all.
            metrics: others than loss and accuracy, which ``found["f1"]`` reads: names, and functions ``f(y_true,
                y_pred)``, which are called once, with all rows (``pullback.training.metrics``).
            averaged: whether the averages of the parameters are taken, which the optimizer ``EMA`` keeps.
            cast: whether values of another dtype are rounded; False: they have to be the same number.

        Returns:
            loss, metrics and the number of rows.

        Examples:
            >>> found = trainer.evaluate(x, y, metrics=["f1"])
            >>> found.count, 0.0 <= found["f1"] <= 1.0
            (64, True)
        """
        check_count("batch_size", batch_size)
        if not isinstance(averaged, (bool, np.bool_)):
            raise ArgumentError(f"averaged must be True or False, got {averaged!r}")
        measured = Metrics.of(metrics, self._interface)
        check_count("steps", steps)
        data = self._source(x, y, sample_weight, cast=cast, steps=steps)
        self._values.check_complete(self._interface)
        return self._evaluate(data, self._batch_size(batch_size, data), measured, averaged)

    def lr_find(
        self,
        x: Any,
        y: Any = None,
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

        Args:
            x: inputs, as :meth:`fit` takes them.
            y: targets, as :meth:`fit` takes them.
            start: the first rate.
            end: the last rate.
            steps: how many steps.
            batch_size: rows at a time; by default the model's own.

        Returns:
            the curve: ``.suggestion``, ``.lrs``, ``.losses``, ``.plot()``.

        Raises:
            UserError: when the optimizer has no ``lr``, and when the trainer, as the copy of another, does not hold
                what it was made from and its ``lr`` is no ``RunTime``.
        """
        check_count("batch_size", batch_size)
        if gives_arrays(x, y):
            self._source(x, y)  # an error comes before anything is compiled
        self._values.check_complete(self._interface)
        return lr_curve(self, x, y, start, end, steps, batch_size)

    def _steps_one_by_one(
        self, x: Any, y: Any, batch_size: int | None, before: Callable[[int], None]
    ) -> Iterator[float]:
        """The losses of steps, without an end; ``before`` is called with the number of each, from 0 on."""
        data = self._source(x, y)
        size = self._batch_size(batch_size, data)
        size = size if data.rows is None else min(size, data.rows)
        numbers = itertools.count()
        while True:
            order = None if data.rows is None else self._generator.permutation(data.rows)
            with contextlib.closing(data.epochs(size, order, drop_last=True)) as loops:
                for batch, epoch in loops:
                    program = self._program(data, batch.rows, batch.part.whole)
                    while epoch.left:
                        before(next(numbers))
                        self._steps(program, batch, epoch, None, 0.0)
                        yield epoch.loss

    def _prepare(self, run: _Run) -> None:
        """Compile for all sizes of batches before the first step: what cannot be compiled fails early."""
        for batch in run.data.samples(run.size, run.drop_last):
            program = self._program(run.data, batch.rows, batch.part.whole)
            try:
                step = program.observed_step if run.of_steps else program.step
                step.bind(batch.inputs, batch.targets, self._values)
            except UserError as error:
                if run.data.rows is None or batch.part.whole == run.size:
                    raise
                raise _of_the_last_batch(error, batch.part.whole, run.data.rows, run.size) from error
        for batch in run.validation.samples(self._validation_size(run)) if run.validation is not None else ():
            program = self._program(run.validation, batch.rows)
            if not self._placement.has_pieces:
                program.evaluate.bind(batch.inputs, batch.targets, self._values)

    def _train(self, batch: Batch, epoch: Epoch, run: _Run, measured: Running | None, position: Position) -> bool:
        """Train on all batches of a loop, at whose beginning the position is, unless somebody stops the training: then
        it returns False."""
        while epoch.left:
            # another program where others are trained from here on
            program = self._program(run.data, batch.rows, batch.part.whole)
            done = epoch.done
            epoch.stop_after(run.callbacks.steps_left(self.steps))
            if run.detect_nan:
                self._watched_step(run.data, program, batch, epoch, measured, position)
            else:
                self._steps(program, batch, epoch, measured, run.pace.seconds, position)
            run.progress.advance((epoch.done - done) * batch.part.whole, epoch.loss)
            looks_up = run.pace.looks_up()
            if run.callbacks.watch_batches and (looks_up or not run.callbacks.decide_within):
                self._batch_end(run, epoch.loss)
            looks_up |= run.callbacks.after_steps(self.steps, epoch.loss)
            if looks_up and self.stop_training:
                return False
        return True

    def _batch_end(self, run: _Run, loss: float) -> None:
        """Callbacks within the epoch, about as often as the native loop comes back."""
        now = time.perf_counter()
        if now >= run.next_call or (run.pace.together and run.callbacks.decide_within):
            run.next_call, run.called = now + 0.8 * SLICE_SECONDS, self.steps
            run.callbacks.batch_end(run.called, loss)

    def _mean(self, sums: Sums) -> float:
        """The loss of all batches: NaN where nothing counts."""
        is_mean = (DIVISOR_VALUE, 0) in self._interface.convention[EVALUATE].returns  # or else it adds up
        divisor = sums.divisor if is_mean else sums.rows
        return sums.loss / divisor if divisor else math.nan

    def _steps(
        self, program: Program, batch: Batch, epoch: Epoch, measured: Running | None, seconds: float,
        position: Position | None = None,
    ) -> None:  # fmt: skip
        """Train on the batches that are left of an epoch, for about so long, and on one at least; on one where its
        predictions are measured. On none where the program is no longer that of the parameters that are trained.
        ``position``: that at which the loop began; the trainer's is kept up to date."""
        with self._turn:
            if not self._fits(program):
                return
            self._values = self._values.unpinned()
            ranks, done = self._placement.ranks, epoch.done
            begun = time.perf_counter() - ranks.waited()
            try:
                if measured is None:
                    program.step.bind(batch.inputs, batch.targets, self._values).repeat(epoch, seconds)
                else:
                    self._measured_step(program, batch, epoch, measured)
            except ArgumentError as error:
                step = int(self._values.optimizer_states[0].item()) + 1  # a failed step changes nothing
                told = _of_a_label(batch, self._interface) or error
                ranks.fail(f"step {step}: {told.message}")  # the others wait for this one's gradients
                raise ArgumentError(f"step {step}: {told.message}", span=told.span, hint=told.hint) from None
            except DTypeError as error:  # what was read does not fit
                ranks.fail(error.message)
                raise
            finally:
                if position is not None:
                    self._position = position.at(epoch, self.steps, batch.part.whole)
            self._clock.add(time.perf_counter() - ranks.waited() - begun, epoch.done - done)

    def _measured_step(self, program: Program, batch: Batch, epoch: Epoch, measured: Running) -> None:
        epoch.gather()
        step = program.observed_step
        results = step(batch.inputs, batch.targets, self._values)
        found = dict(zip(step.returns, results, strict=True))
        epoch.count(float(found[LOSS_VALUE, 0].item()), _divisor(found))
        measured.update(batch.targets, found[OUTPUT, 0], batch.part.counts)

    def _watched_step(
        self, data: Source, program: Program, batch: Batch, epoch: Epoch, measured: Running | None, position: Position
    ) -> None:
        """One step, which is undone when its loss is not finite; the error says which op is to blame."""
        with self._turn:
            before, place = self._values.copy(), self._position
            self._steps(program, batch, epoch, measured, 0.0, position)
            if np.isfinite(epoch.loss_sum):
                return
            self._values, self._position = before, place
        whole = self._placement.whole(before, optimizer_states=False)
        check_finite(program, batch, whole, epoch.loss, partial(data.place, epoch), self._placement.ranks)

    def _evaluate(self, data: Source, size: int, metrics: Metrics, averaged: bool = False) -> Evaluation:
        total, divisor, rows, measured = 0.0, 0.0, 0, metrics.start()
        gathered = self._seen(averaged) if self._placement.has_pieces else None  # once for all batches
        used: set[BoundFunction] = set()
        ranks = self._placement.ranks
        with contextlib.closing(telling(ranks, data.batches(size))) as batches:
            for batch in batches:
                evaluate = self._program(data, batch.rows).evaluate
                with self._turn:
                    results = evaluate(batch.inputs, batch.targets, gathered or self._seen(averaged))
                used.add(evaluate)
                found = dict(zip(evaluate.returns, results, strict=True))
                own = _divisor(found) if batch.part.counts else 0.0
                rows += batch.rows if batch.part.counts else 0
                if own:  # a batch that counts nothing has no loss
                    total, divisor = total + found[LOSS_VALUE, 0].item() * own, divisor + own
                measured.update(batch.targets, found[OUTPUT, 0], batch.part.counts)
        if gathered is not None:
            for evaluate in used:
                evaluate.release()
        if ranks.size > 1:
            several = ranks.exchange((total, divisor, rows, measured.found))
            total, divisor = sum(own[0] for own in several), sum(own[1] for own in several)
            rows = sum(own[2] for own in several)
            measured.join([own[3] for own in several])
        return Evaluation(self._mean(Sums(total, divisor, rows=rows)), measured.results(), rows)

    def _state_of_training(self, data: Source, validation: Source | None, size: int) -> dict[str, str]:
        """What all ranks have alike when a training begins, by what it is called."""
        found = {"the size of batches": str(size), "the number of steps": str(self.steps), **data.identity()}
        found |= {"where the order of rows begins": str(self._generator.bit_generator.state["state"])}
        for what, value in ({} if validation is None else validation.identity()).items():
            found[f"{what}, in validation"] = value
        return found


def _of_a_label(batch: Batch, interface: Interface) -> ArgumentError | None:
    """What says which label of a batch is wrong, if one is."""
    try:
        check_labels(np.asarray(batch.targets[0]) if batch.targets else np.zeros(0), interface, batch.part.first)
    except ArgumentError as error:
        return error
    return None


def _divisor(found: dict[Value, Any]) -> float:
    """What the loss of a batch is divided by; 1 for one that adds up."""
    return float(found[DIVISOR_VALUE, 0].item()) if (DIVISOR_VALUE, 0) in found else 1.0


def _warn_of(epoch: int, loss: float, divisor: float) -> None:
    message = (
        f"no row of epoch {epoch} counts, so that its loss is {loss}: all targets are ignored, or all weights are 0"
        if not divisor
        else f"the loss of epoch {epoch} is {loss}; fit(…, detect_nan=True) stops before the first such step,"
        " keeps what was trained until then, and says which op is to blame"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=5)  # the call of fit, which words.py wraps


def _warn_of_metrics(epoch: int, batches: int) -> None:
    message = (
        f"epoch {epoch} goes on after {batches} batches: what train_metrics=True measures of it is that of the others"
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


def _check_divides(size: int, rows: int | None, distributed: Distributed | None) -> None:
    """Ranks take equally many rows of a batch, unless all rows are one, or batches come as they are."""
    shards = 1 if distributed is None else distributed.shards
    if distributed is None or size % shards == 0 or (rows is not None and rows <= size):
        return
    least = size - size % shards
    micro = f" of {distributed.micro_batches} micro-batches each" if distributed.micro_batches > 1 else ""
    raise ArgumentError(
        f"a batch of {size} rows cannot be divided among {distributed.ranks} ranks{micro}: batch_size is that of all"
        " ranks together",
        hint=f"batch_size={f'{least} or {least + shards}' if least else shards} can",
    )


def _check_drop_last(drop_last: Any, rows: int | None, size: int) -> None:
    if not isinstance(drop_last, (bool, np.bool_)):
        raise ArgumentError(f"drop_last must be True or False, got {drop_last!r}")
    if drop_last and rows is not None and rows < size:
        message = f"drop_last leaves no batch: there are {rows} rows, and batches have {size}"
        raise ArgumentError(message, hint="give a smaller batch_size, or leave drop_last out")
