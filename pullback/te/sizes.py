"""Sizes that a program leaves open, as variables."""

from __future__ import annotations

from pullback.tir.expr import Var


def var(name: str = "tindex", dtype: str = "int32") -> Var:
    """A new scalar variable.

    >>> n = var("n")
    """
    return Var(name, dtype)


def size_var(name: str = "size", dtype: str = "int32") -> Var:
    """A new variable for a size, which is not negative."""
    return Var(name, dtype)
