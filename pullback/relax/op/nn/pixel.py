"""Blocks of pixels as channels and back: pixel_shuffle, pixel_unshuffle, depth_to_space, space_to_depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.family import composite, expect_int
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import Layout, data_layout
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, dim, format_shape


def _factor(op: str, name: str, factor: Any) -> None:
    expect_int(op, name, factor)
    if factor < 1:
        raise ShapeError(f"{op}: {name} must be positive, got {factor}")


def _expect_multiple(op: str, label: str, size: Any, of: int) -> None:
    if not isinstance(size, int) or size % of:
        raise ShapeError(f"{op}: {label} of x, {size}, must be a multiple of {of}")


def _expect_rank(op: str, x: TensorStructInfo) -> None:
    if x.ndim < 3:
        raise ShapeError(f"{op}: x must have the axes (…, C, H, W), got the shape {format_shape(x.shape)}")


def _reshaped(x: Any, shape: Sequence[Any]) -> Any:
    """reshape, of expressions or of arrays."""
    sizes = tuple(dim(s) for s in shape)
    return np.reshape(x, sizes) if isinstance(x, np.ndarray) else ops.reshape(x, sizes)


def _permuted(x: Any, axes: Sequence[int]) -> Any:
    """permute_dims, of expressions or of arrays."""
    return np.transpose(x, axes) if isinstance(x, np.ndarray) else ops.permute_dims(x, list(axes))


# -- pixel_shuffle: channels (c, i, j) of a pixel are a block of pixels


def _shuffle(x: Any, *, upscale_factor: int) -> Any:
    (*lead, c, h, w), r, n = x.shape, upscale_factor, len(x.shape) - 3
    split = _reshaped(x, (*lead, c // (r * r), r, r, h, w))
    return _reshaped(_permuted(split, (*range(n + 1), n + 3, n + 1, n + 4, n + 2)), (*lead, c // (r * r), h * r, w * r))


def _unshuffle(x: Any, *, downscale_factor: int) -> Any:
    (*lead, c, h, w), r, n = x.shape, downscale_factor, len(x.shape) - 3
    split = _reshaped(x, (*lead, c, h // r, r, w // r, r))
    return _reshaped(_permuted(split, (*range(n + 1), n + 2, n + 4, n + 1, n + 3)), (*lead, c * r * r, h // r, w // r))


def _shuffle_expect(x: TensorStructInfo, *, upscale_factor: int) -> None:
    _factor("nn.pixel_shuffle", "upscale_factor", upscale_factor)
    _expect_rank("nn.pixel_shuffle", x)
    _expect_multiple("nn.pixel_shuffle", "the channels", x.sizes[-3], upscale_factor**2)


def _unshuffle_expect(x: TensorStructInfo, *, downscale_factor: int) -> None:
    _factor("nn.pixel_unshuffle", "downscale_factor", downscale_factor)
    _expect_rank("nn.pixel_unshuffle", x)
    for axis, label in ((-2, "the height"), (-1, "the width")):
        _expect_multiple("nn.pixel_unshuffle", label, x.sizes[axis], downscale_factor)


composite(
    "nn.pixel_shuffle",
    "x | upscale_factor",
    expect=_shuffle_expect,
    decompose=_shuffle,
    numpy=_shuffle,
    precision="same",
    family="pixel",
    doc="(…, C·r², H, W) → (…, C, H·r, W·r) with r = upscale_factor: y[…, c, h·r + i, w·r + j] =\n"
    "x[…, (c·r + i)·r + j, h, w] (Shi et al., Real-Time Single Image and Video Super-Resolution, 2016).",
    samples=[
        sample((2, 8, 3, 2), upscale_factor=2),
        sample((1, 9, 2, 1), upscale_factor=3),
        sample((2, 1, 4, 1, 3), upscale_factor=2),
        sample((1, 2, 3, 4), upscale_factor=1),
        sample((0, 4, 2, 2), upscale_factor=2),
        sample(Ints((1, 4, 2, 2), 0, 9), upscale_factor=2),
    ],
)
composite(
    "nn.pixel_unshuffle",
    "x | downscale_factor",
    expect=_unshuffle_expect,
    decompose=_unshuffle,
    numpy=_unshuffle,
    precision="same",
    family="pixel",
    doc="(…, C, H·r, W·r) → (…, C·r², H, W) with r = downscale_factor: the inverse of nn.pixel_shuffle.",
    samples=[
        sample((2, 2, 6, 4), downscale_factor=2),
        sample((2, 1, 6, 3), downscale_factor=3),
        sample((1, 2, 3, 4), downscale_factor=1),
        sample((0, 1, 4, 4), downscale_factor=2),
    ],
)

# -- depth_to_space: any layout, and the blocks' place among the channels first or last


def _layout(op: str, layout: str) -> Layout:
    return data_layout(op, "layout", layout, 2)


def _to_space(x: Any, *, block_size: int, layout: str, mode: str) -> Any:
    axes, b = _layout("nn.depth_to_space", layout), block_size
    n, c, h, w = axes.to_standard(x.shape)
    x = _permuted(x, axes.to_standard(range(4)))
    if mode == "DCR":
        moved = _permuted(_reshaped(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        moved = _permuted(_reshaped(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return _permuted(_reshaped(moved, (n, c // (b * b), h * b, w * b)), axes.from_standard(range(4)))


def _to_depth(x: Any, *, block_size: int, layout: str) -> Any:
    axes, b = _layout("nn.space_to_depth", layout), block_size
    n, c, h, w = axes.to_standard(x.shape)
    split = _reshaped(_permuted(x, axes.to_standard(range(4))), (n, c, h // b, b, w // b, b))
    moved = _reshaped(_permuted(split, (0, 3, 5, 1, 2, 4)), (n, c * b * b, h // b, w // b))
    return _permuted(moved, axes.from_standard(range(4)))


def _expect_blocks(op: str, x: TensorStructInfo, block_size: Any, layout: str) -> list[Any]:
    _factor(op, "block_size", block_size)
    axes = _layout(op, layout)
    if x.ndim != 4:
        raise ShapeError(f"{op}: x must have rank 4, with the axes {layout}, got the shape {format_shape(x.shape)}")
    return list(axes.to_standard(x.sizes))


def _to_space_expect(x: TensorStructInfo, *, block_size: int, layout: str, mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise UserError(f"nn.depth_to_space: mode must be 'DCR' or 'CRD', got {mode!r}")
    _, channels, *_ = _expect_blocks("nn.depth_to_space", x, block_size, layout)
    _expect_multiple("nn.depth_to_space", "the channels", channels, block_size**2)


def _to_depth_expect(x: TensorStructInfo, *, block_size: int, layout: str) -> None:
    _, _, height, width = _expect_blocks("nn.space_to_depth", x, block_size, layout)
    _expect_multiple("nn.space_to_depth", "the height", height, block_size)
    _expect_multiple("nn.space_to_depth", "the width", width, block_size)


composite(
    "nn.depth_to_space",
    "x | block_size, layout='NCHW', mode='DCR'",
    expect=_to_space_expect,
    decompose=_to_space,
    numpy=_to_space,
    precision="same",
    family="pixel",
    doc="(N, C·b², H, W) → (N, C, H·b, W·b) with b = block_size: channels become blocks of pixels. In mode 'DCR'\n"
    "channel (i·b + j)·C + c is the pixel (i, j) of a block of channel c, in mode 'CRD' channel (c·b + i)·b + j,\n"
    "as in pixel_shuffle. ONNX's DepthToSpace.",
    samples=[
        sample((2, 8, 3, 2), block_size=2),
        sample((1, 8, 2, 3), block_size=2, mode="CRD"),
        sample((1, 2, 3, 9), block_size=3, layout="NHWC"),
        sample((0, 4, 2, 2), block_size=2),
    ],
)
composite(
    "nn.space_to_depth",
    "x | block_size, layout='NCHW'",
    expect=_to_depth_expect,
    decompose=_to_depth,
    numpy=_to_depth,
    precision="same",
    family="pixel",
    doc="(N, C, H·b, W·b) → (N, C·b², H, W) with b = block_size: the inverse of nn.depth_to_space in mode 'DCR'.\n"
    "ONNX's SpaceToDepth.",
    samples=[
        sample((2, 2, 6, 4), block_size=2),
        sample((1, 6, 3, 2), block_size=3, layout="NHWC"),
        sample((1, 1, 3, 3), block_size=1),
        sample((0, 1, 4, 4), block_size=2),
    ],
)
