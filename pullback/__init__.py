"""pullback: a training compiler.

It differentiates a model at compile time, joins forward, loss, backward and optimizer in one module, and compiles that
to native code.
"""

from __future__ import annotations

import importlib
from typing import Any

from pullback import distributed, ir, nd, nn, optim, relax, runtime, script, shortcuts, target, te, tir
from pullback.driver import compile
from pullback.func import grad, hvp, jvp, value_and_grad, vjp, vmap
from pullback.ir import IRModule
from pullback.ir import PullbackError as TVMError  # what the reference calls it
from pullback.ir.words import missing_from
from pullback.nn.train import trainer
from pullback.relax import frontend, op, training, transform
from pullback.relax.training import callbacks
from pullback.runtime import Device, Tensor, cpu, device, tensor
from pullback.runtime.registry import get_global_func, register_func
from pullback.runtime.vm import VirtualMachine
from pullback.version import __version__ as __version__

shortcuts.install()

__all__ = [
    "Device", "IRModule", "TVMError", "Tensor", "VirtualMachine", "callbacks", "compile", "cpu", "device",
    "distributed", "from_keras", "from_onnx", "from_torch", "frontend", "get_global_func", "grad", "hvp", "ir", "jvp",
    "nd", "nn", "op", "optim", "register_func", "relax", "runtime", "script", "target", "te", "tensor", "tir",
    "trainer", "training", "transform", "value_and_grad", "vjp", "vmap",
]  # fmt: skip


ON_FIRST_USE = ("contrib", "error", "parser", "relay", "testing", "topi")  # the older face, which few programs need


def __dir__() -> list[str]:
    return sorted([*__all__, *ON_FIRST_USE, "__version__"])


_missing = missing_from(globals())


def __getattr__(name: str) -> Any:
    """The importers and the older face, which are loaded when they are first used."""
    if name in frontend.IMPORTERS:
        return frontend.importer(name)
    if name in ON_FIRST_USE:
        return importlib.import_module(f"pullback.{name}")
    return _missing(name)
