"""Lists of bindings in the making."""

from __future__ import annotations

import pytest

from pullback import relay
from pullback.ir import assert_structural_equal
from pullback.ir.errors import ArgumentError, InternalError
from pullback.relay.expr import Let, Var
from pullback.relay.let_list import LetList


def test_bindings_come_in_order_around_the_body() -> None:
    x, y = Var("x", relay.scalar_type("float32")), Var("y")
    bindings = LetList()
    first = bindings.push(relay.exp(x))
    assert bindings.push(first + x, y) is y
    third = bindings.push(relay.const(1), relay.scalar_type("int32"))
    assert third.type_annotation == relay.scalar_type("int32")
    assert bindings.push(third, "named").name_hint == "named"
    assert len(bindings) == 4
    a, b, c, d = (Var(n) for n in "abcd")
    c = Var("c", relay.scalar_type("int32"))
    expected = Let(a, relay.exp(x), Let(b, a + x, Let(c, relay.const(1), Let(d, c, relay.Tuple((b, c))))))
    assert_structural_equal(bindings.get(relay.Tuple((y, third))), expected, map_free_vars=True)


def test_with_gives_the_whole() -> None:
    made = LetList.with_(lambda bindings: bindings.push(relay.const(1)))
    assert isinstance(made, Let)
    assert made.body is made.variable


def test_what_is_no_variable_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a value is bound to a variable, not to int"):
        LetList().push(relay.const(1), 3)


def test_bindings_are_taken_once() -> None:
    bindings = LetList()
    bindings.get(bindings.push(relay.const(1)))
    with pytest.raises(InternalError, match="taken once"):
        bindings.get(relay.const(2))
