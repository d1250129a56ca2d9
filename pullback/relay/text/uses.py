"""How often the nodes of an expression are used."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pullback.relay import adt
from pullback.relay import expr as relay


def uses(root: Any) -> Counter[int]:
    """For each node below ``root``, by identity, how many places use it."""
    count: Counter[int] = Counter()
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for child in children(node):
            count[id(child)] += 1
            pending.append(child)
    return count


def children(node: Any) -> tuple[Any, ...]:
    """The expressions that a node is made of, in the order of evaluation."""
    if isinstance(node, relay.Call):
        return (*node.args, node.op)
    if isinstance(node, relay.Tuple):
        return node.fields
    if isinstance(node, relay.TupleGetItem):
        return (node.tuple_value,)
    if isinstance(node, relay.Let):
        return (node.value, node.body)
    if isinstance(node, relay.If):
        return (node.cond, node.true_branch, node.false_branch)
    if isinstance(node, relay.Function):
        return (node.body,)
    if isinstance(node, (relay.RefCreate, relay.RefRead, relay.RefWrite)):
        return (node.value,) if isinstance(node, relay.RefCreate) else (node.ref, *_written(node))
    if isinstance(node, adt.Match):
        return (node.data, *(clause.rhs for clause in node.clauses))
    return ()


def _written(node: Any) -> tuple[Any, ...]:
    return (node.value,) if isinstance(node, relay.RefWrite) else ()
