"""Values of generated code: an LLVM operand, its dtype, its number of lanes; and how dtypes look in LLVM."""

from __future__ import annotations

import functools
import math
import struct
from typing import NamedTuple

import numpy as np

from pullback.tir.expr import bits, is_float, is_half, is_signed

# Half types travel as their bits: arithmetic on them goes through float32 (see pullback.tir.math).
_REGISTER = {"float32": "float", "float64": "double", "float16": "i16", "bfloat16": "i16", "bool": "i1"}


class Value(NamedTuple):
    """An LLVM operand. One lane is a scalar, the same for all lanes of a vectorized loop; ``const`` if it is known."""

    ref: str
    dtype: str
    lanes: int = 1
    const: int | float | None = None

    @property
    def type(self) -> str:
        return register_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.type} {self.ref}"


@functools.cache
def register_type(dtype: str, lanes: int = 1) -> str:
    """The LLVM type of a dtype in registers (bool is ``i1``)."""
    name = _REGISTER.get(dtype) or f"i{bits(dtype)}"
    return name if lanes == 1 else f"<{lanes} x {name}>"


@functools.cache
def memory_type(dtype: str, lanes: int = 1) -> str:
    """The LLVM type of a dtype in memory (bool is a byte)."""
    return register_type("uint8" if dtype == "bool" else dtype, lanes)


@functools.cache
def suffix(dtype: str, lanes: int = 1) -> str:
    """The type in the name of an overloaded LLVM intrinsic, like ``v16f32``."""
    kind = "f" if dtype in ("float32", "float64") else "i"
    name = "i1" if dtype == "bool" else f"{kind}{bits(dtype)}"
    return name if lanes == 1 else f"v{lanes}{name}"


def wrap(value: int, dtype: str) -> int:
    """The integer reduced to the range of the dtype, as two's complement does."""
    if dtype == "bool":
        return int(bool(value))
    width = bits(dtype)
    value &= (1 << width) - 1
    return value - (1 << width) if is_signed(dtype) and value >> (width - 1) else value


def half_bits(value: float, dtype: str) -> int:
    """The bits of a number rounded to float16 or bfloat16."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return int(np.float64(value).astype(np.float16).view(np.uint16))
    with np.errstate(over="ignore"):
        word = int(np.float32(value).view(np.uint32))
    if math.isnan(value):
        return 0x7FC0
    return ((word + 0x7FFF + ((word >> 16) & 1)) >> 16) & 0xFFFF


def is_bfloat16(value: float) -> bool:
    """Whether a float32 is a number of bfloat16."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32)) & 0xFFFF == 0


def _rounded(value: float) -> float:
    """To float32."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def constant(value: int | float, dtype: str) -> Value:
    """A constant scalar of the dtype."""
    if is_half(dtype):
        return Value(str(half_bits(value, dtype)), dtype, 1, value)
    if is_float(dtype):
        if dtype == "float32":
            value = _rounded(value)
        pattern = struct.pack(">d", value).hex().upper() if not math.isnan(value) else "7FF8000000000000"
        return Value(f"0x{pattern}", dtype, 1, value)
    value = wrap(int(value), dtype)
    if dtype == "bool":
        return Value("true" if value else "false", dtype, 1, value)
    return Value(str(value), dtype, 1, value)
