"""Windows over axes, and Fourier transforms, whose complex numbers are two tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import relax
from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Expr, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import axis_of, dtype_of, ints, places, quotient, rank_of, shape_of, total
from pullback.relay.ty import TensorType, TupleType, Type


def _count(size: Any, window: int, stride: int) -> Any:
    return total([quotient(total([size, -window]), stride), 1])


def _sliding_window(x: Any, *, axis: int, window_shape: Any, strides: Any) -> Any:
    first = axis_of("sliding_window", axis, rank_of(x))
    for i, (window, stride) in enumerate(zip(window_shape, strides, strict=True)):
        at = first + i
        size = shape_of(x)[at]
        if window > size:
            raise ShapeError(f"sliding_window: axis {at} has {size} elements, a window {window}")
        rows = np.arange(_count(size, window, stride))[:, None] * stride + np.arange(window)
        x = ops.take(x, places(rows.reshape(-1)), at)
        shape = shape_of(x)
        x = ops.reshape(x, (*shape[:at], *rows.shape, *shape[at + 1 :]))
        rank = rank_of(x)
        x = ops.permute_dims(x, (*(k for k in range(rank) if k != at + 1), at + 1))
    return x


def _windows_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    x = types[0]
    if x.is_concrete:
        return None
    first = axis_of("sliding_window", attrs["axis"], x.ndim)
    pairs = zip(x.shape[first:], attrs["window_shape"], attrs["strides"], strict=True)
    counts = [_count(size, window, stride) for size, window, stride in pairs]
    return TensorType((*x.shape[:first], *counts, *attrs["window_shape"]), x.dtype)


def _adapt_windows(args: list[Any], attrs: dict[str, Any]) -> Any:
    return args, attrs | {name: ints(name, attrs[name]) for name in ("window_shape", "strides")}


define(
    "sliding_window",
    "data | axis, window_shape, strides",
    _sliding_window,
    adapt=_adapt_windows,
    relation=_windows_type,
    pattern=OpPattern.OPAQUE,
    shown=("axis", "window_shape", "strides"),
    doc="Windows over the last axes from axis on: their numbers are the sizes of these axes, the windows' own follow.",
)


def _turns(size: int, dtype: str, inverse: bool) -> tuple[Any, Any]:
    """cos and sin of 2π·j·k / size, with the sign of the transform."""
    angles = 2 * np.pi * np.outer(np.arange(size), np.arange(size)) / size
    sine = np.sin(angles) if inverse else -np.sin(angles)
    return relax.const(np.cos(angles).astype(dtype)), relax.const(sine.astype(dtype))


def _dft(real: Any, imaginary: Any, *, inverse: bool) -> tuple[Any, Any]:
    size, dtype = shape_of(real)[-1], dtype_of(real)
    cosine, sine = _turns(size, dtype, inverse)
    found = (
        ops.subtract(ops.matmul(real, cosine), ops.matmul(imaginary, sine)),
        ops.add(ops.matmul(real, sine), ops.matmul(imaginary, cosine)),
    )
    scale = relax.const(1.0 / size, dtype)
    return tuple(ops.multiply(f, scale) for f in found) if inverse else found


define(
    "dft",
    "re_data, im_data | inverse=False",
    _dft,
    relation=lambda types, attrs: None if types[0].is_concrete else TupleType((types[0], types[0])),
    returns=2,
    doc="The discrete Fourier transform along the last axis, or its inverse: real and imaginary parts.",
)


def _stft(x: Any, window: Any, **attrs: Any) -> Any:
    size, hop, length = attrs["n_fft"], attrs["hop_length"], attrs["win_length"]
    frames = _sliding_window(x, axis=-1, window_shape=(size,), strides=(hop,))
    before = (size - length) // 2
    window = ops.nn.pad(window, [before, size - length - before]) if size > length else window
    frames = ops.multiply(frames, window)
    cosine, sine = _turns(size, dtype_of(x), False)
    parts = [ops.permute_dims(ops.matmul(frames, turn), (0, 2, 1)) for turn in (cosine, sine)]
    found = ops.stack(parts, 3)
    if attrs["onesided"]:
        found = ops.strided_slice(found, [1], [0], [size // 2 + 1])
    return ops.multiply(found, relax.const(size**-0.5, dtype_of(x))) if attrs["normalized"] else found


def _adapt_stft(args: list[Any], attrs: dict[str, Any]) -> Any:
    size = ints("n_fft", attrs["n_fft"])[0]
    length = size if attrs["win_length"] is None else ints("win_length", attrs["win_length"])[0]
    hop = size // 4 if attrs["hop_length"] is None else ints("hop_length", attrs["hop_length"])[0]
    if length > size:
        raise ShapeError(f"stft: win_length {length} is more than n_fft {size}")
    window = args[1] if len(args) > 1 else const(np.ones(length, "float32"))
    args = [args[0], window if isinstance(window, Expr) else const(window)]
    return args, attrs | {"n_fft": size, "win_length": length, "hop_length": hop}


def _stft_type(types: list[TensorType], attrs: Attrs) -> Type | None:
    x = types[0]
    if all(t.is_concrete for t in types):
        return None
    bins = attrs["n_fft"] // 2 + 1 if attrs["onesided"] else attrs["n_fft"]
    return TensorType((x.shape[0], bins, _count(x.shape[1], attrs["n_fft"], attrs["hop_length"]), 2), x.dtype)


define(
    "stft",
    "data, window? | n_fft, hop_length=None, win_length=None, normalized=False, onesided=True",
    _stft,
    order=("data", "n_fft", "hop_length", "win_length", "window", "normalized", "onesided"),
    adapt=_adapt_stft,
    relation=_stft_type,
    shown=("n_fft", "hop_length", "win_length", "normalized", "onesided"),
    doc="The Fourier transforms of windows over a signal (N, size): (N, frequencies, windows, 2), the last axis the\n"
    "real and the imaginary part; onesided, only those of frequencies up to half of n_fft.",
)


# -- bits


def _reinterpret(values: list[Any], attrs: Any) -> Any:
    return np.ascontiguousarray(values[0]).view(attrs["dtype"])


def _reinterpreted(types: list[TensorType], attrs: Attrs) -> Type:
    sizes = [np.dtype(t).itemsize for t in (types[0].dtype, attrs["dtype"])]
    if sizes[0] != sizes[1]:
        raise ShapeError(f"reinterpret: {types[0].dtype} and {attrs['dtype']} have different numbers of bits")
    return TensorType(types[0].shape, attrs["dtype"])


define(
    "reinterpret",
    "data | dtype",
    numpy=_reinterpret,
    relation=_reinterpreted,
    shown=("dtype",),
    doc="The bits of data's elements as elements of another dtype of as many bits.",
)
