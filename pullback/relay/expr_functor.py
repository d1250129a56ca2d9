"""Traversals of expressions, under the reference's name: they are those of ``visitor.py``."""

from pullback.relay.visitor import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]
