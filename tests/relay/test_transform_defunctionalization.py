"""Functions as values become data."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir import IRModule
from pullback.ir.errors import ArgumentError
from pullback.relay.expr import Function, Var
from pullback.relay.transform.defunctionalization import Defunctionalization
from pullback.relay.transform.remove_unused_functions import RemoveUnusedFunctions
from pullback.relay.ty import FuncType
from pullback.relay.type_visitor import TypeVisitor
from pullback.relay.visitor import post_order
from tests.relay.texts import gives, module

HEAD = """
type Just[A] { Just(A) }
type List[A] { Nil, Cons(A, List[A]) }
def @simple[A, B](%f: fn (A) -> B, %x: A) -> B { %f(%x) }
def @id[A](%x: A) -> A { %x }
def @map[A, B](%f: fn (A) -> B, %l: List[A]) -> List[B] {
  match (%l) { Nil => Nil, Cons(%x, %rest) => Cons(%f(%x), @map(%f, %rest)) }
}
def @sum(%l: List[float32]) -> float32 { match (%l) { Nil => 0f, Cons(%x, %rest) => add(%x, @sum(%rest)) } }
def @compose[A, B, C](%f: fn (B) -> C, %g: fn (A) -> B) -> fn (A) -> C { fn (%x: A) -> C { %f(%g(%x)) } }
"""


class FunctionsInside(TypeVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_func_type(self, type_: FuncType) -> None:
        self.found = True


def is_first_order(mod: IRModule) -> bool:
    """Whether no variable of what ``main`` reaches holds a function."""
    visitor = FunctionsInside()
    for function in RemoveUnusedFunctions()(mod).functions.values():
        assert not [n for n in post_order(function.body) if isinstance(n, Function)]
        for node in post_order(function):
            if isinstance(node, Var) and node.type_annotation is not None:
                visitor.visit(node.type_annotation)
    return not visitor.found


PROGRAMS = {
    "a function handed on": "@simple(fn (%y: float32) { exp(%y) }, %x)",
    "a polymorphic function handed on": "@simple(fn [A](%y: A) -> A { %y }, %x)",
    "a global function handed on": "@simple(@id, %x)",
    "names of polymorphic functions": """
      let %f = @id;
      let %g = fn [A](%y: A) -> A { %y };
      let %wrap = Just;
      match (@simple(%wrap, @simple(%g, %g(%f(%x))))) { Just(%y) => %f(%y) }""",
    "what a function captures": "let %f = fn (%y: float32) { add(%x, %y) }; @simple(%f, %f(2f))",
    "a function over a list": "@sum(@map(fn (%y: float32) { multiply(%y, %x) }, Cons(1f, Cons(2f, Cons(%x, Nil)))))",
    "a list of functions": """
      let %l = Cons(fn (%y: float32) { exp(%y) }, Cons(fn (%y: float32) { add(%y, %x) }, Nil));
      @sum(@map(fn (%f: fn (float32) -> float32) { %f(%x) }, %l))""",
    "functions that are made": "@compose(fn (%y: float32) { exp(%y) }, fn (%y: float32) { multiply(%y, %x) })(%x)",
    "functions of several types": """
      let %f = @compose(fn (%y: (float32, float32)) { add(%y.0, %y.1) }, fn (%y: float32) { (%y, %x) });
      multiply(%f(3f), @simple(%f, 4f))""",
    "a function that calls itself": """
      let %p = fn (%n: int32, %y: float32) -> float32 {
        if (less(%n, 1)) { %y } else { multiply(%x, %p(subtract(%n, 1), %y)) }
      };
      @simple(fn (%n: int32) { %p(%n, 2f) }, 3)""",
    "a function by a branch": """
      let %f = if (less(%x, 1f)) { fn (%y: float32) { %y } } else { fn (%y: float32) { multiply(%y, %x) } };
      %f(%f(5f))""",
    "a constructor handed on": "@sum(@simple(fn (%y: float32) { Cons(%y, Nil) }, %x))",
    "functions in cells": """
      let %r = ref(fn (%y: float32) { exp(%y) });
      let %u = ref_write(%r, fn (%y: float32) { add(%y, %x) });
      ref_read(%r)(%x)""",
    "what is shared": "%0 = exp(%x); add(@simple(fn (%y: float32) { add(%y, %0) }, %0), %0)",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_programs_give_what_they_gave(what: str) -> None:
    before = module(f"{HEAD} def @main(%x: float32) {{ {PROGRAMS[what]} }}")
    after = before.copy()
    after["main"] = Defunctionalization(before["main"], after)
    for x in (0.5, 1.5):
        assert gives(after, np.float32(x)) == gives(before, np.float32(x))
    assert is_first_order(after)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main[A](%x: A) -> A { %x }", "a polymorphic function cannot be defunctionalized"),
        ("def @main(%f: fn () -> float32) { %f() }", "takes or returns functions"),
        ("def @main(%x: float32) { fn () { %x } }", "takes or returns functions"),
    ],
)
def test_what_cannot_be_encoded_is_refused(text: str, message: str) -> None:
    mod = module(text)
    with pytest.raises(ArgumentError, match=message):
        Defunctionalization(mod["main"], mod)
