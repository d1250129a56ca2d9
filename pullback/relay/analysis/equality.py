"""Equality of expressions and types up to the names of what they bind, under the reference's names."""

from __future__ import annotations

from typing import Any

from pullback.ir.node import assert_structural_equal, structural_equal


def alpha_equal(a: Any, b: Any) -> bool:
    """Whether two expressions or types are the same but for the variables that they bind: free ones are the same.

    >>> from pullback.relay.expr import Function, var
    >>> x, y = var("x", shape=()), var("y", shape=())
    >>> alpha_equal(Function((x,), x), Function((y,), y)), alpha_equal(x, y)
    (True, False)
    """
    return a is b or structural_equal(a, b, map_free_vars=False)


def graph_equal(a: Any, b: Any) -> bool:
    """:func:`alpha_equal`, where free variables correspond one to one, too."""
    return structural_equal(a, b)


def assert_alpha_equal(a: Any, b: Any) -> None:
    """Raise ``ValueError`` unless :func:`alpha_equal`, with the first place where they differ."""
    assert_structural_equal(a, b, map_free_vars=False)


def assert_graph_equal(a: Any, b: Any) -> None:
    """Raise ``ValueError`` unless :func:`graph_equal`, with the first place where they differ."""
    assert_structural_equal(a, b)
