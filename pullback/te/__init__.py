"""Tensor expressions."""

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
    "reduction", "sum",
]  # fmt: skip
