"""Element types by name ("float32") and the NumPy types that hold them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from pullback.ir.errors import DTypeError

_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
BFLOAT16: np.dtype = np.dtype(ml_dtypes.bfloat16)
NUMPY_DTYPES: dict[str, np.dtype] = {name: np.dtype(name) for name in _NAMES} | {"bfloat16": BFLOAT16}
_NAME_OF_DTYPE = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def numpy_dtype(dtype: Any) -> np.dtype:
    """The NumPy type for a name, a NumPy type or scalar class, or Python's float, int or bool."""
    found = NUMPY_DTYPES.get(dtype) if isinstance(dtype, str) else None
    if found is not None:
        return found
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"unknown dtype {dtype!r}", hint=f"known ones are {', '.join(NUMPY_DTYPES)}") from error
    dtype_name(found)
    return found


def dtype_name(dtype: np.dtype) -> str:
    """The name of a NumPy type; a DTypeError when no tensor can have it."""
    name = _NAME_OF_DTYPE.get(dtype)
    if name is not None:
        return name
    if not dtype.isnative and dtype.newbyteorder("=") in _NAME_OF_DTYPE:
        raise DTypeError(
            f"dtype {dtype.str!r} is not in this machine's byte order",
            hint=f'convert it first: array.astype("{dtype.newbyteorder("=").name}")',
        )
    hint = f"known ones are {', '.join(NUMPY_DTYPES)}"
    if dtype.kind in "OSTU":
        hint = "numbers: array.astype(float); names of classes: names, labels = np.unique(array, return_inverse=True)"
    raise DTypeError(f"a tensor cannot have elements of dtype {str(dtype)!r}", hint=hint)
