"""Images: other sizes, channels and pixels in other places, samples at given places, windows as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError
from pullback.nn.functional.axes import batched, each, is_int, known_sizes
from pullback.nn.functional.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.op.image.resize import cubic
from pullback.relax.op.manipulate.shape import any_rows
from pullback.relax.struct_info import format_shape

__all__ = [
    "affine_grid", "channel_shuffle", "fold", "grid_sample", "interpolate", "one_hot", "pixel_shuffle",
    "pixel_unshuffle", "unfold",
]  # fmt: skip

_MODES = {  # the number of spatial axes, and the method of image.resize
    "nearest": (None, "nearest_neighbor"), "nearest-exact": (None, "nearest_neighbor"), "linear": (1, "linear"),
    "bilinear": (2, "linear"), "bicubic": (2, "cubic"), "trilinear": (3, "linear"), "area": (None, "area"),
}  # fmt: skip


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Any:  # fmt: skip
    """(N, C, L), (N, C, H, W) or (N, C, D, H, W) with the spatial axes resized.

    Args:
        input: a tensor, or an array.
        size: an int, or one for each axis; or ``scale_factor``, a number, or one for each axis, of which the result has
            ⌊size·factor⌋.
        scale_factor: the ratio of the sizes: a number, or one for each spatial axis.
        mode: "nearest", "nearest-exact", "linear" (of sequences), "bilinear" and "bicubic" (of images), "trilinear" (of
            volumes), or "area" (means).
        align_corners: the outermost elements stay where they are, else (by default) the edges. Where a factor gives no
            whole size, places are those of the factor, or with ``recompute_scale_factor`` of the ratio of the sizes.
        recompute_scale_factor: whether places are those of the ratio of the sizes, where a factor gives no whole size.
        antialias: must be False.

    Returns:
        the resized tensor.

    Raises:
        ArgumentError: for a mode that does not fit, and for ``antialias``.
    """
    rank = len(input.shape) - 2
    if mode not in _MODES:
        raise ArgumentError(f"interpolate: mode must be one of {', '.join(_MODES)}, got {mode!r}")
    own, method = _MODES[mode]
    if rank not in (1, 2, 3) or own not in (None, rank):
        shapes = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}
        takes = shapes[own] if own else " or ".join(shapes.values())
        raise ShapeError(f"interpolate: mode {mode!r} takes {takes}, got {format_shape(input.shape)}")
    if antialias:
        raise ArgumentError("interpolate: antialias=True is not supported", hint="blur with a convolution before")
    if align_corners is not None and own is None:
        raise ArgumentError(f"interpolate: align_corners is for linear and cubic modes, got it with mode {mode!r}")
    wanted, factors = _sizes(input.shape[2:], size, scale_factor, rank)
    if method == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[rank - 1](input, wanted)
    if any(factors) and not align_corners and not recompute_scale_factor:
        for axis, (count, factor, n) in enumerate(zip(wanted, factors, input.shape[2:], strict=True), 2):
            input = _scaled(input, axis, count, factor or count / n, mode)
        return input
    places, rounding = "align_corners" if align_corners else "half_pixel", "round"
    if mode == "nearest":
        places, rounding = "asymmetric", "floor"
    resize = getattr(op.image, f"resize{rank}d")
    return resize(input, wanted, method=method, coordinate_transformation_mode=places, rounding_method=rounding)


def _sizes(sizes: Sequence[Any], size: Any, scale: Any, rank: int) -> tuple[tuple[Any, ...], list[float | None]]:
    """The sizes of the result, and of each axis the factor, if that is not the ratio of the sizes."""
    if (size is None) == (scale is None):
        raise ArgumentError("interpolate takes size or scale_factor: one of them")
    if size is not None:
        return each("size", size, rank, 1), [None] * rank
    given = tuple(scale) if isinstance(scale, (tuple, list)) else (scale,) * rank
    if len(given) != rank or not all(isinstance(f, (int, float)) and 0 < f < math.inf for f in given):
        raise ArgumentError(f"scale_factor must be a positive number, or {rank} of them, got {scale!r}")
    wanted: list[Any] = []
    factors: list[float | None] = []
    for n, factor in zip(sizes, map(float, given), strict=True):
        if factor.is_integer():
            wanted.append(n * int(factor))
            factors.append(None)
            continue
        (known,) = known_sizes((n,), f"scale_factor={factor}")
        wanted.append(math.floor(known * factor))
        factors.append(None if known * factor == wanted[-1] else factor)
        if wanted[-1] < 1:
            raise ArgumentError(f"scale_factor={factor} leaves nothing of a size of {known}")
    if any(factors):
        known_sizes(sizes, f"scale_factor={scale}")
    return tuple(wanted), factors


def _scaled(x: Any, axis: int, count: int, factor: float, mode: str) -> Any:
    """One axis resized to ``count`` elements: o lies at (o + ½) / factor - ½, or of "nearest" at o / factor."""
    size, number = x.shape[axis], np.arange(count)
    if mode.startswith("nearest"):
        places = np.floor((number + (0.0 if mode == "nearest" else 0.5)) * (1.0 / factor))
        return op.take(x, const(np.minimum(places, size - 1).astype(np.int64)), axis)
    places = (number + 0.5) * (1.0 / factor) - 0.5
    first = np.floor(places)
    t = places - first
    weights = cubic(t, -0.75) if mode == "bicubic" else [1.0 - t, t]
    begin = -1 if mode == "bicubic" else 0
    indices = np.clip([first + begin + k for k in range(len(weights))], 0, size - 1).astype(np.int64)
    after = (1,) * (len(x.shape) - axis - 1)
    spread = const(np.reshape(weights, (*indices.shape, *after)), x.dtype)
    return op.sum(op.take(x, const(indices), axis) * spread, axis)


def pixel_shuffle(input: Any, upscale_factor: int) -> Any:
    """(…, C·r², H, W) → (…, C, H·r, W·r) with r = upscale_factor (Shi et al. 2016).

    Args:
        input: a tensor, or an array.
        upscale_factor: r.

    Returns:
        a tensor.
    """
    return op.nn.pixel_shuffle(input, each("upscale_factor", upscale_factor, 1, 1)[0])


def pixel_unshuffle(input: Any, downscale_factor: int) -> Any:
    """(…, C, H·r, W·r) → (…, C·r², H, W) with r = downscale_factor: the inverse of :func:`pixel_shuffle`.

    Args:
        input: a tensor, or an array.
        downscale_factor: r.

    Returns:
        a tensor.
    """
    return op.nn.pixel_unshuffle(input, each("downscale_factor", downscale_factor, 1, 1)[0])


def channel_shuffle(input: Any, groups: int) -> Any:
    """(N, C, …) with the channels of ``groups`` groups taken in turn: channel g·(C / groups) + i becomes i·groups + g
    (Zhang et al., ShuffleNet, 2018).

    Args:
        input: a tensor, or an array.
        groups: into how many groups channels are divided; each has weights of its own.

    Returns:
        a tensor of the input's shape.
    """
    (count,) = each("groups", groups, 1, 1)
    batch, channels, *rest = input.shape
    if channels % count:
        raise ArgumentError(f"channel_shuffle: the groups must divide the {channels} channels, got {groups}")
    parted = op.reshape(input, any_rows((batch, count, channels // count, *rest)))
    turned = op.permute_dims(parted, [0, 2, 1, *range(3, len(rest) + 3)])
    return op.reshape(turned, any_rows((batch, channels, *rest)))


def grid_sample(
    input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Elements of images (N, C, H, W) at the places (x, y) = grid[n, h, w], from -1 to 1 across the image, with a grid
    (N, H', W', 2) → (N, C, H', W'). Of volumes the grid is (N, D', H', W', 3).

    Args:
        input: a tensor, or an array.
        grid: the places, (N, H', W', 2) or (N, D', H', W', 3).
        mode: "bilinear", "nearest" or "bicubic".
        padding_mode: outside of the image: "zeros", "border" or "reflection".
        align_corners: whether -1 and 1 are the centres of the outermost elements, not their outer edges.

    Returns:
        the elements.
    """
    rank = len(input.shape) - 2
    if rank not in (2, 3) or len(grid.shape) != rank + 2:
        raise ShapeError(
            "grid_sample takes (N, C, H, W) with a grid (N, H, W, 2), or (N, C, D, H, W) with (N, D, H, W, 3), got"
            f" {format_shape(input.shape)} and {format_shape(grid.shape)}"
        )
    first = op.permute_dims(grid, [0, rank + 1, *range(1, rank + 1)])
    layout = "NCHW" if rank == 2 else "NCDHW"
    return op.image.grid_sample(input, first, mode, layout, padding_mode, bool(align_corners))


def affine_grid(theta: Any, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """The grid for :func:`grid_sample` of affine maps: theta (N, 2, 3) and the size (N, C, H, W) of the result →
    (N, H, W, 2); theta (N, 3, 4) and (N, C, D, H, W) → (N, D, H, W, 3).

    Args:
        theta: the maps.
        size: of the result of :func:`grid_sample`.
        align_corners: whether -1 and 1 are the centres of the outermost elements, not their outer edges.

    Returns:
        the grid.
    """
    rank = len(size) - 2
    if rank not in (2, 3):
        raise ArgumentError(f"affine_grid: size must be (N, C, H, W) or (N, C, D, H, W), got {tuple(size)}")
    grid = op.image.affine_grid(theta, each("size", tuple(size[2:]), rank, 1), bool(align_corners))
    return op.permute_dims(grid, [0, *range(2, rank + 2), 1])


def _windows(
    name: str, sizes: Sequence[int], kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """Along both axes, which place of the padded images (tap, position) is; and the padding."""
    kernel, apart = each("kernel_size", kernel_size, 2, 1), each("dilation", dilation, 2, 1)
    around, strides = each("padding", padding, 2), each("stride", stride, 2, 1)
    places = []
    for n, k, d, p, s in zip(sizes, kernel, apart, around, strides, strict=True):
        count = (n + 2 * p - d * (k - 1) - 1) // s + 1
        if count < 1:
            raise ShapeError(f"{name}: a window of {d * (k - 1) + 1} is larger than the padded size {n + 2 * p}")
        places.append(np.arange(k)[:, None] * d + np.arange(count)[None] * s)
    return places, around


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The windows of images as columns: (N, C, H, W) or (C, H, W) → (N, C·kernel area, windows), with zeros around the
    images.

    Args:
        input: a tensor, or an array.
        kernel_size: the window's size: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding: what is added on either side: an int, or one for each spatial axis.
        stride: the step from window to window: an int, or one for each spatial axis.

    Returns:
        (N, C·kernel area, windows).

    Raises:
        ShapeError: for symbolic heights and widths.
    """

    def of(data: Any) -> Any:
        batch, channels, *sizes = data.shape
        known = known_sizes(sizes, "unfold")
        (rows, columns), (top, left) = _windows("unfold", known, kernel_size, dilation, padding, stride)
        x = op.nn.pad(data, [(0, 0), (0, 0), (top, top), (left, left)]) if top or left else data
        x = op.take(op.take(x, const(rows, "int64"), 2), const(columns, "int64"), 4)  # (N, C, k, h, k, w)
        x = op.permute_dims(x, [0, 1, 2, 4, 3, 5])
        count = channels * rows.shape[0] * columns.shape[0]
        return op.reshape(x, any_rows((batch, count, rows.shape[1] * columns.shape[1])))

    return batched(of, input, 2)


def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Any:
    """The sums of columns where they came from, the adjoint of :func:`unfold`: (N, C·kernel area, windows) →
    (N, C, *output_size), the sizes of the images that were unfolded.

    Args:
        input: a tensor, or an array.
        output_size: (height, width) of the images: an int, or both.
        kernel_size: the window's size: an int, or one for each spatial axis.
        dilation: the distance of a window's elements: an int, or one for each spatial axis.
        padding: what is added on either side: an int, or one for each spatial axis.
        stride: the step from window to window.

    Returns:
        (N, C, *output_size).
    """
    wanted = each("output_size", output_size, 2, 1)
    (rows, columns), (top, left) = _windows("fold", wanted, kernel_size, dilation, padding, stride)
    area, count = rows.shape[0] * columns.shape[0], rows.shape[1] * columns.shape[1]
    if len(input.shape) == 2:
        return op.squeeze(fold(op.expand_dims(input, 0), output_size, kernel_size, dilation, padding, stride), 0)
    if len(input.shape) != 3 or input.shape[1] % area or input.shape[2] != count:
        raise ShapeError(
            f"fold: input must have the shape (N, C·{area}, {count}) for images of {wanted}, got"
            f" {format_shape(input.shape)}"
        )
    batch, channels = input.shape[0], input.shape[1] // area
    parts = (batch, channels, rows.shape[0], columns.shape[0], rows.shape[1], columns.shape[1])
    x = op.permute_dims(op.reshape(input, any_rows(parts)), [0, 1, 2, 4, 3, 5])
    x = op.take_gradient(x, const(columns, "int64"), wanted[1] + 2 * left, 4)
    x = op.take_gradient(x, const(rows, "int64"), wanted[0] + 2 * top, 2)
    if top or left:
        x = op.strided_slice(x, [2, 3], [top, left], [top + wanted[0], left + wanted[1]])
    return x


def one_hot(input: Any, num_classes: int = -1) -> Any:
    """1 at the position of each index along a new last axis of ``num_classes``, else 0: (…) → (…, num_classes), int64.

    Indices outside 0 … num_classes - 1 give zeros.

    Args:
        input: a tensor, or an array.
        num_classes: the size of the new axis.

    Returns:
        (…, num_classes), int64.

    Raises:
        ArgumentError: without.

    Examples:
        >>> F.one_hot(np.array([0, 2]), 3).numpy().tolist()
        [[1, 0, 0], [0, 0, 1]]
    """
    if not is_int(num_classes) or num_classes < 1:
        raise ArgumentError(
            f"one_hot needs num_classes, an int ≥ 1, got {num_classes!r}",
            hint="shapes do not depend on values, so the largest index cannot say it",
        )
    return op.one_hot(input, 1, 0, int(num_classes), dtype="int64")
