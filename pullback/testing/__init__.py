"""What tests use: comparisons, the targets of this machine, marks of what a test requires."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import NoAttribute
from pullback.testing.numeric import assert_allclose, check_numerical_grads
from pullback.testing.parameters import fixture, main, parameter, parameters
from pullback.testing.targets import (
    Requirement,
    device_enabled,
    enabled_targets,
    exclude_targets,
    known_failing_targets,
    parametrize_targets,
    requires,
    requires_llvm,
    requires_package,
    uses_gpu,
)

__all__ = [
    "Requirement",
    "assert_allclose",
    "check_numerical_grads",
    "device_enabled",
    "enabled_targets",
    "exclude_targets",
    "fixture",
    "known_failing_targets",
    "main",
    "parameter",
    "parameters",
    "parametrize_targets",
    "requires_llvm",
    "requires_package",
    "uses_gpu",
]

_FEATURES = [  # of what tests of other systems ask for
    "gpu",
    "cuda",
    "cudagraph",
    "cudnn",
    "cublas",
    "cutlass",
    "rocm",
    "metal",
    "mps",
    "vulkan",
    "opencl",
    "openclml",
    "hexagon",
    "aprofile",
    "micro",
    "rpc",
    "nvptx",
    "tensorcore",
    "matrixcore",
    "libtorch",
    "nnapi",
    "ethosn",
    "ethosu",
    "cmsisnn",
    "corstone300",
    "vitis_ai",
    "adreno_opencl_vulkan",
    "x86_vnni",
    "x86_avx512",
    "x86_amx",
    "arm_dot",
    "nvcc_version",
    "cutensormap",
]


def __getattr__(name: str) -> Any:
    """``requires_gpu`` and its like: tests that need what there is not are skipped."""
    if name.removeprefix("requires_") in _FEATURES and name.startswith("requires_"):
        return requires(name.removeprefix("requires_"))
    raise NoAttribute(f"there is no testing.{name}")
