"""The type of what a gradient returns."""

from __future__ import annotations

from pullback.relay.expr import Function
from pullback.relay.ty import TupleType, Type


def gradient_type(function: Function) -> Type | None:
    """``(what the function returns, (an adjoint for each parameter…))``, where it says all of its types; else None."""
    types = [p.type_annotation for p in function.params]
    if function.ret_type is None or any(t is None for t in types):
        return None
    return TupleType((function.ret_type, TupleType(tuple(types))))
