"""Names of the reference system for what has another name here, or is a few ops: aliases and small composites."""

from __future__ import annotations

import math

from pullback.ir.errors import ShapeError
from pullback.ir.op import alias
from pullback.relax.op.family import composite, expect_dtype, expect_same_dtype
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import sample
from pullback.relax.struct_info import TensorStructInfo

alias("floor_mod", "mod")
alias("log_add_exp", "logaddexp")

composite(
    "ewise_fma",
    "x, y, z",
    expect=lambda x, y, z: (expect_dtype("ewise_fma", x, "number"), expect_same_dtype("ewise_fma", x, y, z)),
    decompose=lambda x, y, z: x * y + z,
    numpy=lambda x, y, z: x * y + z,
    family="binary",
    doc="x · y + z; the three broadcast.",
    samples=[sample((3, 4), (3, 4), (3, 4)), sample((5,), (3, 5), ()), sample((0,), (0,), (1,))],
)

composite(
    "nn.batch_flatten",
    "data",
    decompose=lambda data: ops.reshape(data, (data.shape[0], math.prod(data.shape[1:]))),
    numpy=lambda data: data.reshape(data.shape[0], math.prod(data.shape[1:])),
    expect=lambda data: _expect_batch(data),
    family="reshape",
    doc="All axes but the first as one.",
    samples=[sample((3, 4, 5)), sample((2, 3)), sample((4,)), sample((0, 2, 2))],
)


def _expect_batch(data: TensorStructInfo) -> None:
    if not data.shape:
        raise ShapeError("nn.batch_flatten: a scalar has no batch axis")
