"""pullback: a training compiler.

It differentiates a model at compile time, joins forward, loss, backward and optimizer in one module, and compiles that
to native code.
"""

from __future__ import annotations

from pullback import ir, nd, relax, runtime, te, tir  # noqa: F401
from pullback.driver import compile  # noqa: A004
from pullback.ir import IRModule
from pullback.relax import op, training, transform  # noqa: F401
from pullback.relax.training import make_trainer as trainer
from pullback.runtime import Device, Tensor, cpu, device, tensor
from pullback.runtime.vm import VirtualMachine
from pullback import script  # noqa: F401  isort: skip
from pullback import target  # noqa: F401  isort: skip

__version__ = "0.1.0"

__all__ = [
    "Device", "IRModule", "Tensor", "VirtualMachine", "compile", "cpu", "device", "ir", "nd", "relax", "runtime",
    "script", "target", "te", "tensor", "tir", "trainer",
]  # fmt: skip
