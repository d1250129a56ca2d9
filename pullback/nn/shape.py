"""Layers that change the shape alone."""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.functional.axes import is_int
from pullback.nn.module import Module
from pullback.relax import op
from pullback.relax.op.manipulate.shape import any_rows
from pullback.relax.struct_info import format_shape

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """The axes from ``start_dim`` to ``end_dim`` as one: (N, C, H, W) → (N, C·H·W) by default. The number of rows stays
    whatever it is.

    Args:
        start_dim: the first of the axes.
        end_dim: the last of the axes.

    Examples:
        >>> nn.Flatten()(np.zeros((8, 3, 4, 4), "float32")).shape
        (8, 48)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Any) -> Any:
        """(N, …) → (N, …)."""
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The axis ``dim`` as several, of the sizes ``unflattened_size``, one of which may be -1: what is left over.

    Args:
        dim: the axis; negative ones count from the end.
        unflattened_size: the sizes, one of which may be -1: what is left over.

    Examples:
        >>> nn.Unflatten(1, (32, 7, 7))(np.zeros((2, 1568), "float32")).shape
        (2, 32, 7, 7)
    """

    def __init__(self, dim: int, unflattened_size: Any) -> None:
        if not is_int(dim):
            raise ArgumentError(f"dim must be an int, got {dim!r}", hint="axes have no names")
        sizes = tuple(unflattened_size) if isinstance(unflattened_size, (tuple, list)) else ()
        if not sizes or not all(is_int(s) and s >= -1 for s in sizes) or sizes.count(-1) > 1:
            raise ArgumentError(f"unflattened_size must be sizes, one of which may be -1, got {unflattened_size!r}")
        self.dim, self.unflattened_size = dim, sizes

    def forward(self, input: Any) -> Any:
        """The input with one axis as several."""
        rank, sizes = len(input.shape), list(self.unflattened_size)
        if not -rank <= self.dim < rank:
            raise ShapeError(f"unflatten: axis {self.dim} is outside a tensor of rank {rank}")
        at = self.dim % rank
        own, rest = input.shape[at], math.prod(s for s in sizes if s != -1)
        if is_int(own) and -1 in sizes and rest and own % rest == 0:
            sizes[sizes.index(-1)] = own // rest
        if is_int(own) and math.prod(sizes) != own:
            raise ShapeError(
                f"unflatten: axis {at} of the shape {format_shape(input.shape)} cannot have the sizes"
                f" {self.unflattened_size}"
            )
        shape = (*input.shape[:at], *sizes, *input.shape[at + 1 :])
        return op.reshape(input, any_rows(shape) if at > 0 else shape)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
