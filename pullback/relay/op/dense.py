"""Products of matrices, biases, activations, and other plain layers."""

from __future__ import annotations

import math
from typing import Any

from pullback import relax
from pullback.ir.errors import ArgumentError, ShapeError
from pullback.relax.frontend.padding import MODES, cropped
from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Expr, TupleWrapper, call_op, const
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    axis_of,
    cast,
    dtype_name,
    dtype_of,
    fill,
    ints,
    is_any,
    is_dynamic,
    is_float,
    joined_shape,
    maybe_ints,
    number,
    places,
    product,
    python_value,
    rank_of,
    same,
    same_size,
    shape_of,
    total,
)
from pullback.relay.ty import TensorType, Type

# -- products of matrices


def _adapt_product(args: list[Any], attrs: dict[str, Any]) -> Any:
    found = attrs | {"out_dtype": dtype_name(attrs["out_dtype"])}
    if found.get("units") is not None:
        found["units"] = ints("units", found["units"])[0]
    return args, found


def _wide(tensors: list[Any], out_dtype: str) -> list[Any]:
    """Operands in the result's dtype, which is exact for integers; of floats the product has it."""
    return [cast(t, out_dtype) for t in tensors]


def _dense(x: Any, weight: Any, *, units: Any, out_dtype: str) -> Any:
    _fits("nn.dense", shape_of(x)[-1], shape_of(weight)[-1])
    x, weight = _wide([x, weight], out_dtype)
    rank = rank_of(weight)
    if rank == 2 and is_float(x):
        return ops.linear(x, weight)
    return _product(x, ops.permute_dims(weight, (*range(rank - 2), rank - 1, rank - 2)))


def _product(a: Any, b: Any) -> Any:
    """a · b; of integers, which the graph's products do not take, the sum of what is multiplied."""
    if is_float(a):
        return ops.matmul(a, b)
    terms = ops.multiply(ops.expand_dims(a, -1), ops.expand_dims(b, -3))
    return ops.sum(terms, axis=-2)


def _fits(name: str, a: Any, b: Any) -> None:
    if isinstance(a, int) and isinstance(b, int) and a != b:
        raise ShapeError(f"{name}: data has {a} inputs, weight {b}", hint="weight is (units, inputs)")


def _dense_type(types: list[Type], attrs: Attrs) -> Type | None:
    x, weight = types
    if not isinstance(x, TensorType) or not isinstance(weight, TensorType):
        return None
    if (
        attrs["units"] is not None
        and weight.ndim == 2
        and weight.shape[0] != attrs["units"]
        and not is_any(weight.shape[0])
    ):
        raise ShapeError(f"nn.dense: units is {attrs['units']}, but weight is ({_shown(weight.shape)})")
    if x.is_concrete and weight.is_concrete:
        return None
    same_size("nn.dense", [x.shape[-1], weight.shape[-1]])
    units = attrs["units"] if attrs["units"] is not None else weight.shape[-2]
    return TensorType((*x.shape[:-1], units), attrs["out_dtype"] or x.dtype)


def _shown(shape: Any) -> str:
    return ", ".join("?" if is_any(s) else str(s) for s in shape)


define(
    "nn.dense",
    "data, weight | units=None, out_dtype=''",
    _dense,
    adapt=_adapt_product,
    relation=_dense_type,
    complete=fill(1, lambda x, attrs: None if attrs["units"] is None else (attrs["units"], x.shape[-1])),
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    shown=("units",),
    doc="data · weightᵀ, with data (…, inputs) and weight (units, inputs).",
)


def _turned(x: Any, turn: bool) -> Any:
    rank = rank_of(x)
    return ops.permute_dims(x, (*range(rank - 2), rank - 1, rank - 2)) if turn else x


def _matmul(a: Any, b: Any, *, units: Any = None, out_dtype: str, transpose_a: bool, transpose_b: bool) -> Any:
    a, b = _wide([a, b], out_dtype)
    if transpose_b and not transpose_a and rank_of(b) == 2 and is_float(a):
        return ops.linear(a, b)
    return _product(_turned(a, transpose_a), _turned(b, transpose_b))


def _ends(shape: Any, turn: bool) -> tuple[Any, Any]:
    return (shape[-1], shape[-2]) if turn else (shape[-2], shape[-1])


def _product_type(name: str) -> Any:
    def relation(types: list[Type], attrs: Attrs) -> Type | None:
        a, b = types
        if not isinstance(a, TensorType) or not isinstance(b, TensorType) or (a.is_concrete and b.is_concrete):
            return None
        if a.ndim < 2 or b.ndim < 2:
            raise ShapeError(f"{name}: the tensors must have two axes or more, got {a.ndim} and {b.ndim}")
        rows, inner = _ends(a.shape, attrs["transpose_a"])
        other, columns = _ends(b.shape, attrs["transpose_b"])
        same_size(name, [inner, other])
        batch = joined_shape(name, a.shape[:-2], b.shape[:-2]) if a.ndim > 2 or b.ndim > 2 else ()
        return TensorType((*batch, rows, columns), attrs["out_dtype"] or a.dtype)

    return relation


def _matmul_weight(x: TensorType, attrs: Any) -> Any:
    if attrs["units"] is None:
        return None
    inner = _ends(x.shape, attrs["transpose_a"])[1]
    return (attrs["units"], inner) if attrs["transpose_b"] else (inner, attrs["units"])


define(
    "nn.matmul",
    "tensor_a, tensor_b | units=None, out_dtype='', transpose_a=False, transpose_b=False",
    _matmul,
    adapt=_adapt_product,
    relation=_product_type("nn.matmul"),
    complete=fill(1, _matmul_weight),
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    shown=("units",),
    doc="tensor_a · tensor_b, either of them transposed.",
)
define(
    "nn.batch_matmul",
    "tensor_a, tensor_b | out_dtype='', transpose_a=False, transpose_b=False",
    _matmul,
    python={"transpose_b": True},
    adapt=_adapt_product,
    relation=_product_type("nn.batch_matmul"),
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    doc="tensor_a · tensor_bᵀ for each of a batch, which may be 1 in either; without transpose_b, · tensor_b.\n"
    "Python calls transpose it by default.",
)

# -- bias


def _along(x: Any, vector: Any, axis: int) -> Any:
    """A vector as a tensor of x's rank that lies along the axis."""
    rank = rank_of(x)
    at = axis_of("axis", axis, rank)
    size = shape_of(x)[at]
    if rank_of(vector) == 1 and isinstance(size, int) and shape_of(vector)[0] not in (size, 1):
        raise ShapeError(f"axis {axis} has {size} elements, the vector {shape_of(vector)[0]}")
    return ops.reshape(vector, tuple(-1 if i == at else 1 for i in range(rank))) if at != rank - 1 else vector


def _bias_add(x: Any, bias: Any, *, axis: int) -> Any:
    if rank_of(bias) != 1:
        raise ShapeError(f"nn.bias_add: bias must have one axis, got {rank_of(bias)}")
    return ops.add(x, _along(x, bias, axis))


def _vector_at(x: TensorType, attrs: Any) -> Any:
    return (x.shape[axis_of("axis", attrs["axis"], x.ndim)],)


define(
    "nn.bias_add",
    "data, bias | axis=1",
    _bias_add,
    relation=same,
    complete=fill(1, _vector_at),
    pattern=OpPattern.BROADCAST,
    doc="data with a vector added along the axis.",
)

# -- activations


def _relu(x: Any) -> Any:
    return ops.nn.relu(x)


define("nn.relu", "data", _relu, relation=same, pattern=OpPattern.ELEMWISE, doc="max(data, 0).")
define(
    "nn.leaky_relu",
    "data | alpha=0.25",
    lambda x, *, alpha: ops.nn.leakyrelu(x, float(alpha)),
    relation=same,
    pattern=OpPattern.ELEMWISE,
    doc="data where it is positive, else alpha·data.",
)
define(
    "nn.prelu",
    "data, alpha | axis=1",
    lambda x, alpha, *, axis: ops.where(ops.greater(x, number(x, 0)), x, ops.multiply(x, _along(x, alpha, axis))),
    relation=same,
    complete=fill(1, _vector_at),
    pattern=OpPattern.BROADCAST,
    doc="data where it is positive, else alpha·data, with an alpha for each place along the axis.",
)


def _softmax(name: str) -> Any:
    return lambda x, *, axis: getattr(ops.nn, name)(x, axis=axis)


for _name, _graph in (("softmax", "softmax"), ("fast_softmax", "softmax"), ("log_softmax", "log_softmax")):
    define(
        f"nn.{_name}",
        "data | axis=-1",
        _softmax(_graph),
        relation=same,
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        doc=f"The {'logarithm of the ' if _graph == 'log_softmax' else ''}softmax along the axis.",
    )

# -- shape


def _flat(types: list[TensorType], attrs: Attrs) -> Type | None:
    x = types[0]
    return None if x.is_concrete else TensorType((x.shape[0], product(x.shape[1:])), x.dtype)


define(
    "nn.batch_flatten",
    "data",
    lambda x: ops.reshape(x, (shape_of(x)[0], math.prod(shape_of(x)[1:]))),
    relation=_flat,
    pattern=OpPattern.INJECTIVE,
    doc="data with all axes after the first as one.",
)


def pad_pairs(value: Any) -> tuple[tuple[int, ...], ...]:
    """Numbers before and after each axis."""
    value = python_value(value)
    return tuple(ints("pad_width", pair) for pair in value)


def _adapt_pad(args: list[Any], attrs: dict[str, Any]) -> Any:
    value = args[1] if len(args) > 1 else 0
    args = [args[0], value if isinstance(value, Expr) else const(value)]
    if is_dynamic(attrs["pad_width"]):
        return call_op("dyn.nn.pad", args[0], attrs["pad_width"], args[1], pad_mode=attrs["pad_mode"])
    if attrs["pad_mode"] not in ("constant", "edge", "reflect"):
        raise ArgumentError(f"nn.pad: pad_mode must be constant, edge or reflect, got {attrs['pad_mode']!r}")
    return args, attrs | {"pad_width": pad_pairs(attrs["pad_width"])}


def _pad(x: Any, value: Any, *, pad_width: Any, pad_mode: str) -> Any:
    if len(pad_width) != rank_of(x):
        raise ShapeError(f"nn.pad: data has {rank_of(x)} axes, pad_width {len(pad_width)} pairs")
    x, widths = cropped(x, pad_width)
    flat = [n for pair in widths for n in pair]
    if not any(flat):
        return x
    if pad_mode != "constant":
        return ops.nn.pad(x, flat, MODES[pad_mode])
    if isinstance(value, relax.Constant):
        return ops.nn.pad(x, flat, "constant", cast_number(value, dtype_of(x)))
    value = ops.reshape(cast(value, dtype_of(x)), ())
    inside = cast(ops.nn.pad(ops.ones(shape_of(x), "int32"), flat), "bool")
    return ops.where(inside, ops.nn.pad(x, flat), value)


def cast_number(value: Any, dtype: str) -> Any:
    """The number that a constant of the graph holds."""
    found = value.data.reshape(-1)[0].item()
    return float(found) if "float" in dtype else found


def padded_shape(shape: Any, pad_width: Any) -> tuple[Any, ...]:
    if len(shape) != len(pad_width):
        raise ShapeError(f"nn.pad: data has {len(shape)} axes, pad_width {len(pad_width)} pairs")
    return tuple(total([s, *p]) for s, p in zip(shape, pad_width, strict=True))


define(
    "nn.pad",
    "data, pad_value? | pad_width, pad_mode='constant'",
    _pad,
    order=("data", "pad_width", "pad_value", "pad_mode"),
    adapt=_adapt_pad,
    relation=lambda types, attrs: (
        None if types[0].is_concrete else TensorType(padded_shape(types[0].shape, attrs["pad_width"]), types[0].dtype)
    ),
    pattern=OpPattern.INJECTIVE,
    shown=("pad_width",),
    doc="data with more around it: pad_value, or with pad_mode edge or reflect copies of its elements.",
)


def _mirror_pad(x: Any, *, mode: str, pad_width: Any) -> Any:
    for axis, (before, after) in enumerate(pad_width):
        size = shape_of(x)[axis]
        away = 0 if mode == "SYMMETRIC" else 1
        order = [
            *range(before - 1 + away, away - 1, -1),
            *range(size),
            *range(size - 1 - away, size - 1 - away - after, -1),
        ]
        if before or after:
            x = ops.take(x, places(order), axis)
    return x


def _adapt_mirror(args: list[Any], attrs: dict[str, Any]) -> Any:
    if attrs["mode"] not in ("SYMMETRIC", "REFLECT"):
        raise ArgumentError(f"nn.mirror_pad: mode must be SYMMETRIC or REFLECT, got {attrs['mode']!r}")
    return args, attrs | {"pad_width": pad_pairs(attrs["pad_width"])}


define(
    "nn.mirror_pad",
    "data | pad_width, mode='SYMMETRIC'",
    _mirror_pad,
    adapt=_adapt_mirror,
    relation=lambda types, attrs: (
        None if types[0].is_concrete else TensorType(padded_shape(types[0].shape, attrs["pad_width"]), types[0].dtype)
    ),
    pattern=OpPattern.INJECTIVE,
    shown=("pad_width",),
    doc="data with its mirror image around it; REFLECT does not repeat the edge.",
)
define(
    "nn.dilate",
    "data | strides, dilation_value=0.0",
    lambda x, *, strides, dilation_value: ops.nn.dilate(x, strides, float(dilation_value)),
    adapt=lambda args, attrs: (args, attrs | {"strides": ints("strides", attrs["strides"])}),
    pattern=OpPattern.INJECTIVE,
    shown=("strides",),
    doc="data with stride - 1 times dilation_value between neighbours along each axis.",
)


def _dropout(x: Any, *, rate: float) -> Any:
    return x, ops.ones_like(x)


DROPOUT = define(
    "nn.dropout",
    "data | rate=0.5",
    _dropout,
    returns=2,
    face=lambda results: results[0],
    pattern=OpPattern.OPAQUE,
    doc="data itself and its mask: programs of relay are run for inference. Python gets the first of the two.",
)


def dropout_raw(data: Any, rate: float = 0.5) -> TupleWrapper:
    """Both results of dropout: data, and its mask."""
    return TupleWrapper(DROPOUT.make((data,), {"rate": rate}), 2)


def _l2_normalize(x: Any, *, eps: float, axis: Any) -> Any:
    total = ops.sum(ops.multiply(x, x), axis=axis or None, keepdims=True)
    return ops.divide(x, ops.sqrt(ops.maximum(total, number(x, float(eps)))))


define(
    "nn.l2_normalize",
    "data | eps, axis=None",
    _l2_normalize,
    adapt=lambda args, attrs: (args, attrs | {"axis": maybe_ints("axis", attrs["axis"])}),
    relation=same,
    pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
    shown=("eps", "axis"),
    doc="data / √max(Σ data², eps), with the sum over the axes.",
)
