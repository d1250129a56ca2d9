"""The older names for making tensors."""

from __future__ import annotations

from typing import Any

from pullback.runtime.device import Device, cpu, device
from pullback.runtime.tensor import Tensor, empty, tensor, zeros

NDArray = Tensor

__all__ = ["NDArray", "array", "cpu", "device", "empty", "zeros"]


def array(data: Any, device: Device | None = None) -> Tensor:
    """A tensor with a copy of ``data``: anything that ``pullback.runtime.tensor`` takes.

    Args:
        data: a Python number, (nested) lists, a NumPy array, or anything with DLPack or ``__array__``. The dtype is
            that of an array, float32 of Python floats, int64 of ints, bool of bools.
        device: where values live; ``pullback.cpu()`` by default.

    Returns:
        the tensor.

    Raises:
        ShapeError: for lists that differ in length.
        DTypeError: for data of a dtype that no tensor has.
        ArgumentError: for what is no data, such as None, and where ``device`` is no Device.

    Examples:
        >>> pullback.nd.array(np.arange(3, dtype="float32"))
        tensor([0., 1., 2.], shape=(3,), dtype=float32)
    """
    return tensor(data, device=device, copy=True)
