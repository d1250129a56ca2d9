"""A list of bindings in the making: what it holds becomes a chain of ``Let``s around a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.errors import ArgumentError, InternalError
from pullback.relay.expr import Expr, Let, Var, as_expr
from pullback.relay.ty import Type


class LetList:
    """Bindings in order.

    >>> from pullback.relay.expr import const
    >>> bindings = LetList()
    >>> one = bindings.push(const(1.0))
    >>> let = bindings.get(one)
    >>> let.variable is one, let.body is one
    (True, True)
    """

    def __init__(self) -> None:
        self._bindings: list[tuple[Var, Expr]] = []
        self._used = False

    def push(self, value: Any, to: Var | Type | str | None = None) -> Var:
        """Bind ``value`` to the variable ``to``, or to a new one, of that type or of that name; returns the variable.

        Raises ArgumentError where ``to`` is nothing of these.
        """
        variable = _variable(to)
        self._bindings.append((variable, as_expr(value)))
        return variable

    def get(self, body: Any) -> Expr:
        """The bindings around ``body``: once, since variables are bound once."""
        if self._used:
            raise InternalError("the bindings of a LetList are taken once")
        self._used = True
        result = as_expr(body)
        for variable, value in reversed(self._bindings):
            result = Let(variable, value, result, span=value.span)
        return result

    def __len__(self) -> int:
        return len(self._bindings)

    @staticmethod
    def with_(body: Callable[[LetList], Any]) -> Expr:
        """What ``body`` returns inside the bindings that it pushes to its argument."""
        bindings = LetList()
        return bindings.get(body(bindings))


def _variable(to: Any) -> Var:
    if isinstance(to, Var):
        return to
    if isinstance(to, str):
        return Var(to)
    if to is None or isinstance(to, Type):
        return Var("x", to)
    raise ArgumentError(
        f"a value is bound to a variable, not to {type(to).__name__}", hint="give a relay.Var, or a type"
    )
