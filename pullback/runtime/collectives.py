"""What ranks compute together, over NumPy: the meaning of collectives, for the interpreters of both IRs.

A collective takes arrays of every rank and gives each rank some. The sum over ranks has one order, whatever computes
it: neighbours first, in pairs, then the pairs' sums in pairs, and so on (:func:`tree`).

    ((x0 + x1) + (x2 + x3)) + x4

So what p ranks with k shards each add up is what p·k ranks add up, bit for bit, where k is a power of 2.

A rank's *piece* of an array is a run of its elements, in row-major order: with N elements on n ranks, elements r·c to
(r + 1)·c of rank r, c = ⌈N / n⌉. What lies behind the last element is zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from pullback.ir.errors import ArgumentError

KINDS = ("reduce", "reduce_pieces", "gather_pieces", "broadcast", "all_to_all", "piece", "rank")
LOCAL = ("piece", "rank")  # nothing is sent
REDUCTIONS = ("sum", "prod", "min", "max")

T = TypeVar("T")
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def piece_length(elements: int, ranks: int) -> int:
    """The elements of a rank's piece."""
    return -(-elements // ranks)


def check_ranks(kind: str, found: int, wanted: int) -> None:
    """Raise an ArgumentError unless there are as many ranks as a collective is made for; 0 stands for any number."""
    if wanted not in (0, found):
        message = f"{kind} is for {wanted} ranks, but there {'is 1' if found == 1 else f'are {found}'}"
        raise ArgumentError(message, hint=f"start {wanted} ranks: mpirun -n {wanted} python …")


def tree(values: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The sum of the values in its one order: pairs of neighbours, then pairs of these."""
    level = list(values)
    while len(level) > 1:
        pairs = [add(level[k], level[k + 1]) for k in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0]


def reduced(arrays: Sequence[np.ndarray], reduction: str) -> np.ndarray:
    """Equal arrays of all ranks, or of all shards, combined in the one order."""
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        combine = _FUNCTIONS[reduction]
        if dtype == np.bool_ and reduction in ("sum", "prod"):
            combine = np.logical_or if reduction == "sum" else np.logical_and
        return np.asarray(tree(arrays, lambda a, b: np.asarray(combine(a, b)).astype(dtype)))


def piece(array: np.ndarray, rank: int, ranks: int) -> np.ndarray:
    """The rank's piece of an array, of one axis."""
    length, flat = piece_length(array.size, ranks), np.ravel(array)
    own = flat[rank * length : (rank + 1) * length]
    return np.concatenate([own, np.zeros(length - own.size, array.dtype)])


def joined(pieces: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The array of which these are all pieces."""
    return np.concatenate(pieces)[: math.prod(shape)].reshape(tuple(shape))


def collective(
    kind: str, given: Sequence[Sequence[np.ndarray]], rank: int, shapes: Sequence[tuple[int, ...]], *,
    reduction: str = "sum", root: int = 0, shards: int = 1, ranks: int = 0,
) -> list[np.ndarray]:  # fmt: skip
    """What a rank gets: arrays of the given ``shapes``. ``given``: the arrays of every rank.

    ``reduce``: each array, combined over all ranks; ``reduce_pieces``: the rank's piece of that. With ``shards`` = k a
    rank gives k arrays in place of each: all first arrays, then all second ones. ``gather_pieces``: the arrays whose
    pieces the ranks give. ``broadcast``: those of ``root``. ``all_to_all``: in place of part q of an array, cut along
    its first axis, part ``rank`` of rank q. ``piece``: the rank's piece of each of its arrays. ``rank``: its number.
    """
    check_ranks(kind, len(given), ranks)
    ranks = len(given)
    if kind == "rank":
        return [np.asarray(rank, np.int64)]
    if kind == "piece":
        return [piece(a, rank, ranks) for a in given[rank]]
    if kind == "broadcast":
        return [np.array(a) for a in given[root]]
    count = len(given[0]) // shards
    if kind in ("reduce", "reduce_pieces"):
        totals = [
            reduced([arrays[k * shards + j] for arrays in given for j in range(shards)], reduction)
            for k in range(count)
        ]
        return totals if kind == "reduce" else [piece(t, rank, ranks) for t in totals]
    if kind == "gather_pieces":
        return [joined([arrays[k] for arrays in given], shapes[k]) for k in range(count)]
    assert kind == "all_to_all"
    return [np.concatenate([np.split(arrays[k], ranks)[rank] for arrays in given]) for k in range(count)]
