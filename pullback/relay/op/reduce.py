"""Reductions over axes: sums, extrema, means, places of extrema."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.expr import Tuple, call_op
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import axis_of, cast, is_float, maybe_ints, number, rank_of, shape_of
from pullback.relay.ty import TensorType, Type

_ATTRS = "axis=None, keepdims=False, exclude=False"


def reduced_axes(name: str, rank: int, attrs: Any) -> tuple[int, ...]:
    """The axes over which a call reduces: those given, or with ``exclude`` the others; all where none are given."""
    if not attrs["axis"]:
        return tuple(range(rank))
    given = {axis_of(name, a, rank) for a in attrs["axis"]}
    return tuple(i for i in range(rank) if (i in given) != attrs["exclude"])


def reduced_shape(name: str, shape: tuple[Any, ...], attrs: Any) -> tuple[Any, ...]:
    axes = reduced_axes(name, len(shape), attrs)
    if attrs["keepdims"]:
        return tuple(1 if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def _relation(name: str, dtype: str | None = None) -> Callable[[list[Type], Attrs], Type | None]:
    def relation(types: list[Type], attrs: Attrs) -> Type | None:
        x = types[0]
        if not isinstance(x, TensorType) or x.is_concrete:
            return None
        return TensorType(reduced_shape(name, x.shape, attrs), dtype or attrs.get("dtype") or x.dtype)

    return relation


def _adapt(args: list[Any], attrs: dict[str, Any]) -> Any:
    flags = {name: bool(v) for name, v in attrs.items() if name not in ("axis", "dtype")}
    return args, attrs | flags | {"axis": maybe_ints("axis", attrs["axis"])}


def _reduce(name: str, lower: Callable[..., Any], attrs: str = _ATTRS, dtype: str | None = None, **rules: Any) -> None:
    rules = {"pattern": OpPattern.COMM_REDUCE, "relation": _relation(name, dtype), "adapt": _adapt} | rules
    define(name, f"data | {attrs}", lower, **rules)


def _over(name: str, reduce: Callable[..., Any]) -> Callable[..., Any]:
    """``reduce(x, axes, keepdims)`` over the axes that a call names."""

    def lower(x: Any, **attrs: Any) -> Any:
        axes = reduced_axes(name, rank_of(x), attrs)
        return reduce(x, axes, attrs["keepdims"]) if axes else x

    return lower


def _mean(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if is_float(x):
        return ops.mean(x, axis=axes, keepdims=keepdims)
    total = ops.sum(x, axis=axes, keepdims=keepdims)
    return call_divide(total, math.prod(shape_of(x)[a] for a in axes))


def call_divide(x: Any, count: int) -> Any:
    """Integers by a number, truncated."""
    divisor = number(x, count)
    return ops.floor_divide(ops.subtract(x, ops.fmod(x, divisor)), divisor)


for _name in ("sum", "max", "min", "prod"):
    _reduce(_name, _over(_name, lambda x, a, k, name=_name: getattr(ops, name)(x, axis=a, keepdims=k)))
for _name in ("all", "any"):
    _reduce(_name, _over(_name, lambda x, a, k, name=_name: getattr(ops, name)(x, axis=a, keepdims=k)), dtype="bool")
_reduce("mean", _over("mean", _mean))


def _place(name: str) -> Callable[..., Any]:
    """The place of an extremum in what the axes make, flattened, as int32."""

    def lower(x: Any, *, axis: Any, keepdims: bool, exclude: bool, select_last_index: bool) -> Any:
        attrs = {"axis": axis, "exclude": exclude, "keepdims": keepdims}
        axes, shape = reduced_axes(name, rank_of(x), attrs), shape_of(x)
        if len(axes) > 1:
            kept = [i for i in range(len(shape)) if i not in axes]
            x = ops.permute_dims(x, (*kept, *axes))
            x = ops.reshape(x, (*(shape[i] for i in kept), math.prod(shape[i] for i in axes)))
            along = len(kept)
        else:
            along = axes[0] if axes else 0
        count = shape_of(x)[along] if axes else 1
        if select_last_index:
            x = ops.flip(x, along)
        if not axes:
            return ops.zeros(shape, "int32")
        found = cast(getattr(ops, name)(x, axis=along, keepdims=False), "int32")
        if select_last_index:
            found = ops.subtract(number(found, count - 1), found)
        return ops.reshape(found, reduced_shape(name, shape, attrs)) if keepdims or len(axes) > 1 else found

    return lower


for _name in ("argmax", "argmin"):
    _reduce(_name, _place(_name), f"{_ATTRS}, select_last_index=False", dtype="int32")


# -- moments


def _variance(x: Any, mean: Any, *, axis: Any, keepdims: bool, exclude: bool, unbiased: bool) -> Any:
    axes = reduced_axes("variance", rank_of(x), {"axis": axis, "exclude": exclude})
    difference = ops.subtract(x, mean)
    squares = ops.multiply(difference, difference)
    if not unbiased:
        return ops.mean(squares, axis=axes, keepdims=keepdims)
    count = math.prod(shape_of(x)[a] for a in axes)
    return ops.divide(ops.sum(squares, axis=axes, keepdims=keepdims), number(x, float(count - 1)))


def _adapt_variance(args: list[Any], attrs: dict[str, Any]) -> Any:
    args, attrs = _adapt(args, attrs)
    if len(args) == 1:
        args.append(call_op("mean", args[0], axis=attrs["axis"], keepdims=True, exclude=attrs["exclude"]))
    return args, attrs


define(
    "variance",
    f"data, with_mean? | {_ATTRS}, unbiased=False",
    _variance,
    order=("data", "axis", "keepdims", "exclude", "unbiased", "with_mean"),
    adapt=_adapt_variance,
    relation=_relation("variance"),
    pattern=OpPattern.COMM_REDUCE,
    doc="The mean square distance from the mean, which is an argument of the call, with the reduced axes of size 1.",
)


def mean_variance(
    data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False
) -> Tuple:
    """The mean over the axes, and the variance.

    >>> mean, variance = mean_variance(x, axis=0)
    """
    wide = call_op("mean", data, axis=axis, keepdims=True, exclude=exclude)
    attrs = {"axis": axis, "keepdims": keepdims, "exclude": exclude, "unbiased": unbiased}
    spread = call_op("variance", data, with_mean=wide, **attrs)
    narrow = wide if keepdims else call_op("mean", data, axis=axis, keepdims=False, exclude=exclude)
    return Tuple((narrow, spread))


def std(data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False) -> Any:
    """The square root of the variance over the axes."""
    spread = call_op("variance", data, axis=axis, keepdims=keepdims, exclude=exclude, unbiased=unbiased)
    return call_op("sqrt", spread)


def mean_std(data: Any, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Tuple:
    """The mean over the axes, and the square root of the variance."""
    mean, spread = mean_variance(data, axis, keepdims, exclude)
    return Tuple((mean, call_op("sqrt", spread)))


def logsumexp(data: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """log Σ exp(data) over the axes, without overflow."""
    axis = maybe_ints("axis", axis)
    largest = call_op("max", data, axis=axis, keepdims=True)
    exponentials = call_op("exp", call_op("subtract", data, largest))
    total = call_op("sum", exponentials, axis=axis, keepdims=True)
    result = call_op("add", call_op("log", total), largest)
    return result if keepdims else call_op("squeeze", result, axis=axis)
