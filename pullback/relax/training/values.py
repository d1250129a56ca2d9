"""Values at the boundary: what users pass becomes tensors of the declared shape and dtype, or a clear error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError, suggestion
from pullback.relax.advice import shape_advice
from pullback.relax.matching import match_info
from pullback.relax.struct_info import TensorStructInfo, format_shape
from pullback.relax.training.interface import Slot
from pullback.runtime.epoch import converts
from pullback.runtime.interchange import array_of, is_python_data
from pullback.runtime.tensor import Tensor, tensor


def as_tensor(value: Any, slot: Slot, sizes: dict[Any, Any] | None = None) -> Tensor:
    """``value`` as a tensor of the slot's type; it may share the memory of ``value``.

    Symbolic sizes are bound in ``sizes``, and agree between values that share it. Raises ShapeError, or DTypeError
    when a cast to the declared dtype would change a value.
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
    return value if isinstance(value, Tensor) and value.dtype == info.dtype else tensor(array)


def as_array(value: Any, slot: Slot, gathered: bool = False) -> np.ndarray:
    """``value``, of any shape, as an array of the slot's dtype; a DTypeError when that would change a value.

    What is to be ``gathered`` keeps a dtype that a gather converts.
    """
    wanted = slot.numpy_dtype
    reads_python_floats = is_python_data(value) and wanted.kind not in "iub"
    if isinstance(value, (str, bytes, Iterator)):
        text = "numbers that are written as text are read by np.array(text.split(), float)"
        hint = "np.stack(list(…)) makes an array of what a generator gives" if isinstance(value, Iterator) else text
        raise ArgumentError(f"{slot}: expected a number, lists or an array, got a {type(value).__name__}", hint=hint)
    try:
        is_tensor = isinstance(value, Tensor)
        array = np.asarray(value) if is_tensor else array_of(value, wanted if reads_python_floats else None)
    except UserError as error:
        raise type(error)(f"{slot}: {error.message}", hint=error.hint) from None
    if array.dtype == wanted or (gathered and converts(array.dtype, wanted)):
        return array
    with np.errstate(all="ignore"):
        cast = array.astype(wanted)
        changed = _changed(array, cast)
    if changed.any():
        place = tuple(int(i) for i in np.argwhere(changed)[0])
        where = f" at index {place}" if place else ""
        fits = np.isfinite(array[place]) and abs(array[place]) < 2.0**63  # beyond, a cast gives anything
        becomes = f" to {cast[place]}" if fits or wanted.kind == "f" else ""
        raise DTypeError(
            f"{slot} must be {slot.info.dtype}, got {array.dtype.name} whose values would change:"
            f" {array[place]}{becomes}{where}",
            hint=f'round it on purpose with .astype("{slot.info.dtype}"), or declare {slot.name} as {array.dtype.name}',
        )
    return cast


def _changed(array: np.ndarray, cast: np.ndarray) -> np.ndarray:
    """Where a cast gave another value; NaN stays NaN."""
    same = cast.astype(array.dtype) == array
    integers = next((a.dtype for a in (array, cast) if a.dtype.kind in "iu"), None)
    if integers is not None and {array.dtype.kind, cast.dtype.kind}.isdisjoint("b"):
        # A float beyond the integers' range comes back as anything, so it is compared with the range.
        wide = (cast if integers is array.dtype else array).astype(np.float64)
        limits = np.iinfo(integers)
        same &= (wide >= float(limits.min)) & (wide < float(limits.max) + (limits.bits < 64))
    elif integers is None:
        same |= np.isnan(array) & np.isnan(cast)
    return np.asarray(~same)


def is_one_for_each(values: Any, slots: Sequence[Slot]) -> bool:
    """Whether it is a list (or tuple) with a value for each slot, not the only slot's value as lists or rows."""
    if not isinstance(values, (list, tuple)) or len(values) != len(slots):
        return False
    return len(slots) != 1 or len(getattr(values[0], "shape", ())) == len(slots[0].info.shape or ()) > 0


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
