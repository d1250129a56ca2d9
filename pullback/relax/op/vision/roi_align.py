"""vision.roi_align: regions of interest, interpolated linearly between pixels. He et al., Mask R-CNN, 2017.

Each bin is sampled at count_h × count_w places: ``sample_ratio``, or where that is not positive, as many as the bin
has pixels, rounded up. The mean of the samples is a sum of products by loops (``vision.roi_average``), whose
derivatives for pixels and corners are those of the loops. Of the greatest sample loops say which it is
(``vision.roi_samples``), and ops interpolate there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pullback import tir
from pullback.ir.op import define
from pullback.relax.op.family import (
    composite,
    expect_int,
    expect_member,
    in_wide,
    known_shape,
    masked,
    narrowed,
    wide,
    widened,
    zero_gradient,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import sample
from pullback.relax.op.vision.regions import (
    BATCHES,
    DATA,
    ROIS,
    Named,
    bins_of,
    check_rois,
    each_roi,
    expect_batches,
    expect_images,
    number_of,
    picked,
)
from pullback.relax.struct_info import Dim, TensorStructInfo, TupleStructInfo
from pullback.tir import (
    Allocate,
    Buffer,
    If,
    Let,
    PrimExpr,
    Stmt,
    Var,
    as_expr,
    call,
    cast,
    loop,
    maximum,
    minimum,
    select,
    seq,
    store,
)

_FAR = 2.0**40  # more samples than there are

# -- places in bins, as scalars of loops


class _Axis:
    """One axis of a roi: its bins, and the places of their samples."""

    def __init__(
        self, let: Named, name: str, ends: tuple[PrimExpr, PrimExpr], bins: int, size: Dim, ratio: int, aligned: bool
    ) -> None:
        self.name, self.size, self.kind, self.ratio = name, as_expr(size), ends[0].dtype, ratio
        self.start = let(f"{name}_start", ends[0])
        length = ends[1] - self.start
        self.bin = let(f"{name}_bin", (length if aligned else maximum(length, tir.const(1.0, self.kind))) / float(bins))
        self.count = as_expr(ratio) if ratio > 0 else let(f"{name}_count", _whole(call("ceil", self.bin)))

    def samples(self, let: Named, at: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        """The first sample of a bin, and how many there are, without most of those outside of the image: they are at
        least half a pixel apart, so that the size of the image bounds their number."""
        if self.ratio > 0:
            return as_expr(0), self.count

        def number(place: PrimExpr) -> PrimExpr:
            return ((place - self.start) / self.bin - cast(self.kind, at)) * cast(self.kind, self.count) - 0.5

        def held(x: PrimExpr) -> PrimExpr:
            return maximum(minimum(x, self.count), 0)

        first, last = number(tir.const(-1.0, self.kind)), number(cast(self.kind, self.size))
        low = let(f"{self.name}_first", held(_whole(call("floor", first)) - 1))
        high = held(_whole(call("ceil", last)) + 2)
        return low, minimum(maximum(high - low, 0), self.size * 2 + 10)

    def place(self, at: PrimExpr, sample_number: PrimExpr) -> PrimExpr:
        inside = (cast(self.kind, sample_number) + 0.5) / cast(self.kind, self.count)
        return self.start + (cast(self.kind, at) + inside) * self.bin

    def pixels(self, let: Named, place: PrimExpr) -> tuple[PrimExpr, list[tuple[PrimExpr, PrimExpr]]]:
        """Whether a place is in the image or a pixel beside it; the two pixels around it, and how much there is of
        each."""
        place = let(f"{self.name}_place", place)
        inside = let(f"{self.name}_inside", (place >= -1.0) & (place <= cast(self.kind, self.size)))
        held = let(f"{self.name}_held", minimum(maximum(place, 0.0), cast(self.kind, self.size - 1)))
        low = let(f"{self.name}_low", maximum(minimum(_whole(call("floor", held)), self.size - 1), 0))
        share, none = held - cast(self.kind, low), tir.const(0.0, self.kind)
        parts = [let(f"{self.name}_{k}", select(inside, p, none)) for k, p in enumerate((1.0 - share, share))]
        return inside, list(zip((low, minimum(low + 1, self.size - 1)), parts, strict=True))


def _whole(x: PrimExpr) -> PrimExpr:
    return cast("int64", maximum(minimum(x, _FAR), -_FAR))


def _axes(
    let: Named, data: Buffer, rois: Buffer, roi: PrimExpr, bins: Sequence[int], attrs: dict[str, Any]
) -> list[_Axis]:
    kind, scale = wide(rois.dtype), attrs["spatial_scale"]

    def end(k: int) -> PrimExpr:
        return cast(kind, rois[roi, k]) * scale

    ratio, aligned = attrs["sample_ratio"], attrs["aligned"]
    return [
        _Axis(let, name, (end(first), end(first + 2)), bins[k], data.shape[2 + k], ratio, aligned)
        for k, (name, first) in enumerate((("y", 2), ("x", 1)))
    ]


_Pair = tuple[PrimExpr, PrimExpr]


class _Sample(NamedTuple):
    """A sample: its row and column among those of its bin, its value, whether it is in the image, and the first."""

    place: _Pair
    value: PrimExpr
    inside: PrimExpr
    is_first: PrimExpr


def _sampled(
    inputs: Sequence[Buffer],
    attrs: dict[str, Any],
    roi: PrimExpr,
    before: Callable[[PrimExpr, _Pair], Stmt],
    each: Callable[[PrimExpr, _Pair, _Sample], Stmt],
    after: Callable[[PrimExpr, _Pair, PrimExpr], Stmt] | None = None,
) -> Stmt:
    """For each bin of a roi: ``before(c, bin)`` of all channels; ``each(c, bin, sample)`` of all channels and samples;
    ``after(c, bin, count of samples)``."""
    data, batches, rois = inputs
    kind, bins, channels = wide(data.dtype), bins_of("vision.roi_align", attrs["pooled_size"]), data.shape[1]
    let = Named()
    y, x = _axes(let, data, rois, roi, bins, attrs)
    batch = let("batch", cast("int64", batches[roi]))

    def one_bin(at: _Pair) -> Stmt:
        of_bin = Named()
        (first_row, rows), (first_column, columns) = y.samples(of_bin, at[0]), x.samples(of_bin, at[1])

        def row(turn: PrimExpr) -> Stmt:
            of_row = Named()
            a = first_row + turn
            row_inside, row_pixels = y.pixels(of_row, y.place(at[0], a))

            def column(other: PrimExpr) -> Stmt:
                of_sample = Named()
                b = first_column + other
                inside, pixels = x.pixels(of_sample, x.place(at[1], b))
                is_first = turn.equal(0) & other.equal(0)

                def channel(c: PrimExpr) -> Stmt:
                    value = tir.const(0.0, kind)
                    for p, share in row_pixels:
                        for q, part in pixels:
                            value = value + cast(kind, data[batch, c, p, q]) * (share * part)
                    return each(c, at, _Sample((a, b), value, row_inside & inside, is_first))

                return of_sample.around(loop("c", channels, channel))

            return of_row.around(loop("b", columns, column))

        end = [] if after is None else [loop("c", channels, lambda c: after(c, at, y.count * x.count))]
        return of_bin.around(seq(loop("c", channels, lambda c: before(c, at)), loop("a", rows, row), *end))

    return let.around(loop("i", bins[0], lambda i: loop("j", bins[1], lambda j: one_bin((i, j)))))


# -- the same in NumPy


def _axis_array(
    ends: tuple[Any, Any], bins: int, size: int, ratio: int, aligned: bool
) -> tuple[np.ndarray, np.ndarray]:
    """For all samples of an axis, in (bins, samples): the pixels before them, and the weights of two neighbours, 0 of
    samples outside."""
    kind = ends[0].dtype.type
    length = ends[1] - ends[0] if aligned else max(ends[1] - ends[0], kind(1))
    step = kind(length / kind(bins))
    count = ratio if ratio > 0 else max(int(np.ceil(step)), 0)
    places = (
        ends[0] + (np.arange(bins)[:, None] + (np.arange(count, dtype=kind) + kind(0.5)) / kind(max(count, 1))) * step
    )
    places = places.astype(kind)
    held = np.clip(places, 0, size - 1)
    low = np.floor(held).astype(np.int64)
    share = np.stack([1 - (held - low), held - low]).astype(kind)
    return low, np.where((places < -1) | (places > size), kind(0), share)


def _values_array(
    data: np.ndarray, batch: int, roi: np.ndarray, attrs: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a roi, (C, height, width, count_h, count_w), and which are not outside."""
    bins, scale = bins_of("vision.roi_align", attrs["pooled_size"]), roi.dtype.type(attrs["spatial_scale"])
    image, result = data[batch], None
    (ys, y_share), (xs, x_share) = (
        _axis_array(
            (roi[k] * scale, roi[k + 2] * scale), bins[n], image.shape[1 + n], attrs["sample_ratio"], attrs["aligned"]
        )
        for n, k in enumerate((2, 1))
    )
    for a in range(2):
        for b in range(2):
            rows, columns = np.minimum(ys + a, image.shape[1] - 1), np.minimum(xs + b, image.shape[2] - 1)
            part = image[:, rows[:, None, :, None], columns[None, :, None, :]]
            part = part * y_share[a][:, None, :, None] * x_share[b][None, :, None, :]
            result = part if result is None else result + part
    inside = (y_share.sum(0) > 0)[:, None, :, None] & (x_share.sum(0) > 0)[None, :, None, :]
    return np.asarray(result), inside


# -- the mean of samples


def _average_infer(data: TensorStructInfo, batches: TensorStructInfo, rois: TensorStructInfo, **attrs: Any) -> Any:
    name = "vision.roi_average"
    expect_batches(name, batches, rois)
    return TensorStructInfo(expect_images(name, data, rois, attrs["pooled_size"]), data.dtype)


def _average_kernel(inputs: Sequence[Buffer], outputs: Sequence[Buffer], **attrs: Any) -> Stmt:
    (out,), kind = outputs, wide(inputs[0].dtype)
    total = Buffer("total", (out.shape[0], out.shape[1]), kind, "workspace")

    def line(roi: PrimExpr) -> Stmt:
        return _sampled(
            inputs,
            attrs,
            roi,
            lambda c, at: store(total, (roi, c), tir.const(0.0, kind)),
            lambda c, at, found: store(total, (roi, c), total[roi, c] + found.value),
            lambda c, at, count: store(
                out, (roi, c, *at), cast(out.dtype, total[roi, c] / cast(kind, maximum(count, 1)))
            ),
        )

    return Allocate(total, each_roi(inputs[2], out, line))


def _average(data: np.ndarray, batches: np.ndarray, rois: np.ndarray, **attrs: Any) -> np.ndarray:
    bins = bins_of("vision.roi_average", attrs["pooled_size"])
    result = np.zeros((len(rois), data.shape[1], *bins), data.dtype)
    for k, roi in enumerate(rois):
        values, _ = _values_array(data, batches[k], roi, attrs)
        result[k] = values.sum((3, 4)) / max(values.shape[3] * values.shape[4], 1)
    return result


_ATTRS = "pooled_size, spatial_scale=1.0, sample_ratio=-1, aligned=False"
_CASES: list[dict[str, Any]] = [
    {"pooled_size": (2, 3), "spatial_scale": 4.0, "sample_ratio": 2},
    {"pooled_size": 2, "spatial_scale": 6.0},
    {"pooled_size": (3, 2), "spatial_scale": 5.0, "aligned": True},
]

define(
    "vision.roi_average",
    f"data, batches, rois | {_ATTRS}",
    infer=_average_infer,
    kernel=_average_kernel,
    numpy=in_wide(_average),
    family="detection",
    doc="The means of samples that vision.roi_align takes of data (N, C, H, W), whose batches are given apart:\n"
    "(rois, C, height, width).",
    samples=[sample(DATA, BATCHES, ROIS, **attrs) for attrs in _CASES],
)

# -- the greatest sample


def _samples_infer(data: TensorStructInfo, batches: TensorStructInfo, rois: TensorStructInfo, **attrs: Any) -> Any:
    name = "vision.roi_samples"
    expect_batches(name, batches, rois)
    return TupleStructInfo((TensorStructInfo(expect_images(name, data, rois, attrs["pooled_size"]), "int32"),) * 2)


def _samples_kernel(inputs: Sequence[Buffer], outputs: Sequence[Buffer], **attrs: Any) -> Stmt:
    kind, first = wide(inputs[0].dtype), outputs[0]
    best = Buffer("best", (first.shape[0], first.shape[1]), kind, "workspace")

    def line(roi: PrimExpr) -> Stmt:
        def take(c: PrimExpr, at: _Pair, place: Sequence[PrimExpr], value: PrimExpr) -> Stmt:
            places = [store(out, (roi, c, *at), cast("int32", p)) for out, p in zip(outputs, place, strict=True)]
            return seq(store(best, (roi, c), value), *places)

        def each(c: PrimExpr, at: _Pair, found: _Sample) -> Stmt:
            value = Var("value", kind)
            place = [select(found.inside, p, as_expr(-1)) for p in found.place]
            better = (value > best[roi, c]) | call("isnan", value) | found.is_first
            return Let(value, found.value, If(better, take(c, at, place, value)))

        none = as_expr(-1), as_expr(-1)
        return _sampled(inputs, attrs, roi, lambda c, at: take(c, at, none, tir.const(-math.inf, kind)), each)

    return Allocate(best, each_roi(inputs[2], first, line))


def _samples(data: np.ndarray, batches: np.ndarray, rois: np.ndarray, **attrs: Any) -> tuple[np.ndarray, ...]:
    kind, bins = wide(data.dtype.name), bins_of("vision.roi_samples", attrs["pooled_size"])
    result = np.full((2, len(rois), data.shape[1], *bins), -1, np.int32)
    for k, roi in enumerate(rois):
        values, inside = _values_array(data.astype(kind), batches[k], roi.astype(kind), attrs)
        if values.shape[3] * values.shape[4]:
            flat = np.argmax(values.reshape(*values.shape[:3], -1), 3)
            is_in = np.take_along_axis(
                np.broadcast_to(inside, values.shape).reshape(*flat.shape, -1), flat[..., None], 3
            )
            result[:, k] = np.where(is_in[..., 0], np.unravel_index(flat, values.shape[3:]), -1)
    return result[0], result[1]


define(
    "vision.roi_samples",
    f"data, batches, rois | {_ATTRS}",
    infer=_samples_infer,
    kernel=_samples_kernel,
    numpy=_samples,
    gradient=zero_gradient,
    family="detection",
    doc="The row and the column, among its samples, of the greatest one of each bin of vision.roi_align, -1 where\n"
    "there are none, or it is outside: two int32 tensors (rois, C, height, width).",
    samples=[sample(DATA, BATCHES, ROIS, **attrs) for attrs in _CASES],
)


def _samples_axis(
    rois: Any, first: int, bins: int, axis: int, size: Dim, found: Any, attrs: dict[str, Any]
) -> list[tuple[Any, Any]]:
    """The two pixels around the samples found, and how much of each there is, as ops."""
    start, end = (
        ops.reshape(ops.strided_slice(rois, [1], [k], [k + 1]), (rois.shape[0], 1, 1, 1))
        * float(attrs["spatial_scale"])
        for k in (first, first + 2)
    )
    length = end - start if attrs["aligned"] else ops.maximum(end - start, 1.0)
    step, ratio = length / float(bins), attrs["sample_ratio"]
    count = ops.full((), float(ratio), rois.dtype) if ratio > 0 else ops.maximum(ops.ceil(step), 1.0)
    number_of_bin = ops.reshape(ops.arange(bins), tuple(bins if k == axis else 1 for k in range(4)))
    inside = (ops.astype(found, rois.dtype) + 0.5) / count
    place = start + (ops.astype(number_of_bin, rois.dtype) + inside) * step
    extent = ops.full((), size, rois.dtype)
    held = ops.minimum(ops.maximum(place, 0.0), extent - 1.0)
    low = ops.floor(held)
    share = held - low
    within = ops.logical_and(ops.greater_equal(place, -1.0), ops.less_equal(place, extent))
    pixel, last = ops.astype(low, "int64"), ops.full((), size, "int64") - 1
    return [(pixel, masked(within, 1.0 - share)), (ops.minimum(pixel + 1, last), masked(within, share))]


def _greatest(data: Any, batches: Any, rois: Any, **attrs: Any) -> Any:
    bins = bins_of("vision.roi_align", attrs["pooled_size"])
    found = ops.vision.roi_samples(data, batches, rois, **attrs)
    rows = _samples_axis(rois, 2, bins[0], 2, data.shape[2], found[0], attrs)
    columns = _samples_axis(rois, 1, bins[1], 3, data.shape[3], found[1], attrs)
    total = None
    for p, share in rows:
        for q, part in columns:
            term = picked(data, batches, p * number_of(data.shape[3]) + q) * (share * part)
            total = term if total is None else total + term
    return masked(ops.greater_equal(found[0], 0), total)


# -- roi_align


def _align_expect(data: TensorStructInfo, rois: TensorStructInfo, *, layout: str, mode: str, **attrs: Any) -> None:
    name = "vision.roi_align"
    expect_member(name, "layout", layout, ("NCHW", "NHWC"))
    expect_member(name, "mode", mode, ("avg", "max"))
    expect_int(name, "sample_ratio", attrs["sample_ratio"])
    shape = known_shape(name, data, "data")
    if layout == "NHWC" and len(shape) == 4:
        data = TensorStructInfo((shape[0], shape[3], shape[1], shape[2]), data.dtype)
    expect_images(name, data, rois, attrs["pooled_size"])


def _align(data: Any, rois: Any, *, layout: str, mode: str, **attrs: Any) -> Any:
    dtype, data, rois = data.dtype, widened(data), widened(rois)
    data = data if layout == "NCHW" else ops.permute_dims(data, (0, 3, 1, 2))
    batches = ops.vision.roi_batches(rois, data.shape[0], attrs["spatial_scale"])
    result = (ops.vision.roi_average if mode == "avg" else _greatest)(data, batches, rois, **attrs)
    return narrowed(result if layout == "NCHW" else ops.permute_dims(result, (0, 2, 3, 1)), dtype)


def _align_array(data: np.ndarray, rois: np.ndarray, *, layout: str, mode: str, **attrs: Any) -> np.ndarray:
    images = data if layout == "NCHW" else np.moveaxis(data, 3, 1)
    batches, bins = (
        check_rois(rois, len(data), attrs["spatial_scale"]),
        bins_of("vision.roi_align", attrs["pooled_size"]),
    )
    result = np.zeros((len(rois), images.shape[1], *bins), data.dtype)
    for k, roi in enumerate(rois):
        values, _ = _values_array(images, batches[k], roi, attrs)
        if values.shape[3] * values.shape[4]:
            result[k] = values.mean((3, 4)) if mode == "avg" else values.max((3, 4))
    return result if layout == "NCHW" else np.moveaxis(result, 1, 3)


composite(
    "vision.roi_align",
    "data, rois | pooled_size, spatial_scale, sample_ratio=-1, aligned=False, layout='NCHW', mode='avg'",
    te=None,
    expect=_align_expect,
    decompose=_align,
    numpy=in_wide(_align_array),
    family="detection",
    doc="The rois (batch, x, y, x', y'), (K, 5), of data (N, C, H, W), divided into pooled_size bins: (K, C, height,\n"
    "width); with layout 'NHWC' channels are last. The corners times spatial_scale are places in an image; a roi is\n"
    "at least a pixel high and wide, unless it is aligned. Each bin is the mean ('avg') or the greatest ('max') of\n"
    "its samples: sample_ratio a side or, where that is not positive, as many as it has pixels. They are\n"
    "interpolated linearly, and 0 where they lie more than a pixel outside. A roi of no batch is an error. TVM's\n"
    "roi_align.",
    samples=[
        *(sample(DATA, ROIS, **attrs) for attrs in _CASES),
        *(sample(DATA, ROIS, **attrs, mode="max") for attrs in _CASES),
        sample((2, 6, 7, 3), ROIS, **_CASES[1], layout="NHWC"),
        sample(DATA, (0, 5), **_CASES[0]),
    ],
)
