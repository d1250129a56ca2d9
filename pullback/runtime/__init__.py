"""What compiled code runs on: tensors, devices, threads and memory."""

from pullback.runtime.container import ADT
from pullback.runtime.device import Device, cpu, device, enabled
from pullback.runtime.library import (
    allocated_bytes,
    allocation_count,
    get_num_threads,
    peak_bytes,
    runtime_table,
    set_num_threads,
)
from pullback.runtime.loaded import load_module
from pullback.runtime.param_dict import load_param_dict, save_param_dict
from pullback.runtime.tensor import Tensor, empty, tensor, zeros

NDArray, String = Tensor, str  # what the reference calls them

__all__ = [
    "ADT",
    "Device",
    "NDArray",
    "String",
    "Tensor",
    "allocated_bytes",
    "allocation_count",
    "cpu",
    "device",
    "empty",
    "enabled",
    "get_num_threads",
    "load_module",
    "load_param_dict",
    "peak_bytes",
    "runtime_table",
    "save_param_dict",
    "set_num_threads",
    "tensor",
    "zeros",
]
