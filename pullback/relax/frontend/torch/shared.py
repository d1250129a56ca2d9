"""Tensors that PyTorch and pullback share: the same memory on both sides, by NumPy's protocol or DLPack."""

from __future__ import annotations

from typing import Any

from pullback.runtime.tensor import Tensor, tensor

__all__ = ["as_pullback", "as_torch"]


def as_pullback(value: Any) -> Tensor:
    """A tensor of PyTorch as one of pullback, over the same memory where it is contiguous.

    Raises UserError for what does not lie in the CPU's memory, DTypeError for dtypes that there are not here.
    """
    value = value.detach().contiguous()
    if value.device.type != "cpu" or str(value.dtype) == "torch.bfloat16":  # NumPy does not know it, DLPack does
        return tensor(value)
    return tensor(value.numpy())  # the same memory, in a third of the time


def as_torch(value: Tensor) -> Any:
    """A tensor of pullback as one of PyTorch, over the same memory."""
    import torch

    return torch.from_dlpack(value)
