"""The ops of the graph IR: one op is one place, one file a family. Importing this package registers them all."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from pullback.ir.op import Op, seal
from pullback.relax.control import branch, cond, custom, custom_gradient, fori_loop, loop, while_loop  # noqa: F401
from pullback.relax.op import (  # noqa: F401
    activation,
    attention,
    augment,
    average_pool,
    batch_norm,
    batching,
    binary,
    call_te,
    call_tir,
    convolution,
    create,
    ctc,
    detection,
    einsum,
    elementwise,
    embedding,
    form,
    gather,
    grid_sample,
    index,
    join,
    layout,
    linear_algebra,
    loss,
    manipulate,
    margin_loss,
    max_pool,
    methods,
    norm,
    norm_pool,
    normalization,
    packed,
    pad,
    pixel,
    quantize,
    rearrange,
    reduce,
    reference,
    regions,
    resize,
    roi_align,
    scan,
    scatter,
    search,
    shard,
    sort,
    special,
    suppression,
    sync_batch_norm,
)
from pullback.relax.op import ccl as _
from pullback.relax.op import nn as _  # noqa: F811
from pullback.relax.op import random as _  # noqa: F401, F811
from pullback.relax.op.call_tir import call_tir, call_tir_with_grad  # noqa: F401, F811
from pullback.relax.op.namespace import Namespace, no_op
from pullback.relax.op.packed import call_packed, call_pure_packed, register_packed_gradient  # noqa: F401
from pullback.relax.op.register import register_gradient, register_op  # noqa: F401

nn = Namespace("nn")  # relax.op.nn.relu, not the file of that family
random = Namespace("random")
grad = Namespace("grad")  # ops that gradients need
image = Namespace("image")
vision = Namespace("vision")
batch = Namespace("batch")  # ops over a batch, which VMap makes
ccl = Namespace("ccl")
_NAMESPACES = {"nn": nn, "random": random, "grad": grad, "image": image, "vision": vision, "batch": batch, "ccl": ccl}
for _name, _namespace in _NAMESPACES.items():
    _module = sys.modules.setdefault(f"{__name__}.{_name}", ModuleType(f"{__name__}.{_name}"))
    vars(_module)["__getattr__"] = _namespace.__getattr__  # from pullback.relax.op.nn import relu
for _name in [name for name, value in globals().items() if isinstance(value, ModuleType)]:
    if Op.find(f"relax.{_name}") is not None:
        globals()[_name] = Op.find(f"relax.{_name}")  # relax.op.sort is the op, not the file of that name
from pullback.relax.control import scan  # noqa: E402, F401, F811  the loop, not the file of that name
from pullback.relax.recursion import call_self, recurse, recursive  # noqa: E402, F401

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
