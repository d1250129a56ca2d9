"""Arguments with a number for each spatial axis, and data with or without a batch axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax import op
from pullback.relax.op.nn.window import SPATIAL
from pullback.relax.struct_info import format_shape


def is_int(value: Any) -> bool:
    """Whether a value is an int: NumPy's count, truth values do not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def each(name: str, value: Any, rank: int, least: int = 0) -> tuple[int, ...]:
    """An argument that is an int, or one for each of ``rank`` axes, as a tuple; an ArgumentError for anything else."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    given = given * rank if len(given) == 1 else given
    if len(given) != rank or not all(is_int(v) and v >= least for v in given):
        count = "an int" if rank == 1 else f"an int or {rank} ints"
        raise ArgumentError(f"{name} must be {count}, not less than {least}, got {value!r}")
    return tuple(int(v) for v in given)


def batched(function: Callable[[Any], Any], x: Any, rank: int, name: str = "input") -> Any:
    """A function of data (N, C, …) with ``rank`` spatial axes, of data with or without the axis N."""
    if len(x.shape) == rank + 2:
        return function(x)
    if len(x.shape) == rank + 1:
        return op.squeeze(function(op.expand_dims(x, 0)), 0)
    axes = ", ".join(("C", *("L" if rank == 1 else SPATIAL[rank])))
    raise ShapeError(f"{name} must have the shape (N, {axes}) or ({axes}), got {format_shape(x.shape)}")


def known_sizes(sizes: Sequence[Any], what: str) -> tuple[int, ...]:
    """Sizes that must be numbers; a ShapeError for symbolic ones."""
    if not all(is_int(s) for s in sizes):
        raise ShapeError(f"{what} needs spatial sizes that are known, got {format_shape(sizes)}")
    return tuple(int(s) for s in sizes)
