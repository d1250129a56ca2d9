"""CanonicalizeCast: each user of a cast to a wider type has one of its own, so that it is fused with that.

    %0 = cast(%x, dtype="int32");                    add(exp(cast(%x, dtype="int32")), tanh(cast(%x, dtype="int32")))
    add(exp(%0), tanh(%0))                   →

Only elementwise users do: what others would read is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function
from pullback.relay.op.registry import Op, OpPattern
from pullback.relay.transform.infra import FunctionPass
from pullback.relay.transform.parts import is_call, same_call, tensor_type
from pullback.relay.visitor import ExprMutator
from pullback.runtime.dtype import numpy_dtype


@dataclass(frozen=True)
class CanonicalizeCast(FunctionPass):
    """Give each elementwise user of a cast to a wider type a cast of its own.

    Checks: the cast makes elements larger, and the user is elementwise or broadcasts. The first such user keeps the
    cast that there is.
    """

    typed = True
    opt_level = 3
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Canonicalize().visit(function)


class _Canonicalize(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self.taken: set[Call] = set()  # casts that have a user

    def visit_call(self, call: Call) -> Expr:
        if not isinstance(call.op, Op) or call.op.pattern > OpPattern.BROADCAST:
            return super().visit_call(call)
        args = [self.argument(arg) for arg in call.args]
        return call if all(a is b for a, b in zip(args, call.args, strict=True)) else same_call(call, args)

    def argument(self, arg: Expr) -> Expr:
        new = self.visit(arg)
        if not isinstance(arg, Call) or not isinstance(new, Call) or not _widens(arg):
            return new
        if arg in self.taken:
            return same_call(new, new.args)
        self.taken.add(arg)
        return new


def _widens(call: Call) -> bool:
    known = tensor_type(call.args[0]) if is_call(call, "cast") else None
    return known is not None and numpy_dtype(known.dtype).itemsize < numpy_dtype(call.attrs.dtype).itemsize
