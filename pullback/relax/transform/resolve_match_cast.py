"""ResolveMatchCast: casts whose outcome is known at compile time.

    y = R.match_cast(x, R.Tensor(("m", 4)))   with x of shape (8, 4)        →        y is x, m is 8

A cast that cannot hold is an error here, with its place; symbolic sizes that it binds become the known ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.errors import ShapeError
from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Binding, Function, MatchCast
from pullback.relax.matching import match_info
from pullback.relax.mutator import ExprMutator
from pullback.relax.struct_info import format_info


@dataclass(frozen=True)
class ResolveMatchCast(FunctionPass):
    """Replace casts that hold by the values that they check, and the sizes that they bind by the known ones.

    The function must have no unknown shapes: bind its symbolic sizes first.

    Checks: raises ShapeError, with its place, for a cast that does not hold.
    """

    def function(self, function: Function, module: IRModule) -> Function:
        return resolve_match_casts(function)


def resolve_match_casts(function: Function) -> Function:
    if not any(isinstance(b, MatchCast) for b in function.bindings):
        return function
    return _Resolve().function(function)


class _Resolve(ExprMutator):
    def rewrite_binding(self, binding: Binding) -> None:
        if not isinstance(binding, MatchCast):
            return super().rewrite_binding(binding)
        value = self.expr(binding.value)
        if not match_info(binding.target, value.struct_info, self.sizes):
            expected, given = format_info(binding.target), format_info(value.struct_info)
            raise ShapeError(f"match_cast expected {expected}, got {given}", span=binding.span)
        self.bind(binding.var, value)
        return None
