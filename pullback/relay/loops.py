"""Loops, as functions that call themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.errors import ArgumentError
from pullback.relay.expr import Expr, Function, Let, Tuple, Var
from pullback.relay.scope_builder import ScopeBuilder


def while_loop(cond: Callable[..., Any], loop_vars: Sequence[Any], loop_bodies: Callable[..., Any]) -> Expr:
    """A function that runs a loop: called with the first values of the loop's variables, it returns the tuple of their
    last ones.

    ``cond`` and ``loop_bodies`` are functions of Python, of the variables: the condition, a scalar bool, and a list of
    the next values. ``loop_vars`` are variables, or expressions, that have the types of the loop's.

    >>> from pullback.relay.expr import const, var
    >>> i = var("i", shape=(), dtype="int32")
    >>> loop = while_loop(lambda i: i < const(10), [i], lambda i: [i + const(1)])
    >>> last = loop(const(0))  # evaluates to the tuple (10,)
    """
    builder = ScopeBuilder()
    loop = Var("while_loop")
    variables = [Var(_name(v, i), builder.type_of(v)) for i, v in enumerate(loop_vars)]
    with builder.if_scope(cond(*variables)):
        builder.ret(loop(*_values(loop_bodies(*variables), len(variables))))
    with builder.else_scope():
        builder.ret(Tuple(tuple(variables)))
    return Let(loop, Function(tuple(variables), builder.get()), loop)


def _values(found: Any, count: int) -> list[Any]:
    """The values that a loop's body returned, of which there are to be so many."""
    try:
        values = list(found)
    except TypeError:
        values = None
    if values is None or len(values) != count:
        got = type(found).__name__ if values is None else f"{len(values)} of them"
        message = f"loop_bodies returns a list of the {count} next values, got {got}"
        raise ArgumentError(message, hint="as many as there are loop_vars")
    return values


def _name(value: Any, index: int) -> str:
    return value.name_hint if isinstance(value, Var) else f"arg{index}"
