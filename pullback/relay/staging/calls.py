"""Functions of a module that call themselves."""

from __future__ import annotations

from pullback.ir.module import IRModule
from pullback.relay.expr import Function, GlobalVar


def calls_itself(module: IRModule, name: str) -> bool:
    """Whether a function of the module names itself, or others that name it."""
    from pullback.relay.evaluate.graph import postorder

    seen: set[str] = set()
    waiting = [name]
    while waiting:
        function = module.functions.get(waiting.pop())
        for node in postorder(function) if isinstance(function, Function) else ():
            if isinstance(node, GlobalVar):
                if node.name == name:
                    return True
                if node.name not in seen:
                    seen.add(node.name)
                    waiting.append(node.name)
    return False
