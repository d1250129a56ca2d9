"""Operators of values: what others have as an attribute is an argument of theirs, known when the program runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relay.attrs import Attrs
from pullback.relay.op.masks import one_hot_shape
from pullback.relay.op.order import both, topk_type
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import dtype_name, is_any, tensor_type
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type

_Convert = Callable[[Any], Any]


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in value.reshape(-1))


def _int(value: Any) -> int:
    return int(value.reshape(-1)[0])


def _float(value: Any) -> float:
    return float(value.reshape(-1)[0])


def _pairs(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(v) for v in row) for row in value)


def _dynamic(
    name: str,
    tensors: str,
    attrs: str,
    values: Mapping[str, tuple[str, _Convert]],
    relation: Callable[[list[TensorType], Attrs], Type],
    **rules: Any,
) -> None:
    """``dyn.name``, the operator ``name`` whose attributes ``values`` are arguments: argument → (attribute, form)."""
    places = [t.strip() for t in tensors.split(",")]

    def static(given: list[Any], attributes: Any) -> Any:
        wanted = [i for i, place in enumerate(places) if place in values]
        if any(given[i] is None for i in wanted):
            return None
        known = {values[places[i]][0]: values[places[i]][1](given[i]) for i in wanted}
        return name, [i for i in range(len(given)) if i not in wanted], dict(attributes) | known

    doc = f"{name}, whose {' and '.join(values)} is known when the program runs."
    define(f"dyn.{name}", f"{tensors} | {attrs}", static=static, relation=relation, doc=doc, **rules)


def _count(op: str, type_: Type) -> int:
    """The number of elements of a tensor that stands for a shape: it is the rank of the result."""
    shape = tensor_type(op, type_).shape
    if len(shape) > 1 or (shape and is_any(shape[0])):
        hint = "it is a tensor of one axis, whose length is the number of axes of the result"
        raise ShapeError(f"dyn.{op}: the length of the shape must be known", hint=hint)
    return shape[0] if shape else 1


def _some(count: int) -> tuple[Any, ...]:
    return (AnySize(),) * count


def _shaped(op: str, index: int, dtype_of: int | None = 0) -> Callable[[list[TensorType], Attrs], Type]:
    """As many sizes as argument ``index`` has elements, of the dtype of argument ``dtype_of`` or of the attributes."""

    def relation(types: list[TensorType], attrs: Attrs) -> Type:
        dtype = attrs.get("dtype") or ("float32" if dtype_of is None else types[dtype_of].dtype)
        return TensorType(_some(_count(op, types[index])), dtype)

    return relation


_SHAPE = {"shape": ("shape", _ints)}

_dynamic(
    "reshape",
    "data, newshape",
    "allowzero=False",
    {"newshape": ("newshape", _ints)},
    _shaped("reshape", 1),
    pattern=OpPattern.INJECTIVE,
)
_dynamic("broadcast_to", "data, shape", "", _SHAPE, _shaped("broadcast_to", 1), pattern=OpPattern.BROADCAST)
_dynamic("collapse_sum_to", "data, shape", "", _SHAPE, _shaped("collapse_sum_to", 1))
_dynamic("zeros", "shape", "dtype='float32'", _SHAPE, _shaped("zeros", 0, None))
_dynamic("ones", "shape", "dtype='float32'", _SHAPE, _shaped("ones", 0, None))
_dynamic("full", "fill_value, shape", "dtype=''", _SHAPE, _shaped("full", 1))
_dynamic(
    "tile",
    "data, reps",
    "",
    {"reps": ("reps", _ints)},
    lambda types, attrs: TensorType(_some(max(types[0].ndim, _count("tile", types[1]))), types[0].dtype),
    pattern=OpPattern.BROADCAST,
)
_dynamic(
    "expand_dims",
    "data, axis",
    "num_newaxis=1",
    {"axis": ("axis", _int)},
    lambda types, attrs: TensorType(_some(types[0].ndim + attrs["num_newaxis"]), types[0].dtype),
)
_dynamic(
    "squeeze",
    "data, axis",
    "",
    {"axis": ("axis", _ints)},
    lambda types, attrs: TensorType(_some(types[0].ndim - _count("squeeze", types[1])), types[0].dtype),
)
_dynamic(
    "one_hot",
    "indices, on_value, off_value, depth",
    "axis=-1, dtype=''",
    {"depth": ("depth", _int)},
    lambda types, attrs: TensorType(
        one_hot_shape(types[0], AnySize(), attrs["axis"]), attrs["dtype"] or types[1].dtype
    ),
)
_dynamic(
    "topk",
    "data, k",
    "axis=-1, ret_type='both', is_ascend=False, dtype='int32'",
    {"k": ("k", _int)},
    lambda types, attrs: topk_type(types, AnySize(), attrs),
    returns=both,
    adapt=lambda args, attrs: (args, attrs | {"dtype": dtype_name(attrs["dtype"])}),
)
_dynamic(
    "strided_slice",
    "data, begin, end, strides",
    "slice_mode='end'",
    {name: (name, _ints) for name in ("begin", "end", "strides")},
    lambda types, attrs: TensorType(_some(types[0].ndim), types[0].dtype),
    pattern=OpPattern.INJECTIVE,
)
_dynamic(
    "sparse_to_dense",
    "sparse_indices, output_shape, sparse_values, default_value",
    "",
    {"output_shape": ("output_shape", _ints)},
    lambda types, attrs: TensorType(_some(_count("sparse_to_dense", types[1])), types[2].dtype),
)
_dynamic(
    "nn.pad",
    "data, pad_width, pad_value",
    "pad_mode='constant'",
    {"pad_width": ("pad_width", _pairs)},
    lambda types, attrs: TensorType(_some(types[0].ndim), types[0].dtype),
    pattern=OpPattern.INJECTIVE,
)


def _spatial(letters: str) -> Callable[[list[TensorType], Attrs], Type]:
    """data's type, whose spatial sizes are not known."""

    def relation(types: list[TensorType], attrs: Attrs) -> Type:
        x = types[0]
        sizes = tuple(AnySize() if c in letters else s for c, s in zip(attrs["layout"], x.shape, strict=True))
        return TensorType(sizes, attrs.get("out_dtype") or x.dtype)

    return relation


_dynamic(
    "nn.upsampling",
    "data, scale_h, scale_w",
    "layout='NCHW', method='nearest_neighbor', align_corners=False",
    {"scale_h": ("scale_h", _float), "scale_w": ("scale_w", _float)},
    _spatial("HW"),
)
_dynamic(
    "nn.upsampling3d",
    "data, scale_d, scale_h, scale_w",
    "layout='NCDHW', method='nearest_neighbor', coordinate_transformation_mode='half_pixel'",
    {name: (name, _float) for name in ("scale_d", "scale_h", "scale_w")},
    _spatial("DHW"),
)
_dynamic(
    "image.resize2d",
    "data, size",
    "roi=(0.0, 0.0, 0.0, 0.0), layout='NCHW', method='linear', coordinate_transformation_mode='half_pixel', "
    "rounding_method='', cubic_alpha=-0.5, cubic_exclude=0, extrapolation_value=0.0, out_dtype=''",
    {"size": ("size", _ints)},
    _spatial("HW"),
)


def _static_range(values: list[Any], attrs: Any) -> Any:
    if any(v is None for v in values):
        return None
    start, stop, step = (v.reshape(-1)[0].item() for v in values)
    return "arange", (0, 1, 2), {"start": start, "stop": stop, "step": step, "dtype": attrs["dtype"]}


define(
    "dyn.arange",
    "start, stop, step | dtype='float32'",
    static=_static_range,
    relation=lambda types, attrs: TensorType(_some(1), attrs["dtype"]),
    pattern=OpPattern.INJECTIVE,
    doc="arange, whose start, stop and step are known when the program runs.",
)
