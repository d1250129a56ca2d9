"""Elementwise operators of one and of two tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.relax.op.namespace import ops
from pullback.relay.attrs import Attrs
from pullback.relay.op.registry import OpPattern, define
from pullback.relay.ty import Any as AnySize
from pullback.relay.ty import TensorType, Type


def _unary(name: str, graph: str | None = None, doc: str = "") -> None:
    define(name, "x", _calls(graph or name), relation=_same, pattern=OpPattern.ELEMWISE, doc=doc)


def _binary(name: str, graph: str | None = None, doc: str = "") -> None:
    define(name, "lhs, rhs", _calls(graph or name), relation=broadcast, pattern=OpPattern.BROADCAST, doc=doc)


def _calls(graph: str) -> Callable[..., Any]:
    return lambda *args: getattr(ops, graph)(*args)


def _same(types: list[Type], attrs: Attrs) -> Type | None:
    return types[0]


def broadcast(types: list[Type], attrs: Attrs) -> Type | None:
    """The type of an elementwise operator of two tensors one of which has sizes that are not known."""
    lhs, rhs = types
    if not isinstance(lhs, TensorType) or not isinstance(rhs, TensorType) or lhs.dtype != rhs.dtype:
        return None
    if lhs.is_concrete and rhs.is_concrete:
        return None
    rank = max(lhs.ndim, rhs.ndim)
    padded = [(1,) * (rank - t.ndim) + t.shape for t in (lhs, rhs)]
    return TensorType(tuple(_joined(a, b) for a, b in zip(*padded, strict=True)), lhs.dtype)


def _joined(a: Any, b: Any) -> Any:
    if a == 1 or b == 1:
        return b if a == 1 else a
    return b if isinstance(a, AnySize) else a


for _name in ("exp", "log", "sqrt", "sigmoid", "tanh", "negative"):
    _unary(_name)
for _name in ("add", "subtract", "multiply", "divide"):
    _binary(_name)
