"""Attributes of operators: what is known of an operator beside its definition, by keys, with levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.arguments import whole
from pullback.ir.errors import ArgumentError
from pullback.relay.op.registry import Op, get

GRADIENT = "FPrimalGradient"
_LEVEL = 10

_attributes: dict[tuple[str, str], tuple[int, Any]] = {}  # by the operator's name and the key: level and value


def set_attribute(name: str, key: str, value: Any, level: int = _LEVEL) -> None:
    """Give an operator an attribute, unless it has one of a higher level. It need not be defined yet."""
    level = whole("level", level)
    if level >= _attributes.get((name, key), (level, None))[0]:
        _attributes[name, key] = level, value


def attribute(op: Op, key: str) -> Any:
    """The operator's attribute; None where it has none."""
    return _attributes.get((op.name, key), (0, None))[1]


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = _LEVEL) -> Any:
    """Give the operator of that name an attribute; without ``value`` a decorator. What was registered with a lower
    level, or the same one, is replaced.

    Raises NameNotFound when there is no such operator.
    """
    get(op_name)

    def register(given: Any) -> Any:
        set_attribute(op_name, attr_key, given, level)
        return given

    return register if value is None else register(value)


def register_gradient(op_name: str, fgradient: Callable[..., Any] | None = None, level: int = _LEVEL) -> Any:
    """Give an operator a gradient rule; without ``fgradient`` a decorator.

    ``fgradient(orig, grad)`` gets the call and the adjoint of its result, and returns a list of expressions: for each
    argument the adjoint, of the argument's type; for an argument that is a tuple, a tuple. ``orig.args`` have
    ``checked_type``, and ``orig`` stands for the result. For several results ``grad`` is a tuple. A rule replaces those
    of lower levels and of the same one, in gradients that are taken from then on.

    >>> @register_gradient("nn.leaky_relu")
    ... def rule(orig, grad):
    ...     x = orig.args[0]
    ...     slope = const(orig.attrs.alpha, x.checked_type.dtype)
    ...     return [where(less(x, zeros_like(x)), grad * slope, grad)]

    Raises NameNotFound when there is no such operator.
    """
    if fgradient is not None and not callable(fgradient):
        hint = "write register_gradient(name, rule), or @register_gradient(name) above the rule"
        raise ArgumentError(f"a gradient rule is a function, not {type(fgradient).__name__}", hint=hint)
    return register_op_attr(op_name, GRADIENT, fgradient, level)


def registered_gradients() -> list[str]:
    """The names of the operators with a rule of their own."""
    return sorted(name for name, key in _attributes if key == GRADIENT)
