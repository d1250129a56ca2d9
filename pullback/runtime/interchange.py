"""Other libraries' data: anything becomes a NumPy array, and a NumPy array becomes a DLPack capsule.

NumPy speaks DLPack for every element type but bfloat16, which it doesn't know. Such data travels as uint16 with the
type's two bytes exchanged in the capsule.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, DTypeError, ShapeError, UserError
from pullback.runtime.dtype import BFLOAT16, dtype_name

CPU_DLPACK_DEVICE = (1, 0)  # kDLCPU, index 0
_UINT16_CODE, _BFLOAT16_CODE = (1, 16), (4, 16)  # DLDataType's code and bits
_PYTHON_SCALARS = {bool, int, float}


# ---- DLPack -------------------------------------------------------------------------------------


def to_dlpack(array: np.ndarray, max_version: tuple[int, int] | None) -> Any:
    """A capsule over ``array``, which it keeps alive."""
    if array.dtype != BFLOAT16:
        return array.__dlpack__(max_version=max_version)
    capsule = array.view(np.uint16).__dlpack__(max_version=max_version)
    _exchange_dtype(capsule, _UINT16_CODE, _BFLOAT16_CODE)
    return capsule


class _Uint16Exporter:
    """Stands for a bfloat16 exporter, and exports uint16."""

    def __init__(self, exporter: Any) -> None:
        self.exporter = exporter

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.exporter.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.exporter.__dlpack__()
        _exchange_dtype(capsule, _BFLOAT16_CODE, _UINT16_CODE)
        return capsule


def _from_dlpack(exporter: Any) -> np.ndarray:
    device, index = (int(number) for number in exporter.__dlpack_device__())
    if device != CPU_DLPACK_DEVICE[0]:
        raise UserError(
            f"the data lies on another device (DLPack device {device}, index {index}), not in this CPU's memory",
            hint="copy it to the CPU first, such as by `.cpu()` in PyTorch",
        )
    if str(getattr(exporter, "dtype", "")).endswith("bfloat16"):
        return np.from_dlpack(_Uint16Exporter(exporter)).view(BFLOAT16)
    return np.from_dlpack(exporter)


_pointer_of_capsule = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of_capsule.restype, _pointer_of_capsule.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_name_of_capsule = ctypes.pythonapi.PyCapsule_GetName
_name_of_capsule.restype, _name_of_capsule.argtypes = ctypes.c_char_p, [ctypes.py_object]
# Where DLTensor.dtype lies: after data, device, ndim. A versioned capsule has version, context, deleter, flags before.
_DTYPE_OFFSETS = {b"dltensor": 20, b"dltensor_versioned": 52}


def _exchange_dtype(capsule: Any, old: tuple[int, int], new: tuple[int, int]) -> None:
    """Renames the element type in a capsule that nobody has consumed yet; its struct was made for it alone."""
    name = _name_of_capsule(capsule)
    dtype = (ctypes.c_uint8 * 2).from_address(_pointer_of_capsule(capsule, name) + _DTYPE_OFFSETS[name])
    if tuple(dtype) != old:
        raise DTypeError(f"a DLPack capsule holds element type {tuple(dtype)}, expected {old} (code, bits)")
    dtype[0], dtype[1] = new


# ---- anything to NumPy --------------------------------------------------------------------------


def is_python_data(data: Any) -> bool:
    """Whether ``data`` is a Python scalar or nested lists, not an array with a type and memory of its own."""
    return type(data) in _PYTHON_SCALARS or isinstance(data, (list, tuple, range))


def array_of(data: Any, dtype: np.dtype | None) -> np.ndarray:
    """``data`` as a NumPy array, over the same memory where it has any; ``dtype`` directs how Python numbers are read.

    Python floats become float32, ints int64 and bools bool; arrays keep their types.
    """
    if data is None:
        hint = "is a function that should return it without a return?"
        raise ArgumentError("expected a number, lists or an array, got None", hint=hint)
    if is_python_data(data):
        array = _array_of_python_data(data, dtype)
    elif "numpy.ma" in sys.modules and isinstance(data, np.ma.MaskedArray):  # np.ma is slow to import
        raise ArgumentError("a tensor has no mask", hint="choose values for the masked elements: array.filled(value)")
    elif isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
    else:
        array = _array_of_foreign(data)
    dtype_name(array.dtype)
    return array


def _array_of_python_data(data: Any, dtype: np.dtype | None) -> np.ndarray:
    try:
        array = np.asarray(data, dtype)
    except OverflowError as error:
        raise ArgumentError(f"a value does not fit the dtype: {error}") from error
    except TypeError as error:
        raise ArgumentError(f"cannot make a tensor of this: {error}") from error
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise ArgumentError(f"cannot make a tensor of this: {error}") from error
        message = f"cannot make a tensor of these lists: they differ in length{_first_difference(data)}"
        raise ShapeError(message, hint="nested lists are rows of one length") from error
    if array.dtype == object and all(type(v) is int for v in array.flat):
        raise ArgumentError(
            "an integer is too large for every dtype of a tensor", hint="use floats, or smaller numbers"
        )
    if dtype is None and array.dtype == np.float64 and not _has_typed_leaf(data):
        return array.astype(np.float32)
    return array


def _first_difference(rows: Any) -> str:
    """Which row is the first of another length than row 0, where it is one of the outermost."""
    lengths = [len(row) if hasattr(row, "__len__") else None for row in rows]
    other = next((k for k, length in enumerate(lengths) if length != lengths[0]), None)
    if other is None or lengths[0] is None or lengths[other] is None:
        return ""
    return f": row {other} has {lengths[other]}, row 0 has {lengths[0]}"


def _has_typed_leaf(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(map(_has_typed_leaf, data))
    return type(data) not in _PYTHON_SCALARS and hasattr(data, "dtype")


def _array_of_foreign(data: Any) -> np.ndarray:
    """What another library's object gives for an array, by DLPack or else by NumPy's protocol; whatever its code raises
    becomes an ArgumentError."""
    ways: list[Callable[[Any], np.ndarray]] = [_from_dlpack] if hasattr(data, "__dlpack__") else []
    ways += [np.asarray] if not ways or hasattr(data, "__array__") else []
    for way in ways:
        try:
            return way(data)
        except (UserError, MemoryError):
            raise
        except Exception as error:
            reason = error
    hint = "detach it first: tensor.detach()" if getattr(data, "requires_grad", False) is True else None
    raise ArgumentError(f"cannot read a {type(data).__name__}: {reason}", hint=hint) from reason
