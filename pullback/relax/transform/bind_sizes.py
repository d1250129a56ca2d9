"""BindSizes: symbolic sizes become numbers.

def f(x: R.Tensor((n, 784))) …   with {n: 64}        →        def f(x: R.Tensor((64, 784))) …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.expr import Function
from pullback.relax.mutator import ExprMutator
from pullback.relax.struct_info import FuncStructInfo, symbolic_vars


@dataclass(frozen=True)
class BindSizes(FunctionPass):
    """Give symbolic sizes of all functions their numbers.

    Args:
        sizes: ints by symbolic variables, or their names.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor(("n", 4), "float32")):
        ...     return R.sum(a, axis=1)
        >>> module = relax.transform.BindSizes({"n": 64})(pullback.IRModule({"main": main}))
        >>> module["main"].ret_struct_info
        Tensor((64,), float32)

    Checks: names that are no size of a function are passed over. All types are deduced anew, and an op that the numbers
    do not fit raises its error.
    """

    sizes: Mapping[Any, int]
    straight = False

    def function(self, function: Function, module: IRModule) -> Function:
        return bind_function_sizes(function, self.sizes)


def bind_function_sizes(function: Function, sizes: Mapping[Any, int]) -> Function:
    """``function`` with its symbolic sizes replaced, by variable or by name; all types are deduced anew."""
    info = FuncStructInfo(tuple(p.struct_info for p in function.params), function.ret_struct_info)
    bound = {v: sizes[v] if v in sizes else sizes[v.name] for v in symbolic_vars(info) if v in sizes or v.name in sizes}
    return ExprMutator(bound).function(function) if bound else function
