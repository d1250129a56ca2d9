"""Tensors out of nothing: constants, ranges, identity matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback import te, tir
from pullback.ir.errors import DTypeError, ShapeError, UserError
from pullback.ir.op import Op, define
from pullback.relax.expr import Constant, Expr, const
from pullback.relax.op.family import expect_holds, expect_int, expect_same_dtype, known_shape, specialize, zero_gradient
from pullback.relax.op.manipulate.shape import sizes
from pullback.relax.op.namespace import ops
from pullback.relax.op.sample import Ints, sample
from pullback.relax.struct_info import TensorStructInfo, dim
from pullback.runtime.dtype import numpy_dtype
from pullback.tir.expr import DTYPES, is_float

# -- full, zeros, ones


def _default_dtype(value: Any) -> str:
    if isinstance(value, tir.PrimExpr):
        return value.dtype
    return "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else "int64"


def _known_dtype(op: str, dtype: str) -> str:
    if dtype not in DTYPES:
        raise DTypeError(f"{op}: unknown dtype {dtype!r}", hint=f"the dtypes are {', '.join(DTYPES)}")
    return dtype


def scalar(value: Any, dtype: str) -> tir.PrimExpr:
    """A number or size as a scalar of the dtype."""
    return tir.cast(dtype, value) if isinstance(value, tir.PrimExpr) else tir.const(value, dtype)


def _full_infer(*, shape: Any, fill_value: Any, dtype: str | None) -> TensorStructInfo:
    kind = _known_dtype("full", dtype or _default_dtype(fill_value))
    if not isinstance(fill_value, (bool, int, float, tir.PrimExpr)):
        raise UserError(f"full: fill_value must be a number or a tensor of shape (), got {fill_value!r}")
    if isinstance(fill_value, float) and not is_float(kind):
        raise DTypeError(f"full: the Python float {fill_value!r} cannot become {kind}")
    expect_holds("full", "fill_value", fill_value, kind)
    return TensorStructInfo(sizes(shape), kind)


def _full_te(*, shape: Any, fill_value: Any, dtype: str | None) -> te.Tensor:
    value = scalar(fill_value, dtype or _default_dtype(fill_value))
    return te.compute(sizes(shape), lambda *i: value, "full")


def _full_array(*, shape: Any, fill_value: Any, dtype: str | None) -> np.ndarray:
    value = fill_value.value if isinstance(fill_value, (tir.IntImm, tir.FloatImm)) else fill_value
    return np.full(shape, value, numpy_dtype(dtype or _default_dtype(fill_value)))


_full = define(
    "full",
    "| shape, fill_value, dtype=None",
    infer=_full_infer,
    te=_full_te,
    numpy=_full_array,
    gradient=zero_gradient,
    family="create",
    doc="A tensor of the shape filled with one number. A fill_value that is a tensor of shape () is broadcast, and\n"
    "receives the sum of the adjoint.",
    samples=[
        sample(shape=(3, 4), fill_value=1.5, dtype="float32"),
        sample(shape=(), fill_value=2, dtype="float64"),
        sample(shape=(0, 2), fill_value=7),
        sample(shape=(17,), fill_value=True),
    ],
)


class _Full(Op):  # as users call it: the fill value may be a tensor
    __doc__ = Op.__doc__  # that of the op, not of the class

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _, attrs = self.signature.bind(self.short, args, kwargs)
        value, dtype = attrs["fill_value"], attrs["dtype"]
        if isinstance(value, np.ndarray):
            value = Constant(value)
        if isinstance(value, Expr) and hasattr(value.struct_info, "dtype") and hasattr(value.struct_info, "ndim"):
            if value.struct_info.ndim != 0:
                raise ShapeError(
                    f"full: fill_value must have shape (), got {value.struct_info}",
                    hint="a number, or a tensor of one element reshaped to ()",
                )
            if not isinstance(value, Constant):
                cast = value if dtype in (None, value.dtype) else ops.astype(value, dtype)
                return ops.broadcast_to(cast, attrs["shape"])
            attrs["dtype"] = dtype or value.dtype
            attrs["fill_value"] = const(value.data, _known_dtype("full", attrs["dtype"])).data.item()
        return super().__call__(**attrs)


specialize(_full, _Full)


def _constant(name: str, value: int) -> None:
    def infer(*, shape: Any, dtype: str) -> TensorStructInfo:
        return TensorStructInfo(sizes(shape), _known_dtype(name, dtype))

    define(
        name,
        "| shape, dtype='float32'",
        infer=infer,
        te=lambda *, shape, dtype: te.compute(sizes(shape), lambda *i: tir.const(value, dtype), name),
        numpy=lambda *, shape, dtype: np.full(shape, value, numpy_dtype(dtype)),
        gradient=zero_gradient,
        family="create",
        doc=f"A tensor of the shape filled with {value}.",
        samples=[sample(shape=(3, 4)), sample(shape=(), dtype="int64"), sample(shape=(0,), dtype="bool")],
    )

    def like_infer(x: TensorStructInfo, *, dtype: str | None) -> TensorStructInfo:
        kind = _known_dtype(f"{name}_like", dtype or x.dtype)
        return TensorStructInfo(known_shape(f"{name}_like", x), kind)

    define(
        f"{name}_like",
        "x | dtype=None",
        infer=like_infer,
        te=lambda x, *, dtype: te.compute(x.shape, lambda *i: tir.const(value, dtype or x.dtype), name),
        numpy=lambda x, *, dtype: np.full(x.shape, value, numpy_dtype(dtype or x.dtype.name)),
        gradient=zero_gradient,
        precision="same",
        family="create",
        doc=f"A tensor of x's shape and dtype (or another dtype) filled with {value}.",
        samples=[sample((3, 4)), sample((), dtype="float64"), sample(Ints((0, 2), 0, 3), dtype="float32")],
    )


_constant("zeros", 0)
_constant("ones", 1)


def _full_like_infer(x: TensorStructInfo, fill_value: TensorStructInfo, *, dtype: str | None) -> TensorStructInfo:
    if known_shape("full_like", fill_value, "fill_value") != ():
        raise ShapeError(
            f"full_like: fill_value must have shape (), got {fill_value}",
            hint="a number, or a tensor of one element reshaped to ()",
        )
    if dtype is None:
        expect_same_dtype("full_like", x, fill_value)
    return TensorStructInfo(known_shape("full_like", x), _known_dtype("full_like", dtype or x.dtype))


def _full_like_te(x: te.Tensor, fill_value: te.Tensor, *, dtype: str | None) -> te.Tensor:
    return te.compute(x.shape, lambda *i: tir.cast(dtype or x.dtype, fill_value[()]), "full_like")


def _full_like_gradient(dy: Any, y: Any, x: Any, fill_value: Any, *, dtype: str | None) -> tuple[Any, ...]:
    if not (is_float(y.dtype) and is_float(fill_value.dtype)):
        return None, None
    return None, ops.astype(ops.sum(dy), fill_value.dtype) if y.dtype != fill_value.dtype else ops.sum(dy)


_full_like = define(
    "full_like",
    "x, fill_value | dtype=None",
    infer=_full_like_infer,
    te=_full_like_te,
    numpy=lambda x, fill_value, *, dtype: np.full(x.shape, fill_value.astype(numpy_dtype(dtype or x.dtype.name))),
    gradient=_full_like_gradient,
    precision="same",
    family="create",
    doc="A tensor of x's shape and dtype (or another dtype) filled with a number or a tensor of shape ().",
    samples=[
        sample((3, 4), ()),
        sample((17,), ()),
        sample((1, 2, 1), ()),
        sample((0,), ()),
        sample(Ints((2,), 0, 3), (), dtype="float32", smooth=False),
    ],
)


class _FullLike(Op):  # as users call it: a Python number has the dtype that is asked for, not that of x
    __doc__ = Op.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        (x, value), attrs = self.signature.bind(self.short, args, kwargs)
        if attrs["dtype"] is not None and isinstance(value, (bool, int, float)):
            value = const(value, _known_dtype("full_like", attrs["dtype"]))
        return super().__call__(x, value, **attrs)


specialize(_full_like, _FullLike)

# -- arange, eye


def _range(start: Any, end: Any, step: Any, dtype: str | None) -> tuple[Any, Any, Any, str]:
    """start, number of elements, step, dtype."""
    start, end = (0, start) if end is None else (start, end)
    for name, value in ("start", start), ("end", end), ("step", step):
        number = isinstance(value, (int, float)) and abs(value) < 2**63  # NaN and infinity are not
        if not number and not isinstance(value, tir.PrimExpr):
            raise UserError(f"arange: {name} must be a finite number, got {value!r}", hint="such as 1.0")
    if isinstance(step, (int, float)) and step == 0:
        raise UserError("arange: the step cannot be 0")
    kind = dtype or ("float32" if any(isinstance(v, float) for v in (start, end, step)) else "int64")
    if all(isinstance(v, (int, float)) for v in (start, end, step)):
        return start, max(0, math.ceil((end - start) / step)), step, _known_dtype("arange", kind)
    if not isinstance(step, int):
        raise UserError(f"arange: with symbolic bounds the step must be an int, got {step!r}")
    span = end - start if step > 0 else start - end
    length = dim(span if abs(step) == 1 else (span + (abs(step) - 1)) // abs(step))
    return start, length, step, _known_dtype("arange", kind)


def _arange_infer(*, start: Any, end: Any, step: Any, dtype: str | None) -> TensorStructInfo:
    _, length, _, kind = _range(start, end, step, dtype)
    return TensorStructInfo((length,), kind)


def _arange_te(*, start: Any, end: Any, step: Any, dtype: str | None) -> te.Tensor:
    first, length, step, kind = _range(start, end, step, dtype)
    if is_float(kind):  # computed in float64, rounded once
        a, b = scalar(first, "float64"), scalar(step, "float64")
        return te.compute((length,), lambda i: tir.cast(kind, a + tir.cast("float64", i) * b), "arange")
    return te.compute((length,), lambda i: tir.cast(kind, tir.as_expr(first) + i * step), "arange")


def _arange(*, start: Any, end: Any, step: Any, dtype: str | None) -> np.ndarray:
    first, length, step, kind = _range(start, end, step, dtype)
    counted = np.arange(length, dtype=np.float64 if is_float(kind) else np.int64)
    return (first + counted * step).astype(numpy_dtype(kind))


define(
    "arange",
    "| start, end=None, step=1, dtype=None",
    infer=_arange_infer,
    te=_arange_te,
    numpy=_arange,
    gradient=zero_gradient,
    family="create",
    doc="start + i·step for i = 0 … ⌈(end - start) / step⌉ - 1; arange(end) starts at 0. The dtype is float32 when\n"
    "any of the three is a float, else int64.",
    samples=[
        sample(start=5),
        sample(start=2, end=17, step=3),
        sample(start=5, end=0, step=-2, dtype="int32"),
        sample(start=0.0, end=1.0, step=0.1),
        sample(start=3, end=3),
        sample(start=0, end=4, dtype="float64"),
    ],
)


def _eye_infer(*, n: Any, m: Any, k: int, dtype: str) -> TensorStructInfo:
    expect_int("eye", "k", k)
    return TensorStructInfo((dim(n), dim(n if m is None else m)), _known_dtype("eye", dtype))


def _eye_te(*, n: Any, m: Any, k: int, dtype: str) -> te.Tensor:
    one: Callable[[int], tir.PrimExpr] = lambda v: tir.const(v, dtype)  # noqa: E731
    shape = (dim(n), dim(n if m is None else m))
    return te.compute(shape, lambda i, j: tir.select((j - i).equal(k), one(1), one(0)), "eye")


define(
    "eye",
    "| n, m=None, k=0, dtype='float32'",
    infer=_eye_infer,
    te=_eye_te,
    numpy=lambda *, n, m, k, dtype: np.eye(n, m, k, dtype=numpy_dtype(dtype)),
    gradient=zero_gradient,
    family="create",
    doc="The (n, m) matrix with ones on its k-th diagonal and zeros elsewhere; m is n by default.",
    samples=[sample(n=3), sample(n=2, m=5, k=1), sample(n=4, m=2, k=-1, dtype="int64"), sample(n=0), sample(n=1)],
)
