"""Tensors as bytes, little-endian."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from pullback.ir.errors import ScriptError
from pullback.runtime.dtype import NUMPY_DTYPES
from pullback.runtime.tensor import Tensor, tensor


def to_bytes(value: Tensor) -> bytes:
    """The elements, the last axis fastest."""
    return _swapped(value.numpy()).tobytes()


def from_bytes(dtype: Any, shape: Any, data: bytes) -> Tensor:
    """The tensor of these bytes. A ScriptError where dtype, shape and bytes do not fit; none of them is trusted."""
    kind = NUMPY_DTYPES.get(dtype) if isinstance(dtype, str) else None
    if kind is None:
        raise ScriptError(f"there is no dtype {dtype!r:.40}", hint=f"they are {', '.join(NUMPY_DTYPES)}")
    if not isinstance(shape, list) or not all(type(s) is int and s >= 0 for s in shape):
        raise ScriptError("the shape of a tensor is a list of sizes")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise ScriptError(f"a tensor of shape {tuple(shape)} and dtype {dtype} does not have {len(data)} bytes")
    if dtype == "bool" and data.strip(b"\x00\x01"):
        raise ScriptError("a tensor of bools has other bytes than 0 and 1")
    return tensor(_swapped(np.frombuffer(data, kind)).reshape(shape), copy=True)


def _swapped(array: np.ndarray) -> np.ndarray:
    return array.byteswap() if sys.byteorder == "big" else array
