"""What ops of the graph IR are called in relay: the table by which imported models are written.

An entry takes the arguments as relay expressions, the attributes, and the graph IR's call, and returns an expression,
or None where relay has no operator of that meaning: the op then keeps its full name, ``relax.…``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.relay.expr import Expr, Tuple, call_op, call_several, const
from pullback.relay.op.dense import dropout_raw

Entry = Callable[[list[Expr], Any, Any], "Expr | None"]
NAMES: dict[str, Entry] = {}  # by the full name of the graph IR's op


def named(*ops: str) -> Callable[[Entry], Entry]:
    """Decorator: the entry of these ops."""

    def register(entry: Entry) -> Entry:
        NAMES.update((f"relax.{op}", entry) for op in ops)
        return entry

    return register


def _plain(op: str, name: str, **renamed: str) -> None:
    """An operator with the same arguments; ``renamed``: its attributes, by the names of the graph IR's."""

    def entry(args: list[Expr], attrs: Any, call: Any) -> Expr:
        given = {renamed.get(k, k): v for k, v in attrs.items() if renamed.get(k, k) is not None}
        return call_op(name, *args, **given)

    NAMES[f"relax.{op}"] = entry


def _alike(op: str) -> None:
    """An op without attributes, which is relay's under its name."""
    NAMES[f"relax.{op}"] = lambda args, attrs, call: call_op(op, *args)


_ALIKE = """
    abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos cosh divide
    equal erf exp floor floor_divide greater greater_equal isfinite isinf isnan left_shift less less_equal log log10
    log2 logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative not_equal ones_like power
    right_shift round rsqrt sigmoid sign sin sinh sqrt subtract tan tanh trunc where zeros_like
"""
for _op in _ALIKE.split():
    _alike(_op)
for _op in ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "all", "any"):
    _plain(_op, _op)
for _op in ("softmax", "log_softmax"):
    _plain(f"nn.{_op}", f"nn.{_op}")
_plain("nn.relu", "nn.relu")
_plain("nn.batch_flatten", "nn.batch_flatten")
_plain("nn.leakyrelu", "nn.leaky_relu")
_plain("nn.prelu", "nn.prelu")
_plain("astype", "cast")
_plain("permute_dims", "transpose")
_plain("squeeze", "squeeze")
_plain("tile", "tile", repeats="reps")
_plain("broadcast_to", "broadcast_to")
_plain("clip", "clip", min="a_min", max="a_max")


@named("concat", "stack")
def _joined(args: list[Expr], attrs: Any, call: Any) -> Expr:
    name = "concatenate" if call.op.name == "relax.concat" else "stack"
    return call_op(name, Tuple(tuple(args)), axis=attrs["axis"])


@named("reshape")
def _reshape(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    sizes = attrs["shape"]
    return call_op("reshape", *args, newshape=tuple(sizes)) if _are_numbers(sizes) else None


@named("flatten")
def _flatten(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return call_op("reshape", *args, newshape=(-1,))


@named("expand_dims")
def _expand_dims(args: list[Expr], attrs: Any, call: Any) -> Expr:
    axes, rank = attrs["axis"], call.struct_info.ndim
    result = args[0]
    for axis in sorted(a % rank for a in (axes if isinstance(axes, tuple) else (axes,))):
        result = call_op("expand_dims", result, axis=axis)
    return result


def _are_numbers(sizes: Sequence[Any]) -> bool:
    return all(isinstance(s, int) for s in sizes)


@named("strided_slice")
def _strided_slice(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    strides = attrs["strides"] or (1,) * len(attrs["axes"])
    if not all(map(_are_numbers, (attrs["axes"], attrs["begin"], attrs["end"], strides))):
        return None
    begin, end, axes = attrs["begin"], attrs["end"], attrs["axes"]
    return call_op("strided_slice", *args, begin=begin, end=end, strides=strides, axes=axes)


@named("take")
def _take(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    mode = {"raise": "clip", "clip": "clip", "wrap": "wrap"}.get(attrs["mode"])
    return None if mode is None else call_op("take", *args, axis=attrs["axis"], mode=mode)


@named("nn.embedding")
def _embedding(args: list[Expr], attrs: Any, call: Any) -> Expr:
    indices, weight = args
    return call_op("take", weight, indices, axis=0)


@named("linear")
def _linear(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    data, weight = args[:2]
    info = call.args[0].struct_info
    if call.args[1].struct_info.ndim != 2 or info.shape is None:
        return None
    units = call.args[1].struct_info.shape[0]
    if info.ndim == 2:
        result = call_op("nn.dense", data, weight, units=units)
    elif _are_numbers(info.shape) and info.ndim > 2:
        rows = call_op("reshape", data, newshape=(-1, info.shape[-1]))
        result = call_op("nn.dense", rows, weight, units=units)
        result = call_op("reshape", result, newshape=(*info.shape[:-1], units))
    else:
        return None
    return call_op("nn.bias_add", result, args[2], axis=-1) if len(args) == 3 else result


@named("matmul")
def _matmul(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    a, b = (x.struct_info for x in call.args)
    if a.ndim == b.ndim == 2:
        return call_op("nn.matmul", *args)
    if a.ndim == b.ndim == 3 and a.shape[0] == b.shape[0]:
        return call_op("nn.batch_matmul", *args, transpose_b=False)
    return None


def _ints(value: Any, count: int) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,)
    return tuple(values) * (count // len(values)) if len(values) < count else tuple(values)


@named("nn.conv1d", "nn.conv2d", "nn.conv3d")
def _convolution(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    name = call.op.name.removeprefix("relax.")
    rank = int(name[-2])
    weight = call.args[1].struct_info.shape
    layout, kernel = attrs["data_layout"], attrs["kernel_layout"]
    sizes = dict(zip(kernel, weight, strict=True))
    if attrs["out_layout"] not in (None, layout) or attrs["out_dtype"] not in (None, "", "void"):
        return None
    given: dict[str, Any] = {
        "strides": _ints(attrs["strides"], rank),
        "padding": _ints(attrs["padding"], 2 * rank),
        "dilation": _ints(attrs["dilation"], rank),
        "groups": attrs["groups"],
        "channels": sizes["O"],
        "kernel_size": tuple(sizes[axis] for axis in "DHW"[-rank:]),
        "data_layout": layout,
        "kernel_layout": kernel,
    }
    return call_op(name, *args, **given)


@named("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def _transposed_convolution(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    name = call.op.name.removeprefix("relax.")
    rank = int(name.partition("d_")[0][-1])
    kernel = attrs["kernel_layout"]
    sizes = dict(zip(kernel, call.args[1].struct_info.shape, strict=True))
    if attrs["out_layout"] not in (None, attrs["data_layout"]) or attrs["out_dtype"] not in (None, "", "void"):
        return None
    given: dict[str, Any] = {
        "strides": _ints(attrs["strides"], rank),
        "padding": _ints(attrs["padding"], 2 * rank),
        "output_padding": _ints(attrs["output_padding"], rank),
        "dilation": _ints(attrs["dilation"], rank),
        "groups": attrs["groups"],
        "channels": sizes["O"] * attrs["groups"],
        "kernel_size": tuple(sizes[axis] for axis in "DHW"[-rank:]),
        "data_layout": attrs["data_layout"],
        "kernel_layout": kernel,
    }
    return call_op(name, *args, **given)


@named("nn.pad")
def _pad(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    width, value = attrs["pad_width"], attrs["pad_value"]
    if attrs["pad_mode"] != "constant" or not isinstance(value, (int, float)):
        return None
    pairs = width if width and isinstance(width[0], tuple) else list(zip(width[::2], width[1::2], strict=True))
    return call_op("nn.pad", args[0], const(value, call.struct_info.dtype), pad_width=pairs)


@named("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def _pool(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    name = call.op.name.removeprefix("relax.")
    rank = int(name[-2])
    if attrs["out_layout"] not in (None, attrs["layout"]):
        return None
    given: dict[str, Any] = {
        "pool_size": _ints(attrs["pool_size"], rank),
        "strides": _ints(attrs["strides"], rank),
        "padding": _ints(attrs["padding"], 2 * rank),
        "dilation": _ints(attrs["dilation"], rank),
        "ceil_mode": attrs["ceil_mode"],
        "layout": attrs["layout"],
    }
    if "avg" in name:
        given["count_include_pad"] = attrs["count_include_pad"]
    return call_op(name, *args, **given)


@named("nn.adaptive_avg_pool2d")
def _adaptive(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    sizes = attrs["output_size"]
    if sizes is None or attrs["layout"] != "NCHW":
        return None
    return call_op("nn.adaptive_avg_pool2d", *args, output_size=_ints(sizes, 2), layout="NCHW")


@named("nn.global_avg_pool2d", "nn.global_max_pool2d")
def _global(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return call_op(call.op.name.removeprefix("relax."), *args, layout=attrs["layout"])


@named("nn.batch_norm")
def _batch_norm(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    """By the statistics that it is given: relay's models are in the form for inference."""
    given = {name: attrs[name] for name in ("axis", "epsilon", "center", "scale")}
    return call_several("nn.batch_norm", *args, **given).astuple()


@named("nn.layer_norm")
def _layer_norm(args: list[Expr], attrs: Any, call: Any) -> Expr | None:
    axes = attrs["axes"] if isinstance(attrs["axes"], tuple) else (attrs["axes"],)
    if len(axes) != 1:
        return None
    given = {name: attrs[name] for name in ("epsilon", "center", "scale")}
    return call_op("nn.layer_norm", *args, axis=axes[0], **given)


@named("nn.dropout")
def _dropout_and_mask(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return dropout_raw(args[0], attrs["rate"]).astuple()


@named("dropout")
def _dropout(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return call_op("nn.dropout", args[0], rate=attrs["p"])


@named("nn.in_train_phase")
def _in_train_phase(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return args[1]


@named("square")
def _square(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return call_op("multiply", args[0], args[0])


@named("nn.relu6")
def _relu6(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return call_op("clip", args[0], a_min=0.0, a_max=6.0)


@named("reciprocal")
def _reciprocal(args: list[Expr], attrs: Any, call: Any) -> Expr:
    return call_op("divide", const(1, call.struct_info.dtype), args[0])
