"""Legalize: calls become what a function registered for their operator makes of them.

    @relay.op.register_legalize("nn.relu")
    def legalize(attrs, inputs, types):                        nn.relu(%x)      →      maximum(%x, 0f)
        return relay.maximum(inputs[0], relay.const(0.0))

``types`` are those of the inputs, and of the result. A function that returns None leaves the call as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.errors import UserError
from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, TupleWrapper
from pullback.relay.op.registry import Op
from pullback.relay.transform.infra import CallRewriter, FunctionPass


@dataclass(frozen=True)
class Legalize(FunctionPass):
    """Apply the functions that operators have under the name ``legalize_map_attr_name`` (``Op.set_attr``).

    Checks: raises a UserError where one returns what is no expression. A function that returns None leaves its call.
    """

    legalize_map_attr_name: str = "FTVMLegalize"

    typed = True
    opt_level = 1
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Legalize(self.legalize_map_attr_name).visit(function)


class _Legalize(CallRewriter):
    def __init__(self, attribute: str) -> None:
        super().__init__()
        self.attribute = attribute

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        rule = new.op.get_attr(self.attribute) if isinstance(new.op, Op) else None
        if rule is None:
            return None
        types = [arg.checked_type for arg in old.args] + [old.checked_type]
        found = rule(old.attrs, list(new.args), types)
        if isinstance(found, TupleWrapper):
            found = found.astuple()
        if found is not None and not isinstance(found, Expr):
            hint = "return an expression, or None to leave the call as it is"
            name = f"the {self.attribute} of {new.op.name}"
            raise UserError(f"{name} returned {type(found).__name__}", span=old.span, hint=hint)
        return found
