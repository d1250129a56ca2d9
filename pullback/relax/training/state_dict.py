"""State dicts: values of parameters and states by name, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.relax.struct_info import format_shape
from pullback.runtime.dtype import dtype_name, numpy_dtype
from pullback.runtime.interchange import array_of
from pullback.runtime.tensor import Tensor


class LoadedKeys(NamedTuple):
    """What ``load_state_dict`` did not find, and what it did not know."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def matching_keys(
    own: Mapping[str, Any], given: Mapping[str, Any], strict: bool, same: Mapping[str, Any] | None = None
) -> LoadedKeys:
    """The names that are missing in ``given`` and that are unexpected there; an ArgumentError if there are any and
    ``strict`` says so. Names with an equal value of ``same`` are one tensor: one of them is enough."""
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"load_state_dict takes a dict of arrays by name, got {type(given).__name__}",
            hint="torch_module.state_dict() is one, safetensors.numpy.load_file(path) returns one",
        )
    same = same or {}
    there = {same.get(name, name) for name in given}
    keys = LoadedKeys(
        [name for name in own if name not in given and same.get(name, name) not in there],
        [str(name) for name in given if name not in own],
    )
    if strict and (keys.missing_keys or keys.unexpected_keys):
        parts = [
            f"{kind} {', '.join(names)}" for kind, names in zip(("missing", "unexpected"), keys, strict=True) if names
        ]
        raise ArgumentError(
            f"the names of the state dict do not fit the model: {'; '.join(parts)}",
            hint="strict=False loads what fits and returns the other names",
        )
    return keys


def fitting(name: str, value: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """``value`` (an array, a tensor of any library) as a new array of the given shape and dtype.

    Floats are cast to other float dtypes, and whole numbers to other integers. Raises ShapeError and DTypeError.
    """
    value = value.detach() if hasattr(value, "detach") else value  # PyTorch's parameters refuse to be read otherwise
    try:
        array = np.asarray(value) if isinstance(value, Tensor) else array_of(value, None)
    except UserError as error:
        raise type(error)(f"{name}: {error.message}", hint=error.hint) from None
    if array.shape != tuple(shape):
        raise ShapeError(
            f"{name} has shape {format_shape(shape)}, the given value {format_shape(array.shape)}",
            hint="nothing was loaded; was it saved from another model?",
        )
    wanted = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        cast = np.array(array, wanted, order="C", copy=True)
    if "float" not in dtype and not np.array_equal(cast, array):
        raise DTypeError(f"{name} is {dtype}, the given {dtype_name(array.dtype)} values do not fit")
    return cast
