"""SplitArgs: concatenations of very many tensors are done in parts.

concatenate((%a, …, %z))      →      concatenate((concatenate((%a, …)), …))
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.relay.expr import Call, Expr, Function, Tuple, call_op
from pullback.relay.transform.infra import CallRewriter, FunctionPass
from pullback.relay.transform.parts import is_call, same_call


@dataclass(frozen=True)
class SplitArgs(FunctionPass):
    """Divide concatenations of more than ``max_function_args`` tensors, which are not fused with one another then.

    Checks: ``max_function_args`` of 1 or less changes nothing.
    """

    max_function_args: int

    opt_level = 1
    required = ("InferType",)

    def function(self, function: Function, module: IRModule) -> Function:
        return _Split(self.max_function_args).visit(function) if self.max_function_args > 1 else function


class _Split(CallRewriter):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def rewrite(self, old: Call, new: Call) -> Expr | None:
        if not is_call(new, "concatenate") or not isinstance(new.args[0], Tuple):
            return None
        parts = list(new.args[0].fields)
        if len(parts) <= self.most:
            return None
        while len(parts) > self.most:
            groups = [parts[i : i + self.most] for i in range(0, len(parts), self.most)]
            parts = [self.joined(new, group) for group in groups]
        return same_call(new, [Tuple(tuple(parts))])

    def joined(self, call: Call, group: list[Expr]) -> Expr:
        if len(group) == 1:
            return group[0]
        return call_op("annotation.stop_fusion", same_call(call, [Tuple(tuple(group))]))
