"""Reverse-mode differentiation of relay's functions."""

from pullback.relay.gradient.generic import generic_gradient
from pullback.relay.op.gradient_rules import register_gradient

__all__ = ["generic_gradient", "register_gradient"]
