"""RemoveUnusedFunctions: functions that no entry function calls, directly or not, are removed.

def @main(%x) { @f(%x) }        def @main(%x) { @f(%x) }
def @f(%x) { %x }           →   def @f(%x) { %x }
def @g(%x) { @f(%x) }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.ir.arguments import sequence
from pullback.ir.module import IRModule
from pullback.ir.passes import Pass
from pullback.relay.analysis.call_graph import global_vars
from pullback.relay.expr import Function


@dataclass(frozen=True)
class RemoveUnusedFunctions(Pass):
    """``entry_functions``: the names of functions that stay in any case; ``main`` where none are given.

    Checks: raises NameNotFound where the module has none of such a name. Data types stay.
    """

    opt_level = 1

    entry_functions: Sequence[str] | None = None

    def run(self, module: IRModule) -> IRModule:
        given = ["main"] if self.entry_functions is None else sequence("entry_functions", self.entry_functions)
        wanted: set[str] = set()
        pending = list(given)
        while pending:
            name = pending.pop()
            function = module[name]
            if name not in wanted:
                wanted.add(name)
                pending.extend(n for n in _called(function) if n in module)
        result = module.copy()
        for name in module:
            if name not in wanted:
                del result[name]
        return result


def _called(function: object) -> Sequence[str]:
    return list(global_vars(function)) if isinstance(function, Function) else ()
