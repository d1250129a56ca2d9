"""Regions: the functions that a closed call of ``branch``, ``loop`` or ``recurse`` has for attributes.

A region reads nothing but its parameters, so a pass treats it as it treats any function, and its call as it treats the
call of any op that it knows nothing of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

from pullback.ir.errors import UserError
from pullback.relax.expr import Binding, Call, Function, If, MatchCast, SeqExpr, VarBinding
from pullback.relax.op_calls import OpCall, op_of


def regions(expr: Any) -> Iterator[tuple[str, Function]]:
    """The regions of a call, by the names of their attributes; none of what is no call."""
    if isinstance(expr, Call):
        for name, value in expr.attrs.items():
            if isinstance(value, Function):
                yield name, value


def has_regions(expr: Any) -> TypeGuard[OpCall]:
    """Whether it is a closed call: of ``branch``, ``loop``, ``recurse`` or ``custom``."""
    return any(True for _ in regions(expr))


def is_control(expr: Any) -> TypeGuard[OpCall]:
    """Whether it is a closed call of ``branch``, ``loop`` or ``recurse``, or a ``call_self``, which are no ops with a
    gradient rule."""
    return (has_regions(expr) and expr.op.gradient is None) or is_self(expr)


def is_self(expr: Any) -> TypeGuard[OpCall]:
    """Whether it is a closed recursive function's call of itself."""
    return isinstance(expr, Call) and getattr(expr.op, "family", "") == "recursion"


def is_open(expr: Any) -> bool:
    """Whether ``InlineFunctions`` makes something else of it: a branch, a function, a loop that takes functions, the
    call of an adjoint."""
    if isinstance(expr, Call):
        if getattr(expr.op, "family", "") != "control":
            return False
        if not has_regions(expr):  # one with a gradient is an op like others: a box
            return op_of(expr).gradient is None
        return "adjoint" in expr.attrs and expr.attrs["adjoint"] is None
    return isinstance(expr, (If, Function))


def is_closed(function: Function) -> bool:
    """Whether the function has no branches and loops but closed ones."""
    return not any(is_open(b.value) for b in function.bindings)


def with_regions(call: Call, changed: dict[str, Function]) -> Call:
    """The call with other regions in the place of these, of the same types."""
    return Call(call.op, call.args, {**call.attrs, **changed}, call.sinfo_args, call.info, span=call.span)


def map_regions(function: Function, change: Callable[[Function], Function]) -> Function:
    """The function with ``change(region)`` for each region of its calls; ``change`` sees to those inside."""
    if not any(has_regions(b.value) for b in function.bindings):
        return function
    blocks = tuple(type(block)(tuple(_mapped(b, change) for b in block.bindings)) for block in function.body.blocks)
    body = SeqExpr(blocks, function.body.body, span=function.body.span)
    return Function(function.params, body, function.ret_struct_info, function.attrs, span=function.span)


def _mapped(binding: Binding, change: Callable[[Function], Function]) -> Binding:
    value = binding.value
    if not has_regions(value) or isinstance(binding, MatchCast):
        return binding
    changed = {name: change(region) for name, region in regions(value)}
    return VarBinding(binding.var, with_regions(value, changed), span=binding.span)


def require_straight(what: str, function: Function) -> None:
    """Raise a UserError, with their places, where the function has branches, loops or functions inside: what asks
    handles straight code only."""
    found = [b for b in function.bindings if is_open(b.value) or has_regions(b.value)]
    if found:
        places = "".join(f"\n  {_kind(b.value)} at {b.value.span or b.span}" for b in found)
        raise UserError(
            f"{what} handles straight code only, and this function has" + places,
            span=found[0].value.span or found[0].span,
            hint="write the steps out, or leave this pass out",
        )


def _kind(value: Any) -> str:
    return "an if" if isinstance(value, If) else "a function" if isinstance(value, Function) else value.op.short
