"""SharePrefixes: a concatenation that begins as an earlier one does is made of that.

    ab = R.concat([a, b])                 ab = R.concat([a, b])
    abc = R.concat([a, b, c])     →       abc = R.concat([ab, c])

Where every layer reads all layers before it, as in a DenseNet, n layers have n²/2 operands. Two for each are left, and
no more in the gradient: so ``Gradient`` begins with this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Call, Expr, Function, Var
from pullback.relax.mutator import ExprMutator
from pullback.relax.op_calls import is_op
from pullback.relax.struct_info import as_tensor


@dataclass(frozen=True)
class SharePrefixes(FunctionPass):
    """Take the longest earlier concatenation that others begin with, along the same axis.

    Checks: the earlier one has at least two operands, and all of them begin the later one.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return share_prefixes(function)


def share_prefixes(function: Function) -> Function:
    if sum(is_op(binding.value, "concat") for binding in function.bindings) < 2:
        return function
    return _Share().function(function)


class _Share(ExprMutator):
    """Operands lead from place to place in a tree of all concatenations; some places are concatenations' ends."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[tuple[Any, Expr], int] = {}
        self.ends: dict[int, Var] = {}

    def bind(self, var: Var, value: Expr) -> None:
        if not is_op(value, "concat"):
            super().bind(var, value)
            return
        axis = value.attrs["axis"] % as_tensor(value.args[0].struct_info).ndim
        place: Any = ("axis", axis)
        shared: Call = value
        for count, operand in enumerate(value.args, 1):
            place = self.places.setdefault((place, operand), len(self.places))
            if 1 < count < len(value.args) and place in self.ends:
                operands = (self.ends[place], *value.args[count:])
                shared = Call(value.op, operands, value.attrs, span=value.span)
        super().bind(var, shared)
        bound = self.env[var]
        if isinstance(bound, Var):
            self.ends.setdefault(place, bound)
