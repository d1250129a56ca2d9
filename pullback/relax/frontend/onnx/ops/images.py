"""Images: resizing, sampling at the places of a grid, regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.errors import ArgumentError, ShapeError, UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import array, ints, is_given, numbers, static
from pullback.relax.frontend.onnx.ops.elementwise import numbers_like
from pullback.relax.frontend.onnx.ops.shapes import axis_of, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import FLOATS


@dataclass(frozen=True)
class _Form:
    """How elements are found and weighed: the attributes of Resize."""

    mode: str = "nearest"
    place: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


# -- resizing: the weights of each axis are known, so an axis is a product with a matrix, or a choice of elements


def _place(x: np.ndarray, form: _Form, size: int, out: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """Where the elements x of the result lie on an axis of the data."""
    length = scale * size
    if form.place == "align_corners":
        return np.zeros(len(x)) if length == 1 else x * (size - 1) / (length - 1)
    if form.place == "asymmetric":
        return x / scale
    if form.place == "tf_crop_and_resize":
        start, end = roi
        across = (end - start) * (size - 1)
        return start * (size - 1) + (np.full(len(x), across / 2) if length == 1 else x * across / (length - 1))
    if form.place == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    found = (x + 0.5) / scale - 0.5
    if form.place == "half_pixel":
        return found
    if form.place == "pytorch_half_pixel":
        return found if length > 1 else np.full(len(x), -0.5)
    if form.place == "half_pixel_symmetric":
        return size / 2 * (1 - out / length) + found
    raise ArgumentError(f"coordinate_transformation_mode={form.place!r} is not known")


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _coefficients(ratio: np.ndarray, form: _Form, scale: float) -> np.ndarray:
    """The weights of the elements around places that lie by ``ratio``, in (0, 1], behind an element: (places, taps)."""
    if form.mode == "nearest":
        is_whole = ratio == 1
        choose = {
            "round_prefer_floor": ratio > 0.5, "round_prefer_ceil": ratio >= 0.5, "floor": is_whole,
            "ceil": np.ones_like(is_whole),
        }.get(form.nearest)  # fmt: skip
        if choose is None:
            raise ArgumentError(f"nearest_mode={form.nearest!r} is not known")
        second = np.where(is_whole, True, choose).astype(float)
        return np.stack([1 - second, second], 1)
    reach = {"linear": 1, "cubic": 2}.get(form.mode)
    if reach is None:
        raise ArgumentError(f"mode={form.mode!r} is not known")
    shrink = min(scale, 1.0) if form.antialias else 1.0
    start = math.floor(-reach / shrink) + 1
    places = (np.arange(start, 2 - start)[None] - ratio[:, None]) * shrink
    weights = np.clip(1 - np.abs(places), 0, 1) if form.mode == "linear" else _cubic(places, form.cubic)
    return weights / weights.sum(1, keepdims=True) if form.antialias else weights


def _matrix(form: _Form, size: int, out: int, scale: float, roi: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """The weights of an axis, (out, size), and which elements of the result lie outside of the data."""
    places = _place(np.arange(out, dtype=np.float64), form, size, out, scale, roi)
    outside = ((places < 0) | (places > size - 1)) & (form.place == "tf_crop_and_resize")
    left = np.ceil(places).astype(np.int64) - 1
    weights = _coefficients(places - left, form, scale)
    taps = weights.shape[1]
    index = left[:, None] + np.arange(1 - taps // 2, taps // 2 + 1)[None]
    if form.exclude_outside:
        weights = np.where((index >= 0) & (index < size), weights, 0)
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((out, size))
    np.add.at(matrix, (np.arange(out)[:, None], np.clip(index, 0, size - 1)), weights)
    return matrix, outside


def _resized(
    x: Any, axes: Sequence[int], outs: Sequence[int], scales: Sequence[float], form: _Form, roi: Sequence[float],
    extrapolation: float,
) -> Any:  # fmt: skip
    sizes = static([shape_of(x)[a] for a in axes], "the sizes of axes that are resized")
    dtype, rank = x.struct_info.dtype, rank_of(x)
    if form.mode != "nearest" and dtype not in FLOATS:
        raise UserError(f"Resize of {dtype} by {form.mode}: what lies between integers is none")
    mask: np.ndarray | None = None
    for k, (axis, size, out, scale) in enumerate(zip(axes, sizes, outs, scales, strict=True)):
        across = (roi[k], roi[len(axes) + k]) if len(roi) else (0.0, 1.0)
        if size == out and scale == 1 and form.place != "tf_crop_and_resize":
            continue
        matrix, outside = _matrix(form, size, out, scale, across)
        if form.mode == "nearest":
            x = op.take(x, const(matrix.argmax(1).astype(np.int64)), axis)
        else:
            order = [a for a in range(rank) if a != axis] + [axis]
            last = op.matmul(op.permute_dims(x, order), const(matrix.T.astype(numpy_dtype(dtype))))
            x = op.permute_dims(last, np.argsort(order).tolist())
        if outside.any():
            along = outside.reshape([-1 if a == axis else 1 for a in range(rank)])
            mask = along if mask is None else mask | along
    return x if mask is None else op.where(const(mask), const(extrapolation, dtype), x)


def _kept(policy: str, sizes: Sequence[int], old: Sequence[int]) -> tuple[list[int], list[float]]:
    """Sizes and scales by which the ratio of the sides stays, or is stretched."""
    if policy == "stretch":
        return list(sizes), [new / n for new, n in zip(sizes, old, strict=True)]
    ratios = [new / n for new, n in zip(sizes, old, strict=True)]
    if policy not in ("not_larger", "not_smaller"):
        raise ArgumentError(f"keep_aspect_ratio_policy={policy!r} is not known")
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(scale * n + 0.5) for n in old], [scale] * len(old)


@ONNX.register("Resize")
def resize_10(x: Any, scales: Any, *, mode: str) -> Any:
    return resized_by(x, numbers(scales), mode)


@ONNX.register("Upsample-7")
def upsample_7(x: Any, *, mode: str, scales: Sequence[float]) -> Any:
    return resized_by(x, scales, mode)


@ONNX.register("Upsample-9")
def upsample(x: Any, scales: Any, *, mode: str) -> Any:
    return resized_by(x, numbers(scales), mode)


def resized_by(x: Any, scales: Sequence[float], mode: str) -> Any:
    """Upsample, and Resize of version 10: places o / scale, rounded down where the nearest is taken."""
    form = _Form("linear" if mode in ("linear", "bilinear") else mode, "asymmetric", "floor")
    axes = [a for a, s in enumerate(scales) if s != 1]
    outs = [math.floor(n * s) for n, s in _pairs(x, axes, scales)]
    return _resized(x, axes, outs, [scales[a] for a in axes], form, (), 0.0)


def _pairs(x: Any, axes: Sequence[int], scales: Sequence[float]) -> list[tuple[int, float]]:
    sizes = static([shape_of(x)[a] for a in axes], "the sizes of axes that are resized")
    return list(zip(sizes, [scales[a] for a in axes], strict=True))


_PLACES = ("half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "pytorch_half_pixel")


def _are_open(x: Any, axes: Sequence[int]) -> bool:
    return any(not isinstance(shape_of(x)[a], int) for a in axes)


def _by_op(x: Any, sizes: dict[int, Any], form: _Form, roi: Sequence[float]) -> Any:
    """Images of symbolic sizes; ``sizes``: the new ones, by axis."""
    rank = rank_of(x)
    is_image = 3 <= rank <= 5 and not set(sizes) - set(range(2, rank))
    if not is_image or form.antialias or roi or form.place not in _PLACES:
        raise UserError(
            f"Resize of axes {sorted(sizes)} of symbolic sizes, by {form.mode} at {form.place}, is not converted",
            hint="fix symbolic sizes: from_onnx(model, shape_dict={name: shape})",
        )
    new = [sizes.get(a, shape_of(x)[a]) for a in range(2, rank)]
    return getattr(op.image, f"resize{rank - 2}d")(
        x, new, method="nearest_neighbor" if form.mode == "nearest" else form.mode,
        coordinate_transformation_mode=form.place, rounding_method=form.nearest, cubic_alpha=form.cubic,
        cubic_exclude=int(form.exclude_outside),
    )  # fmt: skip


@ONNX.register("Resize-11")
def resize(
    x: Any, roi: Any = None, scales: Any = None, sizes: Any = None, *, antialias: int = 0, axes: Any = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75, exclude_outside: int = 0,
    extrapolation_value: float = 0.0, keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Any:  # fmt: skip
    rank = rank_of(x)
    chosen = list(range(rank)) if axes is None else [axis_of(a, rank) for a in axes]
    form = _Form(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(exclude_outside), bool(antialias)
    )  # fmt: skip
    region = numbers(roi) if is_given(roi) and coordinate_transformation_mode == "tf_crop_and_resize" else []
    if is_given(scales):
        factors = [float(s) for s in numbers(scales)]
        if len(factors) != len(chosen):
            raise ShapeError(f"{len(chosen)} scales are needed, got {factors}")
        moved = [k for k, s in enumerate(factors) if s != 1 or region]
        if _are_open(x, [chosen[k] for k in moved]):
            if any(factors[k] != int(factors[k]) for k in moved):
                raise UserError(f"axes of symbolic sizes are resized by whole numbers, got the scales {factors}")
            by_place = {chosen[k]: shape_of(x)[chosen[k]] * int(factors[k]) for k in moved}
            return _by_op(x, by_place, form, region)
        old = static([shape_of(x)[chosen[k]] for k in moved], "the sizes of axes that are resized")
        outs, by = [math.floor(n * factors[k]) for n, k in zip(old, moved, strict=True)], [factors[k] for k in moved]
    elif is_given(sizes):
        wanted = ints(sizes)
        if len(wanted) != len(chosen):
            raise ShapeError(f"{len(chosen)} sizes are needed, got {wanted}")
        same = [shape_of(x)[a] is w or shape_of(x)[a] == w for a, w in zip(chosen, wanted, strict=True)]
        keeps = keep_aspect_ratio_policy == "stretch" and not region
        moved = [k for k in range(len(chosen)) if not (keeps and same[k])]
        if keeps and (_are_open(x, [chosen[k] for k in moved]) or not all(isinstance(wanted[k], int) for k in moved)):
            return _by_op(x, {chosen[k]: wanted[k] for k in moved}, form, region)
        old = static([shape_of(x)[chosen[k]] for k in moved], "the sizes of axes that are resized")
        outs, by = _kept(keep_aspect_ratio_policy, static([wanted[k] for k in moved], "the sizes of Resize"), old)
    else:
        raise UserError("Resize needs scales or sizes")
    places = [chosen[k] for k in moved]
    part = [region[k] for k in moved] + [region[len(chosen) + k] for k in moved] if region else []
    return _resized(x, places, outs, by, form, part, extrapolation_value)


# -- grids


@ONNX.register("GridSample")
def grid_sample(x: Any, grid: Any, *, align_corners: int, mode: str, padding_mode: str) -> Any:
    rank = rank_of(x)
    if rank not in (4, 5):
        raise ShapeError(f"GridSample takes images of rank 4 or volumes of rank 5, got rank {rank}")
    method = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    moved = op.permute_dims(grid, (0, rank - 1, *range(1, rank - 1)))
    layout = "NCHW" if rank == 4 else "NCDHW"
    return op.image.grid_sample(x, moved, method, layout, padding_mode, bool(align_corners))


# -- regions of interest


def _rois(rois: Any, batches: Any) -> Any:
    """(batch, x, y, x', y') of each region."""
    return op.concat([op.expand_dims(op.astype(batches, rois.struct_info.dtype), 1), rois], 1)


@ONNX.register("RoiAlign")
def roi_align_old(x: Any, rois: Any, batches: Any, **attrs: Any) -> Any:
    return roi_align(x, rois, batches, coordinate_transformation_mode="output_half_pixel", **attrs)


@ONNX.register("RoiAlign-16")
def roi_align(
    x: Any, rois: Any, batches: Any, *, mode: str, output_height: int, output_width: int, sampling_ratio: int,
    spatial_scale: float, coordinate_transformation_mode: str,
) -> Any:  # fmt: skip
    """Means of samples. With half_pixel, places are half a pixel less, and regions may be less than a pixel wide."""
    if mode != "avg":
        raise UserError(
            "RoiAlign of the maximum is not converted: the standard takes it of the weighted elements around a sample,"
            " not of the samples"
        )
    is_moved = coordinate_transformation_mode == "half_pixel"
    places = op.subtract(rois, numbers_like(0.5 / spatial_scale, rois)) if is_moved else rois
    ratio = sampling_ratio if sampling_ratio > 0 else -1
    return op.vision.roi_align(
        x, _rois(places, batches), (output_height, output_width), spatial_scale, ratio, is_moved, mode="avg"
    )


@ONNX.register("MaxRoiPool")
def max_roi_pool(x: Any, rois: Any, *, pooled_shape: Sequence[int], spatial_scale: float) -> Any:
    return op.vision.roi_pool(x, rois, tuple(pooled_shape), spatial_scale)


@ONNX.register("NonMaxSuppression")
def non_max_suppression(
    boxes: Any, scores: Any, most: Any = None, iou: Any = None, least: Any = None, *, center_point_box: int
) -> Any:  # fmt: skip
    """How many boxes are kept is the size of the result, so all has to be known."""
    corners, values = array(boxes).astype(np.float64), array(scores)
    if center_point_box:
        half = corners[..., 2:] / 2
        centre = corners[..., :2]
        corners = np.concatenate([(centre - half)[..., ::-1], (centre + half)[..., ::-1]], -1)
    corners = np.concatenate(
        [np.minimum(corners[..., :2], corners[..., 2:]), np.maximum(corners[..., :2], corners[..., 2:])], -1
    )
    limit = int(numbers(most)[0]) if is_given(most) else 0
    overlap = float(numbers(iou)[0]) if is_given(iou) else 0.0
    floor = float(numbers(least)[0]) if is_given(least) else -math.inf
    found = [
        (n, c, box)
        for n in range(values.shape[0])
        for c in range(values.shape[1])
        for box in _suppressed(corners[n], values[n, c], limit, overlap, floor)
    ]
    return np.asarray(found, np.int64).reshape(-1, 3)


def _suppressed(boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: float, floor: float) -> list[int]:
    """The numbers of the boxes that are kept, the best first."""
    kept: list[int] = []
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], -1)
    for k in np.argsort(-scores, kind="stable"):
        if len(kept) == limit or scores[k] <= floor:
            break
        shared = np.clip(
            np.minimum(boxes[k, 2:], boxes[kept, 2:]) - np.maximum(boxes[k, :2], boxes[kept, :2]), 0, None
        ).prod(-1)
        union = areas[k] + areas[kept] - shared
        if not (shared > overlap * union).any():
            kept.append(int(k))
    return kept
