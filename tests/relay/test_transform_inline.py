"""Marked functions become part of their callers."""

from __future__ import annotations

import numpy as np

from pullback import relay
from pullback.ir import IRModule
from pullback.relay.expr import Call, Function, GlobalVar, Var
from pullback.relay.transform import InferType, Inline
from tests.relay.texts import becomes, gives, module, stays

F = "def @f(%y: float32, Inline=1) -> float32 { exp(%y) }"


def test_calls_become_bodies_and_the_function_goes() -> None:
    before = f"{F} def @main(%x: float32) {{ add(@f(%x), @f(multiply(%x, %x))) }}"
    becomes(Inline(), before, "def @main(%x: float32) { add(exp(%x), exp(multiply(%x, %x))) }")


def test_functions_without_a_mark_stay() -> None:
    stays(Inline(), "def @f(%y: float32) -> float32 { exp(%y) } def @main(%x: float32) { @f(%x) }")
    stays(Inline(), "def @f(%y: float32, Inline=0) -> float32 { exp(%y) } def @main(%x: float32) { @f(%x) }")


def test_marked_functions_in_marked_functions() -> None:
    before = f"""{F}
    def @g(%y: float32, Inline=1) -> float32 {{ log(@f(%y)) }}
    def @h(%y: float32) -> float32 {{ @g(%y) }}
    def @main(%x: float32) {{ add(@h(%x), @f(%x)) }}"""
    expected = """
    def @h(%y: float32) -> float32 { log(exp(%y)) }
    def @main(%x: float32) { add(@h(%x), exp(%x)) }"""
    becomes(Inline(), before, expected)


def test_functions_that_call_themselves_or_that_nobody_calls_stay() -> None:
    text = """
    def @loop(%n: int32, Inline=1) -> int32 { if (less(%n, 1)) { %n } else { @loop(subtract(%n, 1)) } }
    def @even(%n: int32, Inline=1) -> int32 { @odd(%n) }
    def @odd(%n: int32, Inline=1) -> int32 { @even(%n) }
    def @alone(%n: int32, Inline=1) -> int32 { %n }
    def @main(%n: int32) { add(@loop(%n), @even(%n)) }"""
    stays(Inline(), text)


def test_what_is_handed_on_becomes_a_function() -> None:
    before = f"{F} def @main(%x: float32) {{ let %g = @f; %g(%x) }}"
    expected = "def @main(%x: float32) { let %g = fn (%y: float32, Inline=1) -> float32 { exp(%y) }; %g(%x) }"
    becomes(Inline(), before, expected)


def test_an_argument_that_is_used_twice_is_computed_once() -> None:
    before = """
    def @square(%y: float32, Inline=1) -> float32 { multiply(%y, %y) }
    def @main(%x: float32) { @square(exp(%x)) }"""
    becomes(Inline(), before, "def @main(%x: float32) { %0 = exp(%x); multiply(%0, %0) }")


def test_effects_of_arguments_happen_once_and_before_the_body() -> None:
    before = """
    def @first(%a: float32, %b: (), Inline=1) -> float32 { %a }
    def @main(%r: ref(float32)) { add(@first(ref_read(%r), ref_write(%r, 2f)), ref_read(%r)) }"""
    expected = """
    def @main(%r: ref(float32)) {
      add({ let %a = ref_read(%r); let %b = ref_write(%r, 2f); %a }, ref_read(%r))
    }"""
    becomes(Inline(), before, expected)


def test_bound_variables_are_new_at_each_place() -> None:
    before = """
    def @f(%y: float32, Inline=1) -> float32 { let %z = exp(%y); multiply(%z, %z) }
    def @main(%x: float32) { add(@f(%x), @f(@f(%x))) }"""
    after = Inline()(module(before))
    assert relay.analysis.well_formed(after["main"])
    np.testing.assert_allclose(gives(after, np.float32(0.1)), gives(module(before), np.float32(0.1)))


def test_polymorphic_functions() -> None:
    before = """
    def @pair[A](%a: A, Inline=1) -> (A, A) { let %f = fn (%b: A) -> (A, A) { (%b, %b) }; %f(%a) }
    def @main(%x: float32) { @pair(%x).0 }"""
    expected = "def @main(%x: float32) { { let %f = fn (%b: float32) -> (float32, float32) { (%b, %b) }; %f(%x) }.0 }"
    becomes(Inline(), before, expected)


def test_functions_for_an_outside_compiler_are_called_as_functions() -> None:
    s = relay.scalar_type("float32")
    x, y = Var("x", s), Var("y", s)
    outside = Function((y,), relay.exp(y), s).with_attr({"Inline": 1, "Compiler": "ext"})
    mod = InferType()(IRModule({"f": outside, "main": Function((x,), Call(GlobalVar("f"), (x,)))}))
    after = Inline()(mod)
    assert list(after.functions) == ["main"]
    assert after["main"].body.op.attrs.Compiler == "ext"
