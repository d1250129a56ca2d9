"""Whether an expression is in basic-block normal form, and whether it is a constant."""

from __future__ import annotations

import itertools
from typing import Any

from pullback.relay.adt import Match
from pullback.relay.expr import Constant, Expr, Function, If, Let, Tuple
from pullback.relay.visitor import children


def _edges(node: Any) -> list[tuple[Any, bool]]:
    """What is inside, and whether it is a block of its own."""
    if isinstance(node, Function):
        return [(node.body, True)]
    if isinstance(node, If):
        return [(node.cond, False), (node.true_branch, True), (node.false_branch, True)]
    if isinstance(node, Match):
        return [(node.data, False), *((clause.rhs, True) for clause in node.clauses)]
    if isinstance(node, Let):
        return [(node.value, False), (node.body, False)]
    return [(child, False) for child in children(node)]


def _uses_first(expr: Any) -> list[Any]:
    """The nodes in an order in which all that use a node come before it."""
    order: list[Any] = []
    seen: set[Any] = set()
    pending: list[tuple[Any, bool]] = [(expr, False)]
    while pending:
        node, done = pending.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            pending.append((node, True))
            pending.extend((child, False) for child, _ in _edges(node))
    return order[::-1]


def check_basic_block_normal_form(expr: Expr) -> bool:
    """Whether what is computed outside of a block (the body of a function, a branch, the right side of a clause) is
    bound by a ``Let`` where a block uses it.

    That is so unless a node is used in two blocks, or in one and outside of it, without being bound.

    >>> from pullback.relay.expr import const, var
    >>> x = var("x", shape=())
    >>> y = x + const(1.0)
    >>> check_basic_block_normal_form(If(var("c", "bool"), y, y))
    False
    """
    blocks = itertools.count(1)
    block_of = {expr: 0}  # in which a node is used
    for node in _uses_first(expr):
        for child, opens in _edges(node):
            if not children(child):
                continue  # an atom
            here = next(blocks) if opens else block_of[node]
            if block_of.setdefault(child, here) != here:
                return False
    return True


def check_constant(expr: Any) -> bool:
    """Whether an expression is a constant, or a tuple of such."""
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Tuple):
            pending.extend(node.fields)
        elif not isinstance(node, Constant):
            return False
    return True
