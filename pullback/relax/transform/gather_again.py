"""GatherAgain: parameters that a step gathers from their pieces are gathered once more for its backward part.

    w = R.ccl.gather_pieces([p], …)              w = R.ccl.gather_pieces([p], …)
    y = x @ w                                    y = x @ w
    …                                     →      …
    dx = dy @ w.T                                w_again = R.ccl.gather_pieces([p], …)
                                                 dx = dy @ w_again.T

So no parameter has to be there as a whole between the two: that is what stage 3 of ZeRO saves. What the forward part
computes is what the loss depends on. It runs after EliminateCommonSubexpr, which would make one value of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import used_vars
from pullback.relax.convention import STEP
from pullback.relax.expr import Binding, Expr, Function, Tuple, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.transform.distributed import Distributed


@dataclass(frozen=True)
class GatherAgain(FunctionPass):
    """For the step of a trainer module of stage 3; other functions stay as they are.

    Checks: it comes after EliminateCommonSubexpr, which would make one value of the two.
    """

    def run(self, module: IRModule) -> IRModule:
        distributed = Distributed.of(module)
        if distributed is None or distributed.stage < 3 or STEP not in module:
            return module
        return super().run(module)

    def function(self, function: Function, module: IRModule) -> Function:
        gathers = {b.var for b in function.bindings if is_op(b.value, "ccl.gather_pieces")}
        body: Any = function.body.body
        if not gathers or not isinstance(body, Tuple):
            return function
        forward = _needed_for(body.fields[0], function)
        return _Again(gathers, _made_of(gathers, function), forward).function(function)


def _needed_for(result: Any, function: Function) -> set[Var]:
    """The variables on which a result depends."""
    needed = set(used_vars(result))
    for binding in reversed(list(function.bindings)):
        if binding.var in needed:
            needed.update(used_vars(binding.value))
    return needed


def _made_of(gathers: set[Var], function: Function) -> set[Var]:
    """What is a gathered parameter in another form: an item of a bucket."""
    found = set(gathers)
    for binding in function.bindings:
        value: Any = binding.value
        if getattr(value, "tuple_value", None) in found:
            found.add(binding.var)
    return found


class _Again(ExprMutator):
    def __init__(self, gathers: set[Var], parameters: set[Var], forward: set[Var]) -> None:
        super().__init__()
        self.gathers, self.parameters, self.forward = gathers, parameters, forward
        self.values: dict[Var, Any] = {}
        self.again: dict[Var, Any] = {}

    def rewrite_binding(self, binding: Binding) -> None:
        if binding.var in self.parameters:
            self.values[binding.var] = binding.value
            super().rewrite_binding(binding)
            return
        reads = [v for v in used_vars(binding.value) if v in self.parameters]
        if not reads or binding.var in self.forward:
            super().rewrite_binding(binding)
            return
        before: dict[Expr, Expr] = {v: self.env[v] for v in reads}
        self.env |= {v: self.gathered_again(v) for v in reads}
        super().rewrite_binding(binding)
        self.env |= before

    def gathered_again(self, var: Var) -> Any:
        """The parameter, gathered for the backward part."""
        if var not in self.again:
            value = self.values[var]
            if var in self.gathers:
                made = self.expr(value)
            else:
                made = type(value)(self.gathered_again(value.tuple_value), value.index)
            self.again[var] = self.builder.emit(made, f"{var.name}_again")
        return self.again[var]
