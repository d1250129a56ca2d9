"""DeadCodeElimination: bindings whose value nobody reads are removed.

    lv = R.exp(x)        →
    y = R.add(x, x)               y = R.add(x, x)
    return y                      return y

Functions stay: which of them are wanted is not the module's to say (see ``entry_functions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.ir.arguments import sequence
from pullback.ir.module import GlobalVar, IRModule
from pullback.ir.passes import FunctionPass
from pullback.relax.analysis import called_functions, has_side_effect, used_vars
from pullback.relax.expr import Binding, Function, SeqExpr, Var


@dataclass(frozen=True)
class DeadCodeElimination(FunctionPass):
    """Remove bindings that no result needs.

    Args:
        entry_functions: names of functions; when given, those that none of these reach are removed from the module too.

    Examples:
        >>> @R.function
        ... def main(a: R.Tensor((3,), "float32")):
        ...     unused = R.exp(a)
        ...     return a + a
        >>> module = relax.transform.DeadCodeElimination()(pullback.IRModule({"main": main}))
        >>> [str(binding.value) for binding in module["main"].bindings]
        ['R.add(a, a)']

    Checks: a MatchCast, which checks at run time, and calls that do more than compute stay. Raises NameNotFound for a
    name in ``entry_functions`` that is no function.
    """

    entry_functions: Sequence[str] | None = None

    def function(self, function: Function, module: IRModule) -> Function:
        return remove_dead_bindings(function)

    def run(self, module: IRModule) -> IRModule:
        result = super().run(module)
        if self.entry_functions is None:
            return result
        wanted, stack = set(), list(sequence("entry_functions", self.entry_functions))
        while stack:
            name = stack.pop()
            function = result[name]
            name = name.name if isinstance(name, GlobalVar) else name
            if name not in wanted:
                wanted.add(name)
                stack.extend(called_functions(function) if isinstance(function, Function) else ())
        for name in [n for n in result if n not in wanted]:
            del result[name]
        return result


def remove_dead_bindings(function: Function) -> Function:
    """``function`` without the bindings that its result does not need."""
    live: set[Var] = set(used_vars(function.body.body))
    blocks = []
    for block in reversed(function.body.blocks):
        kept: list[Binding] = []
        for binding in reversed(block.bindings):
            if binding.var in live or has_side_effect(binding):
                live.update(used_vars(binding.value))
                kept.append(binding)
        if kept:
            blocks.append(block if len(kept) == len(block.bindings) else type(block)(tuple(reversed(kept))))
    body = SeqExpr(tuple(reversed(blocks)), function.body.body)
    return Function(function.params, body, function.ret_struct_info, function.attrs, span=function.span)
