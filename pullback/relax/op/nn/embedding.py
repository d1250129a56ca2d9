"""Embeddings: rows of a table, and rotary embeddings of positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.errors import ShapeError
from pullback.relax.op.family import (
    broadcast_shapes,
    collapse_like,
    composite,
    expect_dtype,
    expect_int,
    expect_same_dtype,
    in_wide,
    masked,
    wide,
)
from pullback.relax.op.index.gather import INDEX_MODES, expect_mode
from pullback.relax.op.index.index import TAKE_CHECK
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_shape, same_shape

# -- embedding


def _embedding_expect(
    indices: TensorStructInfo, weight: TensorStructInfo, *, padding_idx: int | None, mode: str
) -> None:
    expect_dtype("nn.embedding", indices, "integer", "indices")
    expect_mode("nn.embedding", mode)
    if weight.ndim < 1:
        raise ShapeError("nn.embedding: weight must have a row for each index, got a scalar")
    if padding_idx is None:
        return
    expect_int("nn.embedding", "padding_idx", padding_idx)
    rows = weight.sizes[0]
    if isinstance(rows, int) and not -rows <= padding_idx < rows:
        raise ShapeError(f"nn.embedding: padding_idx {padding_idx} is no row of the {rows}")


def _embedding_gradient(
    dy: Any, y: Any, indices: Any, weight: Any, *, padding_idx: int | None, mode: str
) -> tuple[None, Any]:
    rows = weight.shape[0]
    if padding_idx is not None:
        index = ops.ravel_multi_index([indices], [rows], mode)
        padding = ops.full((), padding_idx + rows if padding_idx < 0 else padding_idx, "int64")
        kept = ops.expand_dims(ops.not_equal(index, padding), list(range(len(indices.shape), len(dy.shape))))
        dy = masked(kept, dy)
    return None, ops.take_gradient(dy, indices, rows, 0, mode)


composite(
    "nn.embedding",
    "indices, weight | padding_idx=None, mode='raise'",
    expect=_embedding_expect,
    decompose=lambda indices, weight, *, padding_idx, mode: ops.take(weight, indices, 0, mode),
    numpy=lambda indices, weight, *, padding_idx, mode: ops.take.numpy(weight, indices, axis=0, mode=mode),
    gradient=_embedding_gradient,
    check_message=TAKE_CHECK,
    precision="same",
    family="take",
    doc="weight[indices[i…], …]: the rows of a table, take along axis 0. The row padding_idx gets no adjoint.\n"
    f"PyTorch's embedding.\n{INDEX_MODES}",
    samples=[
        sample(Ints((3,), 0, 5), (5, 4)),
        sample(Ints((2, 6), -5, 5, "int32"), (5, 3), padding_idx=2, smooth=False),
        sample(Ints((9,), 0, 4), (4, 2), padding_idx=-1, smooth=False),
        sample(Ints((), 0, 3), (3, 17)),
        sample(Ints((2, 3), 0, 4), (4, 2)),
        sample(Ints((4,), -9, 9), (3, 2), mode="clip"),
        sample(Ints((0,), 0, 3), (3, 2)),
    ],
)

# -- rotary embedding


def _rotary_expect(x: TensorStructInfo, cos: TensorStructInfo, sin: TensorStructInfo, *, interleaved: bool) -> None:
    op = "nn.rotary_embedding"
    for info in (x, cos, sin):
        expect_dtype(op, info, "float")
    expect_same_dtype(op, x, cos, sin)
    if not x.ndim or not cos.ndim or not all(isinstance(s, int) for s in (x.sizes[-1], cos.sizes[-1])):
        raise ShapeError(f"{op}: the last axes of x and cos must have known sizes")
    if not same_shape(cos.sizes, sin.sizes):
        shapes = f"{format_shape(cos.sizes)} and {format_shape(sin.sizes)}"
        raise ShapeError(f"{op}: cos and sin must have one shape, got {shapes}")
    pairs = cos.sizes[-1]
    if not 1 <= pairs <= x.sizes[-1] // 2:
        message = f"{op}: cos has {pairs} angles, x {x.sizes[-1]} elements"
        raise ShapeError(message, hint="each angle turns a pair of elements")
    wanted = (*x.sizes[:-1], pairs)
    if not same_shape(broadcast_shapes(op, cos.sizes, wanted), wanted):
        raise ShapeError(f"{op}: cos of shape {format_shape(cos.sizes)} does not broadcast to {format_shape(wanted)}")


def _part(x: Any, begin: int, end: int, stride: int = 1) -> Any:
    return ops.strided_slice(x, [len(x.shape) - 1], [begin], [end], [stride])


def _rotary(x: Any, cos: Any, sin: Any, *, interleaved: bool) -> Any:
    dtype, kind, count = x.dtype, wide(x.dtype), 2 * cos.shape[-1]
    if kind != dtype:
        x, cos, sin = (ops.astype(v, kind) for v in (x, cos, sin))
    if interleaved:
        a, b = _part(x, 0, count, 2), _part(x, 1, count, 2)
    else:
        a, b = _part(x, 0, count // 2), _part(x, count // 2, count)
    turned = [a * cos - b * sin, b * cos + a * sin]
    last = len(x.shape) - 1
    whole = ops.reshape(ops.stack(turned, last + 1), (*x.shape[:-1], count)) if interleaved else None
    parts = turned if whole is None else [whole]
    if count < x.shape[-1]:
        parts.append(_part(x, count, x.shape[-1]))
    result = parts[0] if len(parts) == 1 else ops.concat(parts, last)
    return result if kind == dtype else ops.astype(result, dtype)


def _rotary_array(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, interleaved: bool) -> np.ndarray:
    """Pairs of elements as complex numbers, turned."""
    count = 2 * cos.shape[-1]
    pairs = (slice(0, count, 2), slice(1, count, 2)) if interleaved else (slice(count // 2), slice(count // 2, count))
    turned = (x[..., pairs[0]] + 1j * x[..., pairs[1]]) * (cos + 1j * sin)
    result = np.array(x)
    result[..., pairs[0]], result[..., pairs[1]] = turned.real, turned.imag
    return result


def _rotary_gradient(dy: Any, y: Any, x: Any, cos: Any, sin: Any, *, interleaved: bool) -> tuple[Any, Any, Any]:
    count = 2 * cos.shape[-1]
    cuts = ((0, count, 2), (1, count, 2)) if interleaved else ((0, count // 2, 1), (count // 2, count, 1))
    (a, b), (da, db) = ([_part(v, *cut) for cut in cuts] for v in (x, dy))
    return (
        ops.nn.rotary_embedding(dy, cos, -sin, interleaved),  # turned back
        collapse_like(da * a + db * b, cos),
        collapse_like(db * a - da * b, sin),
    )


composite(
    "nn.rotary_embedding",
    "x, cos, sin | interleaved=False",
    expect=_rotary_expect,
    decompose=_rotary,
    numpy=in_wide(_rotary_array),
    gradient=_rotary_gradient,
    precision="same",
    family="rotary",
    doc="Pairs (a, b) of the elements along the last axis of x turned by angles: (a·cos - b·sin, b·cos + a·sin).\n"
    "Element k is paired with k + R, or with interleaved element 2k with 2k + 1, where R is the last size of cos and\n"
    "sin, which broadcast to (…, R); what x has beyond 2R stays. Su et al., RoFormer, 2021; ONNX's RotaryEmbedding.",
    samples=[
        sample((2, 3, 8), (1, 3, 4), (1, 3, 4)),
        sample((2, 3, 8), (1, 3, 4), (1, 3, 4), interleaved=True),
        sample((2, 5, 3, 17), (1, 5, 1, 6), (1, 5, 1, 6)),
        sample((1, 2, 7), (1, 2, 2), (1, 2, 2), interleaved=True),
        sample((0, 4), (1, 2), (1, 2)),
    ],
)
