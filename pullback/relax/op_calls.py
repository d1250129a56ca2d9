"""Questions about calls that rooms below ``relax/op`` need to ask."""

from __future__ import annotations

from typing import Any

from pullback.ir.errors import UserError
from pullback.ir.node import Span
from pullback.ir.op import Op
from pullback.relax.expr import Call


def is_call_tir(expr: Any) -> bool:
    """Whether the expression calls a kernel of the loop IR."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "relax.call_tir"


def is_op(expr: Any, name: str) -> bool:
    """Whether the expression is a call of the op ``relax.<name>``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == f"relax.{name}"


def is_packed(expr: Any) -> bool:
    """Whether the expression calls a registered function (``relax/op/call/packed.py``)."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.family == "packed"


def is_collective(expr: Any) -> bool:
    """Whether the expression is what ranks compute together (``relax/op/distributed/ccl.py``)."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.family == "ccl"


def has_effects(expr: Any) -> bool:
    """Whether the expression calls a function that does more than to compute: it stays where it is, once."""
    return is_op(expr, "call_packed")


def lacks_state(expr: Any) -> bool:
    """Whether the expression draws random numbers without a state: such a call is a draw of its own, no value yet."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Op) or "state" not in expr.op.signature.optional:
        return False
    return len(expr.args) < len(expr.op.signature.tensors) and bool(expr.attrs.get("training", True))


def no_state(op: str, span: Span | None = None) -> UserError:
    """The error of a call that cannot be computed or differentiated as it is."""
    hint = (
        'relax.transform.AddRandomState("main")(module) makes one a parameter of the function, before Gradient;'
        " a trainer does so for its steps, not for predict and evaluate"
    )
    return UserError(f"{op} draws random numbers, and has no state to draw them from", span=span, hint=hint)


def inner_op(call: Call) -> Op:
    """The op that a call is of; of one over a batch (``relax/op/batching.py``), the op of one element."""
    op, attrs = call.op, call.attrs
    while isinstance(op, Op) and op.family == "batch":
        op, attrs = Op.get(attrs["op"]), dict(attrs["attrs"])
    return op  # type: ignore[return-value]
