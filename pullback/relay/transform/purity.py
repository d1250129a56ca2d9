"""What computing an expression does besides giving a value.

Functions are followed: those of the module, and those that a ``Let`` binds. What is called and not known, such as a
parameter, may do anything. That a recursive function ends is taken for granted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pullback.ir.module import IRModule
from pullback.ir.op import Op
from pullback.relay.adt import Constructor, Match
from pullback.relay.expr import Call, Function, GlobalVar, If, Let, RefCreate, RefRead, RefWrite, Tuple, Var
from pullback.relay.transform.infra import FunctionPass, optimizable
from pullback.relay.visitor import children


class Effect(IntEnum):
    """Nothing: it may be computed anywhere, or not at all. Reading: it reads cells, or makes new ones; nobody misses it
    where its value is not used, but it stays where it is. Writing: it writes to a cell, has a state, or is unknown."""

    NONE = 0
    READS = 1
    WRITES = 2


class Purity:
    """Effects of expressions of a module.

    >>> from pullback.relay.expr import const
    >>> Purity().of(RefCreate(const(1.0)))
    <Effect.READS: 1>
    """

    def __init__(self, module: IRModule | None = None) -> None:
        self.calls: dict[Any, Effect] = {}  # of calling a variable or a global function
        self.effects: dict[Any, Effect] = {}  # of computing a node
        self._begun: set[Var] = set()  # functions that may be calling themselves
        self._relied_on: set[Var] = set()  # those of them that something calls
        if module is not None:
            self._of_module(module)

    def _of_module(self, module: IRModule) -> None:
        functions = {name: f for name, f in module.items() if isinstance(f, Function)}
        users: dict[str, set[str]] = {}
        for name in functions:
            self.calls[name] = Effect.NONE
        pending = dict.fromkeys(functions)
        while pending:
            name = next(iter(pending))
            del pending[name]
            used = self._analyse(functions[name])
            for other in used:
                users.setdefault(other, set()).add(name)
            found = self._call_of(functions[name])
            if found > self.calls[name]:
                self.calls[name] = found
                pending.update(dict.fromkeys(users.get(name, ())))

    def of_globals(self) -> Purity:
        """What is known of the functions of the module, and nothing else: for an expression that has changed."""
        known = Purity()
        known.calls = {name: effect for name, effect in self.calls.items() if isinstance(name, str)}
        return known

    def of(self, expr: Any) -> Effect:
        """What computing the expression does."""
        if expr not in self.effects:
            self._analyse(expr)
        return self.effects[expr]

    def of_call(self, function: Any) -> Effect:
        """What calling the value of an expression does; its arguments are to have been computed."""
        self.of(function)
        return self._call_of(function)

    def _analyse(self, root: Any) -> set[str]:
        """Effects of all nodes; the names of the global functions among them."""
        used: set[str] = set()
        again = True
        while again:  # a function that calls itself is pure if it is so under that assumption
            again = False
            for node in _in_order(root):
                if isinstance(node, _Begins):
                    self.calls.setdefault(node.let.variable, Effect.NONE)
                    self._begun.add(node.let.variable)
                elif isinstance(node, _Bound):
                    again |= self._bound(node.let)
                else:
                    self.effects[node] = self._effect(node)
                    if isinstance(node, GlobalVar):
                        used.add(node.name)
        return used

    def _bound(self, let: Let) -> bool:
        """Note what calling the value of a ``Let`` does; whether something relied on less."""
        variable, found = let.variable, self._call_of(let.value)
        before = self.calls.get(variable, found)
        self.calls[variable] = max(found, before)
        wrong = variable in self._relied_on and found > before
        self._begun.discard(variable)
        self._relied_on.discard(variable)
        return wrong

    def _effect(self, node: Any) -> Effect:
        if isinstance(node, Function):
            return Effect.NONE
        inside = max((self.effects.get(child, Effect.NONE) for child in children(node)), default=Effect.NONE)
        if isinstance(node, Call):
            return max(inside, self._call_of(node.op))
        if isinstance(node, (RefCreate, RefRead)):
            return max(inside, Effect.READS)
        return Effect.WRITES if isinstance(node, RefWrite) else inside

    def _call_of(self, function: Any) -> Effect:
        while isinstance(function, Let):
            function = function.body
        if isinstance(function, Op):
            return Effect.WRITES if getattr(function, "stateful", False) else Effect.NONE
        if isinstance(function, Constructor):
            return Effect.NONE
        if isinstance(function, GlobalVar):
            return self.calls.get(function.name, Effect.WRITES)
        if isinstance(function, Var):
            if function in self._begun:
                self._relied_on.add(function)
            return self.calls.get(function, Effect.WRITES)
        if isinstance(function, Function):
            return self.effects.get(function.body, Effect.NONE)
        if isinstance(function, If):
            return max(self._call_of(function.true_branch), self._call_of(function.false_branch))
        if isinstance(function, Match):
            return max((self._call_of(c.rhs) for c in function.clauses), default=Effect.NONE)
        return Effect.NONE if isinstance(function, Tuple) else Effect.WRITES


@dataclass(frozen=True)
class EffectPass(FunctionPass):
    """A pass over functions that knows what expressions do: override :meth:`change`."""

    def change(self, function: Function, purity: Purity) -> Function:
        raise NotImplementedError(f"{self.name} does not override change")

    def run(self, module: IRModule) -> IRModule:
        from pullback.relay.infer import infer_module

        purity = Purity(module)
        result = module.copy()
        for name, function in module.items():
            if optimizable(function):
                result[name] = self.change(function, purity)
        return infer_module(result)


@dataclass(frozen=True)
class _Begins:
    """A function that a ``Let`` binds comes next: it may call itself."""

    let: Let


@dataclass(frozen=True)
class _Bound:
    """The value of a ``Let`` has been visited."""

    let: Let


def _in_order(root: Any) -> Iterator[Any]:
    """The nodes, each once, those inside first, and values before what they are bound in."""
    seen: set[Any] = set()
    pending: list[tuple[Any, bool]] = [(root, False)]
    while pending:
        node, done = pending.pop()
        if done or isinstance(node, (_Begins, _Bound)):
            yield node
            continue
        if node in seen:
            continue
        seen.add(node)
        pending.append((node, True))
        inner = children(node)
        if isinstance(node, Let):
            inner = (node.value, _Bound(node), node.body)
            if isinstance(node.value, Function):
                inner = (_Begins(node), *inner)
        pending.extend((child, False) for child in reversed(inner))
