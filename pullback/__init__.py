"""pullback: a training compiler.

It differentiates a model at compile time, joins forward, loss, backward and optimizer in one module, and compiles that
to native code.
"""

from __future__ import annotations

from typing import Any

from pullback import ir, nd, nn, optim, relax, runtime, script, shortcuts, target, te, tir
from pullback.driver import compile
from pullback.func import grad, hvp, jvp, value_and_grad, vmap
from pullback.ir import IRModule
from pullback.ir.words import missing_from
from pullback.nn.train import trainer
from pullback.relax import op, training, transform
from pullback.relax.training import callbacks
from pullback.runtime import Device, Tensor, cpu, device, tensor
from pullback.runtime.vm import VirtualMachine
from pullback.version import __version__ as __version__

shortcuts.install()

__all__ = [
    "Device", "IRModule", "Tensor", "VirtualMachine", "callbacks", "compile", "cpu", "device", "from_keras", "grad",
    "hvp", "ir", "jvp", "nd", "nn", "op", "optim", "relax", "runtime", "script", "target", "te", "tensor", "tir",
    "trainer", "training", "transform", "value_and_grad", "vmap",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


_IMPORTERS = {"from_keras": "keras"}  # functions of importers, which are loaded on first use
_missing = missing_from(globals())


def __getattr__(name: str) -> Any:
    if name in _IMPORTERS:
        return getattr(getattr(relax.frontend, _IMPORTERS[name]), name)
    return _missing(name)
