"""Names of the reference system that belong to no other file: aliases, and small ops of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback import te
from pullback.ir.errors import ShapeError
from pullback.ir.op import alias, define
from pullback.relax.op.family import (
    collapse_to_operands,
    composite,
    elementwise_infer,
    elementwise_te,
    expect_dtype,
    expect_int,
    expect_same_dtype,
    known_shape,
    normalize_axis,
    rule_in_wide,
    wide,
    zero_gradient,
)
from pullback.relax.op.manipulate.shape import sizes
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape
from pullback.runtime.dtype import numpy_dtype
from pullback.tir import PrimExpr, as_expr, call, cast, const, fma, maximum, minimum, select
from pullback.tir.arithmetic import intrinsic

for _name, _op in {
    "cat": "concat", "concatenate": "concat", "transpose": "permute_dims", "permute": "permute_dims",
    "absolute": "abs", "neg": "negative", "sub": "subtract", "mul": "multiply", "div": "divide",
    "true_divide": "divide", "pow": "power", "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "clamp": "clip", "mm": "matmul", "bmm": "matmul",
    "remainder": "mod",
}.items():  # fmt: skip
    alias(_name, _op)  # names that PyTorch and NumPy have for the same
alias("floor_mod", "mod")
alias("log_add_exp", "logaddexp")

define(
    "ewise_fma",
    "x, y, z",
    infer=elementwise_infer("ewise_fma", "number", None),
    te=elementwise_te(fma, "ewise_fma"),
    numpy=lambda x, y, z: intrinsic("fma", x.dtype.name, x, y, z),
    gradient=rule_in_wide(lambda d, out, x, y, z: collapse_to_operands((d * y, d * x, d), x, y, z)),
    precision="same",
    family="binary",
    doc="x · y + z, of floats rounded once where the machine can; the three broadcast.",
    samples=[
        sample((3, 4), (3, 4), (3, 4)),
        sample((5,), (3, 5), ()),
        sample((2, 1, 9), (3, 1), (3, 9)),
        sample((0,), (0,), (1,)),
    ],
)

composite(
    "nn.batch_flatten",
    "data",
    decompose=lambda data: ops.reshape(data, (data.shape[0], math.prod(data.shape[1:]))),
    numpy=lambda data: data.reshape(data.shape[0], math.prod(data.shape[1:])),
    expect=lambda data: _expect_batch(data),
    precision="same",
    family="reshape",
    doc="All axes but the first as one.",
    samples=[sample((3, 4, 5)), sample((2, 3)), sample((4,)), sample((0, 2, 2))],
)


def _expect_batch(data: TensorStructInfo) -> None:
    if not data.shape:
        raise ShapeError("nn.batch_flatten: a scalar has no batch axis")


# -- parts of a tensor


def _slice_scatter_infer(
    x: TensorStructInfo, src: TensorStructInfo, *, axis: int, start: int, end: int | None, step: int
) -> TensorStructInfo:
    shape, own = known_shape("slice_scatter", x), known_shape("slice_scatter", src, "src")
    at, places = _places(shape, axis, start, end, step)
    expect_same_dtype("slice_scatter", x, src)
    wanted = (*shape[:at], len(places), *shape[at + 1 :])
    if not same_shape(own, wanted):
        raise ShapeError(f"slice_scatter: src must have the shape {format_shape(wanted)}, got {format_shape(own)}")
    return x


def _places(shape: Any, axis: int, start: int, end: int | None, step: int) -> tuple[int, range]:
    """The axis, and the places of the slice on it."""
    at = normalize_axis("slice_scatter", axis, len(shape))
    for name, value in (("start", start), ("end", 0 if end is None else end), ("step", step)):
        expect_int("slice_scatter", name, value)
    if not isinstance(shape[at], int):
        raise ShapeError(f"slice_scatter: the size of axis {at} must be known")
    if step < 1:
        raise ShapeError(f"slice_scatter: step must be positive, got {step}")
    return at, range(shape[at])[start:end:step]


def _slice_scatter_te(x: te.Tensor, src: te.Tensor, **attrs: Any) -> te.Tensor:
    at, places = _places(x.shape, **attrs)

    def element(*i: PrimExpr) -> PrimExpr:
        if not places:
            return x[i]
        offset = i[at] - places.start
        inside = (offset >= 0) & (i[at] <= places[-1]) & (offset % places.step).equal(0)
        number = minimum(maximum(offset // places.step, 0), len(places) - 1)
        return select(inside, src[(*i[:at], number, *i[at + 1 :])], x[i])

    return te.compute(x.shape, element, "slice_scatter")


def _slice_scatter_gradient(dy: Any, y: Any, x: Any, src: Any, **attrs: Any) -> tuple[Any, Any]:
    at, places = _places(x.shape, **attrs)
    kept = ops.slice_scatter(dy, ops.zeros_like(src), **attrs)
    return kept, ops.strided_slice(dy, [at], [places.start], [places.stop], [places.step])


def _slice_scatter_array(
    x: np.ndarray, src: np.ndarray, *, axis: int, start: int, end: int | None, step: int
) -> np.ndarray:
    result = x.copy()
    np.moveaxis(result, axis, 0)[slice(start, end, step)] = np.moveaxis(src, axis, 0)
    return result


define(
    "slice_scatter",
    "input_tensor, src | axis=0, start=0, end=None, step=1",
    infer=_slice_scatter_infer,
    te=_slice_scatter_te,
    numpy=_slice_scatter_array,
    gradient=_slice_scatter_gradient,
    precision="same",
    family="take",
    doc="input_tensor with src in place of the slice start:end:step along an axis.",
    samples=[
        sample((6, 3), (2, 3), start=1, end=5, step=2),
        sample((2, 5), (2, 3), axis=1, start=-3),
        sample((4,), (4,)),
        sample((2, 3, 4), (2, 1, 4), axis=1, start=2),
        sample((3, 2), (0, 2), start=3),
    ],
)


def _reverse_infer(
    data: TensorStructInfo, seq_lengths: TensorStructInfo, *, seq_axis: int, batch_axis: int
) -> TensorStructInfo:
    shape, own = known_shape("reverse_sequence", data, "data"), known_shape("reverse_sequence", seq_lengths)
    expect_dtype("reverse_sequence", seq_lengths, "integer", "seq_lengths")
    along, batch = (normalize_axis("reverse_sequence", a, len(shape)) for a in (seq_axis, batch_axis))
    if along == batch:
        raise ShapeError(f"reverse_sequence: seq_axis and batch_axis are both {along}")
    if not same_shape(own, (shape[batch],)):
        wanted = format_shape((shape[batch],))
        raise ShapeError(f"reverse_sequence: seq_lengths must have the shape {wanted}, got {format_shape(own)}")
    return data


def _reverse_te(data: te.Tensor, seq_lengths: te.Tensor, *, seq_axis: int, batch_axis: int) -> te.Tensor:
    along, batch = (normalize_axis("reverse_sequence", a, data.ndim) for a in (seq_axis, batch_axis))

    def element(*i: PrimExpr) -> PrimExpr:
        size = as_expr(data.shape[along])
        length = minimum(maximum(cast("int64", seq_lengths[i[batch]]), 0), size)
        place = select(i[along] < length, length - 1 - i[along], i[along])
        return data[(*i[:along], minimum(maximum(place, 0), size - 1), *i[along + 1 :])]

    return te.compute(data.shape, element, "reverse_sequence")


def _reverse(data: np.ndarray, seq_lengths: np.ndarray, *, seq_axis: int, batch_axis: int) -> np.ndarray:
    result = data.copy()
    for k, length in enumerate(seq_lengths):
        to, come = (np.moveaxis(a, (batch_axis, seq_axis), (0, 1))[k] for a in (result, data))
        n = min(max(int(length), 0), len(to))
        to[:n] = come[:n][::-1]
    return result


define(
    "reverse_sequence",
    "data, seq_lengths | seq_axis=1, batch_axis=0",
    infer=_reverse_infer,
    te=_reverse_te,
    numpy=_reverse,
    gradient=lambda dy, y, data, seq_lengths, **attrs: (ops.reverse_sequence(dy, seq_lengths, **attrs), None),
    precision="same",
    family="take",
    doc="The first seq_lengths[b] elements along seq_axis of each b of batch_axis in reverse order, the others as\n"
    "they are. A length below 0 counts as 0, one beyond the axis as its size.",
    samples=[
        sample((3, 5), Ints((3,), 0, 6)),
        sample((4, 2, 3), Ints((3,), -1, 9, "int32"), seq_axis=0, batch_axis=2),
        sample((2, 1), Ints((2,), 0, 2)),
        sample((0, 3), Ints((0,), 0, 2)),
    ],
)

# -- creation


def _hamming_infer(*, window_size: int, periodic: bool, alpha: float, beta: float, dtype: str) -> TensorStructInfo:
    expect_int("hamming_window", "window_size", window_size)
    if window_size < 1:
        raise ShapeError(f"hamming_window: window_size must be positive, got {window_size}")
    info = TensorStructInfo((window_size,), dtype)
    expect_dtype("hamming_window", info, "float", "its result")
    return info


def _hamming(*, window_size: int, periodic: bool, alpha: float, beta: float, dtype: str) -> np.ndarray:
    period = max(window_size if periodic else window_size - 1, 1)
    values = alpha - beta * np.cos(2 * np.pi * np.arange(window_size) / period)
    return (np.ones(1) if window_size == 1 else values).astype(numpy_dtype(dtype))


def _hamming_te(**attrs: Any) -> te.Tensor:
    n, period = attrs["window_size"], max(attrs["window_size"] - (not attrs["periodic"]), 1)

    def element(i: PrimExpr) -> PrimExpr:
        if n == 1:
            return const(1.0, attrs["dtype"])
        angle = cast(wide(attrs["dtype"]), cast("float64", i) * (2 * math.pi / period))
        return cast(attrs["dtype"], attrs["alpha"] - call("cos", angle) * attrs["beta"])

    return te.compute((n,), element, "hamming_window")


define(
    "hamming_window",
    "| window_size, periodic=True, alpha=0.54, beta=0.46, dtype='float32'",
    infer=_hamming_infer,
    te=_hamming_te,
    numpy=_hamming,
    gradient=zero_gradient,
    family="create",
    doc="alpha - beta·cos(2πi / N) for i = 0 … window_size - 1, N being window_size, or one less where it is not\n"
    "periodic.",
    samples=[sample(window_size=8), sample(window_size=5, periodic=False, dtype="float64"), sample(window_size=1)],
)

composite(
    "eye_like",
    "x | k=0, dtype=None",
    expect=lambda x, *, k, dtype: _expect_matrix(x),
    decompose=lambda x, *, k, dtype: ops.eye(*x.shape, k, dtype or x.dtype),
    numpy=lambda x, *, k, dtype: np.eye(x.shape[0], x.shape[1], k, dtype=numpy_dtype(dtype) if dtype else x.dtype),
    gradient=zero_gradient,
    precision="same",
    family="create",
    doc="Ones on the k-th diagonal of a matrix of the shape (and, if none is given, the dtype) of x, zeros elsewhere.",
    samples=[sample((3, 3)), sample((2, 4), k=1, dtype="int64"), sample((0, 2))],
)


def _expect_matrix(x: TensorStructInfo) -> None:
    if len(x.sizes) != 2:
        raise ShapeError(f"eye_like: x must be a matrix, it has the shape {format_shape(x.shape)}")


def _shape_te(*, shape: Any) -> te.Tensor:
    values = [as_expr(size) for size in sizes(shape)]

    def element(i: PrimExpr) -> PrimExpr:
        found = const(0, "int64")
        for k, value in enumerate(values):
            found = select(i.equal(k), value, found)
        return found

    return te.compute((len(values),), element, "shape")


define(
    "shape_to_tensor",
    "| shape",
    infer=lambda *, shape: TensorStructInfo((len(sizes(shape)),), "int64"),
    te=_shape_te,
    numpy=lambda *, shape: np.array(shape, np.int64).reshape(-1),
    gradient=zero_gradient,
    family="create",
    doc="The sizes of a shape, which may be symbolic, as a tensor of rank 1 (int64).",
    samples=[sample(shape=(3, 4)), sample(shape=(7,)), sample(shape=())],
)

# -- gradients

define(
    "grad.no_grad",
    "input",
    infer=lambda x: (known_shape("grad.no_grad", x, "input"), x)[1],
    te=lambda x: te.compute(x.shape, lambda *i: x[i], "no_grad"),
    numpy=lambda x: x,
    gradient=zero_gradient,
    precision="same",
    family="reshape",
    doc="The input as it is, and a constant for gradients: it gets no adjoint. PyTorch's detach.",
    samples=[sample((3, 4), smooth=False), sample((), smooth=False), sample(Ints((0, 3), 0, 1))],
)
alias("stop_gradient", "grad.no_grad")

for _name, _doc in {
    "start_checkpoint": "The input as it is. What is computed of it, up to end_checkpoint, is not kept for the backward"
    " part: Gradient computes it there again.",
    "end_checkpoint": "The input as it is, which is kept for the backward part: what start_checkpoint began ends.",
}.items():
    define(
        f"grad.{_name}",
        "input",
        infer=lambda x, name=f"grad.{_name}": (known_shape(name, x, "input"), x)[1],
        te=lambda x, name=_name: te.compute(x.shape, lambda *i: x[i], name),
        numpy=lambda x: x,
        gradient=lambda dy, y, x: (dy,),
        precision="same",
        family="reshape",
        doc=_doc,
        samples=[sample((3, 4)), sample(()), sample((0, 3)), sample((2, 1, 5))],
    )
