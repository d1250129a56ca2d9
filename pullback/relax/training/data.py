"""Data sets in memory: checked once, then gathered batch by batch into buffers that are reused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.relax.advice import shape_advice
from pullback.relax.struct_info import format_shape
from pullback.relax.training.interface import Interface, Slot
from pullback.relax.training.loss import class_axis
from pullback.relax.training.values import as_array, as_tensor, is_one_for_each
from pullback.runtime.epoch import Column, Epoch
from pullback.runtime.tensor import Tensor


@dataclass(frozen=True)
class Batch:
    """Tensors of one batch; the next batch of the same size overwrites them."""

    inputs: list[Tensor]
    targets: list[Tensor]
    rows: int


class DataSet:
    """Inputs and targets of a model: every array has one row for each example; shared targets are given once.

    Arrays have the declared dtype, or are cast when that changes no value: batch by batch from a dtype all of whose
    values are exact in the declared one (uint8 → float32, say), else as a whole. Raises ArgumentError, ShapeError or
    DTypeError at once when lengths, shapes, dtypes or class labels are wrong.
    """

    def __init__(self, inputs: Any, targets: Any, interface: Interface) -> None:
        if not isinstance(interface.batch, int) and interface.batch is None:
            raise UserError("the model's first input has no batch dimension", hint="train it with update(…)")
        self._interface = interface
        self._slots = (*interface.inputs, *interface.targets)
        given = [*_several(inputs, interface.inputs, "input"), *_several(targets, interface.targets, "target")]
        self._arrays = [self._checked(value, slot) for value, slot in zip(given, self._slots, strict=True)]
        lengths = {s.name: len(a) for a, s in zip(self._arrays, self._slots, strict=True) if interface.has_rows(s)}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {rows}" for name, rows in lengths.items())
            raise ArgumentError(
                f"inputs and targets must have the same number of rows: {listed}",
                hint="row i of the targets belongs to row i of the inputs: were x and y cut differently, or exchanged?",
            )
        self.rows = next(iter(lengths.values()))
        if self.rows == 0:
            raise ArgumentError(
                "the data set is empty: it has 0 rows", hint="give at least one row; was a filter too strict?"
            )
        self._arrays = [np.require(array, requirements="CA") for array in self._arrays]
        if interface.targets:
            check_labels(self._arrays[len(interface.inputs)], interface)
        self._buffers: dict[int, tuple[Batch, list[Column]]] = {}

    def _checked(self, value: Any, slot: Slot) -> np.ndarray:
        if not self._interface.has_rows(slot):
            return np.asarray(as_tensor(value, slot))
        array = as_array(value, slot, gathered=True)
        wanted: tuple[Any, ...] = slot.info.sizes[1:]
        if array.ndim == 0 or array.shape[1:] != wanted:
            expected = format_shape(("rows", *wanted))
            message = f"{slot} must have shape {expected}, got {format_shape(array.shape)}"
            raise ShapeError(message, hint=shape_advice(("rows", *wanted), array.shape, slot.info.dtype))
        return array

    def epochs(
        self, size: int, order: np.ndarray | None = None, drop_last: bool = False
    ) -> Iterator[tuple[Batch, Epoch]]:
        """All rows, ``size`` at a time, then what is left unless ``drop_last``: each a loop over batches that share the
        tensors of one.

        Rows come in the given order, else as they are.
        """
        whole, rest = divmod(self.rows, size)
        for first, rows, batches in ((0, size, whole), (whole * size, 0 if drop_last else rest, 1)):
            if rows and batches:
                batch, columns = self._buffer(rows)
                yield batch, Epoch(columns, order, first, rows, batches)

    def batches(self, size: int) -> Iterator[Batch]:
        """All rows as they are, ``size`` at a time, the last batch with what is left."""
        for batch, epoch in self.epochs(size):
            while epoch.left:
                epoch.gather()
                yield batch
                epoch.count(0.0)

    def _buffer(self, rows: int) -> tuple[Batch, list[Column]]:
        """The batch whose tensors hold ``rows`` rows, and how to gather it."""
        if rows not in self._buffers:
            tensors: list[Tensor] = []
            columns: list[Column] = []
            for array, slot in zip(self._arrays, self._slots, strict=True):
                if self._interface.has_rows(slot):
                    tensors.append(Tensor((rows, *array.shape[1:]), slot.info.dtype))
                    columns.append(Column(array, tensors[-1]))
                else:
                    tensors.append(as_tensor(array, slot))
            count = len(self._interface.inputs)
            self._buffers[rows] = Batch(tensors[:count], tensors[count:], rows), columns
        return self._buffers[rows]


def _has_labels(interface: Interface) -> bool:
    """Whether the first target holds class labels (not probabilities)."""
    return interface.targets[0].info.ndim == interface.prediction.ndim - 1


def check_labels(labels: np.ndarray, interface: Interface) -> None:
    """Raise an ArgumentError unless class labels lie between 0 and the number of classes, or are the ignored one."""
    record, prediction = interface.record, interface.prediction
    if not record.classification or prediction.shape is None or not _has_labels(interface):
        return
    classes = prediction.shape[class_axis(prediction.ndim)]
    if not isinstance(classes, int):
        return
    wrong = (labels < 0) | (labels >= classes)
    if record.ignore_index is not None:
        wrong &= labels != record.ignore_index
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = f" at index {place}" if place else ""
        raise ArgumentError(
            f"{interface.targets[0]} must hold classes from 0 to {classes - 1}, got {labels[place]}{where}",
            hint="count classes from 0",
        )


def _several(values: Any, slots: Sequence[Slot], kind: str) -> list[Any]:
    """The arrays of several slots: a list or tuple of them, or the only one by itself."""
    if len(slots) == 1 and not is_one_for_each(values, slots):
        return [values]
    if not is_one_for_each(values, slots):
        got = f"{len(values)} of them" if isinstance(values, (list, tuple)) else type(values).__name__
        names = ", ".join(slot.name for slot in slots)
        raise ArgumentError(
            f"the model takes {len(slots)} {kind}s, so a list of arrays for {names} is needed, got {got}",
            hint="one array for each input; several are a list",
        )
    return list(values)
