"""Convolutions of one to three spatial axes, and transposed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import SPATIAL
from pullback.relay.attrs import Attrs
from pullback.relay.op.blocks import with_blocks
from pullback.relay.op.layout import shape_in, sizes_of
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import (
    cast,
    dtype_name,
    dtype_of,
    fill,
    ints,
    is_any,
    maybe_ints,
    padding,
    product,
    python_value,
    quotient,
    repeated,
    same_size,
    shape_of,
    total,
)
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type

_SMALL = {"int8", "uint8", "int16", "uint16"}


def adapt_windows(rank: int, names: tuple[str, ...], args: list[Any], attrs: dict[str, Any]) -> Any:
    """Attributes of windows as tuples, padding as all of its numbers."""
    found = dict(attrs)
    for name in names:
        found[name] = repeated(name, attrs[name], rank)
    found["padding"] = padding(attrs["padding"], rank)
    for name in ("channels", "groups"):
        if found.get(name) is not None:
            found[name] = ints(name, python_value(found[name]))[0]
    if "kernel_size" in found and found["kernel_size"] is not None:
        found["kernel_size"] = repeated("kernel_size", found["kernel_size"], rank)
    if "out_dtype" in found:
        found["out_dtype"] = dtype_name(found["out_dtype"])
    return args, found


def _kernel_shape(rank: int, transposed: bool) -> Callable[[TensorType, Mapping[str, Any]], Any]:
    """The shape of a weight that channels and kernel_size say."""

    def shape(x: TensorType, attrs: Mapping[str, Any]) -> Any:
        channels, kernel = attrs["channels"], maybe_ints("kernel_size", attrs["kernel_size"])
        layout, groups = attrs["kernel_layout"], attrs["groups"]
        if channels is None or kernel is None:
            return None
        inputs = sizes_of(attrs["data_layout"], x.shape)["C"]
        if is_any(inputs):
            return None
        if transposed:
            ends = {"O": channels // groups, "I": inputs}
        elif groups > 1 and groups == inputs:
            ends = {"O": inputs, "I": channels // inputs}
        else:
            ends = {"O": channels, "I": inputs // groups}
        return shape_in(layout, ends | dict(zip(SPATIAL[rank], kernel, strict=True)))

    return shape


def _multiplied(groups: int, kernel: Mapping[str, Any]) -> bool:
    """Whether a weight is that of a depthwise convolution, with O channels and I results of each."""
    return groups > 1 and kernel["O"] == groups and kernel["I"] != 1


def _outputs(kernel: Mapping[str, Any], groups: int, transposed: bool) -> Any:
    """The channels of the result."""
    if transposed:
        return product([kernel["O"], groups])
    return product([kernel["O"], kernel["I"]]) if _multiplied(groups, kernel) else kernel["O"]


def _check(name: str, rank: int, weight: tuple[Any, ...], attrs: Mapping[str, Any], transposed: bool) -> None:
    """channels and kernel_size must be the weight's, where they are given."""
    layout = attrs["kernel_layout"]
    if sorted(layout) != sorted("OI" + SPATIAL[rank]) or len(layout) != len(weight):
        hint = f"kernel_layout names each of its {rank + 2} axes: OI and {SPATIAL[rank]} in any order"
        raise ShapeError(f"{name}: weight ({layout}) has the shape {_shown(weight)}", hint=hint)
    sizes = dict(zip(layout, weight, strict=True))
    channels, kernel = attrs["channels"], maybe_ints("kernel_size", attrs["kernel_size"])
    found = _outputs(sizes, attrs["groups"], transposed)
    if channels is not None and not is_any(found) and found != channels:
        raise ShapeError(f"{name}: channels is {channels}, but weight ({layout}) {_shown(weight)} gives {found}")
    if kernel is not None:
        window = tuple(sizes[c] for c in SPATIAL[rank])
        if any(not is_any(w) and w != k for w, k in zip(window, kernel, strict=True)):
            raise ShapeError(f"{name}: kernel_size is {list(kernel)}, but weight ({layout}) is {_shown(weight)}")


def _shown(shape: Any) -> str:
    return "(" + ", ".join("?" if is_any(s) else str(s) for s in shape) + ")"


def _lower(name: str, rank: int, transposed: bool) -> Callable[..., Any]:
    def lower(x: Any, weight: Any, **attrs: Any) -> Any:
        _check(name, rank, shape_of(weight), attrs, transposed)
        kernel_layout = attrs["kernel_layout"]
        dtype = attrs["out_dtype"]
        given = {
            "strides": attrs["strides"],
            "padding": attrs["padding"],
            "dilation": attrs["dilation"],
            "groups": attrs["groups"],
            "data_layout": attrs["data_layout"],
            "kernel_layout": kernel_layout,
            "out_layout": attrs["out_layout"] or None,
        }
        if transposed:
            given["output_padding"] = attrs["output_padding"]
        elif _multiplied(attrs["groups"], dict(zip(kernel_layout, shape_of(weight), strict=True))):
            weight, given["kernel_layout"] = _one_input(weight, kernel_layout, rank), "OI" + SPATIAL[rank]
        conv = getattr(ops.nn, name.removeprefix("nn."))
        if {dtype_of(x), dtype_of(weight)} <= _SMALL:  # sums of so small products are exact in float64
            return cast(conv(cast(x, "float64"), cast(weight, "float64"), **given), dtype or dtype_of(x))
        return conv(cast(x, dtype), cast(weight, dtype), **given)

    return lower


def _one_input(weight: Any, layout: str, rank: int) -> Any:
    """The weight of a depthwise convolution with an output for each of the results, and one input."""
    standard = "OI" + SPATIAL[rank]
    weight = ops.permute_dims(weight, tuple(layout.index(c) for c in standard))
    channels, multiplier, *window = shape_of(weight)
    return ops.reshape(weight, (channels * multiplier, 1, *window))


def window_size(size: Any, window: Any, stride: int, before: int, after: int, dilation: int) -> Any:
    """How many windows an axis has."""
    if isinstance(size, AnySize) or is_any(window):
        return AnySize()
    room = before + after - (window - 1) * dilation - 1
    if stride == 1:
        return total([size, room + 1])
    return total([quotient(total([size, room]), stride), 1])


def _type(name: str, rank: int, transposed: bool) -> Callable[[list[Type], Attrs], Type | None]:
    def relation(types: list[Type], attrs: Attrs) -> Type | None:
        x, weight = types
        if not isinstance(x, TensorType) or not isinstance(weight, TensorType):
            return None
        if x.is_concrete and weight.is_concrete:
            return None
        layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
        if not (layout + kernel_layout).isalpha():
            return None
        if len(layout) != x.ndim or len(kernel_layout) != weight.ndim:
            raise ShapeError(f"{name}: data must have the axes {layout}, weight {kernel_layout}")
        _check(name, rank, weight.shape, attrs, transposed)
        data = dict(zip(layout, x.shape, strict=True))
        kernel = dict(zip(kernel_layout, weight.shape, strict=True))
        channels = attrs["channels"]
        if channels is None:
            channels = _outputs(kernel, attrs["groups"], transposed)
        depthwise = attrs["groups"] > 1 and (is_any(kernel["O"]) or _multiplied(attrs["groups"], kernel))
        if not transposed and not is_any(kernel["I"]) and not depthwise:
            same_size(name, [data["C"], kernel["I"] * attrs["groups"]])
        pads = padding(attrs["padding"], rank)
        found = {"N": data["N"], "C": channels}
        for i, letter in enumerate(SPATIAL[rank]):
            window, stride, dilation = kernel[letter], attrs["strides"][i], attrs["dilation"][i]
            size, before, after = data[letter], pads[i], pads[i + rank]
            if not transposed:
                found[letter] = window_size(size, window, stride, before, after, dilation)
            elif is_any(window):
                found[letter] = AnySize()
            else:
                more = (window - 1) * dilation + 1 - before - after + attrs["output_padding"][i] - stride
                found[letter] = total([product([size, stride]), more])
        return TensorType(tuple(found[c] for c in attrs["out_layout"] or layout), attrs["out_dtype"] or x.dtype)

    return relation


for _rank, _space in SPATIAL.items():
    _ones, _zeros = (1,) * _rank, (0,) * _rank
    _pads = (0,) * max(_rank, 2)
    _layouts = f"data_layout='NC{_space}', kernel_layout='{{}}{_space}', out_layout='', "
    define(
        f"nn.conv{_rank}d",
        f"data, weight | strides={_ones}, padding={_pads}, dilation={_ones}, groups=1, channels=None, "
        f"kernel_size=None, {_layouts.format('OI')}out_dtype=''",
        with_blocks(_lower(f"nn.conv{_rank}d", _rank, False), "data_layout", "kernel_layout"),
        adapt=lambda args, attrs, rank=_rank: adapt_windows(rank, ("strides", "dilation"), args, attrs),
        relation=_type(f"nn.conv{_rank}d", _rank, False),
        complete=fill(1, _kernel_shape(_rank, False)),
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        doc="The cross-correlation of data with the weight's windows. padding: one number, one for each axis, or\n"
        "before all of them and then after all. channels and kernel_size, where given, are the weight's.",
    )
    define(
        f"nn.conv{_rank}d_transpose",
        f"data, weight | strides={_ones}, padding={_pads}, dilation={_ones}, groups=1, channels=None, "
        f"kernel_size=None, {_layouts.format('IO')}output_padding={_zeros}, out_dtype=''",
        with_blocks(_lower(f"nn.conv{_rank}d_transpose", _rank, True), "data_layout", "kernel_layout"),
        adapt=lambda args, attrs, rank=_rank: adapt_windows(
            rank, ("strides", "dilation", "output_padding"), args, attrs
        ),
        relation=_type(f"nn.conv{_rank}d_transpose", _rank, True),
        complete=fill(1, _kernel_shape(_rank, True)),
        pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
        doc="The derivative of a convolution by its data, as an operator. The weight has the layout IO….",
    )
