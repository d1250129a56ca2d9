"""An element whose parts are used again and again: as a tree it may be exponentially larger than it is.

    y = x[i]; 30 times: y = y * y + y        →        30 tensors, of which each reads the one before

Passes look at expressions as trees, so the parts that make a tree large become tensors of their own, as they would be
if they had been written as ops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from pullback.ir.depth import deep
from pullback.tir.expr import PrimExpr
from pullback.tir.visitor import Mutator, children, distinct

LARGE = 2000  # nodes of a tree
FACTOR = 4  # times as many nodes as there are
SMALL = 4  # nodes of a part that may be written out


@deep
def with_parts_apart(body: PrimExpr, apart: Callable[[PrimExpr], PrimExpr]) -> PrimExpr:
    """The element with ``apart(part)``, the load of a tensor, for each part that it has several times, if it is large
    as a tree."""
    order = list(distinct(body))
    sizes = _tree_sizes(order)
    if sizes[id(body)] <= max(LARGE, FACTOR * len(order)):
        return body
    uses = Counter(id(child) for node in order for child in children(node))
    wanted = {id(n) for n in order if uses[id(n)] > 1 and sizes[id(n)] > SMALL}
    return _Apart(wanted, apart).expr(body)


def _tree_sizes(order: list[PrimExpr]) -> dict[int, int]:
    """How many nodes each node has as a tree."""
    sizes: dict[int, int] = {}
    for root in order:
        stack = [root]
        while stack:
            node = stack[-1]
            missing = [c for c in children(node) if id(c) not in sizes]
            if missing:
                stack += missing
            else:
                sizes[id(node)] = 1 + sum(sizes[id(c)] for c in children(node))
                stack.pop()
    return sizes


class _Apart(Mutator):
    def __init__(self, wanted: set[int], apart: Callable[[PrimExpr], PrimExpr]) -> None:
        super().__init__()
        self.wanted, self.apart = wanted, apart

    def _expr(self, node: PrimExpr) -> PrimExpr:
        result = super()._expr(node)
        return self.apart(result) if id(node) in self.wanted else result
