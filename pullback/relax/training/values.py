"""Values at the boundary: what users pass becomes tensors of the declared shape and dtype, or a clear error."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError, suggestion
from pullback.relax.advice import shape_advice
from pullback.relax.matching import match_info
from pullback.relax.struct_info import TensorStructInfo, format_shape
from pullback.relax.training.interface import Slot
from pullback.runtime.epoch import always_fits, cast
from pullback.runtime.interchange import array_of, is_python_data
from pullback.runtime.tensor import Tensor, tensor

_said: set[str] = set()  # what a process is told once

_MOST_AXES = 64  # of NumPy's arrays; a list that holds itself has any number


def as_tensor(value: Any, slot: Slot, sizes: dict[Any, Any] | None = None, exact: bool = True) -> Tensor:
    """``value`` as a tensor of the slot's type; it may share the memory of ``value``.

    Symbolic sizes are bound in ``sizes``, and agree between values that share it. Raises ShapeError, or DTypeError when
    the declared dtype does not hold a value: if it is ``exact``, no value may change; else floats are rounded.
    """
    info = slot.info
    if isinstance(value, Tensor) and value.dtype == info.dtype and value.shape == info.shape:
        return value  # what almost every step of a training meets
    if isinstance(value, np.ndarray) and value.dtype == slot.numpy_dtype and value.shape == info.shape:
        return tensor(value)
    array = as_array(value, slot)
    given = TensorStructInfo(array.shape, info.dtype)
    if not match_info(info, given, {} if sizes is None else sizes):
        message = f"{slot} must have shape {format_shape(info.shape)}, got {format_shape(array.shape)}"
        raise ShapeError(message, hint=shape_advice(info.sizes, array.shape, info.dtype))
    if isinstance(value, Tensor) and value.dtype == info.dtype:
        return value
    if array.dtype == slot.numpy_dtype:
        return tensor(array)
    return tensor(cast(array, slot.numpy_dtype, is_exact(value, array, slot, exact), str(slot)))


def as_array(value: Any, slot: Slot) -> np.ndarray:
    """``value`` as an array, of any shape and dtype; Python's floats are float64."""
    if type(value) in (np.ndarray, np.memmap) and value.dtype == slot.numpy_dtype:  # others may have a mask
        return value
    if isinstance(value, (str, bytes, Iterator)):
        text = "numbers that are written as text are read by np.array(text.split(), float)"
        hint = "np.stack(list(…)) makes an array of what a generator gives" if isinstance(value, Iterator) else text
        raise ArgumentError(f"{slot}: expected a number, lists or an array, got a {type(value).__name__}", hint=hint)
    reads_python_floats = is_python_data(value) and slot.numpy_dtype.kind not in "iub"
    try:
        if isinstance(value, Tensor):
            return np.asarray(value)
        if hasattr(value, "columns") and hasattr(value, "iloc"):
            return _array_of_frame(value)
        return array_of(value, np.dtype(np.float64) if reads_python_floats else None)
    except UserError as error:
        raise type(error)(f"{slot}: {error.message}", hint=error.hint) from None


def _array_of_frame(frame: Any) -> np.ndarray:
    """A data frame's columns side by side, in a dtype for all of them: bools and floats, say, are floats."""
    try:
        return frame.to_numpy(np.result_type(*frame.dtypes))
    except (TypeError, ValueError):
        others = [str(c) for c, dtype in zip(frame.columns, frame.dtypes, strict=True) if not _is_numeric(dtype)]
        raise ArgumentError(
            f"the columns {', '.join(others)} hold no plain numbers" if others else "the frame has no columns",
            hint="frame.select_dtypes('number') leaves them out; pandas.get_dummies(frame) makes numbers of categories,"
            ' frame.astype("float64") of nullable columns',
        ) from None


def _is_numeric(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iufb"


def is_exact(value: Any, array: np.ndarray, slot: Slot, exact: bool) -> bool:
    """Whether a cast of ``array``, which was made of ``value``, may change no value: Python's floats are rounded in any
    case. The first array of floats in a process that is to be rounded is told."""
    if is_python_data(value):
        return False
    rounds = array.dtype.kind not in "iub" and slot.numpy_dtype.kind not in "iub"
    if rounds and not exact and not always_fits(array.dtype, slot.numpy_dtype):
        _say_once(f"{slot}: {array.dtype.name} is rounded to {slot.info.dtype}, as it is read; cast=False refuses that")
    return exact


def _say_once(message: str) -> None:
    """A warning in the line of the user's that called us, for the first of its kind in a process."""
    if "cast" in _said:
        return
    _said.add("cast")
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "pullback":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def for_each(values: Any, slots: Sequence[Slot], kind: str) -> list[Any]:
    """What is given for each of several slots: a list of them, a dict by name, or the only one by itself."""
    if isinstance(values, Mapping):
        check_names(values, slots, kind)
        return [values[slot.name] for slot in slots]
    if is_one_for_each(values, slots):
        return list(values)
    if len(slots) == 1 and not _are_several(values, slots[0]):
        return [values]
    plural = "" if len(slots) == 1 else "s"
    names = ", ".join(slot.name for slot in slots) or "none"
    count = len(values) if isinstance(values, (list, tuple)) else 1
    raise ArgumentError(
        f"the model takes {len(slots)} {kind}{plural} ({names}), got {count}",
        hint=f"one array for each {kind}: several are a list, in that order, or a dict by these names",
    )


def _are_several(values: Any, slot: Slot) -> bool:
    """Whether it is no or several values of a slot in a list, not one as lists."""
    rank = len(slot.info.shape or ())
    return isinstance(values, (list, tuple)) and all(_rank(v) == rank > 0 for v in values)


def _rank(value: Any) -> int:
    """How many axes an array, or nested lists, have: of lists no more than arrays can have."""
    rank = 0
    while isinstance(value, (list, tuple)) and rank < _MOST_AXES:
        rank += 1
        if not value:
            return rank
        value = value[0]
    return rank + len(getattr(value, "shape", ()))


def check_names(names: Iterable[Any], slots: Sequence[Slot], kind: str) -> None:
    """Raise an ArgumentError unless the names are those of the slots."""
    known, given = [slot.name for slot in slots], list(map(str, names))
    unknown = [name for name in given if name not in known]
    missing = [name for name in known if name not in given]
    if not unknown and not missing:
        return
    problem = f"there is no {kind} {', '.join(unknown)}" if unknown else f"{', '.join(missing)} is missing"
    raise ArgumentError(
        f"{problem}; the names are: {', '.join(known) or 'none'}",
        hint=f"give all of them, and nothing else{suggestion(unknown[0], known) if unknown else ''}",
    )


def is_one_for_each(values: Any, slots: Sequence[Slot]) -> bool:
    """Whether it is a list (or tuple) with a value for each slot, not the only slot's value as lists or rows."""
    if not isinstance(values, (list, tuple)) or len(values) != len(slots):
        return False
    return len(slots) != 1 or _rank(values[0]) == len(slots[0].info.shape or ()) > 0


def fresh_copy(value: Any, slot: Slot) -> Tensor:
    """``value`` as a tensor with memory of its own."""
    return as_tensor(value, slot).copy()


def copies_by_name(values: Any, slots: Sequence[Slot], kind: str) -> dict[int, Tensor]:
    """Copies of what a list (one for each slot) or a mapping by name (any of them) gives, by position."""
    if isinstance(values, Mapping):
        positions = {slot.name: i for i, slot in enumerate(slots)}
        unknown = [str(name) for name in values if name not in positions]
        if unknown:
            known = ", ".join(positions) or "none"
            hint = f"give those that there are by their names{suggestion(unknown[0], positions)}"
            raise ArgumentError(f"there is no {kind} {', '.join(unknown)}; the {kind}s are: {known}", hint=hint)
        return {positions[name]: fresh_copy(value, slots[positions[name]]) for name, value in values.items()}
    if not isinstance(values, (list, tuple)):
        raise ArgumentError(
            f"expected a list or a dict of {kind}s, got {type(values).__name__}",
            hint='write {"name": array}, as trainer.export_states() does',
        )
    if len(values) != len(slots):
        names = ", ".join(slot.name for slot in slots) or "none"
        raise ArgumentError(
            f"expected {len(slots)} {kind}s ({names}), got {len(values)}",
            hint="one array for each, in that order, or a dict by name",
        )
    return {i: fresh_copy(value, slot) for i, (value, slot) in enumerate(zip(values, slots, strict=True))}
