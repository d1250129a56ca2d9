"""Pooling: over windows, over everything, and into a given number of windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from pullback.ir.errors import ShapeError
from pullback.relax.op.namespace import ops
from pullback.relax.op.nn.window import SPATIAL
from pullback.relay.attrs import Attrs
from pullback.relay.op.blocks import with_blocks
from pullback.relay.op.convolution import adapt_windows
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import cast, dtype_of, is_float, maybe_ints, padding, quotient, repeated, shape_of, total
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type


def _relation(
    name: str, rank: int, sizes: Callable[[Any, Attrs], Any]
) -> Callable[[list[TensorType], Attrs], Type | None]:
    """``sizes(spatial sizes, attrs)`` of the result, where some are not known."""

    def relation(types: list[TensorType], attrs: Attrs) -> Type | None:
        x = types[0]
        layout = attrs["layout"]
        if x.is_concrete or not layout.isalpha():
            return None
        if len(layout) != x.ndim:
            raise ShapeError(f"{name}: data has {x.ndim} axes, layout {layout} {len(layout)}")
        data = dict(zip(layout, x.shape, strict=True))
        found = sizes([data[c] for c in SPATIAL[rank]], attrs)
        data |= dict(zip(SPATIAL[rank], found, strict=True))
        return TensorType(tuple(data[c] for c in attrs["out_layout"] or layout), x.dtype)

    return relation


def _windows(rank: int) -> Callable[[Any, Attrs], Any]:
    def sizes(shape: Any, attrs: Attrs) -> Any:
        pads = padding(attrs["padding"], rank)
        found = []
        for i, size in enumerate(shape):
            reach = (attrs["pool_size"][i] - 1) * attrs["dilation"][i] + 1
            stride = attrs["strides"][i]
            room = total([size, pads[i] + pads[i + rank] - reach + (stride - 1 if attrs["ceil_mode"] else 0)])
            found.append(room if isinstance(room, AnySize) else total([quotient(room, stride), 1]))
        return found

    return sizes


def _of_any(pool: Callable[[Any], Any], x: Any) -> Any:
    """A pool of floats, of integers too: their mean is truncated."""
    return pool(x) if is_float(x) else cast(pool(cast(x, "float64")), dtype_of(x))


def _pool(name: str) -> Callable[..., Any]:
    def lower(x: Any, **attrs: Any) -> Any:
        given = attrs | {"out_layout": attrs["out_layout"] or None}
        return _of_any(lambda data: getattr(ops.nn, name)(data, **given), x)

    return lower


for _rank, _space in SPATIAL.items():
    _ones, _zeros = (1,) * _rank, (0,) * _rank
    _window = f"pool_size={_ones}, strides={_ones}, dilation={_ones}, padding={_zeros}, "
    _layout = f"layout='NC{_space}', out_layout=''"
    _names = ("pool_size", "strides", "dilation")
    for _kind, _more in (("max", ""), ("avg", ", count_include_pad=False")):
        _name = f"{_kind}_pool{_rank}d"
        define(
            f"nn.{_name}",
            f"data | {_window}{_layout}, ceil_mode=False{_more}",
            with_blocks(_pool(_name), "layout"),
            adapt=lambda args, attrs, rank=_rank, names=_names: adapt_windows(rank, names, args, attrs),
            relation=_relation(f"nn.{_name}", _rank, _windows(_rank)),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            shown=("pool_size",),
            doc=f"The {'largest element' if _kind == 'max' else 'mean'} of each window.",
        )
        _name = f"global_{_kind}_pool{_rank}d"

        def _global(x: Any, *, layout: str, out_layout: str, name: str = _name) -> Any:
            if out_layout not in ("", layout):
                raise ShapeError(f"nn.{name}: out_layout must be that of the data, got {out_layout}")
            return _of_any(lambda data: getattr(ops.nn, name)(data, layout=layout), x)

        define(
            f"nn.{_name}",
            f"data | {_layout}",
            with_blocks(_global, "layout"),
            relation=_relation(f"nn.{_name}", _rank, lambda shape, attrs: [1] * len(shape)),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            doc=f"The {'largest element' if _kind == 'max' else 'mean'} of each channel; its spatial axes have size 1.",
        )


def _output(rank: int, shape: Any, attrs: Any) -> list[Any]:
    """The sizes asked for; the data's where there are none."""
    wanted = attrs["output_size"]
    return list(shape) if not wanted else list(repeated("output_size", wanted, rank))


def _adaptive_max(rank: int) -> Callable[..., Any]:
    """Windows from ⌊o·n/m⌋ to ⌈(o + 1)·n/m⌉, an axis after the other."""

    def lower(x: Any, **attrs: Any) -> Any:
        layout = attrs["layout"]
        wanted = _output(rank, [shape_of(x)[layout.index(c)] for c in SPATIAL[rank]], attrs)
        for letter, count in zip(SPATIAL[rank], wanted, strict=True):
            axis = layout.index(letter)
            size = shape_of(x)[axis]
            if count == size:
                continue
            windows = [(o * size // count, math.ceil((o + 1) * size / count)) for o in range(count)]
            parts = [ops.max(ops.strided_slice(x, [axis], [a], [b]), axis=axis, keepdims=True) for a, b in windows]
            x = ops.concat(parts, axis)
        return x

    return lower


def _adaptive_avg(rank: int) -> Callable[..., Any]:
    def lower(x: Any, **attrs: Any) -> Any:
        layout = attrs["layout"]
        wanted = _output(rank, [shape_of(x)[layout.index(c)] for c in SPATIAL[rank]], attrs)
        op = getattr(ops.nn, f"adaptive_avg_pool{rank}d")
        given = {"layout": layout, "out_layout": attrs["out_layout"] or None}
        return _of_any(lambda data: op(data, tuple(wanted), **given), x)

    return lower


for _rank, _space in SPATIAL.items():
    for _kind, _make in (("max", _adaptive_max), ("avg", _adaptive_avg)):
        define(
            f"nn.adaptive_{_kind}_pool{_rank}d",
            f"data | output_size=None, layout='NC{_space}', out_layout=''",
            _make(_rank),
            adapt=lambda args, attrs: (args, attrs | {"output_size": maybe_ints("output_size", attrs["output_size"])}),
            relation=_relation(f"nn.adaptive_{_kind}_pool{_rank}d", _rank, partial(_output, _rank)),
            pattern=OpPattern.OUT_ELEMWISE_FUSABLE,
            doc="Pooling into output_size windows of nearly one size that cover the data.",
        )
