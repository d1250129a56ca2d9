"""EliminateCommonSubexpr: equal calls of ops become one.

%0 = nn.relu(%x); %1 = add(%0, 1f); %2 = add(%0, 1f); add(%1, %2)
                                                       →    %0 = nn.relu(%x); %1 = add(%0, 1f); add(%1, %1)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import is_primitive, is_value


@dataclass(frozen=True)
class EliminateCommonSubexpr(FunctionPass):
    """Merge calls of the same op, with the same attributes, of the same arguments. ``fskip(expr)`` is true of calls
    that stay apart; ops with a state, and dropout, always do.

    Checks: arguments are the same nodes, or equal scalars. Fused functions are not looked into, and calls without
    arguments stay.
    """

    fskip: Callable[[Expr], bool] | None = None

    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Merge(self.fskip).visit(function)


class _Merge(CallRewriter):
    def __init__(self, fskip: Callable[[Expr], bool] | None) -> None:
        super().__init__()
        self.fskip = fskip
        self.known: dict[Any, Expr] = {}

    def visit_function(self, function: Function) -> Expr:
        return function if is_primitive(function) else super().visit_function(function)

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        if not is_value(new.op) or not new.args:
            return None
        if self.fskip is not None and self.fskip(new):
            return None
        attrs = tuple(sorted((name, _hashable(value)) for name, value in new.attrs.items()))
        return self.known.setdefault((new.op, attrs, tuple(_key(arg) for arg in new.args)), new)

    def visit_tuple_getitem(self, item: TupleGetItem) -> Expr:
        new = super().visit_tuple_getitem(item)
        return self.known.setdefault(_key(new), new)


def _key(expr: Expr) -> Any:
    """Equal for expressions that are the same value."""
    if isinstance(expr, Tuple):
        return ("tuple", tuple(_key(field) for field in expr.fields))
    if isinstance(expr, TupleGetItem):
        return ("item", _key(expr.tuple_value), expr.index)
    if isinstance(expr, Constant) and expr.data.ndim == 0:
        return ("scalar", expr.data.dtype, expr.data.numpy().tobytes())
    return expr


def _hashable(value: Any) -> Any:
    """An attribute's value as a key: numbers of different kinds are different, NaN is NaN."""
    if isinstance(value, tuple):
        return ("tuple", *(_hashable(v) for v in value))
    return (type(value).__name__, repr(value))
