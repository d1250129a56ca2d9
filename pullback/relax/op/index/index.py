"""Choosing elements: where, take, one_hot, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Expr, PrimValue, const
from pullback.relax.op.family import (
    broadcast_shapes,
    collapse_to_operands,
    elementwise_te,
    expect_dtype,
    expect_holds,
    expect_int,
    expect_member,
    expect_same_dtype,
    known_shape,
    masked,
    normalize_axis,
    specialize,
    wide,
    zero_gradient,
)
from pullback.relax.op.namespace import ops
from pullback.relax.op.reduction.reduce import all_of, te_cast
from pullback.relax.op.sample import Bools, Ints, sample
from pullback.relax.struct_info import Dim, TensorStructInfo, dim
from pullback.runtime.dtype import numpy_dtype

# -- where


def _where_infer(condition: TensorStructInfo, x: TensorStructInfo, y: TensorStructInfo) -> TensorStructInfo:
    shapes = [known_shape("where", i) for i in (condition, x, y)]
    expect_dtype("where", condition, "bool", "the condition")
    return TensorStructInfo(broadcast_shapes("where", *shapes), expect_same_dtype("where", x, y))


def _where_gradient(dz: Any, z: Any, condition: Any, x: Any, y: Any) -> tuple[Any, ...]:
    adjoints = masked(condition, dz), masked(ops.logical_not(condition), dz)
    return (None, *collapse_to_operands(adjoints, x, y))


class _Where(Op):  # Python numbers take the dtype of the other side, not of the condition
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (condition, x, y), _ = self.signature.bind(self.short, args, kwargs)
        dtype = next((v.dtype for v in (x, y) if isinstance(v, Expr)), None)
        x, y = (const(v, dtype) if isinstance(v, (bool, int, float)) else v for v in (x, y))
        return super().__call__(condition, x, y)


_where = define(
    "where",
    "condition, x, y",
    infer=_where_infer,
    te=elementwise_te(tir.select, "where"),
    numpy=np.where,
    gradient=_where_gradient,
    precision="same",
    family="where",
    doc="x where the bool condition holds, else y; all three broadcast. What is not chosen gets the adjoint 0, even\n"
    "where it is infinite or NaN.",
    samples=[
        sample(Bools((3, 4)), (3, 4), (3, 4)),
        sample(Bools((3, 1)), (4,), (2, 1, 1)),
        sample(Bools((5,)), (), (5,)),
        sample(Bools(()), (17,), (1,)),
        sample(Bools((0, 3)), (3,), ()),
        sample(Bools((4,)), Ints((4,), -5, 5), Ints((4,), -5, 5)),
    ],
)

specialize(_where, _Where)

# -- take

MODES = ("raise", "fast", "clip", "wrap")


def _take_axis(op: str, ndim: int, axis: int | None) -> int:
    if axis is None and ndim != 1:
        raise ShapeError(f"{op}: a tensor of rank {ndim} needs an axis")
    return normalize_axis(op, 0 if axis is None else axis, ndim)


def _take_infer(x: TensorStructInfo, indices: TensorStructInfo, *, axis: int | None, mode: str) -> TensorStructInfo:
    shape, own = known_shape("take", x, "x"), known_shape("take", indices, "indices")
    expect_dtype("take", indices, "integer", "indices")
    expect_member("take", "mode", mode, MODES)
    at = _take_axis("take", len(shape), axis)
    if shape[at] == 0 and 0 not in own:
        raise ShapeError(f"take: axis {at} of x has size 0: there is nothing to take")
    return TensorStructInfo((*shape[:at], *own, *shape[at + 1 :]), x.dtype)


def valid_row(index: tir.PrimExpr, size: Dim, mode: str) -> tir.PrimExpr:
    """An index as written, as one that is always valid."""
    i, n = tir.cast("int64", index), tir.as_expr(size)
    if mode == "wrap":
        return i % n
    if mode != "clip":
        i = tir.select(i < 0, i + n, i)
    return tir.maximum(tir.minimum(i, n - 1), 0)


def valid_rows(indices: np.ndarray, size: int, mode: str) -> np.ndarray:
    i = indices.astype(np.int64)
    if mode == "wrap":
        return i % max(size, 1)
    if mode != "clip":
        i = np.where(i < 0, i + size, i)
    return np.clip(i, 0, max(size - 1, 0))


def _take_te(x: te.Tensor, indices: te.Tensor, *, axis: int | None, mode: str) -> te.Tensor:
    at = _take_axis("take", x.ndim, axis)

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        row = valid_row(indices[i[at : at + indices.ndim]], x.shape[at], mode)
        return x[(*i[:at], row, *i[at + indices.ndim :])]

    return te.compute((*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), element, "take")


TAKE_CHECK = "take: an index is outside the axis"


def _take(x: np.ndarray, indices: np.ndarray, *, axis: int | None, mode: str) -> np.ndarray:
    at = _take_axis("take", x.ndim, axis)
    size = x.shape[at]
    if mode in ("raise", "fast") and not np.all((indices >= -size) & (indices < size)):
        raise UserError(TAKE_CHECK)
    return np.take(x, valid_rows(indices, size, mode), at)


def _take_check(x: te.Tensor, indices: te.Tensor, *, axis: int | None, mode: str) -> te.Tensor | None:
    if mode not in ("raise", "fast"):
        return None
    size = tir.as_expr(x.shape[_take_axis("take", x.ndim, axis)])

    def valid(*i: tir.PrimExpr) -> tir.PrimExpr:
        index = tir.cast("int64", indices[i])
        return (index >= 0 - size) & (index < size)

    return all_of(te.compute(indices.shape, valid, "valid"))


def _take_gradient(dy: Any, y: Any, x: Any, indices: Any, *, axis: int | None, mode: str) -> tuple[Any, None]:
    at = _take_axis("take", len(x.shape), axis)
    return ops.take_gradient(dy, indices, x.shape[at], at, mode), None


define(
    "take",
    "x, indices | axis=None, mode='raise'",
    infer=_take_infer,
    te=_take_te,
    numpy=_take,
    gradient=_take_gradient,
    check=_take_check,
    check_message=TAKE_CHECK,
    precision="same",
    family="take",
    doc="x's slices at the indices along an axis (which a tensor of rank 1 need not name): y[…, i…, …] =\n"
    "x[…, indices[i…], …]. Indices may have any rank. Beyond the axis of size n: mode 'raise' (or 'fast') counts\n"
    "negative ones from the end and makes others an error; 'clip' takes the nearest valid one; 'wrap' takes i mod n.",
    samples=[
        sample((5,), Ints((3,), 0, 5)),
        sample((5, 4), Ints((2, 3), 0, 5, "int32"), axis=0),
        sample((3, 5, 2), Ints((2, 2), -5, 5), axis=-2),
        sample((3, 17), Ints((), 0, 17), axis=1),
        sample((3, 4), Ints((6,), -9, 9), axis=1, mode="clip"),
        sample((3, 4), Ints((6,), -9, 9), axis=0, mode="wrap"),
        sample((3, 4), Ints((0,), 0, 1), axis=0),
        sample((0, 4), Ints((2,), 0, 4), axis=1),
        sample((1, 1), Ints((1,), 0, 1), axis=0),
    ],
)


def _scatter_infer(
    dy: TensorStructInfo, indices: TensorStructInfo, *, size: Dim, axis: int, mode: str
) -> TensorStructInfo:
    shape, own = known_shape("take_gradient", dy, "dy"), known_shape("take_gradient", indices, "indices")
    expect_dtype("take_gradient", dy, "float", "dy")
    at = normalize_axis("take_gradient", axis, len(shape) - len(own) + 1)
    if not all(a is b or a == b for a, b in zip(shape[at : at + len(own)], own, strict=True)):
        raise ShapeError(f"take_gradient: dy of shape {shape} does not fit indices of shape {own}")
    return TensorStructInfo((*shape[:at], size, *shape[at + len(own) :]), dy.dtype)


def _scatter_te(dy: te.Tensor, indices: te.Tensor, *, size: Dim, axis: int, mode: str) -> te.Tensor:
    at, rank = normalize_axis("take_gradient", axis, dy.ndim - indices.ndim + 1), indices.ndim
    ks = [te.reduce_axis(s, f"k{n}") for n, s in enumerate(indices.shape)]
    place = tuple(k.var for k in ks)
    kind = wide(dy.dtype)

    def element(*i: tir.PrimExpr) -> Any:
        value = tir.cast(kind, dy[(*i[:at], *place, *i[at + 1 :])])
        hit = tir.select(valid_row(indices[place], size, mode).equal(i[at]), value, 0.0)
        return te.sum(hit, ks) if ks else hit

    return te_cast(te.compute((*dy.shape[:at], size, *dy.shape[at + rank :]), element, "take_gradient"), dy.dtype)


def _scatter(dy: np.ndarray, indices: np.ndarray, *, size: int, axis: int, mode: str) -> np.ndarray:
    at, rank = normalize_axis("take_gradient", axis, dy.ndim - indices.ndim + 1), indices.ndim
    result = np.zeros((size, *dy.shape[:at], *dy.shape[at + rank :]), numpy_dtype(wide(dy.dtype.name)))
    rows = np.moveaxis(dy, range(at, at + rank), range(rank)).reshape(indices.size, *result.shape[1:])
    np.add.at(result, valid_rows(indices, size, mode).reshape(-1), rows)
    return np.moveaxis(result, 0, at).astype(dy.dtype)


define(
    "take_gradient",
    "dy, indices | size, axis, mode='raise'",
    infer=_scatter_infer,
    te=_scatter_te,
    numpy=_scatter,
    gradient=lambda ddx, dx, dy, indices, *, size, axis, mode: (ops.take(ddx, indices, axis, mode), None),
    precision="same",
    zeros="makes",
    family="take",
    doc="The adjoint of take: dx[…, r, …] = Σ dy[…, i…, …] over the indices i… that took row r of the axis, which has\n"
    "the size ``size``; in the order of the indices.",
    samples=[
        sample((3,), Ints((3,), 0, 5), size=5, axis=0),
        sample((4, 2, 3), Ints((2, 3), -5, 5), size=5, axis=1),
        sample((3,), Ints((), 0, 4), size=4, axis=0),
        sample((0, 2), Ints((0,), 0, 1), size=3, axis=0),
        sample((2, 6), Ints((6,), -9, 9), size=4, axis=-1, mode="clip"),
    ],
)

# -- one_hot


def _scalar_dtype(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else "int64"


def _one_hot_shape(shape: Sequence[Dim], depth: Any, axis: int) -> tuple[int, tuple[Dim, ...]]:
    at = normalize_axis("one_hot", axis, len(shape) + 1)
    return at, (*shape[:at], dim(depth), *shape[at:])


def _one_hot_infer(
    indices: TensorStructInfo, *, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str | None
) -> TensorStructInfo:
    shape = known_shape("one_hot", indices)
    expect_dtype("one_hot", indices, "integer", "indices")
    if dtype is None and _scalar_dtype(on_value) != _scalar_dtype(off_value):
        kinds = f"{_scalar_dtype(on_value)} and {_scalar_dtype(off_value)}"
        raise DTypeError(f"one_hot: on_value and off_value have different dtypes, {kinds}", hint="give a dtype")
    for value in (on_value, off_value):
        if not isinstance(value, (bool, int, float)):
            raise UserError(f"one_hot: on_value and off_value must be numbers, got {value!r}")
    for label, value in (("on_value", on_value), ("off_value", off_value)):
        expect_holds("one_hot", label, value, dtype or _scalar_dtype(on_value))
    return TensorStructInfo(_one_hot_shape(shape, depth, axis)[1], dtype or _scalar_dtype(on_value))


def _one_hot_te(
    indices: te.Tensor, *, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str | None
) -> te.Tensor:
    at, shape = _one_hot_shape(indices.shape, depth, axis)
    kind = dtype or _scalar_dtype(on_value)
    on, off = (tir.const(v, kind) for v in (on_value, off_value))

    def element(*i: tir.PrimExpr) -> tir.PrimExpr:
        return tir.select(tir.cast("int64", indices[(*i[:at], *i[at + 1 :])]).equal(i[at]), on, off)

    return te.compute(shape, element, "one_hot")


def _one_hot_array(
    indices: np.ndarray, *, on_value: Any, off_value: Any, depth: int, axis: int, dtype: str | None
) -> np.ndarray:
    at, _ = _one_hot_shape(indices.shape, depth, axis)
    kind = numpy_dtype(dtype or _scalar_dtype(on_value)).type
    classes = np.arange(depth).reshape(-1, *(1,) * (indices.ndim - at))
    return np.where(np.expand_dims(indices, at) == classes, kind(on_value), kind(off_value))


class _OneHot(Op):  # the values may be scalars of the loop IR, which know their dtype
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors, attrs = self.signature.bind(self.short, args, kwargs)
        for name in ("off_value", "on_value"):
            value = attrs[name].value if isinstance(attrs[name], PrimValue) else attrs[name]
            if isinstance(value, (tir.IntImm, tir.FloatImm)):
                attrs["dtype"] = attrs["dtype"] or value.dtype
                value = bool(value.value) if value.dtype == "bool" else value.value
            attrs[name] = value
        return super().__call__(*tensors, **attrs)


_one_hot = define(
    "one_hot",
    "indices | on_value, off_value, depth, axis=-1, dtype=None",
    infer=_one_hot_infer,
    te=_one_hot_te,
    numpy=_one_hot_array,
    gradient=zero_gradient,
    precision="same",
    family="one_hot",
    doc="on_value where the position along a new axis of size depth equals the index, else off_value: an index\n"
    "outside 0 … depth - 1 gives off_value everywhere. The dtype is that of the values: float32 for Python floats.",
    samples=[
        sample(Ints((3,), 0, 5), on_value=1.0, off_value=0.0, depth=5),
        sample(Ints((2, 3), -2, 6, "int32"), on_value=2, off_value=-1, depth=4, axis=1),
        sample(Ints((), 0, 3), on_value=True, off_value=False, depth=3, axis=0),
        sample(Ints((2,), 0, 3), on_value=1, off_value=0, depth=3, dtype="float64"),
        sample(Ints((0,), 0, 3), on_value=1.0, off_value=0.0, depth=3),
    ],
)

specialize(_one_hot, _OneHot)

# -- triangles


def _triangle(name: str, keep: Any, numpy: Any, doc: str) -> Op:
    def infer(x: TensorStructInfo, *, k: int) -> TensorStructInfo:
        expect_int(name, "k", k)
        if len(known_shape(name, x)) < 2:
            raise ShapeError(f"{name}: expected a tensor of rank 2 or more, got rank {x.ndim}")
        return x

    def build(x: te.Tensor, *, k: int) -> te.Tensor:
        zero = tir.const(0, x.dtype)
        return te.compute(x.shape, lambda *i: tir.select(keep(i[-1], i[-2] + k), x[i], zero), name)

    return define(
        name,
        "x | k=0",
        infer=infer,
        te=build,
        numpy=lambda x, *, k: numpy(x, k),
        gradient=lambda dy, y, x, *, k: (Op.get(name)(dy, k),),
        precision="same",
        zeros="makes",
        family="triangle",
        doc=doc,
        samples=[
            sample((3, 4)),
            sample((4, 3), k=1),
            sample((2, 3, 3), k=-1),
            sample((0, 2)),
            sample((1, 17), k=9),
            sample(Ints((3, 3), -5, 5)),
        ],
    )


_triangle(
    "tril", lambda j, limit: j <= limit, np.tril, "x on and below the k-th diagonal of the last two axes, else 0."
)
_triangle(
    "triu", lambda j, limit: j >= limit, np.triu, "x on and above the k-th diagonal of the last two axes, else 0."
)
