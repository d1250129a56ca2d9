"""Where each node of a graph belongs: the innermost scope that holds all of its uses.

A scope is the body of a function, a branch of an ``If``, the right side of a clause and, where asked, a ``Let``: what
is computed together or not at all. The scope of the root is the outermost one.
"""

from __future__ import annotations

from typing import Any

from pullback.relay.adt import Match
from pullback.relay.expr import Function, If, Let
from pullback.relay.let_list import LetList
from pullback.relay.visitor import children, post_order


class Scope:
    """A scope, its place in the tree of scopes, and what is bound in it."""

    def __init__(self, parent: Scope | None) -> None:
        self.parent = parent
        self.level: int = 0 if parent is None else parent.level + 1
        self.bindings = LetList()


def common(a: Scope, b: Scope) -> Scope:
    """The innermost scope that holds both."""
    while a is not b:
        if a.level >= b.level:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a


class Scopes:
    """The scopes of an expression: ``of[node]``, and ``inner[node]``, those that a node opens. ``crossing`` has the
    nodes that are used in a scope inside their own."""

    def __init__(self, root: Any, lets: bool = False) -> None:
        self.lets = lets
        self.root = Scope(None)
        self.of: dict[Any, Scope] = {root: self.root}
        self.inner: dict[Any, list[Scope]] = {}
        self.crossing: set[Any] = set()
        self._bodies: set[Scope] = set()  # scopes that are bodies of functions
        self._uses: dict[Any, list[Scope]] = {root: [self.root]}
        self._openers: dict[Any, Scope] = {}  # a chain of lets is one scope
        for node in reversed(list(post_order(root))):  # what uses a node comes before it
            self._place(node)

    def _place(self, node: Any) -> None:
        uses = self._uses.pop(node, None)
        if uses is None:
            return  # a variable that is bound and not used
        scope = uses[0]
        for use in uses:
            scope = common(scope, use)
        if any(use is not scope for use in uses):
            self.crossing.add(node)
        self.of[node] = scope
        if self.lets and isinstance(node, Let):
            chained = self._openers.pop(node, None) if len(uses) == 1 else None
            self.inner[node] = [chained or Scope(scope)]
            if isinstance(node.body, Let):
                self._openers[node.body] = self.inner[node][0]
        for child, use in self._edges(node, scope):
            self._uses.setdefault(child, []).append(use)

    def in_function_inside(self, variable: Any, outer: Scope | None = None) -> bool:
        """Whether all uses of a variable are in a function that begins inside ``outer``, by default the root's."""
        outer, scope = outer or self.root, self.of.get(variable)
        while scope is not outer and scope is not None:
            if scope in self._bodies:
                return True
            scope = scope.parent
        return False

    def _edges(self, node: Any, scope: Scope) -> list[tuple[Any, Scope]]:
        """What is used right inside a node, and in which scope."""
        if isinstance(node, Let):
            own = self.inner[node][0] if self.lets else scope
            return [(node.value, own), (node.body, own)]
        outside: tuple[Any, ...] = ()
        inside: tuple[Any, ...]
        if isinstance(node, If):
            outside, inside = (node.cond,), (node.true_branch, node.false_branch)
        elif isinstance(node, Function):
            inside = (node.body,)
        elif isinstance(node, Match):
            outside, inside = (node.data,), tuple(clause.rhs for clause in node.clauses)
        else:
            return [(child, scope) for child in children(node)]
        self.inner[node] = [Scope(scope) for _ in inside]
        if isinstance(node, Function):
            self._bodies.update(self.inner[node])
        return [*((child, scope) for child in outside), *zip(inside, self.inner[node], strict=True)]
