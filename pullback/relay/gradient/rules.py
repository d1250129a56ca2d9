"""The adjoints of a call's arguments, by the operator's rule or, without one, by its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pullback.ir.errors import DifferentiationError, UserError
from pullback.relay.expr import Call, Constant, Expr, as_expr, set_checked_type, span_of
from pullback.relay.gradient.generic import generic_gradient, zeros
from pullback.relay.op.gradient_rules import gradient_rule
from pullback.relay.op.meaning import resolve
from pullback.relay.op.registry import Op
from pullback.relay.ty import TensorType, TupleType, Type
from pullback.relay.visitor import ExprMutator
from pullback.tir.expr import FLOATS

CHECKPOINT = "annotation.checkpoint"


def has_floats(type_: Type) -> bool:
    """Whether a value of the type, a tensor or a tuple, holds a tensor of floats: only these have adjoints."""
    if isinstance(type_, TupleType):
        return any(map(has_floats, type_.fields))
    return isinstance(type_, TensorType) and type_.dtype in FLOATS


def moves(call: Call) -> bool:
    """Whether the result of an operator's call may move with its arguments."""
    return has_floats(call.checked_type) and any(has_floats(a.checked_type) for a in call.args)


def adjoints_of(orig: Call, grad: Expr) -> list[Expr]:
    """The adjoint of each argument of an operator's call, which moves with them; ``grad``: that of its result.

    Raises DifferentiationError where there is no gradient, and where a rule does not return what it should.
    """
    found = _rule(orig.op)(orig, grad)
    if not isinstance(found, Iterable) or isinstance(found, Expr):
        found = [found]
    found = list(found)
    if len(found) != len(orig.args):
        message = f"the gradient rule of {orig.op.name} gave {len(found)} adjoints for {len(orig.args)} arguments"
        raise DifferentiationError(message, span=span_of(orig), hint="it returns a list with one for each argument")
    return [_adjoint(orig, k, adjoint) for k, adjoint in enumerate(found)]


def _rule(op: Op) -> Callable[..., Any]:
    return gradient_rule(op) or _without_rule


def _without_rule(orig: Call, grad: Expr) -> list[Expr]:
    """The adjoints of the arguments of an operator without a rule; where constants among these make another operator
    of it, by the rule of that."""
    values = [a.data.numpy() if isinstance(a, Constant) else None for a in orig.args]
    found = resolve(orig.op, values, orig.attrs)
    if found is None:
        return generic_gradient(orig, grad)
    op, kept, attrs = found
    static = Call(op, tuple(orig.args[k] for k in kept), attrs)
    set_checked_type(static, orig.checked_type)
    as_given = ExprMutator()
    as_given.memo_map[static] = orig
    of_kept = {k: as_given.visit(as_expr(a)) for k, a in zip(kept, _rule(op)(static, grad), strict=True)}
    return [of_kept[k] if k in of_kept else zeros(a, a.checked_type) for k, a in enumerate(orig.args)]


def _adjoint(orig: Call, index: int, adjoint: Any) -> Expr:
    arg: Any = orig.args[index]
    if adjoint is None:
        return zeros(arg, arg.checked_type)
    try:
        return as_expr(adjoint)
    except UserError as error:
        message = f"the gradient rule of {orig.op.name} gave no expression for argument {index}: {error.message}"
        raise DifferentiationError(message, span=span_of(orig), hint=error.hint) from None


def refuse_what_has_no_gradient(calls: Iterable[Call]) -> None:
    """Raise a DifferentiationError that lists all operators without a gradient, if any of the calls has none."""
    lines: dict[str, None] = {}
    for call in calls:
        if isinstance(call.op, Op) and call.op.name != CHECKPOINT and moves(call):
            reason = _reason(call)
            if reason is not None:
                place = span_of(call)
                lines[f"  {call.op.name}{f' at {place}' if place is not None else ''}: {reason}"] = None
    if lines:
        hint = "give an operator a rule: relay.op.register_gradient(name, lambda orig, grad: [an adjoint per argument])"
        raise DifferentiationError("these operators have no gradient:\n" + "\n".join(lines), hint=hint)


def _reason(call: Call) -> str | None:
    """Why a call has no gradient; None where it has one."""
    if gradient_rule(call.op) is not None:
        return None
    try:
        _without_rule(call, call)
    except DifferentiationError as error:
        return " ".join(error.message.split())
    return None
