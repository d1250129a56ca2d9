"""Functions that PyTorch has beside its layers, as ``torch.cat``; and methods of tensors as functions: ``F.exp(x)``.

Joining, choosing and products stand here with PyTorch's arguments. Any other method of a tensor is a function too, of
the tensor and the method's arguments: ``F.mean(x, dim=1)`` is ``x.mean(dim=1)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.relax import op
from pullback.relax.expr import as_relax
from pullback.relax.op.methods import METHODS, OPS_AS_METHODS

__all__ = ["arange", "cat", "concat", "einsum", "full", "matmul", "ones", "split", "stack", "where", "zeros"]


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors one after the other along an axis: ``torch.cat``. Their other sizes are equal.

    Args:
        tensors: the tensors.
        dim: the axis; negative ones count from the end.

    Returns:
        a tensor.
    """
    return op.concat(tuple(tensors), dim)


concat = cat


def stack(tensors: Sequence[Any], dim: int = 0) -> Any:
    """Tensors of one shape side by side along a new axis: ``torch.stack``.

    Args:
        tensors: the tensors.
        dim: the axis; negative ones count from the end.

    Returns:
        a tensor.
    """
    return op.stack(tuple(tensors), dim)


def split(tensor: Any, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Any, ...]:
    """A tensor cut along an axis into parts of one size (the last may be smaller), or of several: ``torch.split``.

    Args:
        tensor: the tensor.
        split_size_or_sections: a size, or the sizes.
        dim: the axis; negative ones count from the end.

    Returns:
        the parts, a tuple.

    Raises:
        ArgumentError: where the sizes do not add up to that of the axis, or it is symbolic.
    """
    return METHODS["split"](tensor, split_size_or_sections, dim)


def where(condition: Any, input: Any, other: Any) -> Any:
    """``input`` where the condition holds, ``other`` elsewhere, element by element; the three broadcast.

    Args:
        condition: bools.
        input: a tensor, or an array.
        other: taken where the condition does not hold.

    Returns:
        a tensor.
    """
    return op.where(condition, input, other)


def einsum(equation: str, *operands: Any) -> Any:
    """Sums of products as Einstein writes them: ``F.einsum("bik,bkj->bij", a, b)``.

    Args:
        equation: the axes of each operand, and of the result.
        operands: the tensors.

    Returns:
        a tensor.
    """
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], (list, tuple)) else operands
    return op.einsum(tuple(given), equation)


def matmul(input: Any, other: Any) -> Any:
    """The product of matrices along the last two axes; the others broadcast.

    Args:
        input: (…, n, k).
        other: (…, k, m).

    Returns:
        (…, n, m).
    """
    return op.matmul(input, other)


def arange(*limits: int, dtype: str = "int64") -> Any:
    """The whole numbers from a start (0) to before an end, by a step (1).

    Args:
        limits: the end; or start and end; or start, end and step.
        dtype: of the result, int64 by default.

    Returns:
        a tensor of one axis.
    """
    return op.arange(*limits, dtype=dtype)


def zeros(*size: Any, dtype: str = "float32") -> Any:
    """A tensor of zeros.

    Args:
        size: the shape.
        dtype: of the result.

    Returns:
        a tensor.
    """
    return op.zeros(_sizes(size), dtype)


def ones(*size: Any, dtype: str = "float32") -> Any:
    """A tensor of ones.

    Args:
        size: the shape.
        dtype: of the result.

    Returns:
        a tensor.
    """
    return op.ones(_sizes(size), dtype)


def full(size: Sequence[Any], fill_value: float, dtype: str = "float32") -> Any:
    """A tensor whose elements are all ``fill_value``.

    Args:
        size: the shape.
        fill_value: the value.
        dtype: of the result.

    Returns:
        a tensor.
    """
    return op.full(tuple(size), as_relax(float(fill_value), dtype), dtype)


def _sizes(size: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(size[0]) if len(size) == 1 and isinstance(size[0], (list, tuple)) else size


def method(name: str) -> Any:
    """The method of tensors of this name as a function; None where there is none."""
    if name not in METHODS and name not in OPS_AS_METHODS:
        return None

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(as_relax(input), name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``input.{name}(…)``."
    return call
