"""Modules whose function ``main`` is built from graph ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.module import IRModule
from pullback.relax import BlockBuilder, Var
from pullback.relax.struct_info import TensorStructInfo
from pullback.script import relax as R


def graph(build: Callable[..., Any], **shapes: tuple[int, ...]) -> IRModule:
    """``main`` of float64 tensors: what ``build`` computes of variables of these names and shapes."""
    params = [Var(name, TensorStructInfo(shape, "float64")) for name, shape in shapes.items()]
    builder = BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(build(*params))
    return builder.get()


def number(value: float) -> Any:
    """A float64 scalar."""
    return R.const(value, "float64")
