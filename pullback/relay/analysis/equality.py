"""Equality of expressions and types up to the names of what they bind."""

from __future__ import annotations

from typing import Any

from pullback.ir.node import assert_structural_equal, structural_equal
from pullback.relay.analysis.variables import free_type_vars, free_vars
from pullback.relay.ty import Type


def alpha_equal(a: Any, b: Any) -> bool:
    """Whether two expressions or types are the same but for the variables that they bind: free ones are the same.

    >>> from pullback.relay.expr import Function, var
    >>> x, y = var("x", shape=()), var("y", shape=())
    >>> alpha_equal(Function((x,), x), Function((y,), y)), alpha_equal(x, y)
    (True, False)
    """
    return a is b or (structural_equal(a, b) and _free(a) == _free(b))


def _free(node: Any) -> list[Any]:
    return free_type_vars(node) if isinstance(node, Type) else [*free_vars(node), *free_type_vars(node)]


def graph_equal(a: Any, b: Any) -> bool:
    """:func:`alpha_equal`, where free variables correspond one to one, too: :func:`pullback.ir.structural_equal`."""
    return structural_equal(a, b)


def assert_alpha_equal(a: Any, b: Any) -> None:
    """Raise ``ValueError`` unless :func:`alpha_equal`, with the first place where they differ."""
    assert_structural_equal(a, b)
    if not alpha_equal(a, b):
        names = [", ".join(v.name for v in _free(node)) for node in (a, b)]
        raise ValueError(f"the free variables differ: {names[0]} against {names[1]}\n--- left\n{a}\n--- right\n{b}")


def assert_graph_equal(a: Any, b: Any) -> None:
    """Raise ``ValueError`` unless :func:`graph_equal`, with the first place where they differ."""
    assert_structural_equal(a, b)
