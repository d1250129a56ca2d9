"""Random bits as tensor expressions: element i of a tensor depends on a state and on i alone.

A state is a uint64 tensor (seed, place): seed is the key of Philox, place the upper half of its counter. The lower half
counts blocks of numbers. Which block and word an element takes is said by its row-major number i: ``LANES`` neighbours
take the same word of as many blocks, the next ones the next word. So a loop over vectors computes each block once,
whatever the width of its vectors.

Ranks that draw an array together have a *shard* of it each, whose elements have the numbers that they have in the whole
array. Of a shard that is made of runs of whole groups, all that this changes is with which block a run begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.te.tensor import Tensor, compute
from pullback.tir import philox
from pullback.tir.expr import Binary, Call, Cast, IntImm, PrimExpr, as_expr, call, cast, const

LANES = 16


def group_size(dtype: str) -> int:
    """The elements that share ``LANES`` blocks."""
    return LANES * philox.WORDS[dtype]


@dataclass(frozen=True)
class Shard:
    """The part of the rank number ``rank``, an int or an int64 scalar expression, of an array that is as many times as
    large along the axis as there are ranks."""

    rank: Any
    ranks: int
    axis: int

    def groups(self, shape: Sequence[int | PrimExpr], dtype: str) -> int | None:
        """Of how many groups a run is, where they are whole; None: they are not, or it is not known."""
        sizes = [s for s in shape if isinstance(s, int)]
        if len(sizes) < len(shape) or 0 in sizes:
            return None
        groups, rest = divmod(math.prod(sizes[self.axis :]), group_size(dtype))
        return None if rest else groups


def bits(state: Tensor, shape: Sequence[int | PrimExpr], dtype: str = "uint32", shard: Shard | None = None) -> Tensor:
    """Random integers, all values of uint32 or uint64 equally likely; ``shape`` is that of the shard, if it is one."""
    seed, place = state[0], state[1]
    groups = shard.groups(shape, dtype) if shard is not None else None
    total = math.prod(s if isinstance(s, int) else 2**32 + 1 for s in shape) * (shard.ranks if shard is not None else 1)

    def element(*indices: PrimExpr) -> PrimExpr:
        number: PrimExpr = as_expr(0)
        for k, (index, size) in enumerate(zip(indices, shape, strict=True)):
            if shard is not None and groups is None and k == shard.axis:
                number = number * (as_expr(size) * shard.ranks) + (shard.rank * as_expr(size) + index)
            else:
                number = number * as_expr(size) + index
        word = number // LANES % philox.WORDS[dtype]
        block = number // group_size(dtype) * LANES + number % LANES
        low: PrimExpr = _low(block)
        if shard is not None and groups is not None:
            first = _first_block(shard, groups, indices, shape)
            low = Binary("add", low, _low(first))
            high = _high(cast("uint64", block) + first)
        else:
            high = const(0, "uint32") if total <= 2**32 else cast("uint32", Binary("shr", block, as_expr(32)))
        low_and_high = (f(v) for v in (place, seed) for f in (_low, _high))
        return call(philox.INTRINSIC, cast("uint32", word), low, high, *low_and_high, dtype=dtype)

    return compute(shape, element, "bits")


def _first_block(shard: Shard, groups: int, indices: Sequence[PrimExpr], shape: Sequence[int | PrimExpr]) -> PrimExpr:
    """What is to be added to the numbers of blocks, for the elements at these indices."""
    first = Binary("mul", cast("uint64", shard.rank), const(groups * LANES, "uint64"))
    run: PrimExpr = as_expr(0)
    for index, size in zip(indices[: shard.axis], shape, strict=False):
        run = run * as_expr(size) + index
    if isinstance(run, IntImm):
        return first
    skip = const((shard.ranks - 1) * groups * LANES, "uint64")
    return Binary("add", first, Binary("mul", cast("uint64", run), skip))


def _low(value: PrimExpr) -> PrimExpr:
    return cast("uint32", value)


def _high(value: PrimExpr) -> PrimExpr:
    return cast("uint32", value >> 32)


def draws(tensor: Tensor) -> bool:
    """Whether the stage's element is what :func:`bits` writes."""
    return isinstance(tensor.body, Call) and tensor.body.name == philox.INTRINSIC


def draw_of(stage: Tensor) -> Call:
    """The call that a stage's element is which :func:`draws`."""
    assert isinstance(stage.body, Call)
    return stage.body


def _uncast(expr: PrimExpr) -> PrimExpr:
    assert isinstance(expr, Cast)
    return expr.value


def number(tensor: Tensor) -> PrimExpr:
    """The row-major number of an element of :func:`bits`, in the axes of its stage; in a shard of runs of whole groups,
    the number that it has in the shard."""
    low = draw_of(tensor).args[1]
    block: Any = low.a if isinstance(low, Binary) else low
    return block.value if isinstance(block.value, IntImm) else block.value.b.a


@dataclass(frozen=True)
class Runs:
    """How the blocks of a shard of whole groups are numbered: ``first``, a uint64, and after each run of so many
    ``groups`` another ``skip`` blocks, is to be added to the numbers that they have in the shard."""

    first: PrimExpr
    groups: int
    skip: int


def runs(tensor: Tensor) -> Runs | None:
    """The runs of a shard of whole groups; None: it is the whole array, or elements count one by one."""
    low = draw_of(tensor).args[1]
    if not isinstance(low, Binary):
        return None
    first: Any = _uncast(low.b)
    skip = 0
    if first.kind == "add":
        first, skip = first.a, first.b.b.value
    return Runs(first, first.b.value // LANES, skip)


def bits_array(
    state: np.ndarray, shape: Sequence[int], dtype: str = "uint32", shard: Shard | None = None
) -> np.ndarray:
    """What :func:`bits` means, over NumPy."""
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    halves = [f for v in (state[1], state[0]) for f in (v & low, v >> high)]
    if shard is not None:
        inner = math.prod(shape[shard.axis :])
        starts = np.arange(math.prod(shape[: shard.axis])) * shard.ranks + int(shard.rank)
        numbers = (starts[:, None] * inner + np.arange(inner)).reshape(shape)
        block = (numbers // group_size(dtype) * LANES + numbers % LANES).astype(np.uint64)
        return philox.philox4x32(dtype, numbers // LANES % philox.WORDS[dtype], block & low, block >> high, *halves)
    count, group = math.prod(shape), group_size(dtype)
    block = np.arange(-(-count // group) * LANES, dtype=np.uint64).reshape(-1, 1, LANES)
    words = np.arange(philox.WORDS[dtype]).reshape(1, -1, 1)
    return philox.philox4x32(dtype, words, block & low, block >> high, *halves).reshape(-1)[:count].reshape(shape)
