"""Tensor expressions."""

from __future__ import annotations

from pullback.te.tensor import (
    Reduce,
    ReduceAxis,
    Tensor,
    TensorLoad,
    compute,
    max,
    min,
    placeholder,
    prod,
    reduce_axis,
    reduction,
    sum,
)
from pullback.tir.expr import Var

__all__ = [
    "Reduce", "ReduceAxis", "Tensor", "TensorLoad", "compute", "max", "min", "placeholder", "prod", "reduce_axis",
    "reduction", "size_var", "sum", "var",
]  # fmt: skip


def var(name: str = "n", dtype: str = "int64") -> Var:
    """A variable of the loop IR: a symbolic size of a shape.

    Args:
        name: what kernels and printed scripts call it; two variables of one name are two.
        dtype: of its values, an integer type.

    Returns:
        the variable.

    Raises:
        DTypeError: for an unknown dtype.

    Examples:
        >>> from pullback import te
        >>> n = te.var("n")
        >>> te.placeholder((n, 8)).shape[0] is n
        True
    """
    return Var(name, dtype)


size_var = var
