"""Numbers and strings of relay text, both ways.

A number has its dtype at its end: ``f`` (float32), ``f16``, ``f64``, ``bf16``, ``i8`` … ``i64``, ``u8`` … ``u64``. A
whole number without one is int32, or int64 where it does not fit; other numbers without one are float32.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import numpy as np

from pullback.ir.errors import ScriptError
from pullback.runtime.dtype import NUMPY_DTYPES, numpy_dtype

_SUFFIXES = {"f": "float32", "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16"} | {
    f"{letter}{bits}": f"{kind}{bits}" for letter, kind in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)
}
_ENDS = {dtype: suffix for suffix, dtype in _SUFFIXES.items()} | {"float32": "f", "int32": ""}
_PARTS = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|inf|nan)(\w*)", re.ASCII)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and the dtype of the constant that it is."""

    value: int | float
    dtype: str

    @property
    def array(self) -> np.ndarray:
        """As a scalar of its dtype."""
        return np.asarray(self.value).astype(numpy_dtype(self.dtype))


def number(text: str, negative: bool = False) -> Number:
    """The number that a token is, perhaps with a minus before it; a ScriptError where it is none, or its dtype does
    not hold it.

    >>> number("1.5f16")
    Number(value=1.5, dtype='float16')
    """
    found = _PARTS.fullmatch(text)
    dtype = _SUFFIXES.get(found[2]) if found else None
    if found is None or (found[2] and dtype is None):
        raise ScriptError(f"`{text}` is no number", hint="1, 2i64, 1.5f, 1.5f64 and 1e-5f are numbers")
    digits = f"-{found[1]}" if negative else found[1]
    if found[1].isdigit() and (dtype is None or "int" in dtype):
        return _whole(int(digits), (dtype,) if dtype else ("int32", "int64"))
    if dtype is not None and "int" in dtype:
        raise ScriptError(f"`{text}` is no whole number", hint=f"write {found[1]}f for a float32")
    return _real(float(digits), dtype or "float32")


def _whole(value: int, dtypes: tuple[str, ...]) -> Number:
    for dtype in dtypes:
        limits = np.iinfo(numpy_dtype(dtype))
        if limits.min <= value <= limits.max:
            return Number(value, dtype)
    raise ScriptError(f"{value} is out of the range of {dtypes[-1]}", hint=f"that is {limits.min} to {limits.max}")


def _real(value: float, dtype: str) -> Number:
    with np.errstate(over="ignore"):
        held = float(np.asarray(value).astype(numpy_dtype(dtype)))
    if math.isinf(held) and not math.isinf(value):
        raise ScriptError(f"{value!r} is out of the range of {dtype}", hint=f"write {value!r}f64 for a float64")
    return Number(value, dtype)


def scalar_text(array: np.ndarray, dtype: str) -> str | None:
    """A scalar constant as a number; None where no number is exactly that (some of those that are not numbers)."""
    if dtype == "bool":
        return str(bool(array))
    if dtype not in _ENDS:
        return None
    value = array.item() if dtype != "bfloat16" else float(array)
    text = (str(value) if isinstance(value, int) else float_text(value, dtype)) + _ENDS[dtype]
    read = number(text.removeprefix("-"), negative=text.startswith("-"))
    return text if read.dtype == dtype and read.array.tobytes() == array.tobytes() else None


def float_text(value: float, dtype: str = "float64") -> str:
    """The shortest digits that read back as the same value of the dtype: ``1``, ``0.1``, ``1e-05``, ``-inf``."""
    if math.isnan(value) or math.isinf(value):
        return repr(value)
    digits = next(n for n in range(1, 18) if _same(f"{value:.{n}g}", value, dtype))
    return f"{value:.{digits}g}" if digits > 6 else f"{float(f'{value:.{digits}g}'):g}"  # 100, not 1e+02


def _same(text: str, value: float, dtype: str) -> bool:
    kind = NUMPY_DTYPES[dtype]
    with np.errstate(over="ignore"):
        a, b = np.asarray(float(text)).astype(kind), np.asarray(value).astype(kind)
    return a.tobytes() == b.tobytes()


def quoted(text: str) -> str:
    """A string in quotes."""
    return json.dumps(text, ensure_ascii=any("\ud800" <= c <= "\udfff" for c in text))  # halves of pairs are escaped


def unescaped(text: str) -> str:
    """What a string in quotes says."""

    def replace(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            raise ScriptError(f"\\{code} stands for nothing in a string", hint=r"write \\ for a backslash")
        return _ESCAPES[code]

    inside = _ESCAPE.sub(replace, text[1:-1])
    return inside.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # pairs of \u escapes
