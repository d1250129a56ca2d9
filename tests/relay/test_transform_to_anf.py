"""A-normal form: exact results, what is shared and where it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback import relay
from pullback.ir import IRModule, assert_structural_equal, structural_equal
from pullback.relay.expr import Call, Expr, Function, If, Let, Var
from pullback.relay.transform import InferType, ToANormalForm, ToGraphNormalForm
from pullback.relay.transform.to_anf import to_anf
from tests.relay.texts import becomes, gives, module

S = relay.scalar_type("float32")


def check(before: Any, expected: Any) -> None:
    assert_structural_equal(to_anf(before), expected)


def lets(*bindings: tuple[Var, Expr], body: Expr) -> Expr:
    for variable, value in reversed(bindings):
        body = Let(variable, value, body)
    return body


def test_values_are_bound_in_post_order_constants_too() -> None:
    one, two, three = relay.const(1), relay.const(2), relay.const(3)
    a, b, c, d, e = (relay.var(name) for name in "abcde")
    check(one + two * three, lets((a, one), (b, two), (c, three), (d, b * c), (e, a + d), body=e))


def test_a_branch_keeps_its_own_values() -> None:
    cond, two, three = relay.const(True), relay.const(2), relay.const(3)
    a, b, c, d = (relay.var(name) for name in "abcd")
    branches = If(c, Let(a, two, a), Let(b, three, b))
    check(If(cond, two, three), lets((c, cond), (d, branches), body=d))


def test_what_both_branches_need_is_computed_before_them() -> None:
    before = "def @main(%c: bool, %x: float32) { %0 = exp(%x); if (%c) { %0 } else { multiply(%0, %x) } }"
    expected = """def @main(%c: bool, %x: float32) {
      let %a = exp(%x);
      let %b = if (%c) { %a } else { let %d = multiply(%a, %x); %d };
      %b
    }"""
    becomes(ToANormalForm(), before, expected)


def test_what_is_shared_in_a_branch_of_a_branch_is_bound_in_the_outer_one() -> None:
    before = """def @main(%c: bool, %x: float32) {
      if (%c) {
        %0 = exp(%x);
        if (%c) { log(%0) } else { %0 }
      } else { %x }
    }"""
    expected = """def @main(%c: bool, %x: float32) {
      let %r = if (%c) {
        let %a = exp(%x);
        let %b = if (%c) { let %d = log(%a); %d } else { %a };
        %b
      } else { %x };
      %r
    }"""
    becomes(ToANormalForm(), before, expected)


def test_functions_keep_what_only_they_need() -> None:
    before = """def @main(%x: float32) {
      %0 = exp(%x);
      %1 = fn (%y: float32) { add(multiply(%y, %y), %0) };
      add(%1(%0), %1(%x))
    }"""
    expected = """def @main(%x: float32) {
      let %a = exp(%x);
      let %f = fn (%y: float32) { let %p = multiply(%y, %y); let %q = add(%p, %a); %q };
      let %u = %f(%a);
      let %v = %f(%x);
      let %w = add(%u, %v);
      %w
    }"""
    becomes(ToANormalForm(), before, expected)


def test_lets_are_flat_and_keep_their_variables() -> None:
    before = """def @main(%x: float32) {
      let %a = { let %b = exp(%x); add(%b, %b) };
      let %c = %a;
      multiply(%a, %c)
    }"""
    expected = """def @main(%x: float32) {
      let %b = exp(%x);
      let %a = add(%b, %b);
      let %c = %a;
      let %d = multiply(%a, %c);
      %d
    }"""
    after = becomes(ToANormalForm(), before, expected)
    assert after["main"].body.variable.name_hint == "b"


def test_effects_stay_in_order() -> None:
    before = """def @main(%x: float32) {
      let %r = ref(%x);
      let %u = ref_write(%r, multiply(ref_read(%r), %x));
      add(ref_read(%r), %x)
    }"""
    expected = """def @main(%x: float32) {
      let %r = ref(%x);
      let %a = ref_read(%r);
      let %b = multiply(%a, %x);
      let %u = ref_write(%r, %b);
      let %c = ref_read(%r);
      let %d = add(%c, %x);
      %d
    }"""
    assert gives(becomes(ToANormalForm(), before, expected), np.float32(3)) == 12


def test_matches_and_tuples() -> None:
    before = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) {
      %0 = exp(%x);
      match (%m) { Just(%y) => (add(%y, %0), %0).0, Nothing => %0 }
    }"""
    expected = """
    type Maybe[A] { Nothing, Just(A) }
    def @main(%m: Maybe[float32], %x: float32) {
      let %a = exp(%x);
      let %r = match (%m) {
        Just(%y) => { let %b = add(%y, %a); let %c = (%b, %a); let %d = %c.0; %d },
        Nothing => %a
      };
      %r
    }"""
    becomes(ToANormalForm(), before, expected)


def test_recursion_names_itself() -> None:
    text = """def @main(%n: int32) {
      let %f = fn (%k: int32) -> int32 { if (less(%k, 1)) { 0 } else { add(%k, %f(subtract(%k, 1))) } };
      %f(%n)
    }"""
    assert gives(ToANormalForm()(module(text)), np.int32(4)) == 10


@pytest.mark.parametrize("attr", ["Primitive", "Compiler"])
def test_functions_that_are_one_operator_stay_as_they_are(attr: str) -> None:
    x, y = Var("x", S), Var("y", S)
    fused = Function((y,), relay.exp(y + y)).with_attr(attr, 1)
    r = Var("r")
    check(Function((x,), Call(fused, (x,))), Function((x,), lets((g := Var("g"), fused), (r, Call(g, (x,))), body=r)))


def test_variables_that_are_bound_twice_are_told_apart() -> None:
    x, y = Var("x", S), Var("y", S)
    inner = Function((x,), x + x)
    main = Function((y,), Call(inner, (Call(inner, (y,)) + Call(Function((x,), x * x), (y,)),)))
    assert gives(ToANormalForm()(IRModule.from_expr(main)), np.float32(3)) == 30


def test_a_chain_that_doubles_takes_linear_time() -> None:
    x = Var("x", S)
    body: Expr = x
    for _ in range(3000):
        body = body + body
    function = Function((x,), body)
    after = to_anf(function)
    assert structural_equal(after, to_anf(function))
    count, let = 0, after.body
    while isinstance(let, Let):
        count, let = count + 1, let.body
    assert count == 3000


def test_there_and_back() -> None:
    x, c = Var("x", S), Var("c", relay.scalar_type("bool"))
    shared = relay.exp(x) * x
    function = Function((c, x), relay.Tuple((If(c, shared, shared + x), shared)))
    typed = InferType()(IRModule.from_expr(function))
    assert_structural_equal(ToGraphNormalForm()(ToANormalForm()(typed)), typed)
