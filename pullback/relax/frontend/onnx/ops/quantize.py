"""Quantized numbers: integers with a scale and a zero point."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax import op
from pullback.relax.frontend.onnx.known import static
from pullback.relax.frontend.onnx.ops.layers import windows
from pullback.relax.frontend.onnx.ops.shapes import axis_of, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.types import dtype_of
from pullback.tir.expr import limits


def _placed(values: Any, x: Any, axis: int, block_size: int) -> Any:
    """Scales or zero points in a shape that broadcasts to x: one number, one for each place on an axis, or blocks."""
    if values is None or rank_of(values) == 0 or (rank_of(values) == 1 and shape_of(values) == (1,) and not block_size):
        return values if values is None or rank_of(values) == 0 else op.reshape(values, ())
    axis = axis_of(axis, rank_of(x))
    if block_size:
        (size,) = static(shape_of(x)[axis : axis + 1], "the size of an axis that is quantized in blocks")
        wide = op.repeat(values, block_size, axis)
        return wide if shape_of(wide)[axis] == size else op.strided_slice(wide, [axis], [0], [size])
    if rank_of(values) != 1:
        raise ShapeError(f"scales of rank {rank_of(values)} need a block_size")
    return op.reshape(values, (-1, *(1,) * (rank_of(x) - 1 - axis)))


def _rounded(x: Any, zero_point: Any, dtype: str) -> Any:
    """Whole numbers next to x, plus the zero point, within the limits of a dtype."""
    low, high = limits(dtype)
    whole = op.round(x)
    moved = whole if zero_point is None else op.add(whole, op.astype(zero_point, x.struct_info.dtype))
    return op.astype(op.clip(moved, float(low), float(high)), dtype)


@ONNX.register("QuantizeLinear")
def quantize_linear(
    x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
    precision: int = 0, **_: Any,
) -> Any:  # fmt: skip
    if zero_point is not None:
        dtype = zero_point.struct_info.dtype
    else:
        dtype = dtype_of(output_dtype, "the type that QuantizeLinear gives") if output_dtype else "uint8"
    wide = dtype_of(precision, "the precision of QuantizeLinear") if precision else "float32"
    if "float64" in (x.struct_info.dtype, scale.struct_info.dtype):
        wide = "float64"
    by = _cast(_placed(scale, x, axis, block_size), wide)
    return _rounded(op.divide(_cast(x, wide), by), _placed(zero_point, x, axis, block_size), dtype)


@ONNX.register("DequantizeLinear")
def dequantize_linear(
    x: Any, scale: Any, zero_point: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:  # fmt: skip
    dtype = scale.struct_info.dtype
    if output_dtype:
        dtype = dtype_of(output_dtype, "the type that DequantizeLinear gives")
    wide = "float64" if x.struct_info.dtype == "int32" or dtype == "float64" else "float32"
    moved = _cast(x, wide)
    if zero_point is not None:
        moved = op.subtract(moved, _cast(_placed(zero_point, x, axis, block_size), wide))
    return _cast(op.multiply(moved, _cast(_placed(scale, x, axis, block_size), wide)), dtype)


def _cast(x: Any, dtype: str) -> Any:
    return x if x.struct_info.dtype == dtype else op.astype(x, dtype)


def _centred(x: Any, zero_point: Any, axis: int | None = None) -> Any:
    """x minus its zero point, in int32; of zero points for each place, those of an axis."""
    wide = op.astype(x, "int32")
    if zero_point is None:
        return wide
    moved = op.astype(zero_point, "int32")
    if axis is not None and rank_of(moved) == 1 and shape_of(moved) != (1,):
        moved = op.reshape(moved, (-1, *(1,) * (rank_of(x) - 1 - axis)))
    return op.subtract(wide, moved)


def _rows(values: Any, x: Any) -> Any:
    """Numbers for each row of a matrix, in a shape that broadcasts."""
    return (
        op.reshape(values, (-1, 1)) if rank_of(values) == 1 and rank_of(x) > 1 and shape_of(values) != (1,) else values
    )


@ONNX.register("MatMulInteger")
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    left = _centred(a, None if a_zero is None else _rows(a_zero, a))
    return op.matmul(left, _centred(b, b_zero))


@ONNX.register("QLinearMatMul")
def qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:  # fmt: skip
    total = op.matmul(_centred(a, _rows(a_zero, a)), _centred(b, b_zero))
    factor = op.divide(op.multiply(_wide(_rows(a_scale, a)), _wide(b_scale)), _wide(y_scale))
    return _rounded(op.multiply(op.astype(total, "float64"), factor), y_zero, y_zero.struct_info.dtype)


def _wide(x: Any) -> Any:
    return _cast(op.reshape(x, ()) if shape_of(x) == (1,) else x, "float64")


def _convolved(x: Any, w: Any, attrs: dict[str, Any]) -> Any:
    kernel = static(shape_of(w)[2:], "the sizes of a kernel")
    steps, apart, padding = windows(
        x, kernel, attrs.get("auto_pad", "NOTSET"), attrs.get("pads"), attrs.get("strides"), attrs.get("dilations")
    )
    of = getattr(op.nn, f"conv{len(kernel)}d")
    return of(x, w, strides=steps, padding=padding, dilation=apart, groups=attrs.get("group", 1))


@ONNX.register("ConvInteger")
def conv_integer(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **attrs: Any) -> Any:
    return _convolved(_centred(x, x_zero), _centred(w, w_zero, 0), attrs)


@ONNX.register("QLinearConv")
def qlinear_conv(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any,
    bias: Any = None, **attrs: Any,
) -> Any:  # fmt: skip
    total = _convolved(_centred(x, x_zero), _centred(w, w_zero, 0), attrs)
    apart = (-1, *(1,) * (rank_of(x) - 2))
    if bias is not None:
        total = op.add(total, op.reshape(bias, apart))
    weight = _wide(w_scale)
    weight = op.reshape(weight, apart) if rank_of(weight) else weight
    factor = op.divide(op.multiply(_wide(x_scale), weight), _wide(y_scale))
    return _rounded(op.multiply(op.astype(total, "float64"), factor), y_zero, y_zero.struct_info.dtype)
