"""Fourier transforms, of which the sizes are known: products with matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError, UserError
from pullback.relax import op
from pullback.relax.expr import const
from pullback.relax.frontend.onnx.known import is_given, number, static
from pullback.relax.frontend.onnx.ops.shapes import axis_of, padded, rank_of, shape_of
from pullback.relax.frontend.onnx.table import ONNX
from pullback.relax.frontend.onnx.types import dtype_of
from pullback.runtime.dtype import numpy_dtype


@ONNX.register("DFT")
def dft_17(x: Any, length: Any = None, *, axis: int, inverse: int, onesided: int) -> Any:
    return transformed(x, axis, number(length) if is_given(length) else None, bool(inverse), bool(onesided))


@ONNX.register("DFT-20")
def dft(x: Any, length: Any = None, axis: Any = None, *, inverse: int, onesided: int) -> Any:
    along = number(axis) if is_given(axis) else -2
    return transformed(x, along, number(length) if is_given(length) else None, bool(inverse), bool(onesided))


def transformed(x: Any, axis: int, length: int | None, inverse: bool, onesided: bool) -> Any:
    """The discrete Fourier transform along an axis of x, whose last axis has the real and, if there is one, the
    imaginary part. ``onesided``: forward, of real numbers, only the first half of the result; inverse, of such a half,
    real numbers."""
    rank = rank_of(x)
    axis = axis_of(axis, rank)
    *_, parts = shape_of(x)
    if axis == rank - 1 or parts not in (1, 2):
        raise ShapeError(f"DFT along axis {axis} of a tensor of rank {rank}, whose last axis has the size {parts}")
    (given,) = static([shape_of(x)[axis]], "the size of an axis that is transformed")
    if inverse and onesided:
        return _real_inverse(x, axis, given, length)
    size = length if length is not None else given
    x = _fitted(x, axis, given, size)
    bins = size // 2 + 1 if onesided else size
    angles = 2 * np.pi * (np.outer(np.arange(size), np.arange(bins)) % size) / size
    cosine, sine = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    if inverse:
        cosine, sine = cosine / size, sine / size
    moved = op.permute_dims(x, [a for a in range(rank) if a not in (axis, rank - 1)] + [rank - 1, axis])
    dtype = x.struct_info.dtype
    c, s = (const(m.astype(numpy_dtype(dtype))) for m in (cosine, sine))
    real = op.squeeze(op.strided_slice(moved, [rank - 2], [0], [1]), [rank - 2])
    re, im = op.matmul(real, c), op.matmul(real, s)
    if parts == 2:
        imaginary = op.squeeze(op.strided_slice(moved, [rank - 2], [1], [2]), [rank - 2])
        re, im = op.subtract(re, op.matmul(imaginary, s)), op.add(im, op.matmul(imaginary, c))
    return _moved_back(op.stack([re, im], rank - 1), axis, rank)


def _real_inverse(x: Any, axis: int, given: int, length: int | None) -> Any:
    """Real numbers from the first half of their transform."""
    size = length if length is not None else 2 * (given - 1)
    bins = size // 2 + 1
    if shape_of(x)[-1] != 2:
        raise UserError("a one-sided transform has a real and an imaginary part")
    x = _fitted(x, axis, given, bins)
    rank = rank_of(x)
    weights = np.full(bins, 2.0)
    weights[0] = 1
    if size % 2 == 0:
        weights[-1] = 1
    angles = 2 * np.pi * (np.outer(np.arange(bins), np.arange(size)) % size) / size
    cosine, sine = np.cos(angles) * weights[:, None] / size, -np.sin(angles) * weights[:, None] / size
    moved = op.permute_dims(x, [a for a in range(rank) if a not in (axis, rank - 1)] + [rank - 1, axis])
    kind = numpy_dtype(x.struct_info.dtype)
    both = const(np.stack([cosine, sine]).astype(kind))
    found = op.sum(op.matmul(op.expand_dims(moved, rank - 1), both), [rank - 2, rank - 1])
    return _moved_back(op.expand_dims(found, rank - 1), axis, rank)


def _moved_back(x: Any, axis: int, rank: int) -> Any:
    """The axis before the last at its place."""
    order = list(range(rank - 2))
    order.insert(axis, rank - 2)
    return op.permute_dims(x, [*order, rank - 1])


def _fitted(x: Any, axis: int, given: int, size: int) -> Any:
    """x with zeros behind it, or cut off, so that the axis has a size."""
    if size < 1:
        raise ShapeError(f"DFT of length {size}")
    pads = [0] * (2 * rank_of(x))
    pads[rank_of(x) + axis] = size - given
    return padded(x, pads)


@ONNX.register("STFT")
def stft(signal: Any, frame_step: Any, window: Any = None, frame_length: Any = None, *, onesided: int) -> Any:
    """The transforms of overlapping frames: (batch, n, 1 or 2) gives (batch, frames, bins, 2)."""
    step = int(number(frame_step))
    if is_given(frame_length):
        length = int(number(frame_length))
    elif window is not None:
        (length,) = static(shape_of(window), "the size of a window")
    else:
        raise UserError("STFT needs a window or a frame_length")
    x = op.expand_dims(signal, 2) if rank_of(signal) == 2 else signal
    (total,) = static(shape_of(x)[1:2], "the length of a signal")
    count = 1 + (total - length) // step
    if count < 1:
        raise ShapeError(f"a signal of {total} values has no frame of {length}")
    places = np.arange(count)[:, None] * step + np.arange(length)[None]
    frames = op.take(x, const(places.astype(np.int64)), 1)
    if window is not None:
        frames = op.multiply(frames, op.reshape(window, (length, 1)))
    return transformed(frames, 2, None, False, bool(onesided))


@ONNX.register("MelWeightMatrix")
def mel_weight_matrix(
    bins: Any, length: Any, rate: Any, lower: Any, upper: Any, *, output_datatype: int
) -> Any:  # fmt: skip
    """Triangles of equal width on the mel scale, a column each: (length / 2 + 1, bins)."""
    count, size, sampling = int(number(bins)), int(number(length)), int(number(rate))
    spectrum = size // 2 + 1
    edges = np.arange(count + 2).astype(np.float64)
    low, high = (2595 * np.log10(1 + float(number(f)) / 700) for f in (lower, upper))
    frequencies = 700 * (np.power(10, (low + edges * (high - low) / (count + 2)) / 2595) - 1)
    places = ((size + 1) * frequencies // sampling).astype(int)
    found = np.zeros((spectrum, count))
    for k in range(count):
        left, centre, right = places[k : k + 3]
        if centre == left:
            found[centre, k] = 1
        else:
            for j in range(left, centre + 1):
                found[j, k] = (j - left) / (centre - left)
        if right > centre:
            for j in range(centre, right):
                found[j, k] = (right - j) / (right - centre)
    return found.astype(numpy_dtype(dtype_of(output_datatype, "the type of MelWeightMatrix")))
