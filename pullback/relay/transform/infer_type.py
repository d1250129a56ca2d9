"""The pass that finds all types."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.expr import Expr, set_checked_type
from pullback.relay.infer import infer_expr, infer_module
from pullback.relay.ty import Type


@dataclass(frozen=True)
class InferType(Pass):
    """A module of the same functions in which every expression has a ``checked_type``, and every function and variable
    is declared with its type.

        fn (%x: Tensor[(3), int8]) { … }      →      fn (%x: Tensor[(3), int8]) -> Tensor[(3), int8] { … }

    >>> from pullback.relay.expr import Function, var
    >>> x = var("x", shape=(3,))
    >>> InferType()(IRModule.from_expr(x + x))["main"].body.checked_type
    TensorType(shape=(3,), dtype='float32')

    Checks: raises a UserError that lists all mistakes of the program.
    """

    def run(self, module: IRModule) -> IRModule:
        return infer_module(module)


def InferTypeLocal(expr: Expr) -> Type:  # noqa: N802
    """The type of an expression, which becomes its ``checked_type``. Its free variables have the types that they are
    declared with; it calls no global functions.

    >>> from pullback.relay.expr import const
    >>> InferTypeLocal(const(1.0) + const(2.0))
    TensorType(shape=(), dtype='float32')
    """
    type_ = infer_expr(expr).checked_type
    set_checked_type(expr, type_)
    return type_
