"""The older names for making tensors."""

from __future__ import annotations

from typing import Any

from pullback.runtime.device import Device, cpu, device
from pullback.runtime.tensor import Tensor, empty, tensor, zeros

NDArray = Tensor

__all__ = ["NDArray", "array", "cpu", "device", "empty", "zeros"]


def array(data: Any, device: Device | None = None) -> Tensor:
    """A tensor with a copy of ``data``: anything that ``pullback.runtime.tensor`` takes."""
    return tensor(data, device=device, copy=True)
