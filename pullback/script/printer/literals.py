"""Attributes and arrays as Python literals that read back exactly."""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pullback.ir.module import GlobalVar
from pullback.ir.node import Node
from pullback.relax.struct_info import StructInfo
from pullback.script.printer.scalars import ScalarPrinter, number
from pullback.script.printer.types import info_text, quoted
from pullback.tir.expr import PrimExpr

INLINE_ELEMENTS = 64  # larger arrays are written as base64


def attribute(
    value: Any,
    scalars: ScalarPrinter,
    info: Callable[[StructInfo], str] | None = None,
    written: Mapping[str, str] | None = None,
) -> str:
    """An attribute's value. What has no script form is written as ``I.opaque(…)``, which does not read back. Of a
    mapping, the values of some keys may be ``written`` already."""

    outer = value

    def write(v: Any) -> str:
        if isinstance(v, str):
            return quoted(v)
        if v is None or isinstance(v, bool) or type(v) is int:
            return repr(v)
        if type(v) is float:
            return number(v)
        if isinstance(v, Mapping):
            known = written if written and v is outer else {}
            return "{" + ", ".join(f"{write(k)}: {known[k] if k in known else write(x)}" for k, x in v.items()) + "}"
        if isinstance(v, list):
            return "[" + ", ".join(map(write, v)) + "]"
        if isinstance(v, tuple):
            return "(" + ", ".join(map(write, v)) + ("," if len(v) == 1 else "") + ")"
        if isinstance(v, np.ndarray):
            return array(v, "I.array")
        if isinstance(v, np.generic):
            value = number(float(v)) if v.dtype.kind in "fV" else repr(v.item())
            return f'I.scalar({value}, "{v.dtype.name}")'
        if isinstance(v, PrimExpr):
            return scalars.typed(v)
        if isinstance(v, StructInfo):
            return info(v) if info is not None else info_text(v, scalars)
        if isinstance(v, GlobalVar):
            return f"I.GlobalVar({quoted(v.name)})"
        if not isinstance(v, Node) and hasattr(v, "numpy"):
            return f"I.tensor({array(np.asarray(v.numpy()), 'I.array')})"
        return f'I.opaque("{type(v).__name__}")'

    return write(value)


def constant(data: np.ndarray) -> str:
    """A constant of the graph IR."""
    return array(data, "R.const")


def array(data: np.ndarray, function: str) -> str:
    """``function(values, dtype)``; of a large array, one number if all are equal, else the bytes in base64."""
    dtype = data.dtype.name
    if data.size <= INLINE_ELEMENTS and (data.size > 0 or data.ndim == 1):
        values = _nested(data)
        if values is not None:
            return f'{function}({values}, "{dtype}")'
    uniform = _uniform(data)
    if uniform is not None:
        literal = f'I.full({tuple(data.shape)!r}, {uniform}, "{dtype}")'
        return literal if function == "I.array" else f"{function}({literal})"
    little = data if sys.byteorder == "little" else data.byteswap()
    text = base64.b64encode(little.tobytes()).decode()
    literal = f'I.bytes("{text}", {tuple(data.shape)!r}, "{dtype}")'
    return literal if function == "I.array" else f"{function}({literal})"


def _nested(data: np.ndarray) -> str | None:
    """Nested lists of numbers, or None where a number does not survive (NaNs with a payload, large uint64)."""
    if data.ndim:
        found = [_nested(part) for part in data]
        parts = [part for part in found if part is not None]
        return None if len(parts) < len(found) else "[" + ", ".join(parts) + "]"
    if data.dtype.kind in "biu":
        value = data.item()
        return repr(value) if value < 2**63 else None  # NumPy makes floats of lists that mix larger ones with smaller
    return _shortest(data)


def _uniform(data: np.ndarray) -> str | None:
    """The number that all elements are, if they are."""
    flat = np.ascontiguousarray(data).reshape(-1)
    if not flat.size or (flat.view(np.uint8).reshape(flat.size, -1) != flat[:1].view(np.uint8)).any():
        return None
    return _nested(flat[0].reshape(()))


def _shortest(data: np.ndarray) -> str | None:
    """The shortest decimal that gives the same bits in the array's dtype."""
    value = float(data)
    if not math.isfinite(value):
        texts = [number(value)]
    else:
        texts = [repr(float(f"{value:.{digits}g}")) for digits in range(1, 18)]
    for text in texts:
        read = float(text.removeprefix('float("').removesuffix('")'))
        if np.asarray(read).astype(data.dtype).tobytes() == data.tobytes():
            return text
    return None
