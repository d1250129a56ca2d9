"""Regions of interest: boxes (rois) cut out of images, and the greatest pixels in their bins.

A roi is (batch, x, y, x', y'). Its corners, times ``spatial_scale``, are places in the image, and it is divided into
``pooled_size`` bins. ``vision.roi_pool`` takes the greatest of all pixels of a bin (Girshick, Fast R-CNN, 2015): loops
say where it is. ``roi_align.py`` interpolates between pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError, UserError
from pullback.ir.op import define
from pullback.relax.op.family import (
    composite,
    expect_dtype,
    expect_int,
    expect_member,
    expect_same_dtype,
    in_wide,
    known_shape,
    masked,
    wide,
    zero_gradient,
)
from pullback.relax.op.kernel import Lines
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import all_of
from pullback.relax.op.sample import Floats, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, format_shape, same_shape
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

_FAR = 2.0**20  # pixels from the first one
_CHECK = "a roi names no batch of data, or has a corner that lies more than 2²⁰ pixels away"
DATA, ROIS, BATCHES = (2, 3, 6, 7), Floats((4, 5), 0.0, 1.4), Ints((4,), 0, 2)  # samples

# -- batches


def _batches_te(rois: te.Tensor, *, count: Any, spatial_scale: float) -> te.Tensor:
    def batch(k: PrimExpr) -> PrimExpr:
        nearest = call("floor", cast(wide(rois.dtype), rois[k, 0]) + 0.5)
        return maximum(minimum(cast("int64", nearest), as_expr(count) - 1), 0)

    return te.compute(rois.shape[:1], batch, "batches")


def _batches_check(rois: te.Tensor, *, count: Any, spatial_scale: float) -> te.Tensor:
    kind = wide(rois.dtype)

    def valid(k: PrimExpr, c: PrimExpr) -> PrimExpr:
        value = cast(kind, rois[k, c])
        batch = (value >= -0.5) & (value < cast(kind, as_expr(count)) - 0.5)
        corner = call("abs", value * spatial_scale) <= _FAR
        return select(c.equal(0), batch, corner)

    return all_of(te.compute(rois.shape, valid, "valid"))


def check_rois(rois: np.ndarray, count: int, spatial_scale: float) -> np.ndarray:
    """The batch of each roi."""
    batches = np.floor(rois[:, 0] + 0.5)
    if not np.all((batches >= 0) & (batches < count)) or not np.all(np.abs(rois[:, 1:] * spatial_scale) <= _FAR):
        raise UserError(_CHECK)
    return batches.astype(np.int64)


def _expect_rois(name: str, rois: TensorStructInfo) -> Dim:
    shape = known_shape(name, rois, "rois")
    expect_dtype(name, rois, "float", "rois")
    if len(shape) != 2 or not same_shape(shape[1:], (5,)):
        raise ShapeError(f"{name}: rois must have the shape (rois, 5), got {format_shape(shape)}")
    return shape[0]


define(
    "vision.roi_batches",
    "rois | count, spatial_scale=1.0",
    infer=lambda rois, **_: TensorStructInfo((_expect_rois("vision.roi_batches", rois),), "int64"),
    te=_batches_te,
    numpy=in_wide(lambda rois, *, count, spatial_scale: check_rois(rois, count, spatial_scale)),
    gradient=zero_gradient,
    check=_batches_check,
    check_message=_CHECK,
    family="detection",
    doc="The batch that each roi (batch, x, y, x', y') names, int64. It must be one of 0 … count - 1, and the\n"
    "corners must lie within 2²⁰ pixels, or it is an error.",
    samples=[sample(Floats((6, 5), 0.0, 1.4), count=2), sample((0, 5), count=1, spatial_scale=0.5)],
)

# -- bins and the places in them, as scalars of loops


def expect_images(name: str, data: TensorStructInfo, rois: TensorStructInfo, pooled_size: Any) -> tuple[Dim, ...]:
    """The shape (rois, C, height, width) of the result for data (N, C, H, W)."""
    shape, count = known_shape(name, data, "data"), _expect_rois(name, rois)
    expect_dtype(name, data, "float", "data")
    expect_same_dtype(name, data, rois)
    if len(shape) != 4 or any(isinstance(n, int) and n == 0 for n in shape[2:]):
        raise ShapeError(f"{name}: data must be images that have pixels, got the shape {format_shape(shape)}")
    return (count, shape[1], *bins_of(name, pooled_size))


def bins_of(name: str, pooled_size: Any) -> tuple[int, int]:
    sizes = (pooled_size,) * 2 if isinstance(pooled_size, int) else tuple(pooled_size)
    for size in sizes:
        expect_int(name, "pooled_size", size)
    if len(sizes) != 2 or min(sizes) < 1:
        raise ShapeError(f"{name}: pooled_size must be two positive numbers, got {pooled_size!r}")
    return sizes


def expect_batches(name: str, batches: TensorStructInfo, rois: TensorStructInfo) -> None:
    expect_dtype(name, batches, "integer", "batches")
    if not same_shape(known_shape(name, batches, "batches"), known_shape(name, rois, "rois")[:1]):
        raise ShapeError(f"{name}: there must be a batch for each roi, got {format_shape(batches.shape)}")


class Named:
    """Names for expressions, in the order in which they are made."""

    def __init__(self) -> None:
        self.bound: list[tuple[Var, PrimExpr]] = []

    def __call__(self, name: str, value: PrimExpr) -> Var:
        self.bound.append((Var(name, value.dtype), value))
        return self.bound[-1][0]

    def around(self, body: Stmt) -> Stmt:
        for var, value in reversed(self.bound):
            body = Let(var, value, body)
        return body


def each_roi(rois: Buffer, out: Buffer, body: Callable[[PrimExpr], Stmt]) -> Stmt:
    """``body`` of all rois."""
    return Lines((rois.shape[0], math.prod(out.shape[1:])), 1).each(body)


def picked(data: Any, batches: Any, places: Any) -> Any:
    """The pixels of data (N, C, H, W) at the places y·W + x, (rois, C, …)."""
    channels, size = data.shape[1], data.shape[2] * data.shape[3]
    row = ops.reshape(batches, (-1, 1, 1, 1)) * number_of(channels)
    row = (row + ops.reshape(ops.arange(channels), (1, channels, 1, 1))) * number_of(size) + places
    return ops.take(ops.reshape(data, [-1]), row, 0, "clip")


def number_of(size: Dim) -> Any:
    return ops.full((), size, "int64")


# -- roi_pool


def _maxima_infer(data: TensorStructInfo, batches: TensorStructInfo, rois: TensorStructInfo, **attrs: Any) -> Any:
    name = "vision.roi_maxima"
    expect_batches(name, batches, rois)
    return TensorStructInfo(expect_images(name, data, rois, attrs["pooled_size"]), "int64")


def _pixels(let: Named, name: str, ends: Sequence[PrimExpr], at: PrimExpr, bins: int, size: Dim) -> list[PrimExpr]:
    """The first pixel of a bin, and the one behind the last."""
    kind = ends[0].dtype
    first, last = (cast("int64", call("floor", e + 0.5)) for e in ends)
    start = let(f"{name}_start", first)
    step = cast(kind, maximum(last - start + 1, 1)) / float(bins)
    edges = call("floor", cast(kind, at) * step), call("ceil", (cast(kind, at) + 1.0) * step)
    return [
        let(f"{name}_{k}", minimum(maximum(cast("int64", e) + start, 0), as_expr(size))) for k, e in enumerate(edges)
    ]


def _maxima_kernel(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], *, pooled_size: Any, spatial_scale: float
) -> Stmt:
    (data, batches, rois), (out,) = inputs, outputs
    bins, best = bins_of("vision.roi_pool", pooled_size), Buffer("best", (1,), data.dtype, "local")
    _, channels, height, width = data.shape

    def line(roi: PrimExpr) -> Stmt:
        def one_bin(i: PrimExpr, j: PrimExpr) -> Stmt:
            let, kind = Named(), wide(rois.dtype)
            ends = [cast(kind, rois[roi, k]) * spatial_scale for k in range(1, 5)]
            (top, bottom) = _pixels(let, "y", (ends[1], ends[3]), i, bins[0], height)
            (left, right) = _pixels(let, "x", (ends[0], ends[2]), j, bins[1], width)
            batch = let("batch", cast("int64", batches[roi]))

            def channel(c: PrimExpr) -> Stmt:
                at = roi, c, i, j

                def pixel(y: PrimExpr, x: PrimExpr) -> Stmt:
                    value = data[batch, c, y, x]
                    better = (value > best[0]) | (out[at] < 0)
                    return If(better, seq(store(best, (0,), value), store(out, at, y * width + x)))

                begin = seq(store(out, at, as_expr(-1)), store(best, (0,), tir.const(-math.inf, data.dtype)))
                rows = loop("y", bottom - top, lambda y: loop("x", right - left, lambda x: pixel(top + y, left + x)))
                return seq(begin, rows)

            return let.around(loop("c", channels, channel))

        return Allocate(best, loop("i", bins[0], lambda i: loop("j", bins[1], lambda j: one_bin(i, j))))

    return each_roi(inputs[2], out, line)


def _edges_array(first: Any, last: Any, bins: int, size: int) -> list[slice]:
    start, stop = (int(np.floor(e + e.dtype.type(0.5))) for e in (first, last))
    step = first.dtype.type(max(stop - start + 1, 1)) / first.dtype.type(bins)
    numbers = np.arange(bins, dtype=first.dtype)
    low, high = np.floor(numbers * step) + start, np.ceil((numbers + 1) * step) + start
    return [slice(int(a), int(b)) for a, b in zip(np.clip(low, 0, size), np.clip(high, 0, size), strict=True)]


def _maxima(
    data: np.ndarray, batches: np.ndarray, rois: np.ndarray, *, pooled_size: Any, spatial_scale: float
) -> np.ndarray:
    bins, kind = bins_of("vision.roi_pool", pooled_size), wide(rois.dtype.name)
    result = np.full((len(rois), data.shape[1], *bins), -1, np.int64)
    places = np.arange(math.prod(data.shape[2:])).reshape(data.shape[2:])
    for k, roi in enumerate(rois.astype(kind) * np.dtype(kind).type(spatial_scale)):
        rows, columns = (_edges_array(roi[n], roi[n + 2], bins[2 - n], data.shape[4 - n]) for n in (2, 1))
        for i, j in np.ndindex(*bins):
            part = data[batches[k], :, rows[i], columns[j]].reshape(data.shape[1], -1)
            if part.size:
                result[k, :, i, j] = places[rows[i], columns[j]].ravel()[np.argmax(part, 1)]
    return result


define(
    "vision.roi_maxima",
    "data, batches, rois | pooled_size, spatial_scale=1.0",
    infer=_maxima_infer,
    kernel=_maxima_kernel,
    numpy=_maxima,
    gradient=zero_gradient,
    family="detection",
    doc="The places y·W + x of the greatest pixels of the bins of vision.roi_pool, -1 where there are no pixels:\n"
    "(rois, C, height, width), int64.",
    samples=[
        sample(DATA, BATCHES, ROIS, pooled_size=(2, 3), spatial_scale=4.0),
        sample(DATA, BATCHES, ROIS, pooled_size=4, spatial_scale=9.0),
    ],
)


def _pool(data: Any, rois: Any, *, pooled_size: Any, spatial_scale: float, layout: str) -> Any:
    batches = ops.vision.roi_batches(rois, data.shape[0], spatial_scale)
    places = ops.vision.roi_maxima(data, batches, rois, pooled_size, spatial_scale)
    return masked(ops.greater_equal(places, 0), picked(data, batches, ops.maximum(places, 0)))


def _pool_array(
    data: np.ndarray, rois: np.ndarray, *, pooled_size: Any, spatial_scale: float, layout: str
) -> np.ndarray:
    batches = check_rois(rois.astype(wide(rois.dtype.name)), len(data), spatial_scale)
    places = _maxima(data, batches, rois, pooled_size=pooled_size, spatial_scale=spatial_scale)
    flat = data.reshape(*data.shape[:2], -1)
    found = flat[batches[:, None, None, None], np.arange(data.shape[1])[None, :, None, None], np.maximum(places, 0)]
    return np.where(places >= 0, found, data.dtype.type(0))


def _pool_expect(data: TensorStructInfo, rois: TensorStructInfo, *, pooled_size: Any, layout: str, **_: Any) -> None:
    expect_member("vision.roi_pool", "layout", layout, ("NCHW",))
    expect_images("vision.roi_pool", data, rois, pooled_size)


composite(
    "vision.roi_pool",
    "data, rois | pooled_size, spatial_scale, layout='NCHW'",
    te=None,
    expect=_pool_expect,
    decompose=_pool,
    numpy=_pool_array,
    family="detection",
    doc="The greatest pixels in pooled_size bins of the rois (batch, x, y, x', y'), (K, 5), of data (N, C, H, W):\n"
    "(K, C, height, width), 0 for bins without pixels. The corners times spatial_scale are rounded, and both belong\n"
    "to the roi; bins begin with rounded-down and end with rounded-up pixels. They are constant almost everywhere,\n"
    "so rois get no adjoint. A roi of no batch is an error. ONNX's MaxRoiPool.",
    samples=[
        sample(DATA, ROIS, pooled_size=(2, 3), spatial_scale=4.0),
        sample(DATA, ROIS, pooled_size=4, spatial_scale=9.0),
        sample(DATA, ROIS, pooled_size=2, spatial_scale=2.0),
        sample(DATA, ROIS, pooled_size=(1, 2), spatial_scale=6.0),
        sample(DATA, (0, 5), pooled_size=2, spatial_scale=2.0),
    ],
)
