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
    """A variable of the loop IR: a symbolic size of a shape."""
    return Var(name, dtype)


size_var = var
