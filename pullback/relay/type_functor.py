"""Traversals of types, under the reference's name: they are those of ``type_visitor.py``."""

from pullback.relay.type_visitor import TypeFunctor, TypeMutator, TypeVisitor

__all__ = ["TypeFunctor", "TypeMutator", "TypeVisitor"]
