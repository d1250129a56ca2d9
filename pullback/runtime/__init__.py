"""What compiled code runs on: tensors, devices, threads and memory."""

from pullback.runtime.device import Device, cpu, device
from pullback.runtime.library import (
    allocated_bytes,
    allocation_count,
    get_num_threads,
    peak_bytes,
    runtime_table,
    set_num_threads,
)
from pullback.runtime.tensor import Tensor, empty, tensor, zeros

__all__ = [
    "Device",
    "Tensor",
    "allocated_bytes",
    "allocation_count",
    "cpu",
    "device",
    "empty",
    "get_num_threads",
    "peak_bytes",
    "runtime_table",
    "set_num_threads",
    "tensor",
    "zeros",
]
