"""Operators that make tensors: of one number, of a range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback import relax
from pullback.ir.errors import ArgumentError, UserError
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Constant, Expr, call_op, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import cast, dtype_name, dtype_of, ints, is_dynamic, python_value, same, shape_of
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type


def _adapt_shape(name: str) -> Any:
    def adapt(args: list[Any], attrs: dict[str, Any]) -> Any:
        dtype = dtype_name(attrs["dtype"])
        if is_dynamic(attrs["shape"]):
            return call_op(f"dyn.{name}", *args, attrs["shape"], dtype=dtype)
        return args, {"shape": ints("shape", attrs["shape"]), "dtype": dtype}

    return adapt


for _name in ("zeros", "ones"):
    define(
        _name,
        "| shape, dtype",
        lambda *, shape, dtype, name=_name: getattr(ops, name)(shape, dtype or "float32"),
        adapt=_adapt_shape(_name),
        pattern=OpPattern.ELEMWISE,
        shown=("shape",),
        doc=f"{_name.capitalize()} of the shape and dtype.",
    )
    define(
        f"{_name}_like",
        "data",
        lambda x, name=_name: getattr(ops, f"{name}_like")(x),
        relation=same,
        pattern=OpPattern.ELEMWISE,
        doc=f"{_name.capitalize()} of data's shape and dtype.",
    )


def _scalar(value: Any) -> Any:
    return ops.reshape(value, ()) if shape_of(value) else value


define(
    "full",
    "fill_value | shape=(), dtype=''",
    lambda value, *, shape, dtype: ops.broadcast_to(_scalar(cast(value, dtype)), shape),
    adapt=_adapt_shape("full"),
    relation=lambda types, attrs: TensorType(attrs["shape"], attrs["dtype"] or types[0].dtype),
    pattern=OpPattern.ELEMWISE,
    shown=("shape",),
    doc="One number, which is an argument, in every element.",
)
define(
    "full_like",
    "data, fill_value",
    lambda x, value: ops.broadcast_to(_scalar(cast(value, dtype_of(x))), shape_of(x)),
    relation=same,
    pattern=OpPattern.ELEMWISE,
    doc="One number, which is an argument, in the shape and dtype of data.",
)

# -- ranges


def _range(*args: Any, start: Any, stop: Any, step: Any, dtype: str) -> Any:
    if None in (start, stop, step):
        hint = "build it with relay.arange(start, stop, step), whose arguments need not be constants"
        raise UserError("arange: a call has no attributes start, stop and step", hint=hint)
    return relax.const(_elements(start, stop, step, dtype))


def _elements(start: Any, stop: Any, step: Any, dtype: str) -> np.ndarray:
    from pullback.runtime.dtype import numpy_dtype

    count = _count(start, stop, step)
    return (start + step * np.arange(count)).astype(numpy_dtype(dtype))


def _count(start: Any, stop: Any, step: Any) -> int:
    if step == 0:
        raise ArgumentError("arange: step cannot be 0")
    return max(0, math.ceil((stop - start) / step))


def _range_type(types: list[Type], attrs: Attrs) -> Type:
    given = [attrs[name] for name in ("start", "stop", "step")]
    return TensorType((AnySize() if None in given else _count(*given),), attrs["dtype"] or "float32")


def _adapt_range(args: list[Any], attrs: dict[str, Any]) -> Any:
    dtype = dtype_name(attrs["dtype"]) or "float32"
    start, stop, step = attrs["start"], attrs["stop"], attrs["step"]
    if args:  # as printed: tensors by place
        start, stop, step = _three(args)
    if stop is None:
        start, stop = 0, start
    if start is None or stop is None:
        raise ArgumentError("arange: argument 'start' is missing", hint="write relay.arange(5)")
    values = [start, stop, 1 if step is None else step]
    args = [v if isinstance(v, Expr) else const(v, dtype) for v in values]
    known = [_number(v) if isinstance(v, Constant) else None for v in args]
    if None in known:
        return call_op("dyn.arange", *args, dtype=dtype)
    return args, dict(zip(("start", "stop", "step"), known, strict=True)) | {"dtype": dtype}


def _three(args: Sequence[Any]) -> list[Any]:
    return [*args, None, None, None][:3]


def _number(value: Constant) -> Any:
    found = python_value(value)
    while isinstance(found, list):
        if len(found) != 1:
            raise ArgumentError(f"arange: start, stop and step are numbers, got {found}")
        found = found[0]
    return found


define(
    "arange",
    "first?, last?, stride? | start=None, stop=None, step=None, dtype='float32'",
    _range,
    order=("start", "stop", "step", "dtype", "first"),
    adapt=_adapt_range,
    relation=_range_type,
    pattern=OpPattern.INJECTIVE,
    shown=("start", "stop", "step", "dtype"),
    doc="start, start + step, … up to before stop; arange(stop) begins at 0. The arguments of the call are the three\n"
    "numbers as tensors, the attributes say them where they are constants.",
)
