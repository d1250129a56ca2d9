"""The values of constants in the dtypes that they are to have."""

from __future__ import annotations

import numpy as np

from pullback.ir.errors import DTypeError
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import FLOATS, out_of_range


def converted(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values in another dtype: floats are rounded, but not to 0 or an infinity, and an integer type holds just what
    it is given."""
    wanted = numpy_dtype(dtype)
    if array.dtype == wanted:
        return array
    if wanted.kind in "iu" and array.dtype.kind in "iufO":
        limits = np.iinfo(wanted)
        for number in array.reshape(-1).tolist():
            if not isinstance(number, (int, float)) or not limits.min <= number <= limits.max or number != int(number):
                raise DTypeError(
                    f"the number {number!r} does not fit a constant of dtype {dtype}",
                    hint='choose a wider dtype: R.const(value, "int32"), or a number that fits',
                )
    try:
        with np.errstate(over="ignore", under="ignore"):
            result = array.astype(wanted)
    except (TypeError, ValueError, OverflowError):
        raise DTypeError(f"{array.tolist()!r} cannot become a constant of dtype {dtype}") from None
    lost = lost_numbers(array, result)
    if lost.size:
        raise out_of_range(lost[0].item(), dtype)
    return result


def lost_numbers(given: np.ndarray, cast: np.ndarray) -> np.ndarray:
    """The finite numbers that became an infinity when they were cast to a float type, and those that became 0."""
    if cast.dtype.name not in FLOATS or given.dtype.kind in "bOSU":
        return np.zeros(0)
    return given[np.isfinite(given) & (~np.isfinite(cast) | ((cast == 0) & (given != 0)))]
