"""Elementwise operators of one tensor and of two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.relax.op.namespace import ops
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.op.rules import broadcast_of, cast, dtype_of, is_float, number, same
from pullback.relay.ty import TensorType, Type


def _graph(name: str) -> Callable[..., Any]:
    return lambda *args: getattr(ops, name)(*args)


def _unary(name: str, lower: Callable[..., Any] | None = None, doc: str = "", **rules: Any) -> None:
    rules = {"relation": same, "pattern": OpPattern.ELEMWISE} | rules
    define(name, "data", lower or _graph(name), doc=doc, **rules)


def _of_floats(name: str) -> Callable[[Any], Any]:
    """The graph's op of floats; integers are their own."""
    return lambda x: getattr(ops, name)(x) if is_float(x) else x


def _truth(types: list[Type], attrs: Any) -> Type | None:
    return TensorType(types[0].shape, "bool") if isinstance(types[0], TensorType) else None


_OF_ONE = """acos acosh asin asinh atan atanh cos cosh erf exp log log10 log2 logical_not bitwise_not negative rsqrt
sigmoid sign sin sinh sqrt tan tanh abs"""
for _name in _OF_ONE.split():
    _unary(_name)
for _name in ("ceil", "floor", "trunc", "round"):
    _unary(_name, _of_floats(_name))
for _name, _always in (("isnan", "not_equal"), ("isinf", "not_equal"), ("isfinite", "equal")):

    def _tested(x: Any, name: str = _name, always: str = _always) -> Any:
        return getattr(ops, name)(x) if is_float(x) else getattr(ops, always)(x, x)

    _unary(_name, _tested, relation=_truth)
_unary("copy", lambda x: x, doc="data itself.")
for _name in ("exp", "tanh", "erf"):
    _unary(f"fast_{_name}", _graph(_name), doc=f"{_name}, which may be computed less exactly; here it is not.")


def _clip(x: Any, *, a_min: float, a_max: float) -> Any:
    if is_float(x):
        return ops.clip(x, float(a_min), float(a_max))
    return ops.minimum(ops.maximum(x, _integer_bound(x, a_min)), _integer_bound(x, a_max))


def _integer_bound(x: Any, bound: float) -> Any:
    """The bound as a number of an integer dtype, where it is one."""
    import numpy as np

    limits = np.iinfo(dtype_of(x))
    return number(x, int(min(max(bound, limits.min), limits.max)))


define(
    "clip",
    "a | a_min, a_max",
    _clip,
    relation=same,
    pattern=OpPattern.ELEMWISE,
    adapt=lambda args, attrs: (args, {n: _bound(v) for n, v in attrs.items()}),
    shown=("a_min", "a_max"),
    doc="a kept between two numbers.",
)


def _bound(value: Any) -> float:
    from pullback.relay.op.rules import python_value

    return float(python_value(value))


def _fixed_point(x: Any, *, multiplier: int, shift: int) -> Any:
    """x · multiplier · 2^(shift - 31), rounded half up, in int64."""
    wide = cast(x, "int64")
    if shift > 0:
        wide = ops.multiply(wide, number(wide, 1 << shift))
    right = 31 - min(shift, 0)
    scaled = ops.add(ops.multiply(wide, number(wide, multiplier)), number(wide, 1 << (right - 1)))
    return cast(ops.right_shift(scaled, number(wide, right)), dtype_of(x))


define(
    "fixed_point_multiply",
    "data | multiplier, shift",
    _fixed_point,
    relation=same,
    pattern=OpPattern.ELEMWISE,
    shown=("multiplier", "shift"),
    doc="data · multiplier · 2^(shift - 31) of integers, rounded half up.",
)


def _binary(name: str, lower: Callable[..., Any] | None = None, dtype: str | None = None, doc: str = "") -> None:
    relation = broadcast_of(name, dtype)
    define(name, "lhs, rhs", lower or _graph(name), relation=relation, pattern=OpPattern.BROADCAST, doc=doc)


def _truncated_quotient(x: Any, y: Any) -> Any:
    if is_float(x):
        return ops.trunc(ops.divide(x, y))
    return ops.floor_divide(ops.subtract(x, ops.fmod(x, y)), y)


def _divide(x: Any, y: Any) -> Any:
    return ops.divide(x, y) if is_float(x) or dtype_of(x) != dtype_of(y) else _truncated_quotient(x, y)


def _power(x: Any, y: Any) -> Any:
    if is_float(x):
        return ops.power(x, y)
    return cast(ops.round(ops.power(cast(x, "float64"), cast(y, "float64"))), dtype_of(x))


_OF_TWO = """add subtract multiply maximum minimum left_shift right_shift bitwise_and bitwise_or bitwise_xor
floor_divide"""
for _name in _OF_TWO.split():
    _binary(_name)
_binary("divide", _divide, doc="lhs / rhs; the quotient of integers is truncated.")
_binary("trunc_divide", _truncated_quotient, doc="The quotient, truncated.")
_binary("mod", _graph("fmod"), doc="The remainder of truncated division: it has the sign of lhs.")
_binary("trunc_mod", _graph("fmod"), doc="The remainder of truncated division: it has the sign of lhs.")
_binary("floor_mod", _graph("mod"), doc="The remainder of floored division: it has the sign of rhs.")
_binary("power", _power, doc="lhs to the power of rhs.")
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    _binary(_name, dtype="bool")
for _name in ("logical_and", "logical_or", "logical_xor"):
    _binary(_name, dtype="bool")
