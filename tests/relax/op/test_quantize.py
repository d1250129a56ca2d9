"""Integers for numbers: there and back, and calls that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.relax.block_builder import BlockBuilder
from pullback.relax.expr import Var
from pullback.relax.interpreter import value_info
from pullback.relax.op.namespace import ops
from pullback.relax.struct_info import TensorStructInfo

rng = np.random.default_rng(2)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_there_and_back(dtype: str) -> None:
    """What lies within the limits comes back to half a step."""
    x, scale = rng.uniform(-3, 3, (5, 4)).astype("float32"), np.array([0.05, 0.1, 0.2, 1.0], "float32")
    zero = np.array([100, 90, 80, 70], "int32")
    params = [Var(n, value_info(a)) for n, a in zip("xsz", (x, scale, zero), strict=True)]
    builder = BlockBuilder()
    with builder.function("main", params):
        steps = builder.emit(ops.quantize(*params, out_dtype=dtype))
        builder.emit_func_output((steps, builder.emit(ops.dequantize(steps, *params[1:]))))
    for target in ("debug", "llvm"):
        steps, back = pullback.compile(builder.get(), target).function("main")(x, scale, zero)
        expected = [[round(float(v / s)) + int(z) for v, s, z in zip(row, scale, zero, strict=True)] for row in x]
        limits = np.iinfo(dtype)
        np.testing.assert_array_equal(steps.numpy(), np.clip(expected, limits.min, limits.max))
        inside = (steps.numpy() > limits.min) & (steps.numpy() < limits.max)
        assert steps.numpy().dtype == dtype and inside.mean() > 0.5
        assert np.all((np.abs(back.numpy() - x) <= scale * 0.5001) | ~inside)


def _var(shape: tuple[int, ...], dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


X, K, S, Z = _var((3, 4)), _var((3, 4), "int8"), _var(()), _var((), "int32")
ERRORS: dict[str, tuple[Any, type[UserError], str]] = {
    "data": (lambda: ops.quantize(K, S, Z), DTypeError, "quantize: data must have a floating-point dtype, got int8"),
    "result": (
        lambda: ops.quantize(X, S, Z, out_dtype="int32"),
        UserError,
        "quantize: out_dtype must be one of 'int8'",
    ),
    "scale": (lambda: ops.quantize(X, Z, Z), DTypeError, "quantize: scale must have a floating-point dtype, got int32"),
    "zero point": (lambda: ops.quantize(X, S, S), DTypeError, "quantize: zero_point must have an integer dtype"),
    "scales": (
        lambda: ops.quantize(X, _var((3,)), Z),
        ShapeError,
        r"quantize: scale must have the shape \(\) or \(4,\), got \(3,\)",
    ),
    "zero points": (
        lambda: ops.quantize(X, S, _var((4,), "int8"), axis=0),
        ShapeError,
        r"quantize: zero_point must have the shape \(\) or \(3,\), got \(4,\)",
    ),
    "axis": (
        lambda: ops.quantize(X, _var((3,)), Z, axis=2),
        ShapeError,
        "quantize: axis 2 is outside a tensor of rank",
    ),
    "integers": (
        lambda: ops.dequantize(_var((3,), "int64"), S, Z),
        UserError,
        "dequantize: the dtype of data must be one of 'int8', 'uint8', 'int16', 'uint16', 'int32', got 'int64'",
    ),
    "floats": (
        lambda: ops.dequantize(K, S, Z, out_dtype="int8"),
        UserError,
        "dequantize: out_dtype must be one of 'float16'",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    make, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        make()
