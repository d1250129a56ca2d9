"""Epochs: a compiled step on each batch of a data set, in a native loop (``native/epoch.c``)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.ir.errors import ArgumentError
from pullback.runtime.dtype import NUMPY_DTYPES, dtype_name
from pullback.runtime.library import STATUS_STEP, check, library
from pullback.runtime.tensor import Tensor

_CODES = {name: code for code, name in enumerate(NUMPY_DTYPES)}  # enum pb_dtype of rt.h


class _Column(ctypes.Structure):
    """``pb_column`` of rt.h."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("batch", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("source_dtype", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class _Epoch(ctypes.Structure):
    """``pb_epoch`` of rt.h."""

    _fields_ = (
        ("columns", ctypes.POINTER(_Column)),
        ("column_count", ctypes.c_int64),
        ("rows", ctypes.c_int64),
        ("order", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("batch_rows", ctypes.c_int64),
        ("batches", ctypes.c_int64),
        ("done", ctypes.c_int64),
        ("loss", ctypes.c_double),
        ("loss_sum", ctypes.c_double),
        ("divisor_sum", ctypes.c_double),
        ("failure", ctypes.c_int32),
    )


class _Call(ctypes.Structure):
    """``pb_call`` of rt.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("loss", ctypes.c_void_p),
        ("divisor", ctypes.c_void_p),
        ("loss_dtype", ctypes.c_int32),
        ("divisor_dtype", ctypes.c_int32),
    )


def converts(source: np.dtype, wanted: np.dtype) -> bool:
    """Whether a gather takes arrays of dtype ``source`` for tensors of dtype ``wanted``: not if a value could change.

    Besides equal dtypes, these are bools and integers of up to 32 bits that become int64, float32 or float64.
    """
    return bool(library.pb_converts(_CODES[dtype_name(source)], _CODES[dtype_name(wanted)]))


@dataclass(frozen=True)
class Column:
    """An array with one row for each example, and the tensor that takes the rows of a batch."""

    source: np.ndarray
    batch: Tensor

    def __post_init__(self) -> None:
        same_rows = self.source.shape[1:] == self.batch.shape[1:]
        if not (same_rows and self.source.flags.c_contiguous and self.source.flags.aligned and self.batch.writable):
            raise ArgumentError(f"rows {self.source.shape[1:]} cannot be gathered in a tensor of {self.batch.shape}")


class Epoch:
    """Batches of equally many rows, and how far a loop over them has come.

    The batches begin at position ``first`` of ``order`` (the rows as they are, if it is None). Each batch's rows are
    copied, and converted, into the tensors of ``columns``. The loss of a batch is a sum divided by its divisor:
    ``loss_sum`` adds up these sums, ``divisor_sum`` the divisors. A batch whose divisor is 0 counts for nothing.
    """

    def __init__(
        self, columns: Sequence[Column], order: np.ndarray | None, first: int, batch_rows: int, batches: int
    ) -> None:
        rows = len(columns[0].source)
        self.batch_rows, self.batches = batch_rows, batches
        self._order = None if order is None else np.ascontiguousarray(order, np.int64)
        self._columns = list(columns)  # they keep what the pointers point to
        records = (_Column * len(columns))(*map(_record, columns))
        length = rows if order is None else len(order)
        if any(len(c.source) != rows or c.batch.shape[0] != batch_rows for c in columns):
            raise ArgumentError("the arrays of an epoch have different numbers of rows")
        if first < 0 or batches < 0 or first + batches * batch_rows > length:
            raise ArgumentError(f"{batches} batches of {batch_rows} rows from {first} on do not fit in {length} rows")
        self._native = _Epoch(
            records, len(records), rows, None if self._order is None else self._order.ctypes.data, first, batch_rows,
            batches,
        )  # fmt: skip

    @property
    def done(self) -> int:
        """How many batches have been stepped on."""
        return self._native.done

    @property
    def left(self) -> int:
        """How many batches are still to come."""
        return self.batches - self._native.done

    @property
    def loss(self) -> float:
        """The loss of the last batch that counts; NaN before there is one."""
        return self._native.loss if self._native.divisor_sum else math.nan

    @property
    def loss_sum(self) -> float:
        """The losses of all batches done, each times its divisor."""
        return self._native.loss_sum

    @property
    def divisor_sum(self) -> float:
        """The divisors of all batches done."""
        return self._native.divisor_sum

    def gather(self) -> None:
        """Copy the rows of the next batch into its tensors."""
        check(library.pb_epoch_gather(ctypes.byref(self._native)))

    def count(self, loss: float, divisor: float = 1.0) -> None:
        """A step on the gathered batch has been made elsewhere, with this loss."""
        native = self._native
        native.done += 1
        if divisor:
            native.loss = loss
            native.loss_sum += loss * divisor
            native.divisor_sum += divisor

    def run(self, function: int, buffers: int, arena: int, results: Sequence[Tensor], seconds: float) -> int:
        """Gather and call the native ``function`` until all batches are done, or for about ``seconds``; at least once.

        ``buffers``, ``arena``: addresses for the function, which writes ``results``: the loss and, if there are two,
        its divisor. Returns 0, or what the function returned when it failed: then the batch is not counted as done.
        """
        loss, *rest = results
        divisor, code = (rest[0].data_ptr, _CODES[rest[0].dtype]) if rest else (None, 0)
        call = _Call(function, buffers, arena, loss.data_ptr, divisor, _CODES[loss.dtype], code)
        status = library.pb_epoch_run(ctypes.byref(self._native), ctypes.byref(call), int(seconds * 1e9))
        if status == STATUS_STEP:
            return self._native.failure
        check(status)
        return 0


def _record(column: Column) -> _Column:
    source, batch = column.source, column.batch
    elements = batch.size // max(1, batch.shape[0])
    source_code, code = _CODES[dtype_name(source.dtype)], _CODES[batch.dtype]
    return _Column(source.__array_interface__["data"][0], batch.data_ptr, elements, source_code, code)
