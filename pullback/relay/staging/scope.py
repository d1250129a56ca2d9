"""Scopes: what variables and nodes are in a call of a function, or in a branch of it."""

from __future__ import annotations

from typing import Any

from pullback.relay.evaluate.graph import Uses
from pullback.relay.expr import If, Var
from pullback.relay.staging.errors import HINT, NotDataflow

MOST_NESTED = 50  # branches inside of one another


class Scope:
    """The values of variables and nodes in one call of a function, or in one branch; those around it are seen too."""

    __slots__ = ("branches", "effects", "isolated", "outer", "uses", "values")

    def __init__(self, uses: Uses, outer: Scope | None = None, isolated: bool = False) -> None:
        self.uses, self.outer, self.isolated = uses, outer, isolated
        self.values: dict[Any, Any] = {}
        self.branches: tuple[tuple[If, bool], ...] = ()  # in which it is, of its function
        self.effects: dict[Any, tuple[tuple[If, bool], ...]] = {}  # nodes with effects: the branches they were in

    def branch(self, choice: If, taken: bool) -> Scope:
        """The scope of a branch, of which one runs when the program does."""
        if len(self.branches) >= MOST_NESTED:
            message = f"branches are nested more than {MOST_NESTED} levels deep"
            raise NotDataflow(message, span=choice.span, hint=HINT)
        inside = Scope(self.uses, self)
        inside.branches, inside.effects = (*self.branches, (choice, taken)), self.effects
        return inside

    def check_once(self, node: Any) -> None:
        """Raise NotDataflow where a node with effects was computed in a branch, and is needed outside of it: whether it
        is to be computed then, only running tells."""
        before = self.effects.get(node)
        if before is not None and all((choice, not taken) not in self.branches for choice, taken in before):
            message = "reference: what a branch has done with one is needed outside of the branch"
            raise NotDataflow(message, span=node.span, hint=HINT)

    def find(self, node: Any) -> Any:
        """What the node is known to be, or None."""
        scope: Scope | None = self
        only_variables = False
        while scope is not None:
            if not only_variables or isinstance(node, Var):
                found = scope.values.get(node)
                if found is not None:
                    return found
            only_variables = only_variables or scope.isolated
            scope = scope.outer
        return None
