"""Softmax and its logarithm: a few stages with a stable gradient of its own.

Half-precision types are computed in float32 and rounded once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.op import define
from pullback.relax.op.family import (
    expect_dtype,
    in_wide,
    known_shape,
    normalize_axis,
    rule_in_wide,
    wide,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import te_cast, te_reduce, te_sum
from pullback.relax.op.sample import sample
from pullback.relax.struct_info import TensorStructInfo


def _softmax_infer(name: str) -> Any:
    def infer(x: TensorStructInfo, *, axis: int) -> TensorStructInfo:
        normalize_axis(name, axis, len(known_shape(name, x)))
        expect_dtype(name, x, "float")
        return x

    return infer


def _along(i: Sequence[tir.PrimExpr], axis: int) -> tuple[tir.PrimExpr, ...]:
    """The index into a tensor that was reduced along ``axis`` with its size kept as 1."""
    return (*i[:axis], tir.as_expr(0), *i[axis + 1 :])


def te_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    x = te_cast(x, wide(x.dtype))
    peak = te_reduce("max", x, (axis,), True, "max")
    e = te.compute(x.shape, lambda *i: tir.call("exp", x[i] - peak[_along(i, axis)]), "exp")
    total = te_sum(e, (axis,), True)
    inverse = te.compute(total.shape, lambda *i: 1.0 / total[i], "inverse")  # the total is 1 or more
    return te.compute(x.shape, lambda *i: e[i] * inverse[_along(i, axis)], "softmax")


def te_log_softmax(x: te.Tensor, axis: int) -> te.Tensor:
    x = te_cast(x, wide(x.dtype))
    peak = te_reduce("max", x, (axis,), True, "max")
    e = te.compute(x.shape, lambda *i: tir.call("exp", x[i] - peak[_along(i, axis)]), "exp")
    total = te_sum(e, (axis,), True)
    log = te.compute(total.shape, lambda *i: tir.call("log", total[i]), "log")
    return te.compute(x.shape, lambda *i: x[i] - peak[_along(i, axis)] - log[_along(i, axis)], "log_softmax")


def softmax_array(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis, keepdims=True)


def log_softmax_array(x: np.ndarray, axis: int) -> np.ndarray:
    z = x - np.max(x, axis, keepdims=True, initial=-np.inf)
    return z - np.log(np.sum(np.exp(z), axis, keepdims=True))


_SOFTMAX_SAMPLES = [
    sample((3, 17)),
    sample((2, 3, 4), axis=1),
    sample((5,), axis=0),
    sample((2, 1)),
    sample((0, 3)),
    sample((1, 129), axis=-1),
    sample([[1e4, 0.0, -1e4], [float("-inf"), 0.0, 1.0]], smooth=False),
]

define(
    "nn.softmax",
    "x | axis=-1",
    infer=_softmax_infer("nn.softmax"),
    te=lambda x, *, axis: te_cast(te_softmax(x, normalize_axis("nn.softmax", axis, x.ndim)), x.dtype),
    numpy=in_wide(softmax_array),
    gradient=rule_in_wide(lambda dy, y, x, *, axis: (y * (dy - ops.vecdot(dy, y, axis, True)),)),
    family="softmax",
    doc="exp(x - max x) / Σ exp(x - max x) along an axis.",
    samples=_SOFTMAX_SAMPLES,
)
define(
    "nn.log_softmax",
    "x | axis=-1",
    infer=_softmax_infer("nn.log_softmax"),
    te=lambda x, *, axis: te_cast(te_log_softmax(x, normalize_axis("nn.log_softmax", axis, x.ndim)), x.dtype),
    numpy=in_wide(log_softmax_array),
    gradient=rule_in_wide(lambda dy, y, x, *, axis: (dy - ops.exp(y) * ops.sum(dy, axis, True),)),
    family="softmax",
    doc="log softmax along an axis: x - max x - log Σ exp(x - max x).",
    samples=_SOFTMAX_SAMPLES,
)
