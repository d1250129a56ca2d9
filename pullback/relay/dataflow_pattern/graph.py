"""Which expressions use which, and which every use passes through."""

from __future__ import annotations

from typing import Any

from pullback.relay.visitor import children, post_order


class DataflowGraph:
    """The graph of an expression. ``users`` of a node are the nodes right around it.

    A node *dominates* another one where all ways from that to the whole expression lead through it.
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.nodes = list(post_order(root))
        self.users: dict[Any, list[Any]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for child in dict.fromkeys(children(node)):
                self.users[child].append(node)
        self._above: dict[Any, Any] = {}  # the nearest node that dominates it
        self._depth: dict[Any, int] = {}
        for node in reversed(self.nodes):
            self._above[node] = above = self._common(self.users[node])
            self._depth[node] = 0 if above is None else self._depth[above] + 1

    def _common(self, nodes: list[Any]) -> Any:
        """The nearest node that dominates all of these, or is one of them."""
        if not nodes:
            return None
        found = nodes[0]
        for node in nodes[1:]:
            while node is not found:
                if self._depth[node] > self._depth[found]:
                    node = self._above[node]
                else:
                    found = self._above[found]
        return found

    def dominates(self, node: Any, other: Any) -> bool:
        """Whether ``node`` dominates ``other``, or is it."""
        while self._depth[other] > self._depth[node]:
            other = self._above[other]
        return other is node
