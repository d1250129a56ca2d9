"""The ops of the graph IR: one op is one place, one folder a kind, one file a family.

Importing this package registers them all. The files beside the folders say how ops are made and found.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pullback.relax.op.image
import pullback.relax.op.nn
import pullback.relax.op.random
import pullback.relax.op.vision  # noqa: F401
from pullback.ir.op import Op, seal
from pullback.relax.control import (  # noqa: F401
    branch,
    cond,
    custom,
    custom_gradient,
    fori_loop,
    loop,
    scan,
    while_loop,
)
from pullback.relax.op import (  # noqa: F401
    batching,
    call,
    distributed,
    elementwise,
    index,
    linear_algebra,
    loss,
    manipulate,
    methods,
    reduction,
    reference,
)
from pullback.relax.op.call.call_tir import call_tir, call_tir_with_grad  # noqa: F401
from pullback.relax.op.call.packed import call_packed, call_pure_packed, register_packed_gradient  # noqa: F401
from pullback.relax.op.namespace import Namespace, no_op
from pullback.relax.op.register import register_gradient, register_op  # noqa: F401
from pullback.relax.recursion import call_self, recurse, recursive  # noqa: F401

nn = Namespace("nn")  # relax.op.nn.relu
random = Namespace("random")
image = Namespace("image")
vision = Namespace("vision")
grad = Namespace("grad")  # ops that gradients need
batch = Namespace("batch")  # ops over a batch, which VMap makes
ccl = Namespace("ccl")
for _name in ("grad", "batch", "ccl"):  # from pullback.relax.op.ccl import allreduce; the others have folders
    _module = sys.modules[f"{__name__}.{_name}"] = ModuleType(f"{__name__}.{_name}")
    vars(_module)["__getattr__"] = Namespace(_name).__getattr__

seal()


def __getattr__(name: str) -> Any:
    op = Op.find(f"relax.{name}")
    if op is not None:
        return op
    if any(full.startswith(f"relax.{name}.") for full in Op.registry):
        return Namespace(name)  # of the user's own ops: relax.op.own.swish
    if name.startswith("__"):
        raise AttributeError(name)
    raise no_op(name)


def __dir__() -> list[str]:
    return sorted(op.short for op in Op.registry.values() if "." not in op.short)
