"""Data sets in memory: checked once, then gathered batch by batch into buffers that are reused."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.relax.advice import shape_advice
from pullback.relax.matching import match_info
from pullback.relax.struct_info import TensorStructInfo, format_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.loss import class_axis
from pullback.relax.training.shares import ALONE, Part, Share
from pullback.relax.training.values import as_array, as_tensor, is_exact
from pullback.runtime.epoch import Column, Epoch, always_fits
from pullback.runtime.tensor import Tensor

_COMPARED_ROWS = 64
_CHECKED_BYTES = 1 << 20  # how much of an array is converted at a time, to see whether it can be


@dataclass(frozen=True)
class Batch:
    """Tensors of one batch, or of a rank's part of it; the next batch of the same size overwrites them."""

    inputs: list[Tensor]
    targets: list[Tensor]
    part: Part

    @property
    def rows(self) -> int:
        """How many rows the tensors have."""
        return self.part.rows


class Source(ABC):
    """What ``fit``, ``evaluate`` and ``predict`` read: inputs and targets, batch by batch.

    ``rows``: how many there are, or None where that is not known beforehand. ``steps``: how many batches an epoch has,
    where somebody said so. ``weighted``: whether each row has a weight, which is the last of the targets then.
    ``share``: what is read of each batch, where several ranks compute it: sizes and orders are those of whole batches.
    """

    share: Share = ALONE
    interface: Interface
    rows: int | None
    steps: int | None
    weighted: bool

    @abstractmethod
    def epochs(
        self, size: int, order: np.ndarray | None = None, drop_last: bool = False, skip: int = 0
    ) -> Generator[tuple[Batch, Epoch], None, None]:
        """One pass: loops over batches that share the tensors of one, ``size`` rows at a time where that is ours to
        say, then what is left unless ``drop_last``. Rows come in the given order, else as they are. ``skip``: how many
        batches have been done before; a loop in the middle of which that is begins with some that are done."""

    @abstractmethod
    def samples(self, size: int, drop_last: bool = False) -> Iterator[Batch]:
        """A batch of each number of rows that is known beforehand; nothing is read for good."""

    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What is the same wherever the same data is read, by what it is called: for ranks that compare."""

    def pass_over(self, epochs: int) -> None:  # noqa: B027  of arrays each epoch is the same
        """Begin where a source is that so many epochs were read of."""

    def count(self, size: int, drop_last: bool = False) -> int | None:
        """How many rows a pass has; None where that is not known."""
        return None if self.rows is None else sum(n * k for _, n, k in parts(self.rows, size, drop_last, self.steps))

    def batches(self, size: int) -> Generator[Batch, None, None]:
        """All rows as they are, ``size`` at a time where that is ours to say, the last batch with what is left."""
        with contextlib.closing(self.epochs(size)) as loops:
            for batch, epoch in loops:
                while epoch.left:
                    epoch.gather()
                    yield batch
                    epoch.count(0.0)

    def place(self, epoch: Epoch, row: int) -> str:
        """Where a row of the batch that was done last comes from, for messages."""
        return f"row {epoch.row(row)}"


class DataSet(Source):
    """Arrays: every one has one row for each example; shared targets are given once.

    ``values``: one for each input and target of the interface. Arrays of another dtype are cast batch by batch: floats
    are rounded unless ``exact``, all else has to keep its value. Raises ArgumentError, ShapeError or DTypeError at once
    when lengths, shapes, dtypes or class labels are wrong; what a memory map holds, and floats that are to be rounded,
    is seen when it is read. ``steps``: how many batches an epoch takes, if not all.
    """

    def __init__(
        self, values: Sequence[Any], interface: Interface, exact: bool = True, steps: int | None = None
    ) -> None:
        self.interface, self.weighted, self.steps = interface, False, steps
        self._slots = (*interface.inputs, *interface.targets)
        arrays = [as_array(value, slot) for value, slot in zip(values, self._slots, strict=True)]
        self._exact = [is_exact(v, a, s, exact) for v, a, s in zip(values, arrays, self._slots, strict=True)]
        check_rows(arrays, interface)
        self._arrays = [
            array if interface.has_rows(slot) else np.asarray(as_tensor(array, slot, exact=each))
            for array, slot, each in zip(arrays, self._slots, self._exact, strict=True)
        ]
        self.rows: int = next(len(a) for a, s in zip(self._arrays, self._slots, strict=True) if interface.has_rows(s))
        if self.rows == 0:
            raise ArgumentError(
                "the data set is empty: it has 0 rows", hint="give at least one row; was a filter too strict?"
            )
        for array, slot, each in zip(self._arrays, self._slots, self._exact, strict=True):
            if interface.has_rows(slot) and not _is_mapped(array):
                _check_values(array, slot, each)
        if interface.targets:
            check_labels(self.labels, interface)
        self._buffers: dict[int, tuple[Batch, list[Column]]] = {}

    @property
    def labels(self) -> np.ndarray:
        """The first target."""
        return self._arrays[len(self.interface.inputs)]

    @property
    def weights(self) -> np.ndarray | None:
        """The weights of the rows, where they have some."""
        return self._arrays[-1] if self.weighted else None

    def part(self, first: int, last: int) -> DataSet:
        """The rows from ``first`` to before ``last``."""
        arrays = [a[first:last] if self.interface.has_rows(s) else a
                  for a, s in zip(self._arrays, self._slots, strict=True)]  # fmt: skip
        return self._with(arrays, self._exact, last - first)

    def weighed(self, weights: np.ndarray, interface: Interface) -> DataSet:
        """The same with weights of the rows in place of those that they have, for an interface with these."""
        count = len(self._arrays) - self.weighted
        result = self._with([*self._arrays[:count], weights], [*self._exact[:count], False], self.rows)
        result.interface, result.weighted = interface, True
        result._slots = (*interface.inputs, *interface.targets)
        return result

    def _with(self, arrays: list[np.ndarray], exact: list[bool], rows: int) -> DataSet:
        result = copy.copy(self)
        result._arrays, result._exact, result.rows, result._buffers = arrays, exact, rows, {}
        return result

    def epochs(
        self, size: int, order: np.ndarray | None = None, drop_last: bool = False, skip: int = 0
    ) -> Generator[tuple[Batch, Epoch], None, None]:
        for first, rows, batches in parts(self.rows, size, drop_last, self.steps):
            done = min(skip, batches)
            skip -= done
            if done < batches:
                batch, columns = self._buffer(rows)
                epoch = Epoch(columns, *self.share.order(order, first, rows, batches), batch.rows, batches)
                epoch.go_on(done, 0.0, 0.0)
                yield batch, epoch

    def samples(self, size: int, drop_last: bool = False) -> Iterator[Batch]:
        for _, rows, _ in parts(self.rows, size, drop_last, self.steps):
            yield self._buffer(rows)[0]

    def identity(self) -> dict[str, str]:
        """Some rows stand for all of them."""
        some = np.unique(np.linspace(0, self.rows - 1, _COMPARED_ROWS).astype(np.int64))
        return {"the data set's rows": str(self.rows)} | {
            str(slot): described(np.asarray(array[some]) if self.interface.has_rows(slot) else array)
            for array, slot in zip(self._arrays, self._slots, strict=True)
        }

    def _buffer(self, rows: int) -> tuple[Batch, list[Column]]:
        """The tensors for batches of ``rows`` rows, of which this rank's part is read, and how to gather it."""
        if rows not in self._buffers:
            part = self.share.of(rows)
            tensors: list[Tensor] = []
            columns: list[Column] = []
            for array, slot, exact in zip(self._arrays, self._slots, self._exact, strict=True):
                if self.interface.has_rows(slot):
                    tensors.append(Tensor((part.rows, *array.shape[1:]), slot.info.dtype))
                    columns.append(Column(array, tensors[-1], exact, str(slot)))
                else:
                    tensors.append(as_tensor(array, slot))
            count = len(self.interface.inputs)
            self._buffers[rows] = Batch(tensors[:count], tensors[count:], part), columns
        return self._buffers[rows]


def in_batches(rows: int, size: int, drop_last: bool) -> tuple[int, int]:
    """How many whole batches of ``size`` there are in so many rows, and how many rows a last, smaller one has: 0 where
    none are left, or where it is dropped."""
    whole, rest = divmod(rows, size)
    return whole, 0 if drop_last else rest


def parts(rows: int, size: int, drop_last: bool, steps: int | None) -> list[tuple[int, int, int]]:
    """``rows`` rows in batches of ``size``, then what is left: of both, where there are some, the first row of all, how
    many rows a batch has, and how many batches there are. ``steps``: how many are taken, if not all."""
    whole, rest = in_batches(rows, size, drop_last)
    if steps is not None:
        if steps > whole + bool(rest):
            raise ArgumentError(
                f"steps_per_epoch is {steps}, but {rows} rows in batches of {size} are {whole + bool(rest)}",
                hint="leave steps_per_epoch out to take all of them in each epoch",
            )
        whole, rest = min(whole, steps), rest if steps > whole else 0
    found = [(0, size, whole), (whole * size, rest, 1)]
    return [(first, count, batches) for first, count, batches in found if count and batches]


def described(array: np.ndarray) -> str:
    """Dtype, shape of a row, and a digest of the values: ``float32 (784,) 9c1185a5``."""
    values = np.ascontiguousarray(array)
    digest = hashlib.sha256(values.view(np.uint8).data if values.size else b"").hexdigest()[:8]
    return f"{array.dtype} {array.shape[1:]} {digest}"


def _is_mapped(array: Any) -> bool:
    """Whether an array lies in a file."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def _check_values(array: np.ndarray, slot: Slot, exact: bool) -> None:
    """Raise a DTypeError that names the first value that the slot's dtype does not hold. That of a float too large to
    be rounded is left to whoever reads it: it is rare, and looking at all takes as long as reading it."""
    is_rounded = not exact and array.dtype.kind not in "iub" and slot.numpy_dtype.kind not in "iub"
    if is_rounded or always_fits(array.dtype, slot.numpy_dtype):
        return
    row = max(1, math.prod(array.shape[1:]) * slot.numpy_dtype.itemsize)
    count = min(len(array), max(1, _CHECKED_BYTES // row))
    column = Column(array, Tensor((count, *array.shape[1:]), slot.info.dtype), exact, str(slot))
    for first in range(0, len(array), count):
        column.copy(first, min(count, len(array) - first))


def check_rows(arrays: Sequence[np.ndarray], interface: Interface) -> None:
    """Raise an error unless arrays for all inputs and targets have the declared shapes, and equally many rows."""
    slots = (*interface.inputs, *interface.targets)
    if not isinstance(interface.batch, int) and interface.batch is None:
        raise UserError("the model's first input has no batch dimension", hint="train it with update(…)")
    sizes: dict[Any, Any] = {}
    for array, slot in zip(arrays, slots, strict=True):
        if interface.has_rows(slot) and not _fits(array, slot, sizes):
            wanted = ("rows", *slot.info.sizes[1:])
            hint = shape_advice(wanted, array.shape, slot.info.dtype)
            if len(interface.inputs) == 1 and _are_exchanged(arrays, slots):
                hint = "were x and y exchanged? Each has the other's shape: inputs come first, then targets"
            message = f"{slot} must have shape {format_shape(wanted)}, got {format_shape(array.shape)}"
            raise ShapeError(message, hint=hint)
    lengths = {slot.name: len(a) for a, slot in zip(arrays, slots, strict=True) if interface.has_rows(slot)}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} has {rows}" for name, rows in lengths.items())
        raise ArgumentError(
            f"inputs and targets must have the same number of rows: {listed}",
            hint="row i of the targets belongs to row i of the inputs: were x and y cut differently, or exchanged?",
        )


def _fits(array: np.ndarray, slot: Slot, sizes: dict[Any, Any]) -> bool:
    """Whether an array has rows of the declared shape."""
    if array.ndim == 0:
        return False
    wanted = slot.info.sizes[1:]
    if array.shape[1:] == wanted:
        return True
    declared, given = TensorStructInfo(wanted, slot.info.dtype), TensorStructInfo(array.shape[1:], slot.info.dtype)
    return match_info(declared, given, sizes)


def _are_exchanged(arrays: Sequence[np.ndarray], slots: Sequence[Slot]) -> bool:
    """Whether the first input would do for the first target and the other way round."""
    return len(slots) > 1 and _fits(arrays[0], slots[1], {}) and _fits(arrays[1], slots[0], {})


def has_labels(interface: Interface) -> bool:
    """Whether the first target holds class labels (not probabilities)."""
    return interface.targets[0].info.ndim == interface.prediction.ndim - 1


def check_labels(labels: np.ndarray, interface: Interface, first: int = 0) -> None:
    """Raise an ArgumentError unless class labels lie between 0 and the number of classes, or are the ignored one.
    ``first``: the number of their first row, for the message."""
    record, prediction = interface.record, interface.prediction
    if not record.classification or prediction.shape is None or not has_labels(interface):
        return
    classes = prediction.shape[class_axis(prediction.ndim)]
    if not isinstance(classes, int):
        return
    wrong = (labels < 0) | (labels >= classes)
    if record.ignore_index is not None:
        wrong &= labels != record.ignore_index
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        shown = (place[0] + first, *place[1:]) if place else ()
        where = f" at index {shown}" if shown else ""
        raise ArgumentError(
            f"{interface.targets[0]} must hold classes from 0 to {classes - 1}, got {labels[place]}{where}",
            hint=_hint_for(labels[wrong], classes),
        )


def _hint_for(wrong: np.ndarray, classes: int) -> str:
    """How to mend class labels that are out of range."""
    if wrong.min() < 0:
        return "count classes from 0; a loss with ignore_index=-1, say, leaves rows with that label out"
    if wrong.max() == classes:
        return f"count classes from 0, or give the last layer {classes + 1} outputs"
    return f"the last layer has {classes} outputs: give it one for each class, or number the classes without gaps"
