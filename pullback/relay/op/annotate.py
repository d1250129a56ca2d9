"""Notes on a program for compilers. What they say has no meaning on one CPU: each gives its argument."""

from __future__ import annotations

from typing import Any

from pullback.relay.op.registry import OpPattern, define


def _noted(name: str, signature: str = "data", **rules: Any) -> None:
    rules = {"relation": lambda types, attrs: types[0], "pattern": OpPattern.OPAQUE, "tuples": True} | rules
    define(name, signature, lambda x, **attrs: tuple(x) if isinstance(x, list) else x, doc="data itself.", **rules)


def _devices(args: list[Any], attrs: dict[str, Any]) -> Any:
    return args, {n: v if v is None or isinstance(v, (bool, int, str)) else str(v) for n, v in attrs.items()}


_noted("annotation.stop_fusion")
_noted("annotation.checkpoint")
_noted("annotation.compiler_begin", "data | compiler")
_noted("annotation.compiler_end", "data | compiler")
_noted("annotation.cast_hint", "data | dtype")
_noted(
    "on_device",
    "body | device=None, constrain_result=False, constrain_body=True",
    adapt=_devices,
    shown=("device",),
)
_noted("device_copy", "data | src_device=None, dst_device=None", adapt=_devices, shown=("src_device", "dst_device"))
