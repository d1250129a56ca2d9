"""Resizing images: image.resize1d, resize2d and resize3d.

Along one axis a resized image is a sum of few elements, with weights that depend on the place only:

    y[…, o, …] = Σ over t of weight[t, o] · x[…, index[t, o], …]

and axes are resized one after the other. The place x(o) in the input that belongs to an output's element is a ratio of
integers, so that indices and weights are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pullback import tir
from pullback.ir.errors import UserError
from pullback.relax.op.family import composite, expect_dtype, in_wide, wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import SPATIAL, Layout, canonical, data_layout, spatial_sizes, standard_shape
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, as_int
from pullback.tir.expr import DTYPES
from pullback.tir.polynomial import same

METHODS = ("nearest_neighbor", "linear", "cubic")
COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
ROUNDINGS = ("round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Scale:
    """The place (step·o + begin) / per in an axis of ``size`` elements that belongs to element o of ``count``; numbers,
    or expressions of symbolic sizes."""

    size: Dim
    count: Dim
    step: Dim
    begin: Dim
    per: Dim

    @staticmethod
    def of(size: Dim, count: Dim, mode: str) -> Scale:
        if mode == "align_corners":
            return Scale(size, count, size - 1, 0, canonical(tir.maximum(count - 1, 1)))
        if mode == "asymmetric":
            return Scale(size, count, size, 0, count)
        if mode == "tf_half_pixel_for_nn":
            return Scale(size, count, 2 * size, size, 2 * count)
        begin = size - count
        if mode == "pytorch_half_pixel":  # at the first element, where there is but one
            begin = canonical(begin * tir.minimum(count - 1, 1))
        return Scale(size, count, 2 * size, begin, 2 * count)

    @property
    def is_identity(self) -> bool:
        return same(self.size, self.count) and same(self.step, self.per) and same(self.begin, 0)

    @property
    def numerator(self) -> Any:
        """step·o + begin for all elements, as an expression."""
        return ops.arange(0, self.count, 1, "int64") * _value(self.step) + _value(self.begin)

    def place(self, o: int) -> Fraction:
        """Where the element o lies, of an axis whose sizes are numbers."""
        return Fraction(as_int(self.step) * o + as_int(self.begin), as_int(self.per))


def _value(size: Dim) -> Any:
    """A size as an operand of ops."""
    return size if isinstance(size, int) else ops.full((), size, "int64")


def cubic(t: Any, alpha: float) -> list[Any]:
    """The weights of the elements -1, 0, 1 and 2 at the place t of 0 … 1 (Keys, Cubic Convolution, 1981)."""

    def near(d: Any) -> Any:
        return ((alpha + 2.0) * d - (alpha + 3.0)) * d * d + 1.0

    def far(d: Any) -> Any:
        return ((alpha * d - 5.0 * alpha) * d + 8.0 * alpha) * d - 4.0 * alpha

    return [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]


# -- as ops


def _nearest(scale: Scale, rounding: str) -> Any:
    """The index of the element next to each place."""
    n, per = scale.numerator, _value(scale.per)
    if rounding == "floor":
        return ops.floor_divide(n, per)
    if rounding == "ceil":
        return ops.floor_divide(n + (per - 1), per)
    half = per if rounding != "round_prefer_floor" else per - 1
    return ops.floor_divide(n * 2 + half, per * 2)


def _taps(scale: Scale, method: str, alpha: float, exclude: bool, dtype: str) -> tuple[Any, Any]:
    """The indices and weights, each (t, o), of linear and cubic interpolation."""
    per = _value(scale.per)
    first = ops.floor_divide(scale.numerator, per)
    t = ops.astype(ops.mod(scale.numerator, per), dtype) * (1.0 / (per if isinstance(per, int) else per.astype(dtype)))
    if method == "linear":
        return ops.stack([first, first + 1]), ops.stack([1.0 - t, t])
    indices = ops.stack([first - 1, first, first + 1, first + 2])
    weights = ops.stack(cubic(t, alpha))
    if exclude:
        inside = ops.logical_and(ops.greater_equal(indices, 0), ops.less(indices, _value(scale.size)))
        weights = ops.where(inside, weights, 0.0)
        weights = weights / ops.sum(weights, 0, True)
    return indices, weights


def _resized(x: Any, axis: int, scale: Scale, attrs: dict[str, Any]) -> Any:
    """One axis resized."""
    if scale.is_identity:
        return x
    if attrs["method"] == "nearest_neighbor":
        return ops.take(x, _nearest(scale, attrs["rounding_method"]), axis, "clip")
    indices, weights = _taps(scale, attrs["method"], attrs["cubic_alpha"], bool(attrs["cubic_exclude"]), x.dtype)
    spread = ops.reshape(weights, (*weights.shape, *(1,) * (len(x.shape) - axis - 1)))
    return ops.sum(ops.take(x, indices, axis, "clip") * spread, axis)


def _scales(op: str, x: Any, attrs: dict[str, Any], rank: int) -> tuple[Layout, list[tuple[int, Scale]]]:
    """The layout, and each spatial axis with what becomes of it."""
    layout = data_layout(op, "layout", attrs["layout"], rank)
    sizes = layout.to_standard(x.shape)[2:]
    counts = spatial_sizes(op, "size", attrs["size"], rank)
    mode = attrs["coordinate_transformation_mode"]
    axes = [layout.letters.index(c) for c in SPATIAL[rank]]
    return layout, [(a, Scale.of(s, c, mode)) for a, s, c in zip(axes, sizes, counts, strict=True)]


# -- the meaning


def _weights_array(scale: Scale, attrs: dict[str, Any]) -> np.ndarray:
    """The matrix (count, size) of one axis, row by row."""
    count = as_int(scale.count)
    matrix = np.zeros((count, as_int(scale.size)))
    for o in range(count):
        place = scale.place(o)
        if attrs["method"] == "nearest_neighbor":
            taps = {_rounded(place, attrs["rounding_method"]): 1.0}
        else:
            first, t = math.floor(place), float(place - math.floor(place))
            linear = attrs["method"] == "linear"
            values = [1 - t, t] if linear else cubic(t, attrs["cubic_alpha"])
            taps = {first + k - (0 if linear else 1): v for k, v in enumerate(values)}
        if attrs["method"] == "cubic" and attrs["cubic_exclude"]:
            taps = {k: v for k, v in taps.items() if 0 <= k < scale.size}
            total = sum(taps.values())
            taps = {k: v / total for k, v in taps.items()}
        for k, v in taps.items():
            matrix[o, min(max(k, 0), scale.size - 1)] += v
    return matrix


def _rounded(place: Fraction, rounding: str) -> int:
    half = Fraction(1, 2)
    if rounding == "round_prefer_floor":
        return math.ceil(place - half)
    return {"floor": math.floor, "ceil": math.ceil}.get(rounding, lambda p: math.floor(p + half))(place)


def _resize_array(x: np.ndarray, axis: int, scale: Scale, attrs: dict[str, Any]) -> np.ndarray:
    matrix = _weights_array(scale, attrs)
    if attrs["method"] == "nearest_neighbor":
        return np.take(x, matrix.argmax(1), axis)
    return np.moveaxis(np.tensordot(x, matrix, (axis, 1)), -1, axis).astype(x.dtype)


# -- the ops


def _expect(op: str, data: TensorStructInfo, attrs: dict[str, Any], rank: int) -> None:
    known = {
        "method": METHODS,
        "coordinate_transformation_mode": COORDINATES,
        "rounding_method": ROUNDINGS,
        "cubic_exclude": (0, 1),
        "out_dtype": (None, *DTYPES),
    }
    for name, values in known.items():
        if attrs[name] not in values:
            raise UserError(f"{op}: {name} must be one of {', '.join(map(repr, values))}, got {attrs[name]!r}")
    if attrs["roi"] is not None or attrs["extrapolation_value"]:
        raise UserError(
            f"{op}: a region of interest (roi) and its extrapolation_value are not supported",
            hint="slice the data with R.strided_slice",
        )
    standard_shape(op, "data", data, data_layout(op, "layout", attrs["layout"], rank))
    if attrs["method"] != "nearest_neighbor":
        expect_dtype(op, data, "float", f"data of method {attrs['method']!r}")


def _as(x: Any, dtype: str | None) -> Any:
    return x if dtype in (None, x.dtype) else ops.astype(x, dtype)


def _define(rank: int) -> None:
    op = f"image.resize{rank}d"

    def decompose(data: Any, **attrs: Any) -> Any:
        is_nearest = attrs["method"] == "nearest_neighbor"
        x = data if is_nearest else _as(data, wide(data.dtype))
        for axis, scale in _scales(op, data, attrs, rank)[1]:
            x = _resized(x, axis, scale, attrs)
        return _as(ops.reshape(x, x.shape) if x is data else x, attrs["out_dtype"] or data.dtype)

    def array(data: np.ndarray, **attrs: Any) -> np.ndarray:
        x = data
        for axis, scale in _scales(op, data, attrs, rank)[1]:
            x = _resize_array(x, axis, scale, attrs)
        return x

    def numpy(data: np.ndarray, **attrs: Any) -> np.ndarray:
        return in_wide(array)(data, **attrs).astype(attrs["out_dtype"] or data.dtype)

    composite(
        op,
        f"data | size, roi=None, layout='NC{SPATIAL[rank]}', method='linear', "
        "coordinate_transformation_mode='half_pixel', rounding_method='round', cubic_alpha=-0.75, cubic_exclude=0, "
        "extrapolation_value=0.0, out_dtype=None",
        expect=lambda data, **attrs: _expect(op, data, attrs, rank),
        decompose=decompose,
        numpy=numpy,
        precision="same",
        family="image",
        doc="Images with their spatial axes resized to ``size`` (a number for each, or one for all). Element o of m\n"
        "along an axis of n takes the place (o + ½)·n/m - ½ ('half_pixel'), o·(n - 1)/(m - 1) ('align_corners'),\n"
        "o·n/m ('asymmetric'), (o + ½)·n/m ('tf_half_pixel_for_nn'), or for m = 1 place 0 ('pytorch_half_pixel').\n"
        "method: 'nearest_neighbor' rounds the place as rounding_method says ('round' is half up); 'linear' and\n"
        "'cubic' (Keys, 1981, with alpha) weigh the 2 or 4 elements around it, beyond the edge those at the edge;\n"
        "with cubic_exclude=1 only those within. PyTorch's interpolate: 'nearest' is asymmetric and floor,\n"
        "'nearest-exact' half_pixel and round. As TVM's image.resize2d; a roi is not supported.",
        samples=_SAMPLES[rank],
    )


def _samples(lead: tuple[int, ...], sizes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[Any]:
    (a, to_a), (b, to_b) = sizes
    return [
        sample((*lead, *a), size=to_a),
        sample((*lead, *b), size=to_b, coordinate_transformation_mode="align_corners"),
        sample((*lead, *a), size=to_a, method="cubic"),
        sample((*lead, *b), size=to_b, method="cubic", cubic_exclude=1, coordinate_transformation_mode="asymmetric"),
        sample((*lead, *a), size=to_a, method="nearest_neighbor", coordinate_transformation_mode="asymmetric",
               rounding_method="floor"),
        sample((*lead, *b), size=to_b, method="nearest_neighbor"),
        sample((*lead, *a), size=a),
        sample((*lead, *a), size=1, coordinate_transformation_mode="pytorch_half_pixel"),
        sample(Ints((*lead, *b), 0, 9, "uint8"), size=to_b, method="nearest_neighbor", rounding_method="ceil"),
    ]  # fmt: skip


_SAMPLES = {
    1: _samples((2, 3), [((5,), (9,)), ((8,), (3,))]),
    2: [
        *_samples((2, 2), [((4, 5), (7, 9)), ((6, 7), (5, 2))]),
        sample((1, 4, 3, 2), size=(6, 6), layout="NHWC"),
        sample((0, 1, 3, 2), size=4),
    ],
    3: _samples((1, 2), [((3, 4, 2), (5, 4, 3)), ((2, 3, 4), (4, 2, 1))]),
}
for _rank in SPATIAL:
    _define(_rank)
