"""What a trainer reads, and the programs that it runs on that: with weights of rows, those of a module of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, UserError
from pullback.ir.module import IRModule
from pullback.relax.training.data import Source
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.placement import Placement
from pullback.relax.training.program import Machine, Program, Programs
from pullback.relax.training.setup_trainer import SetupTrainer
from pullback.relax.training.sources import Reading, gives_arrays
from pullback.relax.training.streams import Batches
from pullback.relax.training.values import for_each
from pullback.relax.training.weights import weighted_setup

_ONE_GO = 1 << 28  # inputs of up to so many bytes are predicted as one batch, unless somebody says otherwise


class Feeding:
    """The part of a trainer that finds its data."""

    _interface: Interface
    _programs: Programs
    _setup: tuple[IRModule, SetupTrainer] | None
    _load_module: Machine
    _placement: Placement
    _weighted: Programs | None = None  # of the module with weights, once somebody gives some

    def _source(
        self, x: Any, y: Any = None, sample_weight: Any = None, *, cast: bool = True, steps: int | None = None,
        epochs: int = 1,
    ) -> Source:  # fmt: skip
        """What ``evaluate`` reads."""
        return self._reading(cast, steps=steps, epochs=epochs).source(x, y, sample_weight)

    def _sources(
        self, x: Any, y: Any, sample_weight: Any, validation: Any, validation_split: float, *, class_weight: Any,
        cast: bool, steps: int | None, epochs: int,
    ) -> tuple[Source, Source | None]:  # fmt: skip
        """What ``fit`` trains on, and what it evaluates."""
        split = _checked_split(validation_split)
        reading = self._reading(cast, class_weight=class_weight, steps=steps, epochs=epochs)
        if not split:
            data = reading.source(x, y, sample_weight)
            return data, None if validation is None else self._validation(validation, cast, epochs)
        if validation is not None:
            raise ArgumentError(
                "there are both validation and validation_split",
                hint="validation_split takes the last part of x and y; leave one of them out",
            )
        if not gives_arrays(x, y):
            raise ArgumentError(
                f"validation_split is for arrays, but x is a {type(x).__name__}, which is read batch by batch",
                hint="split the data beforehand, and give validation=",
            )
        data = reading.arrays(x, y, sample_weight)
        first = math.floor(data.rows * (1.0 - split))  # as Keras does
        if not 0 < first < data.rows:
            parts = f"{first} rows to train on and {data.rows - first} to validate"
            raise ArgumentError(
                f"validation_split={split} of {data.rows} rows leaves {parts}",
                hint="give a smaller fraction, or more rows",
            )
        evaluated = data.part(first, data.rows)
        evaluated.steps = None
        return reading.by_class(data.part(0, first)), evaluated

    def _predicted(self, given: Any, batch_size: int | None, cast: bool) -> Source | None:
        """What ``predict`` reads batch by batch; None where the inputs are one batch."""
        check_count("batch_size", batch_size)
        interface, count = self._interface, len(self._interface.inputs)
        reading = Reading(interface, lambda: interface, not checked_cast(cast), targets=False)
        is_several = isinstance(given, (tuple, list)) and len(given) == count > 1
        if not is_several and not gives_arrays(given, None):
            return reading.source(given)
        values = for_each(given, interface.inputs, "input")
        if not values or not all(map(interface.has_rows, interface.inputs)):
            if batch_size is not None:
                raise ArgumentError("not all inputs have rows, which batch_size divides", hint="leave it out")
            return None
        rows = interface.rows_of(values[0])
        if not isinstance(rows, int):
            return None  # it does not fit: who predicts says so
        if batch_size is None:
            row_bytes = sum(_row_bytes(slot) for slot in interface.inputs)
            if rows * row_bytes <= _ONE_GO:
                return None
        return None if rows <= (batch_size or 0) else reading.arrays(given, None, None)

    def _validation(self, given: Any, cast: bool, epochs: int) -> Source:
        """What ``fit`` evaluates after each epoch."""
        is_batches = isinstance(given, list) and all(isinstance(v, (tuple, dict)) for v in given)
        if isinstance(given, (tuple, list)) and not is_batches:
            if len(given) in (2, 3):
                return self._source(*given, cast=cast)
        elif not gives_arrays(given, None) or isinstance(given, dict):
            return self._source(given, cast=cast, epochs=epochs)
        raise ArgumentError(
            f"validation must be a pair (inputs, targets), or what gives both, got {type(given).__name__}",
            hint="write validation=(x_test, y_test), or (x_test, y_test, weights)",
        )

    def _reading(self, cast: bool, **options: Any) -> Reading:
        checked_cast(cast)
        if not self._interface.record.reduction:
            raise UserError(
                "this trainer module does not tell how its loss reduces, so that no mean over batches can be taken",
                hint="such a module was not made by SetupTrainer: set it up, or use update(…)",
            )
        share = self._placement.share
        return Reading(self._interface, lambda: self._with_weights().interface, not cast, share=share, **options)

    def _batch_size(self, asked: int | None, source: Source) -> int:
        """The batch size asked for, else the model's own, else all rows up to 64; 0 of what comes in batches."""
        if isinstance(source, Batches):
            if asked is not None:
                raise ArgumentError(
                    "batch_size is for arrays, but the data comes in batches", hint="leave it out: they are taken as is"
                )
            return 0
        if asked is not None:
            return asked
        batch = self._interface.batch
        return batch if isinstance(batch, int) else min(64, source.rows or 1)

    def _program(self, source: Source, rows: int, whole: int | None = None) -> Program:
        """The program for batches of so many rows of a source: of a step of several ranks, its part of ``whole``."""
        return (self._with_weights() if source.weighted else self._programs).of(rows, whole)

    def _fits(self, program: Program) -> bool:
        """Whether a program takes the trainer's values: others may have been chosen to be trained since it was made."""
        return program.interface.record.optimizer_states == self._interface.record.optimizer_states

    def _with_weights(self) -> Programs:
        """The programs of the module whose loss takes a weight for each row."""
        if self._weighted is None:
            if self._setup is None:
                raise UserError(
                    "rows cannot be weighted: the trainer does not know its loss, only the finished trainer module",
                    hint="make it with pullback.trainer(…); a copy knows it where weights were used",
                )
            model, setup = self._setup
            self._weighted = self._weighted_programs(weighted_setup(setup)(model))
        return self._weighted

    def _weighted_programs(self, module: IRModule) -> Programs:
        interface = Interface.of(module)
        if not interface.has_rows(interface.targets[-1]):
            raise UserError("rows cannot be weighted: the loss has no term for each row of the first input")
        kept = [(slot.kind, slot.name, slot.info) for slot in interface.kept]
        assert kept == [(slot.kind, slot.name, slot.info) for slot in self._interface.kept]
        return Programs(module, interface, None, self._load_module)


def check_count(name: str, number: int | None, may_be_none: bool = True) -> None:
    """Raise an ArgumentError unless it is a number of something."""
    if number is None and may_be_none:
        return
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{name} must be an int ≥ 1, got {number!r}", hint="give a whole number, 1 or more")


def checked_cast(cast: Any) -> bool:
    """Whether values may be rounded."""
    if not isinstance(cast, (bool, np.bool_)):
        raise ArgumentError(f"cast must be True or False, got {cast!r}")
    return bool(cast)


def _row_bytes(slot: Slot) -> int:
    """How large a row is, as far as that is known."""
    return math.prod(size for size in slot.info.sizes[1:] if isinstance(size, int)) * slot.numpy_dtype.itemsize


def _checked_split(fraction: Any) -> float:
    is_number = isinstance(fraction, (int, float, np.floating)) and not isinstance(fraction, bool)
    if not is_number or not 0 <= fraction < 1:
        raise ArgumentError(
            f"validation_split must be a fraction from 0 to below 1, got {fraction!r}",
            hint="0.2 keeps the last fifth of the rows for validation",
        )
    return float(fraction)
