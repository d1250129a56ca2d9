"""Functions inside functions become functions of the module."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.relay.expr import Function
from pullback.relay.transform import LambdaLift
from pullback.relay.visitor import post_order
from tests.relay.texts import becomes, gives, module


def inside(function: Function) -> list[Function]:
    return [n for n in post_order(function.body) if isinstance(n, Function)]


def test_what_is_captured_becomes_parameters() -> None:
    before = "def @main(%x: float32) { let %f = fn (%y: float32) { add(%x, %y) }; %f(%f(1f)) }"
    expected = """
    def @main(%x: float32) { let %f = @lifted_name(%x); %f(%f(1f)) }
    def @lifted_name(%x: float32, Closure=1) -> fn (float32) -> float32 { fn (%y: float32) -> float32 { add(%x, %y) } }
    """
    becomes(LambdaLift(), before, expected)


def test_what_captures_nothing_is_a_function_of_the_module() -> None:
    before = "def @main(%x: float32) { let %f = fn (%y: float32) { exp(%y) }; %f(%x) }"
    expected = """
    def @main(%x: float32) { let %f = @lifted_name; %f(%x) }
    def @lifted_name(%y: float32) -> float32 { exp(%y) }"""
    becomes(LambdaLift(), before, expected)


def test_a_function_that_calls_itself() -> None:
    before = """def @main(%x: float32) {
      let %loop = fn (%i: int32, %s: float32) -> float32 {
        if (less(%i, 10)) { %loop(add(%i, 1), add(%s, %x)) } else { %s }
      };
      %loop(0, 0f)
    }"""
    expected = """
    def @main(%x: float32) { let %loop = @lifted_name(%x); %loop(0, 0f) }
    def @lifted_name(%x: float32, Closure=1) -> fn (int32, float32) -> float32 {
      fn (%i: int32, %s: float32) -> float32 {
        if (less(%i, 10)) { @lifted_name(%x)(add(%i, 1), add(%s, %x)) } else { %s }
      }
    }"""
    after = becomes(LambdaLift(), before, expected)
    assert gives(after, np.float32(2)) == 20


def test_polymorphic_functions() -> None:
    before = "def @main[A](%x: A, %f: fn (A) -> A) -> A { let %g = fn (%y: A) { %f(%y) }; %g(%g(%x)) }"
    expected = """
    def @main[A](%x: A, %f: fn (A) -> A) -> A { let %g = @lifted_name(%f); %g(%g(%x)) }
    def @lifted_name[A](%f: fn (A) -> A, Closure=1) -> fn (A) -> A { fn (%y: A) -> A { %f(%y) } }"""
    becomes(LambdaLift(), before, expected)


PROGRAMS = {
    "functions in functions": """
      let %f = fn (%y: float32) { let %g = fn (%z: float32) { add(%z, multiply(%x, %y)) }; %g(%g(%y)) };
      %f(%f(2f))""",
    "a function inside one that calls itself": """
      let %f = fn (%n: int32, %y: float32) -> float32 {
        let %g = fn (%z: float32) { %f(subtract(%n, 1), multiply(%z, %x)) };
        if (less(%n, 1)) { %y } else { %g(%g(%y)) }
      };
      %f(3, 1.1f)""",
    "what is shared with the code around": """
      %0 = exp(%x);
      %1 = fn (%y: float32) { add(%0, %y) };
      multiply(%1(%0), %0)""",
    "cells": """
      let %r = ref(%x);
      let %f = fn (%y: float32) { ref_write(%r, add(multiply(ref_read(%r), 2f), %y)) };
      let %u = %f(3f);
      let %v = %f(4f);
      ref_read(%r)""",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_programs_give_what_they_gave(what: str) -> None:
    before = module(f"def @main(%x: float32) {{ {PROGRAMS[what]} }}")
    after = LambdaLift()(before)
    assert gives(after, np.float32(1.5)) == gives(before, np.float32(1.5))
    for function in after.functions.values():
        assert len(inside(function)) == int(bool(function.attrs.get("Closure")))


def test_names_that_are_taken() -> None:
    before = "def @lifted_name(%x: float32) { %x } def @main(%x: float32) { fn (%y: float32) { %y }(@lifted_name(%x)) }"
    assert set(LambdaLift()(module(before)).functions) == {"lifted_name", "lifted_name_1", "main"}
