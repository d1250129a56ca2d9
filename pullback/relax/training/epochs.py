"""Epochs of a training: the steps of each, between which callbacks are called, its validation and its record."""

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

from pullback.ir.errors import ArgumentError, DTypeError, UserError
from pullback.ir.words import guided
from pullback.relax.convention import DIVISOR_VALUE, EVALUATE, LOSS_VALUE, OUTPUT, Value
from pullback.relax.training.callbacks.called import Callbacks
from pullback.relax.training.checkpoint_file import Record
from pullback.relax.training.data import Batch, DataSet, Source, check_labels
from pullback.relax.training.diagnose import check_finite
from pullback.relax.training.feeding import Feeding
from pullback.relax.training.history import VALIDATION, EpochRecord, Evaluation, History
from pullback.relax.training.interface import Interface
from pullback.relax.training.metrics import Metrics, Running
from pullback.relax.training.placement import Placement
from pullback.relax.training.position import Position, Sums
from pullback.relax.training.program import Program, Programs
from pullback.relax.training.progress import Progress
from pullback.relax.training.step import BoundFunction, Values
from pullback.relax.training.together import Pace, telling
from pullback.runtime.epoch import Epoch
from pullback.runtime.rank_times import RankTimes, StepClock
from pullback.runtime.ranks import Ranks

SLICE_SECONDS = 0.05  # how long steps may run before Python looks after signals, other threads and the progress bar


@dataclass
class Run:
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


def pace_of(ranks: Ranks, callbacks: Callbacks) -> Pace:
    """When the steps of a fit stop for Python."""
    return Pace(ranks, callbacks.decide_within, SLICE_SECONDS)


@guided
class Epochs(Feeding):
    """The part of a trainer that goes through epochs: steps, validation, records, callbacks."""

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
    seed: Callable[[int], None]
    stop_training = False  # set by callbacks: fit ends after the slice of steps, or the epoch, that runs

    if TYPE_CHECKING:

        @property
        def hyperparameters(self) -> Mapping[str, Any]: ...

        @property
        def steps(self) -> int: ...

    def _go_through(self, run: Run, epochs: int, seed: int | None, file: str | None, resumes: bool) -> None:
        """Compile, load what the run goes on from, and train: ``epochs`` times, or until there are so many in all."""
        history, called = run.history, run.callbacks
        with run.progress.compiling():
            self._prepare(run)
        position = None if file is None else self._resumed(file, run)
        if seed is not None and file is None:
            self.seed(seed)
        left = epochs - self._epochs if resumes else epochs
        if left <= 0:  # what was to be done has been done
            return
        self.stop_training = False
        called.train_begin()
        run.progress.begin(left, run.data.count(run.size, run.drop_last))
        try:
            for _ in range(left):
                self._epoch(run, position)
                position = None
                if self.stop_training:
                    break
            called.train_end(history[-1].metrics)
            run.progress.ended(history.note)
        except KeyboardInterrupt:
            self._placement.ranks.fail("KeyboardInterrupt")  # the others may wait for this one within a step
            raise
        finally:
            self._history.best_epoch = history.best_epoch or self._history.best_epoch
            if history.stopped_epoch is not None:
                self._history.stopped_epoch = history.stopped_epoch
                self._history.stopped_because = history.stopped_because

    def _resumed(self, file: str, run: Run) -> Position | None:
        """Load what the run goes on from; returns where in an epoch that is, if it is in one."""
        found: list[Position | None] = []

        def check(record: Record) -> None:
            found.append(Position.of(record))
            if found[-1] is not None:
                found[-1].check(file, run.settings)

        self._load(file, check=check)
        run.data.pass_over(self._epochs)
        return found[-1]

    def _order(self, run: Run, position: Position | None) -> np.ndarray | None:
        """The order of rows of an epoch; None where they come as they are."""
        if not run.shuffle or run.data.rows is None:
            return None
        return self._generator.permutation(run.data.rows) if position is None else position.order(run.data.rows)

    def _epoch(self, run: Run, position: Position | None = None) -> None:
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

    def _prepare(self, run: Run) -> None:
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

    def _train(self, batch: Batch, epoch: Epoch, run: Run, measured: Running | None, position: Position) -> bool:
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

    def _batch_end(self, run: Run, loss: float) -> None:
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

    def _validation_size(self, run: Run) -> int:
        """The batches of validation rows are as large as those trained on, where both are ours to cut."""
        return run.size if run.size and isinstance(run.validation, DataSet) else self._batch_size(None, run.validation)


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
    warnings.warn(message, RuntimeWarning, stacklevel=6)  # the call of fit, which words.py wraps


def _warn_of_metrics(epoch: int, batches: int) -> None:
    message = (
        f"epoch {epoch} goes on after {batches} batches: what train_metrics=True measures of it is that of the others"
    )
    warnings.warn(message, RuntimeWarning, stacklevel=6)  # the call of fit, which words.py wraps


def _of_the_last_batch(error: UserError, left: int, rows: int, size: int) -> UserError:
    """The error, saying that it is the rows left at the end of an epoch that the model cannot be trained on."""
    batch = f"the last batch of an epoch has {left} row{'' if left == 1 else 's'} ({rows} rows in batches of {size})"
    hints = ["fit(…, drop_last=True) leaves that batch out", *([error.hint] if error.hint else [])]
    other = next((s for s in range(size - 1, 1, -1) if rows % s != 1), None)
    if left == 1 and other:
        hints.insert(1, f"with batch_size={other} the last one has {rows % other or other}")
    return type(error)(f"{batch}: {error.message}", span=error.span, hint="; ".join(hints))
