"""Pairs of bfloat16 in one uint32, and the sum of their products: what CPUs have an instruction for.

    pair(x, y)          the bits of x in the lower half, those of y in the upper one           -> uint32
    pair_dot(a, b, c)   x_a·x_b + (y_a·y_b + c), a sum of float32 rounded twice                 -> float32

A product of two bfloat16 is exact in float32. The instructions (AVX512_BF16's VDPBF16PS) take subnormal numbers for 0.
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from pullback.tir.expr import PrimExpr, Var, call, cast
from pullback.tir.math import Template

PAIR, DOT = "pair", "pair_dot"
DTYPE = "uint32"  # of a pair
ELEMENT = "bfloat16"  # of its parts


def pair(low: PrimExpr, high: PrimExpr) -> PrimExpr:
    """Two bfloat16 as a pair."""
    return call(PAIR, low, high)


def pair_dot(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr:
    """The products of two pairs, added to a float32."""
    return call(DOT, a, b, c)


@functools.cache
def template(name: str, fma: bool) -> Template:
    """The intrinsic in the loop IR's own arithmetic; that of ``pair`` takes the bits of its parts, uint16."""
    if name == PAIR:
        x, y = Var("x", "uint16"), Var("y", "uint16")
        return Template((x, y), cast(DTYPE, x) | (cast(DTYPE, y) << 16))
    a, b, c = Var("a", DTYPE), Var("b", DTYPE), Var("c", "float32")
    (low_a, high_a), (low_b, high_b) = _parts(a), _parts(b)
    if fma:
        return Template((a, b, c), call("fma", low_a, low_b, call("fma", high_a, high_b, c)))
    return Template((a, b, c), low_a * low_b + (high_a * high_b + c))


def _parts(word: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """A pair's parts in float32."""
    low, high = word << 16, word & 0xFFFF0000
    return call("reinterpret", low, dtype="float32"), call("reinterpret", high, dtype="float32")


def evaluate(name: str, *arguments: Any) -> Any:
    """The meaning of the intrinsics, over NumPy."""
    if name == PAIR:
        low, high = (np.asarray(v).view(np.uint16).astype(np.uint32) for v in arguments)
        return (low | (high << np.uint32(16)))[()]
    a, b, c = (np.asarray(v) for v in arguments)
    result = c.astype(np.float64)
    for shift in (16, 0):  # the upper parts first
        x, y = (
            ((w >> np.uint32(shift)) & np.uint32(0xFFFF)).astype(np.uint16).view(ml_dtypes.bfloat16) for w in (a, b)
        )
        result = (x.astype(np.float64) * y.astype(np.float64) + result).astype(np.float32).astype(np.float64)
    return result.astype(np.float32)[()]
