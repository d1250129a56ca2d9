"""Sampling images at places given as tensors: image.grid_sample, and the grids of affine maps, image.affine_grid."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax.op.family import composite, expect_dtype, expect_same_dtype, in_wide, masked, wide
from pullback.relax.op.image.resize import cubic
from pullback.relax.op.index.gather import along_axis, flattened
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import SPATIAL, Layout, data_layout, numbers, standard_shape
from pullback.relax.op.sample import Floats, sample
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape

_METHODS = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")
_ALPHA = -0.75  # of cubic weights


def _layout(layout: Any) -> Layout:
    rank = len(layout) - 2 if isinstance(layout, str) else 2
    return data_layout("image.grid_sample", "layout", layout, rank if rank in (2, 3) else 2)


def _expect(
    data: TensorStructInfo, grid: TensorStructInfo, *, method: str, layout: str, padding_mode: str, align_corners: bool
) -> None:
    op = "image.grid_sample"
    for name, value, known in (("method", method, _METHODS), ("padding_mode", padding_mode, _PADDINGS)):
        if value not in known:
            raise UserError(f"{op}: {name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    axes = _layout(layout)
    rank = len(axes.letters) - 2
    batch, *_ = standard_shape(op, "data", data, axes)
    expect_dtype(op, data, "float", "data")
    expect_same_dtype(op, data, grid)
    letters = ", ".join(SPATIAL[rank])
    if grid.ndim != rank + 2 or not same_shape(grid.sizes[:2], (batch, rank)):
        got = format_shape(grid.sizes)
        raise ShapeError(f"{op}: grid must have the shape (N, {rank}, {letters}) with the data's N, got {got}")
    if not all(isinstance(s, int) for s in grid.sizes[2:]):
        raise ShapeError(f"{op}: of the grid only the batch may have a symbolic size, got {format_shape(grid.sizes)}")
    if method == "bicubic" and rank != 2:
        raise UserError(f"{op}: method 'bicubic' is for images of 2 axes, got {rank}")


# -- as ops


def _reflected(p: Any, size: int, align: bool) -> Any:
    """A place mirrored, as often as need be, at the centres of the outermost elements or at their edges."""
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span == 0:
        return p * 0.0
    along = ops.mod(p - low, 2.0 * span)
    return ops.minimum(along, 2.0 * span - along) + low


def _padded(p: Any, size: int, padding: str, align: bool) -> Any:
    """A place brought into the image as the padding mode says."""
    if padding == "reflection":
        p = _reflected(p, size, align)
    return p if padding == "zeros" else ops.clip(p, 0.0, size - 1.0)


def _taps(g: Any, size: int, method: str, padding: str, align: bool) -> tuple[Any, Any, Any]:
    """Of one axis: the indices (int64) around the places of a grid from -1 to 1, whether they lie in the image, and
    their weights, each (t, N, …)."""
    p = (g + 1.0) * ((size - 1) / 2) if align else ((g + 1.0) * float(size) - 1.0) * 0.5
    if method == "bicubic":
        first = ops.floor(p)
        places = [_padded(first + float(k), size, padding, align) for k in (-1, 0, 1, 2)]
        weights = cubic(p - first, _ALPHA)
    else:
        p = _padded(p, size, padding, align)
        first = ops.round(p) if method == "nearest" else ops.floor(p)
        t = p - first
        places, weights = ([first], [ops.ones_like(t)]) if method == "nearest" else ([first, first + 1.0], [1.0 - t, t])
    indices = ops.astype(ops.stack(places), "int64")
    inside = ops.logical_and(ops.greater_equal(indices, 0), ops.less(indices, size))
    return indices, inside, ops.stack(weights)


def _sampled(data: Any, grid: Any, *, method: str, layout: str, padding_mode: str, align_corners: bool) -> Any:
    """Σ over the taps of weight · element, of rows that hold all channels. The taps of each axis are an axis of their
    own, in front."""
    axes, dtype = _layout(layout), data.dtype
    rank = len(axes.letters) - 2
    x = ops.astype(data, wide(dtype)) if wide(dtype) != dtype else data
    x = ops.permute_dims(x, [axes.letters.index(c) for c in ("N", *SPATIAL[rank], "C")])
    grid = ops.astype(grid, wide(dtype)) if wide(dtype) != dtype else grid

    def component(k: int) -> Any:  # the grid names the innermost axis first
        at = rank - 1 - k
        return ops.squeeze(ops.strided_slice(grid, [1], [at], [at + 1]), 1)

    def in_front(taps: Any, k: int) -> Any:
        count, *rest = taps.shape
        return ops.reshape(taps, (*(1,) * k, count, *(1,) * (rank - k - 1), *rest))

    along = [_taps(component(k), s, method, padding_mode, align_corners) for k, s in enumerate(x.shape[1:-1])]
    spread = [[in_front(t, k) for t in taps] for k, taps in enumerate(along)]
    indices, inside, weights = zip(*spread, strict=True)
    flat = ops.ravel_multi_index([along_axis(x.shape[0], 0, rank + 1), *indices], x.shape[:-1], "clip")
    elements = ops.take(flattened(x, rank + 1), flat, 0, "clip")
    channels = 2 * rank + 1  # their axis, after the taps, the batch and the grid
    terms = elements * ops.expand_dims(reduce(ops.multiply, weights), channels)
    total = ops.sum(masked(ops.expand_dims(reduce(ops.logical_and, inside), channels), terms), list(range(rank)))
    own = f"N{SPATIAL[rank]}C"
    result = ops.permute_dims(total, [own.index(c) for c in axes.letters])
    return result if wide(dtype) == dtype else ops.astype(result, dtype)


# -- the meaning


def _places_array(g: np.ndarray, size: int, align: bool) -> np.ndarray:
    return (g + 1) * (size - 1) / 2 if align else ((g + 1) * size - 1) / 2


def _brought_array(p: np.ndarray, size: int, padding: str, align: bool) -> np.ndarray:
    if padding == "reflection":
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        span = high - low
        turns = np.floor((p - low) / span) if span else np.zeros_like(p)
        rest = p - low - turns * span
        p = low + np.where(turns % 2 == 0, rest, span - rest) if span else np.zeros_like(p)
    return p if padding == "zeros" else np.clip(p, 0, size - 1)


def _sampled_array(
    data: np.ndarray, grid: np.ndarray, *, method: str, layout: str, padding_mode: str, align_corners: bool
) -> np.ndarray:
    axes = _layout(layout)
    x = axes.standard_array(data)
    rank, sizes = x.ndim - 2, x.shape[2:]
    along = []
    for k, size in enumerate(sizes):
        p = _places_array(grid[:, rank - 1 - k], size, align_corners)
        if method != "bicubic":
            p = _brought_array(p, size, padding_mode, align_corners)
        first = np.round(p) if method == "nearest" else np.floor(p)
        t = p - first
        weights = {"nearest": [np.ones_like(t)], "bilinear": [1 - t, t]}.get(method) or cubic(t, _ALPHA)
        places = [first + j - (1 if method == "bicubic" else 0) for j in range(len(weights))]
        if method == "bicubic":
            places = [_brought_array(q, size, padding_mode, align_corners) for q in places]
        along.append(list(zip(places, weights, strict=True)))
    result = np.zeros((x.shape[0], x.shape[1], *grid.shape[2:]), data.dtype)
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * rank)
    for taps in itertools.product(*along):
        inside = np.all([(q >= 0) & (q < s) for (q, _), s in zip(taps, sizes, strict=True)], 0)
        where = tuple(np.where(inside, q, 0).astype(np.int64) for q, _ in taps)
        at: tuple[Any, ...] = (batch, slice(None), *where)
        values = np.moveaxis(x[at], -1, 1)
        terms = values * np.prod([w for _, w in taps], 0)[:, None]
        result += np.where(inside[:, None], terms, 0).astype(data.dtype)
    return axes.own_array(result)


_GRID = Floats((2, 2, 3, 4), -1.3, 1.3)

composite(
    "image.grid_sample",
    "data, grid | method='bilinear', layout='NCHW', padding_mode='zeros', align_corners=True",
    expect=_expect,
    decompose=_sampled,
    numpy=in_wide(_sampled_array),
    family="image",
    doc="Elements of images at the places of a grid: y[n, c, h, w] is data[n, c] at x = grid[n, 0, h, w] across and\n"
    "y = grid[n, 1, h, w] down (in volumes, layout 'NCDHW', x, y and z), from -1 to 1 across the image: between the\n"
    "centres of the outermost elements with align_corners, else between their edges. method: 'bilinear', 'nearest'\n"
    "(half to even), or of images 'bicubic' (alpha = -0.75). padding_mode: beyond the image lie 'zeros', the elements\n"
    "at its 'border', or its 'reflection'. As TVM's image.grid_sample; PyTorch's has the axis of x and y last.",
    samples=[
        sample((2, 3, 5, 4), _GRID),
        sample((2, 1, 5, 4), _GRID, align_corners=False),
        sample((2, 2, 4, 3), _GRID, padding_mode="border", align_corners=False),
        sample((2, 2, 4, 3), _GRID, padding_mode="reflection", align_corners=False),
        sample((2, 2, 4, 3), Floats((2, 2, 3, 4), -4, 4), padding_mode="reflection"),
        sample((2, 2, 4, 3), _GRID, method="nearest"),
        sample((2, 4, 3, 2), _GRID, method="bicubic", layout="NHWC", align_corners=False),
        sample((1, 1, 4, 3), Floats((1, 2, 2, 2), -1.3, 1.3), method="bicubic", padding_mode="reflection"),
        sample((1, 2, 3, 4, 2), Floats((1, 3, 2, 1, 3), -1.3, 1.3), layout="NCDHW"),
        sample((1, 1, 1, 1), Floats((1, 2, 2, 2), -1, 1), padding_mode="reflection"),
    ],
)

# -- affine_grid


def _affine_expect(data: TensorStructInfo, *, size: Any, align_corners: bool) -> None:
    op = "image.affine_grid"
    expect_dtype(op, data, "float", "data")
    rank = 3 if data.ndim == 3 and data.sizes[1:] == (3, 4) else 2
    if data.ndim != 3 or not same_shape(data.sizes[1:], (rank, rank + 1)):
        got = format_shape(data.sizes)
        raise ShapeError(f"{op}: data must have the shape (N, 2, 3) or (N, 3, 4), got {got}")
    numbers(op, "size", size, rank)


def _line(size: int, align: bool) -> tuple[float, float]:
    """The step and the first of the coordinates of ``size`` elements."""
    if align:
        return (2.0 / (size - 1), -1.0) if size > 1 else (0.0, 0.0)
    return 2.0 / size, 1.0 / size - 1.0


def _affine(data: Any, *, size: Any, align_corners: bool) -> Any:
    rank, dtype = data.shape[1], data.dtype
    x = ops.astype(data, wide(dtype)) if wide(dtype) != dtype else data
    sizes = numbers("image.affine_grid", "size", size, rank)

    def column(k: int) -> Any:
        part = ops.strided_slice(x, [2], [k], [k + 1])
        return ops.reshape(part, (x.shape[0], rank, *(1,) * rank))

    total = column(rank)
    for k, n in enumerate(reversed(sizes)):
        step, first = _line(n, align_corners)
        places = ops.astype(along_axis(n, rank - 1 - k, rank), x.dtype) * step + first
        total = column(k) * places + total
    result = ops.broadcast_to(total, (x.shape[0], rank, *sizes))
    return result if wide(dtype) == dtype else ops.astype(result, dtype)


def _affine_array(data: np.ndarray, *, size: Any, align_corners: bool) -> np.ndarray:
    rank = data.shape[1]
    sizes = numbers("image.affine_grid", "size", size, rank)
    lines = [first + step * np.arange(n) for n, (step, first) in ((n, _line(n, align_corners)) for n in sizes)]
    places = np.stack([*reversed(np.meshgrid(*lines, indexing="ij")), np.ones(sizes)])
    return np.tensordot(data, places, 1).astype(data.dtype)


composite(
    "image.affine_grid",
    "data | size, align_corners=True",
    expect=_affine_expect,
    decompose=_affine,
    numpy=in_wide(_affine_array),
    family="image",
    doc="The grid for image.grid_sample of affine maps: y[n, :, h, w] = data[n] · (x, y, 1), where x and y run from\n"
    "-1 to 1 across ``size`` elements as align_corners says there. data have the shape (N, 2, 3), or for volumes\n"
    "(N, 3, 4). As TVM's image.affine_grid; Jaderberg et al., Spatial Transformer Networks, 2015.",
    samples=[
        sample((2, 2, 3), size=(3, 4)),
        sample((1, 2, 3), size=5, align_corners=False),
        sample((2, 3, 4), size=(2, 3, 1)),
        sample((0, 2, 3), size=2),
    ],
)
