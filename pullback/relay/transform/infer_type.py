"""The pass that finds all types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.infer import infer_expr, infer_module


@dataclass(frozen=True)
class InferType(Pass):
    """A module of the same functions in which every expression has a ``checked_type``, and every function and variable
    is declared with its type.

    Raises a UserError that lists all mistakes of the program.

    >>> from pullback.relay.expr import Function, var
    >>> x = var("x", shape=(3,))
    >>> InferType()(IRModule.from_expr(x + x))["main"].body.checked_type
    TensorType(shape=(3,), dtype='float32')
    """

    def run(self, module: IRModule) -> IRModule:
        return infer_module(module)


def InferTypeLocal(expr: Any) -> Any:  # noqa: N802
    """The type of an expression whose global functions, if it calls any, are not needed to know it."""
    return infer_expr(expr).checked_type
