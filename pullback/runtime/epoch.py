"""Epochs: a compiled step on each batch of a data set, in a native loop (``native/epoch.c``)."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, InternalError
from pullback.runtime.dtype import NUMPY_DTYPES, dtype_name
from pullback.runtime.library import STATUS_OK, STATUS_RANKS, STATUS_STEP, STATUS_VALUE, check, library
from pullback.runtime.tensor import Tensor, tensor

_CODES = {name: code for code, name in enumerate(NUMPY_DTYPES)}  # enum pb_dtype of rt.h


class _Column(ctypes.Structure):
    """``pb_column`` of rt.h."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("batch", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("source_dtype", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("exact", ctypes.c_int32),
    )


class _Misfit(ctypes.Structure):
    """``pb_misfit`` of rt.h."""

    _fields_ = (("column", ctypes.c_int64), ("row", ctypes.c_int64), ("element", ctypes.c_int64))


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
        ("misfit", _Misfit),
        ("until", ctypes.c_int64),
    )


class _Call(ctypes.Structure):
    """``pb_call`` of rt.h."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("runtime", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("loss", ctypes.c_void_p),
        ("divisor", ctypes.c_void_p),
        ("loss_dtype", ctypes.c_int32),
        ("divisor_dtype", ctypes.c_int32),
    )


def always_fits(source: np.dtype, wanted: np.dtype) -> bool:
    """Whether each value of the one dtype is a value of the other."""
    return bool(library.pb_always_fits(_CODES[dtype_name(source)], _CODES[dtype_name(wanted)]))


@dataclass(frozen=True)
class Column:
    """An array with one row for each example, and the tensor that takes the rows of a batch.

    A row is converted to the tensor's dtype as it is copied: numbers are rounded where that is a floating-point one,
    all others must be the same in it. What becomes infinite, and with ``exact`` whatever changes, is a DTypeError that
    says where it is in the array, which it calls by its ``name``.
    """

    source: np.ndarray
    batch: Tensor
    exact: bool = True
    name: str = "the array"

    def __post_init__(self) -> None:
        if self.source.shape[1:] != self.batch.shape[1:] or not self.batch.writable:
            raise ArgumentError(f"rows {self.source.shape[1:]} cannot be gathered in a tensor of {self.batch.shape}")

    def copy(self, first: int, count: int, place: int = 0) -> None:
        """Copy some rows into the tensor, from its row number ``place`` on, in this thread alone."""
        if min(first, count, place) < 0 or first + count > len(self.source) or place + count > self.batch.shape[0]:
            raise ArgumentError(f"rows {first} to {first + count} cannot be copied to {place}")
        record = _record(self)
        record.batch += place * (self.batch.nbytes // max(1, self.batch.shape[0]))
        misfit = _copy_rows(record, first, count)
        if misfit is not None:
            raise misfit_error(self.name, self.source, self.batch._numpy_dtype, self._place(misfit))

    def _place(self, misfit: _Misfit) -> tuple[int, ...]:
        """The index of a value of the array."""
        return (misfit.row, *map(int, np.unravel_index(misfit.element, self.source.shape[1:])))


def cast(array: np.ndarray, dtype: np.dtype, exact: bool, name: str) -> np.ndarray:
    """A copy in another dtype, by the rules of a :class:`Column`; of an array of any shape."""
    result = np.empty(array.shape, dtype)
    column = Column(array[None], tensor(result[None]), exact, name)
    misfit = _copy_rows(_record(column), 0, 1)
    if misfit is not None:
        raise misfit_error(name, array, dtype, column._place(misfit)[1:])
    return result


def _copy_rows(record: _Column, first: int, count: int) -> _Misfit | None:
    """Copies rows to where those of the batch begin; returns the first value that does not fit, if there is one."""
    misfit = _Misfit()
    status = library.pb_copy_rows(ctypes.byref(record), first, count, ctypes.byref(misfit))
    if status == STATUS_VALUE:
        return misfit
    if status != STATUS_OK:
        raise InternalError(f"the C runtime refuses to copy rows of this column: status {status}")
    return None


def misfit_error(name: str, array: np.ndarray, wanted: np.dtype, place: tuple[int, ...]) -> DTypeError:
    """What says that the dtype ``wanted`` does not hold the value at ``place``."""
    value = array[place]
    with np.errstate(all="ignore"):
        changed = np.asarray(value).astype(wanted)
    fits = np.isfinite(value) and abs(value) < 2.0**63  # beyond, a cast gives anything
    becomes = f" to {changed}" if fits or wanted.kind not in "iub" else ""
    where = f" at index {place}" if place else ""
    dtype, own = dtype_name(wanted), dtype_name(array.dtype)
    declare = f"declare {name.rpartition(' ')[2]} as {own}"
    if wanted.kind in "iub" and value != value:
        hint = "a value is missing: leave such rows out (np.isnan finds them), or put a number there"
    elif wanted.kind not in "iub" and np.isinf(changed):
        hint = f"scale the values, or {declare}"
    else:
        hint = f'round it on purpose with .astype("{dtype}"), or {declare}'
    message = f"{name} must be {dtype}, got {own} whose values would change: {value}{becomes}{where}"
    return DTypeError(message, hint=hint)


class Epoch:
    """Batches of equally many rows, and how far a loop over them has come.

    The batches begin at position ``first`` of ``order``; without one the rows are taken as they are and, where another
    thread extends the epoch, after the last from the first on. Each batch's rows are copied, and converted, into the
    tensors of ``columns``. The loss of a batch is a sum divided by its divisor: ``loss_sum`` adds up these sums,
    ``divisor_sum`` the divisors. A batch whose divisor is 0 counts for nothing.
    """

    def __init__(
        self, columns: Sequence[Column], order: np.ndarray | None, first: int, batch_rows: int, batches: int
    ) -> None:
        rows = len(columns[0].source)
        self.batch_rows = batch_rows
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
        return library.pb_epoch_done(ctypes.byref(self._native))

    @property
    def left(self) -> int:
        """How many batches are still to come."""
        return self._native.batches - self._native.done

    def extend(self, batches: int) -> None:
        """Add batches, whose rows are there; another thread may do so while this one runs."""
        library.pb_epoch_extend(ctypes.byref(self._native), batches)

    def wait(self, done: int, seconds: float) -> None:
        """Sleep while another thread runs the loop, until so many batches are done or so much time has passed."""
        library.pb_epoch_wait(ctypes.byref(self._native), done, int(seconds * 1e9))

    def row(self, place: int) -> int:
        """The number of the row that was at a place of the last batch done."""
        position = self._native.first + (self.done - 1) * self.batch_rows + place
        return position % self._native.rows if self._order is None else int(self._order[position])

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

    def go_on(self, done: int, loss_sum: float, divisor_sum: float) -> None:
        """Begin where another loop over the same batches was, after so many of them."""
        if not 0 <= done <= self._native.batches:
            raise ArgumentError(f"{done} of {self._native.batches} batches cannot be done")
        self._native.done, self._native.loss_sum, self._native.divisor_sum = done, loss_sum, divisor_sum

    def stop_after(self, batches: int | None) -> None:
        """Have :meth:`run` return when so many more batches are done, if not before; None: for no such number."""
        self._native.until = 0 if batches is None else self._native.done + batches

    @property
    def stops(self) -> bool:
        """Whether as many batches are done as :meth:`stop_after` said."""
        return self._native.done == self._native.until

    def gather(self) -> None:
        """Copy the rows of the next batch into its tensors."""
        self._check(library.pb_epoch_gather(ctypes.byref(self._native)))

    def count(self, loss: float, divisor: float = 1.0) -> None:
        """A step on the gathered batch has been made elsewhere, with this loss."""
        native = self._native
        native.done += 1
        if divisor:
            native.loss = loss
            native.loss_sum += loss * divisor
            native.divisor_sum += divisor

    def run(
        self, function: int, runtime: int, buffers: int, arena: int, results: Sequence[Tensor], seconds: float
    ) -> int:
        """Gather and call the native ``function`` until all batches are done, or as many as :meth:`stop_after` said, or
        for about ``seconds``; at least once.

        ``runtime``, ``buffers``, ``arena``: addresses for the function, which writes ``results``: the loss and, if
        there are two, its divisor. Returns 0, or what the function returned when it failed: then the batch is not
        counted as done. Nor is one in which the ranks failed: whose ``runtime`` it is knows that.
        """
        loss, *rest = results
        divisor, code = (rest[0].data_ptr, _CODES[rest[0].dtype]) if rest else (None, 0)
        call = _Call(function, runtime, buffers, arena, loss.data_ptr, divisor, _CODES[loss.dtype], code)
        status = library.pb_epoch_run(ctypes.byref(self._native), ctypes.byref(call), int(seconds * 1e9))
        if status == STATUS_STEP:
            return self._native.failure
        if status != STATUS_RANKS:
            self._check(status)
        return 0

    def _check(self, status: int) -> None:
        if status == STATUS_VALUE:
            column = self._columns[self._native.misfit.column]
            place = column._place(self._native.misfit)
            raise misfit_error(column.name, column.source, column.batch._numpy_dtype, place)
        check(status)


def _record(column: Column) -> _Column:
    source, batch = column.source, column.batch
    shape, strides = _joined(source.shape[1:], source.strides[1:], source.itemsize)
    axes = ctypes.c_int64 * len(shape)
    return _Column(
        source.__array_interface__["data"][0], batch.data_ptr, math.prod(shape), source.strides[0], axes(*shape),
        axes(*strides), len(shape), _CODES[dtype_name(source.dtype)], _CODES[batch.dtype], column.exact,
    )  # fmt: skip


def _joined(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[list[int], list[int]]:
    """Sizes and strides of the same elements in the same order along as few axes as there can be, at least one."""
    sizes, steps = [1], [itemsize]
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and sizes[-1] == 1:
            sizes[-1], steps[-1] = size, step
        elif size != 1 and step == sizes[-1] * steps[-1]:
            sizes[-1] *= size
        elif size != 1:
            sizes.append(size)
            steps.append(step)
    return sizes[::-1], steps[::-1]
