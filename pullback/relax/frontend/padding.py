"""Padding as NumPy has it, and ONNX, Keras and relay after it: names of modes, and numbers below 0, which cut off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pullback.relax import op
from pullback.tir.expr import is_float, limits

MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}  # as nn.pad has them

Widths = Sequence[Sequence[int]]  # how much before and after each axis


def cropped(x: Any, widths: Widths) -> tuple[Any, Widths]:
    """``x`` without what numbers below 0 cut off, and the padding that is left to do."""
    cut = [axis for axis, pair in enumerate(widths) if min(pair) < 0]
    if not cut:
        return x, widths
    begin = [max(-widths[axis][0], 0) for axis in cut]
    end = [x.struct_info.shape[axis] - max(-widths[axis][1], 0) for axis in cut]
    return op.strided_slice(x, cut, begin, end), [(max(before, 0), max(after, 0)) for before, after in widths]


def least(dtype: str) -> float:
    """The least value of a dtype: what stands around an image whose greatest elements are sought."""
    return -math.inf if is_float(dtype) else limits(dtype)[0]
