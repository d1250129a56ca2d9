"""Questions about calls that rooms below ``relax/op`` need to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

from pullback.ir.errors import InternalError, UserError
from pullback.ir.module import GlobalVar
from pullback.ir.node import Span
from pullback.ir.op import Op
from pullback.relax.expr import Call, Expr, ShapeExpr, Tuple, Var
from pullback.relax.struct_info import Dim

if TYPE_CHECKING:

    class OpCall(Call):
        """A call of which it is known that it is of an op."""

        op: Op

else:
    OpCall = Call  # only type checkers tell them apart


def is_op_call(expr: Any) -> TypeGuard[OpCall]:
    """Whether the expression calls an op, not a function."""
    return isinstance(expr, Call) and isinstance(expr.op, Op)


def op_of(call: Call) -> Op:
    """The op of a call of which it is known that it is of an op."""
    if not isinstance(call.op, Op):
        raise InternalError(f"expected the call of an op, got that of {call.op!r}")
    return call.op


def as_var(expr: Expr) -> Var:
    """The variable, of which it is known that it is one."""
    if not isinstance(expr, Var):
        raise InternalError(f"expected a variable, got {expr!r}")
    return expr


def fields_of_tuple(expr: Expr) -> tuple[Expr, ...]:
    """The fields of what is known to be written as a tuple: the operands of a region, of a kernel."""
    if not isinstance(expr, Tuple):
        raise InternalError(f"expected a tuple, got {expr!r}")
    return expr.fields


def kernel_name(call: Call) -> str:
    """The name of the kernel, or the function, that is the first argument of a ``call_tir`` and its like."""
    callee: object = call.args[0]
    if not isinstance(callee, GlobalVar):
        raise InternalError(f"expected the name of a function, got {callee!r}")
    return callee.name


def kernel_operands(call: Call) -> tuple[Expr, ...]:
    """The tensors that a ``call_tir`` hands to its kernel."""
    return fields_of_tuple(call.args[1])


def kernel_sizes(call: Call) -> tuple[Dim, ...]:
    """The sizes that a ``call_tir`` hands to its kernel."""
    if len(call.args) < 3:
        return ()
    sizes = call.args[2]
    if not isinstance(sizes, ShapeExpr):
        raise InternalError(f"expected sizes, got {sizes!r}")
    return sizes.values


def is_call_tir(expr: Any) -> TypeGuard[OpCall]:
    """Whether the expression calls a kernel of the loop IR."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "relax.call_tir"


def is_op(expr: Any, name: str) -> TypeGuard[OpCall]:
    """Whether the expression is a call of the op ``relax.<name>``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == f"relax.{name}"


def is_packed(expr: Any) -> TypeGuard[OpCall]:
    """Whether the expression calls a registered function (``relax/op/call/packed.py``)."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.family == "packed"


def is_collective(expr: Any) -> TypeGuard[OpCall]:
    """Whether the expression is what ranks compute together (``relax/op/distributed/ccl.py``)."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.family == "ccl"


def has_effects(expr: Any) -> TypeGuard[OpCall]:
    """Whether the expression calls a function that does more than to compute: it stays where it is, once."""
    return is_op(expr, "call_packed")


def lacks_state(expr: Any) -> TypeGuard[OpCall]:
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
    if not isinstance(op, Op):
        raise InternalError(f"expected the call of an op, got that of {op!r}")
    return op
