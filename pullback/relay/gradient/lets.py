"""A list of ``Let`` bindings under construction: how generated code is written."""

from __future__ import annotations

from typing import Any

from pullback.relay.expr import (
    Expr,
    Let,
    Var,
    set_checked_type,
)
from pullback.relay.ty import Type


class Lets:
    """Bindings of one scope, in order."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Var, Any]] = []

    def bind(self, variable: Var, value: Any) -> Var:
        self.bindings.append((variable, value))
        return variable

    def push(self, value: Any, type_: Type | None = None, name: str = "x") -> Var:
        """A new variable with this value; a variable is its own. ``type_``: what is known to be its type."""
        if isinstance(value, Var):
            return value
        variable = self.bind(Var(name), value)
        if type_ is not None:
            set_checked_type(variable, type_)
        return variable

    def around(self, body: Any) -> Expr:
        """The body, in which the bindings hold."""
        for variable, value in reversed(self.bindings):
            body = Let(variable, value, body)
        return body
