"""Joining what two branches give: the leaves are results of the ``If``, and the rest stands around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback import relax
from pullback.relay.evaluate.values import Data
from pullback.relay.staging.errors import HINT, Unjoinable
from pullback.relay.staging.values import construct


class Undecided:
    """What a reference holds after branches that cannot be joined: to read it is an error."""

    __slots__ = ("message", "span")

    def __init__(self, error: Unjoinable) -> None:
        self.message, self.span = error.message, error.span


def joined_content(one: Any, two: Any, ones: list[Any], twos: list[Any], span: Any, last: bool) -> Callable[[Any], Any]:
    """:func:`joined` of what a reference holds; with ``last`` it may be undecided."""
    own: tuple[list[Any], list[Any]] = ([], [])
    try:
        shape = joined(one, two, *own, span)
    except Unjoinable as error:
        if not last:
            raise
        undecided = Undecided(error)
        return lambda results: undecided
    ones += own[0]
    twos += own[1]
    return shape


def joined(one: Any, two: Any, ones: list[Any], twos: list[Any], span: Any) -> Callable[[Any], Any]:
    """The leaves of what two branches give, and a function that puts the results back in their places."""
    if isinstance(one, tuple) and isinstance(two, tuple) and len(one) == len(two):
        parts = [joined(a, b, ones, twos, span) for a, b in zip(one, two, strict=True)]
        return lambda results: tuple([part(results) for part in parts])
    if isinstance(one, Data) and isinstance(two, Data) and one.tag == two.tag:
        fields = joined(tuple(one.fields), tuple(two.fields), ones, twos, span)
        tag, constructor = one.tag, one.constructor
        return lambda results: Data(tag, fields(results), constructor)
    if isinstance(one, relax.Expr) and isinstance(two, relax.Expr):
        if one is two and isinstance(one, relax.Constant):
            return lambda results: one
        ones.append(one)
        twos.append(two)
        return next
    if one is two:
        return lambda results: one
    odd = next((v for v in (one, two) if not isinstance(v, (relax.Expr, tuple))), one)
    message = f"{construct(odd)}: the branches of an if choose one of two, by the value of a tensor"
    raise Unjoinable(message, span=span, hint=HINT)
