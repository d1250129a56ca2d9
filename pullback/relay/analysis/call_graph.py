"""Which functions of a module call which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback import ir
from pullback.ir.errors import ArgumentError, NameNotFound
from pullback.ir.module import IRModule
from pullback.relay.expr import Function, GlobalVar
from pullback.relay.visitor import children


def global_vars(expr: Any) -> dict[str, int]:
    """The names of global functions in an expression, in the order of their first use, with the number of nodes that
    name them: one ``GlobalVar`` that is called twice counts once."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    pending = [expr]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, GlobalVar):
            found[node.name] = found.get(node.name, 0) + 1
        pending.extend(reversed(children(node)))
    return found


def components(calls: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The strongly connected components of a graph, those that are called before those that call (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []

    def enter(name: str) -> tuple[str, Iterator[str]]:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        return name, iter(calls[name])

    for root in calls:
        pending = [enter(root)] if root not in index else []
        while pending:
            name, callees = pending[-1]
            callee = next(callees, None)
            if callee is None:
                pending.pop()
                if pending:
                    low[pending[-1][0]] = min(low[pending[-1][0]], low[name])
                if low[name] == index[name]:
                    first = stack.index(name)
                    found.append(stack[first:])
                    on_stack.difference_update(stack[first:])
                    del stack[first:]
            elif callee not in index:
                pending.append(enter(callee))
            elif callee in on_stack:
                low[name] = min(low[name], index[callee])
    return found


class CallGraph:
    """The call graph of a module of relay.

    >>> from pullback.relay.expr import var
    >>> x = var("x", shape=())
    >>> graph = CallGraph(IRModule({"main": Function((x,), GlobalVar("main")(x))}))
    >>> graph.is_recursive("main"), graph.ref_count("main")
    (True, 1)
    """

    def __init__(self, module: IRModule) -> None:
        if not isinstance(module, IRModule):
            raise ArgumentError(f"CallGraph takes an IRModule, got {type(module).__name__}")
        self.module = module
        relay = {name: f for name, f in module.items() if isinstance(f, Function)}
        uses = {name: global_vars(f) if (f := relay.get(name)) is not None else {} for name in module}
        self.calls: dict[str, dict[str, int]] = {
            name: {callee: count for callee, count in found.items() if callee in module} for name, found in uses.items()
        }
        self._component = {
            name: component
            for component in components({n: list(c) for n, c in self.calls.items()})
            for name in component
        }

    def _name(self, var: Any) -> str:
        if not isinstance(var, (str, ir.GlobalVar)):
            raise ArgumentError(f"a function is known by a name or a GlobalVar, got {type(var).__name__}")
        name = var if isinstance(var, str) else var.name
        if name not in self.calls:
            raise NameNotFound(
                f"the module has no function {name!r}", hint=f"it has: {', '.join(self.calls) or 'none'}"
            )
        return name

    def ref_count(self, var: Any) -> int:
        """How many nodes of the module name the function."""
        name = self._name(var)
        return sum(calls.get(name, 0) for calls in self.calls.values())

    def global_call_count(self, var: Any) -> int:
        """How many nodes of the function name functions of the module."""
        return sum(self.calls[self._name(var)].values())

    def is_recursive(self, var: Any) -> bool:
        """Whether the function may come to call itself."""
        name = self._name(var)
        return name in self.calls[name] or len(self._component[name]) > 1

    def are_recursive(self, *names: Any) -> bool:
        """Whether the functions, or any of the module where none is named, may come to call themselves."""
        return any(self.is_recursive(name) for name in names or self.calls)

    def callees_first(self) -> list[str]:
        """The functions in an order in which those that are called come before those that call, as far as possible."""
        return list(self._component)

    def print_var(self, var: Any) -> str:
        """The function and those that it calls, in lines."""
        name = self._name(var)
        lines = [f"call graph node: {name}, referred to {self.ref_count(name)} times"]
        lines += [f"  calls {callee}, {count} times" for callee, count in self.calls[name].items()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join(self.print_var(name) for name in reversed(self.callees_first()))
