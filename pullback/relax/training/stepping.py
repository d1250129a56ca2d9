"""Steps of a trainer on single batches, predictions, and profiles of both."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.ir.words import guided
from pullback.relax.convention import ADJOINT, STEP
from pullback.relax.training.data import Source, check_labels
from pullback.relax.training.feeding import Feeding, checked_cast
from pullback.relax.training.interface import Slot
from pullback.relax.training.program import Program
from pullback.relax.training.shares import ALONE, Part
from pullback.relax.training.step import Values
from pullback.relax.training.summary import show
from pullback.relax.training.values import as_tensor, for_each
from pullback.runtime.report import Report
from pullback.runtime.tensor import Tensor, tensor


@guided
class Stepping(Feeding):
    """The part of a trainer that runs batches."""

    _values: Values
    _seen: Callable[[bool], Values]
    _turn: threading.RLock
    _profiled: tuple[int | None, Report] | None = None  # of the last profiled step: its rows, the report

    def predict(
        self, *input_instances: Any, batch_size: int | None = None, averaged: bool = False, cast: bool = True
    ) -> Any:
        """The backbone's outputs for the inputs. Nothing is updated.

        Each input has the declared shape, but any number of rows, none too; each number of rows is compiled once. Other
        symbolic sizes take any value. Floats of another dtype are rounded to the declared one, unless ``cast`` is
        False; anything else is cast where that changes no value.

        Args:
            input_instances: the inputs, one by one, in one list, or in a dict by name; data as :meth:`fit` takes it
                does too.
            batch_size: rows at a time: two sizes are compiled at most, and outputs are joined. By default all rows are
                one batch, unless the inputs are larger than 256 MiB.
            averaged: whether the averages of the parameters are taken, which the optimizer ``EMA`` keeps.
            cast: whether floats are rounded to the declared type.

        Returns:
            a tensor, or a tuple of several, with a row for each row of the inputs.

        Examples:
            >>> trainer.predict(x[:5]).shape
            (5, 4)
        """
        given: Any = input_instances[0] if len(input_instances) == 1 else list(input_instances)
        self._values.check_complete(self._interface)
        source = self._predicted(given, batch_size, cast)
        if source is not None:
            return self._predict_batches(source, self._batch_size(batch_size, source), averaged)
        program, inputs = self._arguments(given, cast=cast)
        results = self._predict(program, inputs, averaged)
        return results[0] if len(results) == 1 else results

    def _predict(self, program: Program, inputs: Sequence[Tensor], averaged: bool) -> tuple[Tensor, ...]:
        with self._turn:
            return program.predict(inputs, self._seen(averaged))

    def _predict_batches(self, source: Source, size: int, averaged: bool) -> Any:
        """The outputs for all batches, joined."""
        found: list[tuple[Tensor, ...]] = []
        with contextlib.closing(source.batches(size)) as batches:
            for batch in batches:
                found.append(self._predict(self._programs.of(batch.rows), batch.inputs, averaged))
                for number, output in enumerate(found[-1]):
                    if output.shape[:1] != (batch.rows,):
                        raise ArgumentError(
                            f"output {number} has no row for each of a batch's {batch.rows} rows, but shape"
                            f" {output.shape}: outputs of several batches cannot be joined",
                            hint="predict all rows at once: leave batch_size out",
                        )
        results = tuple(tensor(np.concatenate([np.asarray(t) for t in column])) for column in zip(*found, strict=True))
        return results[0] if len(results) == 1 else results

    def update(self, input_instances: Any, targets: Any, *, cast: bool = True) -> Tensor:
        """Make one training step on a batch; returns the loss before the step, as a scalar tensor.

        Several inputs or targets are given as a list or as a dict by name, one alone may be by itself. Each has the
        declared shape, but any number of rows, at least one; each number of rows is compiled once. Other dtypes are
        cast as by :meth:`predict`. A failed step changes nothing.

        Args:
            input_instances: the inputs: arrays with one row for each example; several as a list, or a dict by name.
            targets: the targets, in the same form.
            cast: whether values of another dtype are rounded; False: they have to be the same number.

        Returns:
            the loss before the step, a scalar tensor.

        Examples:
            >>> loss = trainer.update(x, y)
            >>> loss.shape, trainer.steps
            ((), 1)
        """
        program, inputs, labels = self._arguments(input_instances, targets, cast=cast, shared=True)
        if inputs and 0 in inputs[0].shape[:1]:
            raise ArgumentError(
                f"{self._interface.inputs[0]} has 0 rows: a step needs at least one",
                hint="give a batch of one row or more",
            )
        self._values.check_complete(self._interface)
        try:
            with self._turn:
                if self._fits(program):
                    self._values = self._values.unpinned()
                    return program.step(inputs, labels, self._values)[0]
            return self.update(input_instances, targets, cast=cast)  # others are trained since a moment
        except ArgumentError as error:
            self._placement.ranks.fail(error.message)  # the others wait for this one's gradients
            labels = self._arguments(input_instances, targets, cast=cast)[2]  # those of the whole batch
            check_labels(np.asarray(labels[0]), self._interface)  # tells which label it was, if it was one
            raise

    update_params = update  # the older name

    def profile_adjoint(self, input_instances: Any, targets: Any) -> Report:
        """Run the adjoint function a few times under the profiler, print its table and return the report. Nothing is
        updated. Of several ranks each runs it on all rows.

        Args:
            input_instances: the inputs: arrays with one row for each example; several as a list, or a dict by name.
            targets: the targets, in the same form.

        Returns:
            the report: times of kernels, ``report.chrome_trace(path)``.
        """
        report, _ = self._profile(ADJOINT, self._seen(False), input_instances, targets)
        return show(report, self._placement.ranks.is_first)

    def profile_step(self, input_instances: Any, targets: Any) -> Report:
        """Run a whole training step a few times, on copies, under the profiler: prints and returns its report, the time
        of each kernel. :meth:`summary` shows the shares of the layers afterwards.

        Several ranks run it together on their rows of the batch. All get one report, which rank 0 prints: with the time
        of collectives in flight, how much of that was hidden behind kernels, and the slowest rank; ``report.ranks`` are
        those of each. The trace has all ranks.

        >>> report = trainer.profile_step(x[:64], y[:64])
        >>> report.chrome_trace("step.json")

        Args:
            input_instances: the inputs: arrays with one row for each example; several as a list, or a dict by name.
            targets: the targets, in the same form.

        Returns:
            the report: times of kernels, ``report.chrome_trace(path)``.
        """
        report, rows = self._profile(STEP, self._values.copy(), input_instances, targets)
        self._profiled = rows, report
        return show(report, self._placement.ranks.is_first)

    def _profile(self, name: str, values: Values, input_instances: Any, targets: Any) -> tuple[Report, int | None]:
        """The report of a function, and for how many rows it is."""
        is_step = name == STEP
        program, inputs, labels = self._arguments(input_instances, targets, shared=is_step)
        values.check_complete(self._interface)
        arguments = values.arguments(self._interface, name, inputs, labels)
        together = is_step and self._placement.ranks.size > 1
        report = program.training_vm.profile(name, *arguments, together=together)
        return report, inputs[0].shape[0] if inputs and inputs[0].shape else None

    def _arguments(self, inputs: Any, *targets: Any, cast: bool = True, shared: bool = False) -> tuple[Any, ...]:
        """The program for as many rows as the inputs have; then inputs and targets, if given, as lists of tensors of
        the declared types. ``shared``: of these rows, the program and the tensors of this rank's."""
        given = for_each(inputs, self._interface.inputs, "input")
        rows = self._interface.rows_of(given[0]) if given else None
        share = self._placement.share if shared else ALONE
        part = share.of(rows) if share.distributed is not None and isinstance(rows, int) else None
        program = self._programs.of(rows) if part is None else self._programs.of(part.rows, part.whole)
        interface = program.interface if part is None else self._programs.of(part.whole).interface
        sizes: dict[Any, Any] = {}
        exact = not checked_cast(cast)
        tensors = [as_tensor(v, s, sizes, exact) for v, s in zip(given, interface.inputs, strict=True)]
        if not targets:
            return program, tensors
        slots = interface.targets
        pairs = zip(for_each(targets[0], slots, "target"), slots, strict=True)
        labels = [as_tensor(v, s, sizes, exact) for v, s in pairs]
        if part is not None and part.rows < part.whole:
            tensors, labels = (self._cut(*of, part) for of in ((tensors, interface.inputs), (labels, slots)))
        return program, tensors, labels

    def _cut(self, tensors: Sequence[Tensor], slots: Sequence[Slot], part: Part) -> list[Tensor]:
        """This rank's rows of what has rows."""
        pairs = zip(tensors, slots, strict=True)
        return [tensor(np.asarray(t)[part.slice]) if self._interface.has_rows(s) else t for t, s in pairs]
