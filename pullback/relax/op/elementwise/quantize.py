"""Numbers as small integers: value = scale · (integer - zero point)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_member,
    known_shape,
    normalize_axis,
    wide,
    widened,
    zero_gradient,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import FLOATS, is_half

_SMALL = ("int8", "uint8", "int16", "uint16")
_INTEGERS = (*_SMALL, "int32")


def _expect_parameters(
    name: str, data: TensorStructInfo, scale: TensorStructInfo, zero_point: TensorStructInfo, axis: int
) -> None:
    """Scale and zero point are one number, or one for each place on the axis."""
    shape = known_shape(name, data)
    expect_dtype(name, scale, "float", "scale")
    expect_dtype(name, zero_point, "integer", "zero_point")
    for label, info in (("scale", scale), ("zero_point", zero_point)):
        own = known_shape(name, info, label)
        if all(n == 1 for n in own):
            continue
        size = shape[normalize_axis(name, axis, len(shape))]
        if not same_shape(own, (size,)):
            wanted = f"() or {format_shape((size,))}"
            raise ShapeError(f"{name}: {label} must have the shape {wanted}, got {format_shape(own)}")


def _along(x: Any, data: Any, axis: int) -> Any:
    """A parameter in a shape that broadcasts to that of the data."""
    if all(n == 1 for n in x.shape):
        return ops.reshape(x, ())
    at = axis % len(data.shape)
    return ops.reshape(x, tuple(x.shape[0] if k == at else 1 for k in range(len(data.shape))))


def _along_array(x: np.ndarray, data: np.ndarray, axis: int) -> np.ndarray:
    if x.size == 1 and all(n == 1 for n in x.shape):
        return x.reshape(())
    return x.reshape([-1 if k == axis % data.ndim else 1 for k in range(data.ndim)])


# -- quantize


def _quantize_expect(
    data: TensorStructInfo, scale: TensorStructInfo, zero_point: TensorStructInfo, *, axis: int, out_dtype: str
) -> None:
    expect_dtype("quantize", data, "float", "data")
    expect_member("quantize", "out_dtype", out_dtype, _SMALL)
    _expect_parameters("quantize", data, scale, zero_point, axis)


def _quantize(data: Any, scale: Any, zero_point: Any, *, axis: int, out_dtype: str) -> Any:
    x = widened(data)
    steps = ops.round(x / ops.astype(_along(scale, data, axis), x.dtype))
    steps = steps + ops.astype(_along(zero_point, data, axis), x.dtype)
    return ops.astype(steps, out_dtype)  # which clips, and makes 0 of NaN


def _quantize_array(
    data: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, *, axis: int, out_dtype: str
) -> np.ndarray:
    kind, limits = numpy_dtype(wide(data.dtype.name)), np.iinfo(out_dtype)
    steps = np.round(data.astype(kind) / _along_array(scale, data, axis).astype(kind))
    steps = steps + _along_array(zero_point, data, axis).astype(kind)
    return np.clip(np.where(np.isnan(steps), 0, steps), limits.min, limits.max).astype(out_dtype)


composite(
    "quantize",
    "data, scale, zero_point | axis=-1, out_dtype='int8'",
    expect=_quantize_expect,
    decompose=_quantize,
    numpy=_quantize_array,
    gradient=zero_gradient,
    family="quantize",
    doc="clip(round(data / scale) + zero_point), within the limits of int8, uint8, int16 or uint16; halves are\n"
    "rounded to even numbers, and NaN is 0. scale (a float) and zero_point (an integer) are one number, or one for\n"
    "each place on the axis. ONNX's QuantizeLinear.",
    samples=[
        sample((3, 4), Floats((), 0.1, 0.5), Ints((), -3, 4, "int32")),
        sample((3, 4), Floats((4,), 0.01, 0.5), Ints((4,), 0, 200, "uint8"), out_dtype="uint8"),
        sample((2, 3, 5), Floats((3,), 0.0001, 0.1), Ints((1,), -3, 4, "int8"), axis=1, out_dtype="int16"),
        sample([-2.5, -0.5, 0.5, 1.5, math.inf, -math.inf, math.nan], [1.0], Ints((), 0, 1), out_dtype="uint16"),
        sample((0, 3), Floats((), 0.1, 0.5), Ints((3,), 0, 1)),
    ],
)

# -- dequantize


def _dequantize_expect(
    data: TensorStructInfo, scale: TensorStructInfo, zero_point: TensorStructInfo, *, axis: int, out_dtype: str
) -> None:
    expect_member("dequantize", "the dtype of data", data.dtype, _INTEGERS)
    expect_member("dequantize", "out_dtype", out_dtype, FLOATS)
    _expect_parameters("dequantize", data, scale, zero_point, axis)


def _dequantize(data: Any, scale: Any, zero_point: Any, *, axis: int, out_dtype: str) -> Any:
    kind = "float64" if "float64" in (scale.dtype, out_dtype) else "float32"
    steps = ops.astype(data, "int64") - ops.astype(_along(zero_point, data, axis), "int64")
    value = ops.astype(steps, kind) * ops.astype(_along(scale, data, axis), kind)
    if wide(out_dtype) != out_dtype:
        value = ops.clip(value, -_greatest(out_dtype), _greatest(out_dtype))
    return value if out_dtype == kind else ops.astype(value, out_dtype)


def _greatest(dtype: str) -> float:
    return 65504.0 if dtype == "float16" else (2 - 2.0**-7) * 2.0**127


def _dequantize_array(
    data: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, *, axis: int, out_dtype: str
) -> np.ndarray:
    kind = np.float64 if "float64" in (scale.dtype.name, out_dtype) else np.float32
    steps = data.astype(np.int64) - _along_array(zero_point, data, axis).astype(np.int64)
    value = steps.astype(kind) * _along_array(scale, data, axis).astype(kind)
    if is_half(out_dtype):
        value = np.clip(value, -_greatest(out_dtype), _greatest(out_dtype))
    return value.astype(numpy_dtype(out_dtype))


composite(
    "dequantize",
    "data, scale, zero_point | axis=-1, out_dtype='float32'",
    expect=_dequantize_expect,
    decompose=_dequantize,
    numpy=_dequantize_array,
    family="quantize",
    doc="scale · (data - zero_point), for integers of up to 32 bits; what float16 or bfloat16 cannot hold becomes\n"
    "their largest number. scale (a float) and zero_point (an integer) are one number, or one for each place on the\n"
    "axis. ONNX's DequantizeLinear.",
    samples=[
        sample(Ints((3, 4), -128, 128, "int8"), Floats((), 0.1, 0.5), Ints((), -3, 4, "int32"), out_dtype="float64"),
        sample(Ints((3, 4), 0, 256, "uint8"), Floats((4,), 0.1, 0.5), Ints((4,), 0, 200, "uint8"), out_dtype="float64"),
        sample(Ints((2, 3, 5), -999, 999, "int32"), Floats((3,), 0.1, 0.5), Ints((1,), -3, 4), axis=1),
        sample(
            Ints((2, 3, 5), -999, 999, "int16"), Floats((3,), 0.1, 0.5), Ints((1,), -3, 4), axis=1, out_dtype="float64"
        ),
        sample(Ints((7,), -999, 999, "int16"), Floats((), 50.0, 99.0), Ints((), 0, 1), out_dtype="float16"),
        sample(Ints((7,), -999, 999, "int16"), Floats((), 0.1, 0.9), Ints((), 0, 1), out_dtype="bfloat16"),
        sample(Ints((0, 3), 0, 2, "int8"), Floats((3,), 0.1, 0.5), Ints((), 0, 1)),
    ],
)
