"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import ShapeError
from pullback.ir.op import define
from pullback.relax.op.family import (
    broadcast_index,
    broadcast_shapes,
    collapse_like,
    expect_dtype,
    expect_same_dtype,
    known_shape,
    wide,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import te_cast
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, format_shape
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import bits, is_float
from pullback.tir.polynomial import same


def accumulator(dtype: str, out_dtype: str | None) -> str:
    """The type in which products of ``dtype`` are summed when the result is ``out_dtype``."""
    out = wide(out_dtype or dtype)
    return dtype if is_float(dtype) and bits(dtype) > bits(out) else out


def _matmul_infer(x: TensorStructInfo, w: TensorStructInfo, *, out_dtype: str | None) -> TensorStructInfo:
    a, b = known_shape("matmul", x, "x"), known_shape("matmul", w, "w")
    for info in (x, w):
        expect_dtype("matmul", info, "number")
    dtype = expect_same_dtype("matmul", x, w)
    if not a or not b:
        raise ShapeError(f"matmul: the operands must have rank 1 or more, got {format_shape(a)} and {format_shape(b)}")
    if not same(a[-1], b[-2] if len(b) > 1 else b[0]):
        raise ShapeError(
            f"matmul: the shapes {format_shape(a)} and {format_shape(b)} do not fit",
            hint="the last size of the first operand must equal the second-last (or only) size of the second",
        )
    batch = broadcast_shapes("matmul", a[:-2], b[:-2])
    shape = (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))
    return TensorStructInfo(shape, out_dtype or dtype)


def _matmul_te(x: te.Tensor, w: te.Tensor, *, out_dtype: str | None) -> te.Tensor:
    kind = accumulator(x.dtype, out_dtype)
    batch = broadcast_shapes("matmul", x.shape[:-2], w.shape[:-2])
    rows, columns = x.shape[-2:-1] if x.ndim > 1 else (), w.shape[-1:] if w.ndim > 1 else ()
    k = te.reduce_axis(x.shape[-1], "k")

    def element(*i: tir.PrimExpr) -> te.Reduce:
        lead = i[: len(batch)]
        row, column = i[len(batch) : len(batch) + len(rows)], i[len(i) - len(columns) :]
        a = x[(*_batch_index(x, lead), *row, k.var)]
        b = w[(*_batch_index(w, lead), k.var, *column)]
        return te.sum(tir.cast(kind, a) * tir.cast(kind, b), k)

    return te_cast(te.compute((*batch, *rows, *columns), element, "matmul"), out_dtype or x.dtype)


def _batch_index(x: te.Tensor, lead: tuple[tir.PrimExpr, ...]) -> list[tir.PrimExpr]:
    own = x.shape[:-2]
    return [tir.as_expr(0) if s == 1 else i for s, i in zip(own, lead[len(lead) - len(own) :], strict=True)]


def _matmul(x: np.ndarray, w: np.ndarray, *, out_dtype: str | None) -> np.ndarray:
    kind = numpy_dtype(accumulator(x.dtype.name, out_dtype))
    return np.asarray(np.matmul(x.astype(kind), w.astype(kind))).astype(numpy_dtype(out_dtype or x.dtype.name))


def transposed(x: Any) -> Any:
    """The last two axes swapped."""
    rank = len(x.shape)
    return ops.permute_dims(x) if rank == 2 else ops.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


def _matmul_gradient(dy: Any, y: Any, x: Any, w: Any, *, out_dtype: str | None) -> tuple[Any, Any]:
    """dx = dy·wᵀ, dw = xᵀ·dy, summed over the batch axes along which an operand was repeated."""
    if out_dtype not in (None, x.dtype):
        dx, dw = _matmul_gradient(dy, y, x.astype(out_dtype), w.astype(out_dtype), out_dtype=None)
        return dx.astype(x.dtype), dw.astype(w.dtype)
    a = ops.expand_dims(x, 0) if len(x.shape) == 1 else x
    b = ops.expand_dims(w, 1) if len(w.shape) == 1 else w
    if len(w.shape) == 1:
        dy = ops.expand_dims(dy, -1)
    if len(x.shape) == 1:
        dy = ops.expand_dims(dy, -2)
    da = collapse_like(ops.matmul(dy, transposed(b)), a)
    if len(b.shape) == 2 and len(a.shape) > 2:  # one product over batch and rows together
        db = ops.matmul(transposed(_as_matrix(a)), _as_matrix(dy))
    else:
        db = collapse_like(ops.matmul(transposed(a), dy), b)
    return (
        ops.squeeze(da, 0) if len(x.shape) == 1 else da,
        ops.squeeze(db, 1) if len(w.shape) == 1 else db,
    )


def _as_matrix(x: Any) -> Any:
    rows: Any = 1
    for size in x.shape[:-1]:
        rows = rows * size
    return ops.reshape(x, (rows, x.shape[-1]))


define(
    "matmul",
    "x, w | out_dtype=None",
    infer=_matmul_infer,
    te=_matmul_te,
    numpy=_matmul,
    gradient=_matmul_gradient,
    precision="low",
    zeros="mixes",
    family="matmul",
    doc="Σₖ x[…, i, k] · w[…, k, j]: (…, m, k) times (…, k, n) gives (…, m, n), batch axes broadcast as in NumPy.\n"
    "A 1-d x is a row, a 1-d w a column, and that axis is dropped from the result.\n"
    "Half-precision operands accumulate in float32; out_dtype is the result's dtype, by default the operands'.",
    samples=[
        sample((3, 4), (4, 5)),
        sample((1, 17), (17, 1)),
        sample((4,), (4,)),
        sample((4,), (4, 3)),
        sample((3, 4), (4,)),
        sample((2, 3, 4), (4, 5)),
        sample((4,), (2, 4, 3)),
        sample((2, 3, 4), (4,)),
        sample((3, 4), (2, 4, 5)),
        sample((2, 1, 3, 4), (5, 4, 2)),
        sample((1, 3, 4), (2, 4, 2)),
        sample((0, 4), (4, 3)),
        sample((3, 0), (0, 2)),
        sample((2, 3), (3, 2), out_dtype="float64"),
        sample(Ints((3, 4), -9, 9, "int8"), Ints((4, 2), -9, 9, "int8"), out_dtype="int32"),
    ],
)


def _linear_infer(x: TensorStructInfo, weight: TensorStructInfo, bias: TensorStructInfo | None = None) -> Any:
    w = known_shape("linear", weight, "weight")
    if len(w) != 2:
        raise ShapeError(f"linear: weight must have the shape (outputs, inputs), got {format_shape(w)}")
    a = known_shape("linear", x, "x")
    if not a or not same(a[-1], w[1]):
        raise ShapeError(f"linear: x of shape {format_shape(a)} does not fit weight of shape {format_shape(w)}")
    infos = (x, weight) if bias is None else (x, weight, bias)
    for info in infos:
        expect_dtype("linear", info, "float")
    if bias is not None and not (len(known_shape("linear", bias, "bias")) == 1 and same(bias.sizes[0], w[0])):
        raise ShapeError(f"linear: bias must have the shape ({w[0]},), got {format_shape(bias.shape)}")
    return TensorStructInfo((*a[:-1], w[0]), expect_same_dtype("linear", *infos))


def _linear_te(x: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None) -> te.Tensor:
    kind = wide(x.dtype)
    k = te.reduce_axis(x.shape[-1], "k")
    product = te.compute(
        (*x.shape[:-1], weight.shape[0]),
        lambda *i: te.sum(tir.cast(kind, x[(*i[:-1], k.var)]) * tir.cast(kind, weight[i[-1], k.var]), k),
        "linear",
    )
    if bias is not None:
        summed = product
        product = te.compute(summed.shape, lambda *i: summed[i] + tir.cast(kind, broadcast_index(bias, i)), "biased")
    return te_cast(product, x.dtype)


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    kind = numpy_dtype(wide(x.dtype.name))
    product = np.matmul(x.astype(kind), weight.T.astype(kind))
    return np.asarray(product if bias is None else product + bias.astype(kind)).astype(x.dtype)


def _linear_gradient(dy: Any, y: Any, x: Any, weight: Any, bias: Any = None) -> tuple[Any, ...]:
    dw = ops.matmul(transposed(_as_matrix(dy)), _as_matrix(x))
    result = (ops.matmul(dy, weight), dw)
    return result if bias is None else (*result, collapse_like(dy, bias))


define(
    "linear",
    "x, weight, bias?",
    infer=_linear_infer,
    te=_linear_te,
    numpy=_linear,
    gradient=_linear_gradient,
    precision="low",
    zeros="mixes",
    family="matmul",
    doc="x · weightᵀ + bias, with x (…, inputs), weight (outputs, inputs) and bias (outputs,).",
    samples=[
        sample((3, 4), (5, 4)),
        sample((3, 4), (5, 4), (5,)),
        sample((2, 3, 4), (5, 4), (5,)),
        sample((4,), (1, 4), (1,)),
        sample((0, 4), (3, 4), (3,)),
    ],
)
