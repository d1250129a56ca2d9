"""Whole numbers as values and expressions of the data type ``nat`` of ``nat.rly``."""

from __future__ import annotations

from pullback.ir.errors import ArgumentError
from pullback.relay.evaluate.values import ConstructorValue
from pullback.relay.expr import Expr
from pullback.relay.prelude import NAT, Prelude


def add_nat_definitions(prelude: Prelude) -> None:
    """Add ``nat.rly`` to the prelude's module."""
    prelude.mod.import_from_std(NAT)


def count(prelude: Prelude, n: ConstructorValue) -> int:
    """The number that a value of ``nat`` is."""
    zero, successor = _constructors(prelude)
    found = 0
    while n.constructor == successor:
        n = n.fields[0]
        found += 1
    if n.constructor != zero:
        raise ArgumentError(f"{n!r} is no value of nat", hint="make_nat_value(prelude, 3) makes one")
    return found


def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """The value of ``nat`` that is ``n``."""
    zero, successor = _constructors(prelude)
    value = ConstructorValue(zero.tag, [], zero)
    for _ in range(_checked(n)):
        value = ConstructorValue(successor.tag, [value], successor)
    return value


def make_nat_expr(prelude: Prelude, n: int) -> Expr:
    """An expression whose value is ``n`` as a ``nat``."""
    zero, successor = _constructors(prelude)
    expr = zero()
    for _ in range(_checked(n)):
        expr = successor(expr)
    return expr


def _constructors(prelude: Prelude) -> tuple:
    _, zero, successor = prelude.mod.get_type("nat")
    return zero, successor


def _checked(n: int) -> int:
    if n < 0:
        raise ArgumentError(f"a nat is not negative, got {n}")
    return n
