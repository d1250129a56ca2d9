"""Tensor expressions."""

from pullback.te.sizes import size_var, var
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

__all__ = [
    "Reduce", "ReduceAxis", "Tensor", "TensorLoad", "compute", "max", "min", "placeholder", "prod", "reduce_axis",
    "reduction", "size_var", "sum", "var",
]  # fmt: skip
