"""Tensor expressions of ops: ``topi.add(a, b)`` is what the op means, of te tensors instead of graph values.

    c = topi.nn.relu(topi.matmul(a, b))
    builder.emit_te(topi.sum, x, axis=1)

Every op that has a tensor expression is here under its name in ``pullback.relax.op``, and some under the names that the
reference has for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback import te
from pullback.ir.errors import ArgumentError, NoAttribute, suggestion
from pullback.ir.op import Op
from pullback.relax import op as _registered  # noqa: F401  registers the ops
from pullback.tir.expr import const

RENAMED = {
    "cast": "astype", "concatenate": "concat", "transpose": "permute_dims", "nn.dense": "linear",
    "nn.flatten": "nn.batch_flatten", "nn.leaky_relu": "nn.leakyrelu",
}  # fmt: skip


class _Namespace:
    """Functions whose names begin with ``prefix``."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        return _found(self._prefix + name)


def _found(name: str) -> Any:
    op = Op.find(f"relax.{RENAMED.get(name, name)}")
    if op is not None and op.te is not None:
        return _function(op)
    if any(full.startswith(f"relax.{name}.") for full in Op.registry):
        return _Namespace(f"{name}.")
    known = [o.short for o in Op.registry.values() if o.te is not None]
    raise NoAttribute(f"topi has no {name}{suggestion(name, known)}", hint="te.compute writes any tensor expression")


def _function(op: Op) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        tensors, attrs = op.signature.bind(op.short, args, kwargs)
        dtype = next((t.dtype for t in tensors if isinstance(t, te.Tensor)), None)
        if dtype is None:
            raise ArgumentError(f"topi.{op.short} takes te tensors", hint=f"its arguments are ({op.signature})")
        assert op.te is not None  # else it is no name here
        return op.te(*(t if isinstance(t, te.Tensor) else _scalar(t, dtype) for t in tensors), **attrs)

    function.__name__, function.__doc__ = op.__name__, op.__doc__
    return function


def _scalar(number: Any, dtype: str) -> te.Tensor:
    return te.compute((), lambda: const(number, dtype), "number")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _found(name)
