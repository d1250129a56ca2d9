"""The type of what a gradient returns."""

from __future__ import annotations

from pullback.ir.optional import all_known
from pullback.relay.expr import Function
from pullback.relay.ty import TupleType, Type


def gradient_type(function: Function) -> Type | None:
    """``(what the function returns, (an adjoint for each parameter…))``, where it says all of its types; else None."""
    types = all_known(p.type_annotation for p in function.params)
    if function.ret_type is None or types is None:
        return None
    return TupleType((function.ret_type, TupleType(types)))
