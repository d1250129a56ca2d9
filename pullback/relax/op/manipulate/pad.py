"""Padding tensors, and dilating them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import expect_holds, expect_member, known_shape, rule_in_wide
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, as_int, dim
from pullback.te.concatenation import clamp

# -- pad

# How each mode is called in NumPy, and how much less than the size of the axis the padding may be, at most.
_MODES: dict[str, tuple[Literal["constant", "reflect", "edge", "wrap"], int | None]] = {
    "constant": ("constant", None),
    "reflect": ("reflect", 1),
    "replicate": ("edge", None),
    "circular": ("wrap", 0),
}


def _widths(op: str, ndim: int, pad_width: Any) -> list[tuple[Any, Any]]:
    flat = [w for pair in pad_width for w in (pair if isinstance(pair, (tuple, list)) else (pair,))]
    if len(flat) != 2 * ndim:
        raise ShapeError(
            f"{op}: pad_width must hold before and after of each of the {ndim} axes, got {tuple(pad_width)}"
        )
    if any(isinstance(w, int) and w < 0 for w in flat):
        raise ShapeError(f"{op}: pad_width cannot be negative, got {tuple(pad_width)}", hint="use R.strided_slice")
    return list(zip(flat[::2], flat[1::2], strict=True))


def _pad_infer(x: TensorStructInfo, *, pad_width: Any, pad_mode: str, pad_value: Any) -> TensorStructInfo:
    shape = known_shape("nn.pad", x)
    expect_holds("nn.pad", "pad_value", pad_value, x.dtype)
    return TensorStructInfo([s + b + a for s, (b, a) in _padding(shape, pad_width, pad_mode)], x.dtype)


def _padding(shape: Sequence[Dim], pad_width: Any, pad_mode: str) -> list[tuple[Any, tuple[Any, Any]]]:
    """The size of each axis with its padding, which the mode allows."""
    expect_member("nn.pad", "pad_mode", pad_mode, tuple(_MODES))
    axes = list(zip(shape, _widths("nn.pad", len(shape), pad_width), strict=True))
    less = _MODES[pad_mode][1]
    for size, widths in axes:
        if pad_mode == "constant" or not isinstance(size, int):
            continue
        widest = max((w for w in widths if isinstance(w, int)), default=0)
        if widest == 0 or (size > 0 and (less is None or widest <= size - less)):
            continue
        limit = f"at most {size - (less or 0)}" if size else "an axis of size 0 has nothing to repeat"
        raise ShapeError(f"nn.pad: {pad_mode} padding of {widest} of an axis of size {size}: {limit}")
    return axes


def _constant(value: Any, dtype: str) -> tir.PrimExpr:
    return value if isinstance(value, tir.PrimExpr) else tir.const(value, dtype)


def _pad_te(x: te.Tensor, *, pad_width: Any, pad_mode: str, pad_value: Any) -> te.Tensor:
    axes = _padding(x.shape, pad_width, pad_mode)
    shape = [dim(s + b + a) for s, (b, a) in axes]
    fill = _constant(pad_value, x.dtype)

    def constant(*i: tir.PrimExpr) -> tir.PrimExpr:
        if any(isinstance(s, int) and s == 0 for s in x.shape):
            return fill
        index, inside = [], []
        for e, (size, widths) in zip(i, axes, strict=True):
            before, after = map(tir.as_expr, widths)
            local = e - before
            padded = [n for n, w in ((0, before), (1, after)) if not (isinstance(w, tir.IntImm) and w.value == 0)]
            if 0 in padded:
                inside.append(e >= before)
            if 1 in padded:
                inside.append(e < before + tir.as_expr(size))
            index.append(clamp(local, tir.as_expr(size)) if padded else local)
        value = x[tuple(index)]
        return tir.select(_all(inside), value, fill) if inside else value

    def repeated(*i: tir.PrimExpr) -> tir.PrimExpr:
        return x[tuple(_source(e, size, widths, pad_mode) for e, (size, widths) in zip(i, axes, strict=True))]

    return te.compute(shape, constant if pad_mode == "constant" else repeated, "pad")


def _source(e: tir.PrimExpr, size: Dim, widths: tuple[Any, Any], mode: str) -> tir.PrimExpr:
    """Which element of an axis stands at the place ``e`` of the padded one. It is valid whatever a symbolic size is."""
    (before, after), n = widths, tir.as_expr(size)
    i = e - before
    if all(isinstance(w, int) and w == 0 for w in widths):
        return i
    if mode == "reflect":
        i = i if isinstance(before, int) and before == 0 else tir.maximum(i, -i)
        i = i if isinstance(after, int) and after == 0 else tir.minimum(i, (n - 1) * 2 - i)
    elif mode == "circular":
        i = tir.select(i < 0, i + n, tir.select(i >= n, i - n, i))
    return i if mode != "replicate" and isinstance(size, int) else clamp(i, n)


def _all(conditions: Sequence[tir.PrimExpr]) -> tir.PrimExpr:
    result = conditions[0]
    for c in conditions[1:]:
        result = result & c
    return result


def _pad(x: np.ndarray, *, pad_width: Any, pad_mode: str, pad_value: Any) -> np.ndarray:
    widths = [w for _, w in _padding(x.shape, pad_width, pad_mode)]
    if not widths:
        return np.array(x)
    if pad_mode == "constant":
        return np.pad(x, widths, constant_values=np.asarray(pad_value).astype(x.dtype))
    return np.pad(x, widths, _MODES[pad_mode][0])


def _pad_gradient(dy: Any, y: Any, x: Any, *, pad_width: Any, pad_mode: str, pad_value: Any) -> tuple[Any]:
    axes = _padding(x.shape, pad_width, pad_mode)
    if pad_mode != "constant":
        for axis, (size, widths) in enumerate(axes):
            dy = _folded(dy, axis, size, widths, pad_mode)
        return (dy,)
    begin = [b for _, (b, _) in axes]
    end = [dim(b + s) for s, (b, _) in axes]
    return (ops.strided_slice(dy, list(range(len(begin))), begin, end),)


def _folded(dy: Any, axis: int, size: Dim, widths: tuple[Any, Any], mode: str) -> Any:
    """The adjoint of padding one axis: what stands before and after the data is added to where it came from."""
    rank, (before, after) = len(dy.shape), widths

    def part(begin: Any, length: Any) -> Any:
        return ops.strided_slice(dy, [axis], [begin], [dim(begin + length)])

    def put(value: Any, place: Any) -> Any:
        width: list[Any] = [0] * (2 * rank)
        width[2 * axis : 2 * axis + 2] = [dim(place), dim(size - place - value.shape[axis])]
        return ops.nn.pad(value, width)

    total = part(before, size)
    for count, begin, end in ((before, 0, False), (after, before + size, True)):
        if isinstance(count, int) and count == 0:
            continue
        outside = part(begin, count)
        if mode == "replicate":
            total = total + put(ops.sum(outside, axis, True), size - 1 if end else 0)
        elif mode == "reflect":
            total = total + put(ops.flip(outside, axis), size - 1 - count if end else 1)
        else:
            total = total + put(outside, 0 if end else size - count)
    return total


define(
    "nn.pad",
    "x | pad_width, pad_mode='constant', pad_value=0.0",
    infer=_pad_infer,
    te=_pad_te,
    numpy=_pad,
    gradient=rule_in_wide(_pad_gradient),
    precision="same",
    zeros="makes",
    family="pad",
    doc="x with more around it. pad_width: before and after of each axis in turn, as 2·rank numbers or as pairs.\n"
    "pad_mode: 'constant' puts pad_value there; 'reflect' the mirror image, whose edge is not repeated (less than\n"
    "the axis has); 'replicate' the element at the edge; 'circular' what follows when x is repeated (at most as much\n"
    "as the axis has). As in PyTorch.",
    samples=[
        sample((3, 4), pad_width=(1, 2, 0, 3)),
        sample((3,), pad_width=((2, 0),), pad_value=1.5),
        sample((0, 2), pad_width=(1, 1, 0, 0)),
        sample((1, 1), pad_width=(0, 0, 0, 0)),
        sample(Ints((3,), 0, 5, "int32"), pad_width=(1, 1), pad_value=7),
        sample((), pad_width=()),
        sample((3, 4), pad_width=(2, 1, 0, 3), pad_mode="reflect"),
        sample((2, 1, 5), pad_width=((1, 1), (0, 0), (4, 4)), pad_mode="reflect"),
        sample((3, 4), pad_width=(5, 1, 0, 6), pad_mode="replicate"),
        sample((1, 1), pad_width=(0, 0, 2, 1), pad_mode="replicate"),
        sample((3, 4), pad_width=(3, 1, 0, 4), pad_mode="circular"),
        sample((2, 17), pad_width=(0, 2, 3, 0), pad_mode="circular"),
        sample((0, 3), pad_width=(0, 0, 1, 2), pad_mode="reflect"),
        sample(Ints((4,), 0, 5, "int32"), pad_width=(2, 3), pad_mode="reflect"),
    ],
)

# -- dilate


def _dilated(ndim: int, shape: Sequence[Dim], strides: Any) -> list[Dim]:
    if len(strides) != ndim or any(not isinstance(s, int) or s < 1 for s in strides):
        raise ShapeError(f"nn.dilate: strides must be {ndim} positive numbers, got {tuple(strides)}")
    return [
        n if s == 1 else 0 if isinstance(n, int) and n == 0 else dim((n - 1) * s + 1)
        for n, s in zip(shape, strides, strict=True)
    ]


def _dilate_infer(x: TensorStructInfo, *, strides: Any, value: float) -> TensorStructInfo:
    shape = _dilated(len(known_shape("nn.dilate", x)), x.sizes, strides)
    expect_holds("nn.dilate", "value", value, x.dtype)
    return TensorStructInfo(shape, x.dtype)


def _dilate_te(x: te.Tensor, *, strides: Any, value: float) -> te.Tensor:
    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        hits = [(e % s).equal(0) for e, s in zip(i, strides, strict=True) if s > 1]
        element = x[tuple(e // s for e, s in zip(i, strides, strict=True))]
        return tir.select(_all(hits), element, _constant(value, x.dtype)) if hits else element

    return te.compute(_dilated(x.ndim, x.shape, strides), element, "dilate")


def _dilate(x: np.ndarray, *, strides: Any, value: float) -> np.ndarray:
    result = np.full(tuple(map(as_int, _dilated(x.ndim, x.shape, strides))), value, x.dtype)
    result[tuple(slice(None, None, s) for s in strides)] = x
    return result


define(
    "nn.dilate",
    "x | strides, value=0.0",
    infer=_dilate_infer,
    te=_dilate_te,
    numpy=_dilate,
    gradient=lambda dy, y, x, *, strides, value: (
        ops.strided_slice(dy, list(range(len(strides))), [0] * len(strides), list(dy.shape), strides),
    ),
    precision="same",
    zeros="makes",
    family="pad",
    doc="x with stride - 1 times ``value`` between neighbours along each axis: the adjoint of slicing with strides.",
    samples=[
        sample((3, 4), strides=(2, 1)),
        sample((5,), strides=(3,), value=-1.0),
        sample((2, 1, 4), strides=(1, 5, 2)),
        sample((0, 2), strides=(2, 2)),
    ],
)
