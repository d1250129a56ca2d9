"""Normalize: brings functions into A-normal form.

y = R.add(R.exp(x), x)        →        lv = R.exp(x)
                                       y = R.add(lv, x)
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Function
from pullback.relax.mutator import ExprMutator


@dataclass(frozen=True)
class Normalize(FunctionPass):
    """Bind every nested argument to a variable.

    Checks: any function may be given. Types are deduced anew, and order and names stay.
    """

    straight = False

    def function(self, function: Function, module: IRModule) -> Function:
        return ExprMutator().function(function)
