"""Patches of images: Col2Im and deformable convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.nn.functional.convolution import with_bias
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import ints, static
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.ops.shapes import rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.runtime.dtype import numpy_dtype


def _reach(size: int, kernel: int, step: int, apart: int, before: int, after: int) -> np.ndarray:
    """The places, in the padded data, of the taps of each window: (taps, windows)."""
    count = (size + before + after - (apart * (kernel - 1) + 1)) // step + 1
    return np.arange(kernel)[:, None] * apart + np.arange(count)[None] * step


@ONNX.register("Col2Im")
def col2im(
    x: Any, image_shape: Any, block_shape: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Any:  # fmt: skip
    """Blocks (N, C · block, windows) added up where they lie in images (N, C, …)."""
    sizes, block = static(ints(image_shape), "the shape of an image"), static(ints(block_shape), "the shape of a block")
    rank = len(sizes)
    steps, apart = list(strides or [1] * rank), list(dilations or [1] * rank)
    padding = list(pads or [0] * (2 * rank))
    batch, rows, _ = shape_of(x)
    (rows,) = static([rows], "the number of rows of Col2Im")
    channels = rows // math.prod(block)
    around = [n + padding[k] + padding[rank + k] for k, n in enumerate(sizes)]
    places = np.zeros((), np.int64)
    for k in range(rank):
        reach = _reach(sizes[k], block[k], steps[k], apart[k], padding[k], padding[rank + k])
        places = np.multiply.outer(places * 0 + 1, reach) + (places * around[k])[..., None, None] if k else reach
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]  # taps first, then windows
    flat = places.transpose(order).reshape(-1)
    updates = op.reshape(x, (batch, channels, len(flat)))
    index = op.broadcast_to(const(flat.reshape(1, 1, -1)), shape_of(updates))
    zeros = op.zeros((batch, channels, math.prod(around)), x.struct_info.dtype)
    found = op.reshape(op.scatter_elements(zeros, index, updates, 2, "add"), (batch, channels, *around))
    begin = padding[:rank]
    return op.strided_slice(found, list(range(2, rank + 2)), begin, [b + n for b, n in zip(begin, sizes, strict=True)])


@ONNX.register("DeformConv")
def deform_conv(
    x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None, *, dilations: Any = None, group: int,
    kernel_shape: Any = None, offset_group: int, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    """A convolution whose taps are moved by offsets, and read between the elements of images, 0 outside of them. Dai et
    al., Deformable Convolutional Networks, ICCV 2017; masks: Zhu et al., CVPR 2019."""
    if rank_of(x) != 4:
        raise ShapeError(f"DeformConv is converted for images of rank 4, got rank {rank_of(x)}")
    batch, channels, height, width = shape_of(x)
    channels, height, width = static([channels, height, width], "the sizes of DeformConv")
    outs, _, *kernel = static(shape_of(w), "the sizes of a kernel")
    steps, apart, padding = list(strides or [1, 1]), list(dilations or [1, 1]), list(pads or [0, 0, 0, 0])
    if channels % offset_group or channels % group:
        raise UserError(f"{channels} channels in {group} groups and {offset_group} groups of offsets")
    taps = kernel[0] * kernel[1]
    high, wide = static(shape_of(offset)[2:], "the sizes of DeformConv")
    dtype = numpy_dtype(x.struct_info.dtype)
    base = [
        (np.arange(k)[:, None] * d + np.arange(n)[None] * s - p).astype(dtype)
        for k, d, n, s, p in zip(kernel, apart, (high, wide), steps, padding[:2], strict=True)
    ]
    rows = np.broadcast_to(base[0][:, None, :, None], (*kernel, high, wide)).reshape(taps, high * wide)
    columns = np.broadcast_to(base[1][None, :, None, :], (*kernel, high, wide)).reshape(taps, high * wide)
    moved = op.reshape(offset, (batch, offset_group, taps, 2, high * wide))
    y = op.add(op.squeeze(op.strided_slice(moved, [3], [0], [1]), [3]), const(rows))
    z = op.add(op.squeeze(op.strided_slice(moved, [3], [1], [2]), [3]), const(columns))
    sampled = _between(
        op.reshape(x, (batch, offset_group, channels // offset_group, height * width)), y, z, height, width
    )
    if mask is not None:
        sampled = op.multiply(sampled, op.reshape(mask, (batch, offset_group, 1, taps, high * wide)))
    patches = op.reshape(sampled, (batch, group, channels // group * taps, high * wide))
    weight = op.reshape(w, (1, group, outs // group, channels // group * taps))
    return with_bias(op.reshape(op.matmul(weight, patches), (batch, outs, high, wide)), bias, 2)


def _between(x: Any, y: Any, z: Any, height: int, width: int) -> Any:
    """Elements of images (N, G, C, H · W) at rows y and columns z, (N, G, T, L): (N, G, C, T, L)."""
    batch, groups, channels, _ = shape_of(x)
    _, _, taps, count = shape_of(y)
    low_y, low_z = op.floor(y), op.floor(z)
    total: Any = None
    for dy in (0, 1):
        for dz in (0, 1):
            row, column = op.add(low_y, numbers_like(dy, y)), op.add(low_z, numbers_like(dz, z))
            by_row = op.subtract(numbers_like(1, y), op.abs(op.subtract(y, row)))
            by_column = op.subtract(numbers_like(1, z), op.abs(op.subtract(z, column)))
            inside = op.logical_and(_within(row, height), _within(column, width))
            place = op.add(op.multiply(_whole(row, height), const(width)), _whole(column, width))
            index = op.reshape(place, (batch, groups, 1, taps * count))
            index = op.broadcast_to(index, (batch, groups, channels, taps * count))
            values = op.reshape(op.gather_elements(x, index, 3), (batch, groups, channels, taps, count))
            weight = op.where(inside, op.multiply(by_row, by_column), op.zeros_like(y))
            part = op.multiply(values, op.expand_dims(weight, 2))
            total = part if total is None else op.add(total, part)
    return total


def _within(place: Any, size: int) -> Any:
    zero, end = numbers_like(0, place), numbers_like(size, place)
    return op.logical_and(op.greater_equal(place, zero), op.less(place, end))


def _whole(place: Any, size: int) -> Any:
    return op.astype(op.clip(place, 0.0, float(size - 1)), "int64")
