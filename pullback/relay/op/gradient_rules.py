"""Registering the gradients of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relay.op.registry import Op
from pullback.relay.op.user import register_attr

GRADIENT = "FPrimalGradient"


def register_gradient(op_name: str, fgradient: Callable[..., Any] | None = None, level: int = 10) -> Any:
    """Give an operator a gradient rule; without ``fgradient`` a decorator.

    ``fgradient(orig, grad)`` gets the call and the adjoint of its result, and returns a list of expressions: for each
    argument the adjoint, of the argument's type; for an argument that is a tuple, a tuple. ``orig.args`` have
    ``checked_type``, and ``orig`` stands for the result. For several results ``grad`` is a tuple. A rule replaces those
    of lower levels and of the same one, in gradients that are taken from then on.

    >>> from pullback import relay
    >>> @register_gradient("sign")
    ... def straight_through(orig, grad):
    ...     return [grad]

    Raises NameNotFound when there is no such operator.
    """
    if fgradient is not None and not callable(fgradient):
        hint = "write register_gradient(name, rule), or @register_gradient(name) above the rule"
        raise ArgumentError(f"a gradient rule is a function, not {type(fgradient).__name__}", hint=hint)
    return register_attr(op_name, GRADIENT, fgradient, level)


def gradient_rule(op: Op) -> Callable[..., Any] | None:
    """The operator's own gradient rule; None where it has none."""
    return op.get_attr(GRADIENT)
