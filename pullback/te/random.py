"""Random bits as tensor expressions: element i of a tensor depends on a state and on i alone.

A state is a uint64 tensor (seed, place): seed is the key of Philox, place the upper half of its counter. The lower half
counts blocks of numbers. Which block and word an element takes is said by its row-major number i: ``LANES`` neighbours
take the same word of as many blocks, the next ones the next word. So a loop over vectors computes each block once,
whatever the width of its vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pullback.te.tensor import Tensor, compute
from pullback.tir import philox
from pullback.tir.expr import Binary, Call, IntImm, PrimExpr, as_expr, call, cast, const

LANES = 16


def group_size(dtype: str) -> int:
    """The elements that share ``LANES`` blocks."""
    return LANES * philox.WORDS[dtype]


def bits(state: Tensor, shape: Sequence[int | PrimExpr], dtype: str = "uint32") -> Tensor:
    """Random integers, all values of uint32 or uint64 equally likely."""
    seed, place = state[0], state[1]

    def element(*indices: PrimExpr) -> PrimExpr:
        number: PrimExpr = as_expr(0)
        for index, size in zip(indices, shape, strict=True):
            number = number * as_expr(size) + index
        word = number // LANES % philox.WORDS[dtype]
        block = number // group_size(dtype) * LANES + number % LANES
        few = all(isinstance(s, int) for s in shape) and math.prod(shape) <= 2**32
        high = const(0, "uint32") if few else cast("uint32", Binary("shr", block, as_expr(32)))
        low_and_high = (f(v) for v in (place, seed) for f in (_low, _high))
        return call(philox.INTRINSIC, cast("uint32", word), _low(block), high, *low_and_high, dtype=dtype)

    return compute(shape, element, "bits")


def _low(value: PrimExpr) -> PrimExpr:
    return cast("uint32", value)


def _high(value: PrimExpr) -> PrimExpr:
    return cast("uint32", value >> 32)


def draws(tensor: Tensor) -> bool:
    """Whether the stage's element is what :func:`bits` writes."""
    return isinstance(tensor.body, Call) and tensor.body.name == philox.INTRINSIC


def number(tensor: Tensor) -> PrimExpr:
    """The row-major number of an element of :func:`bits`, in the axes of its stage."""
    block = tensor.body.args[1].value  # type: ignore[union-attr]
    return block if isinstance(block, IntImm) else block.b.a


def bits_array(state: np.ndarray, shape: Sequence[int], dtype: str = "uint32") -> np.ndarray:
    """What :func:`bits` means, over NumPy."""
    count, group = math.prod(shape), group_size(dtype)
    block = np.arange(-(-count // group) * LANES, dtype=np.uint64).reshape(-1, 1, LANES)
    words = np.arange(philox.WORDS[dtype]).reshape(1, -1, 1)
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    parts = (f for v in (block, state[1], state[0]) for f in (v & low, v >> high))
    return philox.philox4x32(dtype, words, *parts).reshape(-1)[:count].reshape(shape)
